package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/holdfast-dev/holdfast/client"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

// A far is a fake server. Tests use it to check what a client sends, or to get an answer
// that a real server does not give.
type far struct {
	oidcpb.UnimplementedSecurityTokenServiceServer
	iampb.UnimplementedGroupsServiceServer
	advisoriespb.UnimplementedAdvisoryReadingServiceServer
	address string

	life time.Duration                                 // lifetime of the tokens that it issues
	list func(*iampb.ListGroupsRequest) (*page, error) // returns the answer to a list request

	mu        sync.Mutex
	refreshes int      // number of refreshes so far; the refresh token refresh-N works once
	exchanges []string // token, identity and audiences of each exchange
	refused   []string // access tokens that the API refuses
	calls     []string // bearer tokens of the calls to the API
	asked     []*iampb.ListGroupsRequest
}

type page = iampb.ListGroupsResponse

func startFar(t *testing.T, options ...grpc.ServerOption) *far {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &far{address: "http://" + listener.Addr().String(), life: time.Hour}
	s := grpc.NewServer(options...)
	oidcpb.RegisterSecurityTokenServiceServer(s, f)
	iampb.RegisterGroupsServiceServer(s, f)
	advisoriespb.RegisterAdvisoryReadingServiceServer(s, f)
	go func() { _ = s.Serve(listener) }() // returns after Stop
	t.Cleanup(s.Stop)
	return f
}

// dial connects with cfg, to the fake server if cfg has no address.
func (f *far) dial(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	if cfg.Address == "" {
		cfg.Address = f.address
	}
	c, err := client.Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// access returns a token like the tokens of the fake server.
func access(audience, id string, life time.Duration) string {
	claims, _ := json.Marshal(map[string]any{
		"aud": audience, "exp": time.Now().Add(life).Unix(), "jti": id, "sub": "someone",
	})
	return unsigned(string(claims))
}

func bearerOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.TrimPrefix(strings.Join(md.Get("authorization"), " and "), "Bearer ")
}

// refuse returns an error in the server's format.
func refuse(code codes.Code, text string, details ...protoadapt.MessageV1) error {
	st, err := status.New(code, text).WithDetails(append([]protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: "REASON", Domain: "iam.example.com"},
	},
		details...)...)
	if err != nil {
		return err
	}
	return st.Err()
}

func (f *far) ExchangeRefreshToken(
	ctx context.Context, req *oidcpb.ExchangeRefreshTokenRequest,
) (*oidcpb.TokenPair, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bearerOf(ctx) != fmt.Sprint("refresh-", f.refreshes) {
		return nil, refuse(codes.Unauthenticated, "Unauthenticated: the session has ended")
	}
	f.refreshes++
	return &oidcpb.TokenPair{
		Token:        &oidcpb.RawToken{Token: access(req.GetAud()[0], fmt.Sprint(f.refreshes), f.life)},
		RefreshToken: &oidcpb.RawToken{Token: fmt.Sprint("refresh-", f.refreshes)},
	}, nil
}

func (f *far) Exchange(ctx context.Context, req *oidcpb.ExchangeRequest) (*oidcpb.RawToken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exchanges = append(f.exchanges,
		fmt.Sprintf("%s as %q for %s", bearerOf(ctx), req.GetIdentity(), strings.Join(req.GetAud(), ",")))
	return &oidcpb.RawToken{Token: access(req.GetAud()[0], fmt.Sprint("x", len(f.exchanges)), f.life)}, nil
}

// authenticate records the bearer of a call, and refuses the tokens in f.refused.
func (f *far) authenticate(ctx context.Context) error {
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-request-id", "request-1"))
	f.mu.Lock()
	defer f.mu.Unlock()
	bearer := bearerOf(ctx)
	f.calls = append(f.calls, bearer)
	for _, r := range f.refused {
		if r == bearer {
			return refuse(codes.Unauthenticated, "Unauthenticated: the token is not taken")
		}
	}
	return nil
}

func (f *far) GetGroup(ctx context.Context, req *iampb.GetGroupRequest) (*iampb.Group, error) {
	if err := f.authenticate(ctx); err != nil {
		return nil, err
	}
	return &iampb.Group{Uid: req.GetUid()}, nil
}

func (f *far) ListGroups(ctx context.Context, req *iampb.ListGroupsRequest) (*page, error) {
	if err := f.authenticate(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.asked = append(f.asked, req)
	f.mu.Unlock()
	if req.GetPageToken() == "expired" {
		_ = grpc.SetHeader(ctx, metadata.Pairs("holdfast-page-token", "expired"))
	}
	return f.list(req)
}

func (f *far) ExportAdvisories(
	req *advisoriespb.ExportAdvisoriesRequest, stream advisoriespb.AdvisoryReadingService_ExportAdvisoriesServer,
) error {
	if err := f.authenticate(stream.Context()); err != nil {
		return err
	}
	if err := stream.Send(&advisoriespb.ExportAdvisoriesResponse{Data: []byte("one")}); err != nil {
		return err
	}
	if req.GetFormat() == "bad" {
		return refuse(codes.InvalidArgument, "Invalid argument: format: no", &errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "format", Description: "no"}},
		})
	}
	return nil
}

// get calls the API once.
func get(ctx context.Context, c *client.Client) error {
	_, err := iampb.NewGroupsServiceClient(c).GetGroup(ctx, &iampb.GetGroupRequest{Uid: "u"})
	return err
}
