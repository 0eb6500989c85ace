package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// maxAnswer is more than a page of the largest resources.
const maxAnswer = 100 << 20

// A client calls the methods of one server.
type client struct {
	*grpc.ClientConn
	app *app
	api string

	mu    sync.Mutex
	token string
	renew func(ctx context.Context, old string) (string, error) // nil: there is no other token
}

// client returns the connection that all commands of a run share. Nothing has
// been sent to the server yet: one that is not there shows at the first call.
func (a *app) client(ctx context.Context) (*client, error) {
	if a.conn != nil {
		return a.conn, nil
	}
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	if c.token == "" {
		c.Close()
		p := &problem{text: "there is no token to show to " + c.api, code: exitUnauthenticated}
		p.hints = []string{noTokenHint}
		return nil, p
	}
	a.conn = c
	return c, nil
}

const noTokenHint = "sign in: holdfast auth login; in development: holdfast config use-dev; or put a token in HOLDFAST_TOKEN"

func (a *app) connect(ctx context.Context) (*client, error) {
	api, err := a.server()
	if err != nil {
		return nil, err
	}
	c, err := a.dial(api)
	if err != nil {
		return nil, err
	}
	cred, err := a.credential(ctx, api.value)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.token, c.renew = cred.token, cred.renew
	if c.token != "" {
		a.warnInTheOpen(api.value)
	}
	return c, nil
}

// server is the address of the server, which must be set.
func (a *app) server() (settingValue, error) {
	api, err := a.value("api")
	if err == nil && api.value == "" {
		p := usage("no server is set")
		p.hints = []string{"run: holdfast config set api https://holdfast.example.com, or set HOLDFAST_API"}
		return api, p
	}
	return api, err
}

// dial makes a connection that has no token yet.
func (a *app) dial(address settingValue) (*client, error) {
	u, err := url.Parse(address.value)
	if err != nil {
		return nil, err
	}
	security := insecure.NewCredentials()
	if u.Scheme == "https" {
		trusted, err := a.tls()
		if err != nil {
			return nil, err
		}
		security = credentials.NewTLS(trusted)
	}
	conn, err := grpc.NewClient(hostPort(u),
		grpc.WithTransportCredentials(security), grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("holdfast/"+clientVersion()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, usage("%s: %v", address.origin, err)
	}
	return &client{ClientConn: conn, app: a, api: address.value}, nil
}

// warnInTheOpen warns of a token that others can read on its way.
func (a *app) warnInTheOpen(address string) {
	if u, err := url.Parse(address); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		a.warn("the token goes to " + address + " without encryption")
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// tls trusts the system's certificates and those of ca_file.
func (a *app) tls() (*tls.Config, error) {
	file, err := a.value("ca_file")
	if err != nil || file.value == "" {
		return &tls.Config{MinVersion: tls.VersionTLS12}, err
	}
	text, err := os.ReadFile(file.value)
	if err != nil {
		return nil, usage("%s: %v", file.origin, err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, usage("%s: there is no certificate in %s", file.origin, file.value)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}

// call calls one method. Its error is a problem; flags tells it which flag sets
// a field that the server does not like. If the token is not good any more, and
// another can be had, it calls again.
func (c *client) call(ctx context.Context, method protoreflect.MethodDescriptor, req proto.Message, flags map[string]string) (protoreflect.Message, error) {
	token := c.bearer()
	resp, err := c.callWith(ctx, method, req, token)
	if status.Code(err) == codes.Unauthenticated && c.renew != nil {
		if token, err = c.another(ctx, token); err != nil {
			return nil, err
		}
		resp, err = c.callWith(ctx, method, req, token)
	}
	if err != nil {
		return nil, refusal{c.api, status.Convert(err), flags}.problem()
	}
	return resp, nil
}

func (c *client) bearer() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// another gets a token in place of one that was refused. Of calls that run at
// the same time, one does.
func (c *client) another(ctx context.Context, refused string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != refused {
		return c.token, nil
	}
	token, err := c.renew(ctx, refused)
	if err == nil {
		c.token = token
	}
	return token, err
}

func (c *client) callWith(ctx context.Context, method protoreflect.MethodDescriptor, req proto.Message, token string) (protoreflect.Message, error) {
	resp := newMessage(method.Output())
	ctx, cancel := context.WithTimeout(ctx, c.app.flags.timeout)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	name := string(method.Parent().FullName()) + "/" + string(method.Name())
	var header metadata.MD
	start := time.Now()
	err := c.Invoke(ctx, "/"+name, req, resp.Interface(), grpc.Header(&header))
	if c.app.flags.verbose {
		id := "none"
		if ids := header.Get("x-request-id"); len(ids) > 0 {
			id = ids[0]
		}
		c.app.note("%s %s in %s, request %s", name, status.Code(err), time.Since(start).Round(100*time.Microsecond), id)
	}
	for _, text := range header.Get("holdfast-warning") {
		c.app.warn(text)
	}
	return resp, err
}

// newMessage returns an empty message of a type that is linked in.
func newMessage(d protoreflect.MessageDescriptor) protoreflect.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	must(err)
	return t.New()
}
