package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

// An issuer is a fake issuer. Unlike the server's issuer, it gives workloads refresh
// tokens. Each refresh token works once.
type issuer struct {
	oidcpb.UnimplementedSecurityTokenServiceServer
	address string

	mu        sync.Mutex
	refreshes int
	exchanges []string // bearer, identity and audience of each exchange
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{address: "http://" + listener.Addr().String()}
	s := grpc.NewServer()
	oidcpb.RegisterSecurityTokenServiceServer(s, i)
	go func() { _ = s.Serve(listener) }() // returns after Stop
	t.Cleanup(s.Stop)
	t.Setenv("HOLDFAST_API", i.address)
	t.Setenv("HOLDFAST_TOKEN_STORE", "file")
	t.Setenv("HOLDFAST_CLIENT_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
	for _, v := range []string{
		"HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE", "HOLDFAST_IDENTITY", "HOLDFAST_IDENTITY_TOKEN_FILE", "HOLDFAST_ISSUER",
	} {
		t.Setenv(v, "")
	}
	return i
}

func bearerOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
}

func access(audience, id string, life time.Duration) string {
	claims, _ := json.Marshal(map[string]any{
		"aud": audience, "exp": time.Now().Add(life).Unix(), "jti": id, "sub": "someone",
	})
	return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}

func (i *issuer) ExchangeRefreshToken(
	ctx context.Context, req *oidcpb.ExchangeRefreshTokenRequest,
) (*oidcpb.TokenPair, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if want := fmt.Sprint("refresh-", i.refreshes); bearerOf(ctx) != want {
		return nil, status.Error(codes.Unauthenticated, "replayed")
	}
	i.refreshes++
	return &oidcpb.TokenPair{
		Token:        &oidcpb.RawToken{Token: access(req.GetAud()[0], fmt.Sprint(i.refreshes), time.Hour)},
		RefreshToken: &oidcpb.RawToken{Token: fmt.Sprint("refresh-", i.refreshes)},
	}, nil
}

func (i *issuer) Exchange(ctx context.Context, req *oidcpb.ExchangeRequest) (*oidcpb.RawToken, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.exchanges = append(i.exchanges, fmt.Sprintf("%s as %q for %s", bearerOf(ctx), req.GetIdentity(), req.GetAud()))
	return &oidcpb.RawToken{Token: access(req.GetAud()[0], fmt.Sprint("x", len(i.exchanges)), time.Hour)}, nil
}

func newTestAgent(stderr *os.File) *Agent {
	return &Agent{
		Console: output.NewConsole(os.Stdin, os.Stdout, stderr), Settings: &settings.Settings{}, Timeout: 10 * time.Second,
	}
}

// TestRefreshOnce: if many commands find an expired token at the same time, one of them
// renews it, and all use the new token. A second use of the refresh token would end the
// session.
func TestRefreshOnce(t *testing.T) {
	i := startIssuer(t)
	s := openSession(t, i.address)
	if err := s.begin(t.Context(), session{Issuer: i.address},
		tokens{Access: access(i.address, "0", -time.Hour), Refresh: "refresh-0"}); err != nil {
		t.Fatal(err)
	}
	const commands = 8
	got := make([]string, commands)
	var all sync.WaitGroup
	for n := range commands {
		all.Go(func() {
			var err error
			if got[n], err = newTestAgent(os.Stderr).TokenFor(t.Context(), i.address); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if i.refreshes != 1 {
		t.Errorf("%d refresh tokens were used, want 1", i.refreshes)
	}
	for _, token := range got {
		if token != got[0] || !holdfast.Serves(token, i.address, time.Now()) {
			t.Errorf("a command has the token %q", token)
		}
	}
	kept, err := s.vault().read(s.audience)
	if err != nil || kept.Refresh != "refresh-1" {
		t.Errorf("kept %+v, %v", kept, err)
	}
}

// TestRefreshRefused: if the issuer refuses a refresh, the session stays unchanged, and
// the hint is to sign in again.
func TestRefreshRefused(t *testing.T) {
	i := startIssuer(t)
	s := openSession(t, i.address)
	before := tokens{Access: access(i.address, "0", -time.Hour), Refresh: "refresh-stolen"}
	if err := s.begin(t.Context(), session{Issuer: i.address}, before); err != nil {
		t.Fatal(err)
	}
	_, err := newTestAgent(os.Stderr).TokenFor(t.Context(), i.address)
	if err == nil || strings.Contains(err.Error(), "stolen") {
		t.Errorf("error = %v", err)
	}
	if after, _ := s.vault().read(s.audience); after != before {
		t.Errorf("kept %+v", after)
	}
}

func TestCredential(t *testing.T) {
	uid := strings.Repeat("a", 40) + "/" + strings.Repeat("b", 16)
	other := strings.Repeat("a", 40) + "/" + strings.Repeat("c", 16)
	tests := map[string]struct {
		session  session
		expired  bool
		env      map[string]string
		audience string // audience of the token; if "", the API
		want     string // expected exchange
	}{
		"a session that is good": {session: session{Identity: uid, IdentityTokenFile: "FILE"}},
		"one whose token has expired": {
			session{Identity: uid, IdentityTokenFile: "FILE"}, true, nil, "", `from-file as "` + uid + `" for [API]`,
		},
		"one of the platform": {
			session{Identity: uid, Ambient: true}, true, map[string]string{"HOLDFAST_ID_TOKEN": "from-job"}, "",
			`from-job as "` + uid + `" for [API]`,
		},
		"another audience, proven again": {
			session{Identity: uid, IdentityTokenFile: "FILE"}, false, nil, "registry",
			`from-file as "` + uid + `" for [registry]`,
		},
		"another audience, with one's own": {session{}, false, nil, "registry", `KEPT as "" for [registry]`},
		"another audience, of a given token": {
			session{Identity: uid, IdentityTokenFile: "FILE"}, false, map[string]string{"HOLDFAST_TOKEN": "given"}, "registry",
			`given as "" for [registry]`,
		},
		"an identity of the settings": {
			session{}, false, map[string]string{"HOLDFAST_IDENTITY": uid, "HOLDFAST_ID_TOKEN": "from-job"}, "",
			`from-job as "` + uid + `" for [API]`,
		},
		"an identity of the settings, elsewhere": {
			session{Identity: other, Ambient: true}, false,
			map[string]string{"HOLDFAST_IDENTITY": uid, "HOLDFAST_ID_TOKEN": "from-job"}, "registry",
			`from-job as "` + uid + `" for [registry]`,
		},
		"an identity of the settings, which the session has": {
			session{Identity: uid, Ambient: true}, false, map[string]string{"HOLDFAST_IDENTITY": uid}, "", "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			i := startIssuer(t)
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.session.IdentityTokenFile != "" {
				tt.session.IdentityTokenFile = file
			}
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			life := time.Hour
			if tt.expired {
				life = -time.Hour
			}
			kept := access(i.address, "0", life)
			tt.session.Issuer = i.address
			if err := openSession(t, i.address).begin(t.Context(), tt.session, tokens{Access: kept}); err != nil {
				t.Fatal(err)
			}
			audience := tt.audience
			if audience == "" {
				audience = i.address
			}
			for range 2 { // if tokens are stored, the second call uses the token of the first call
				token, err := newTestAgent(os.Stderr).TokenFor(t.Context(), audience)
				if err != nil || !holdfast.Serves(token, audience, time.Now()) {
					t.Fatalf("token %q, %v", token, err)
				}
			}
			want := strings.NewReplacer("API", i.address, "KEPT", kept).Replace(tt.want)
			keeps := tt.env["HOLDFAST_IDENTITY"] == "" && tt.env["HOLDFAST_TOKEN"] == ""
			switch {
			case want == "" && len(i.exchanges) > 0:
				t.Errorf("exchanged %q, want nothing", i.exchanges)
			case want != "" && (len(i.exchanges) == 0 || i.exchanges[0] != want || (len(i.exchanges) == 1) != keeps):
				t.Errorf("exchanged %q, want %q", i.exchanges, want)
			}
			s := openSession(t, i.address)
			if err := s.locked(t.Context(), s.end); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(filepath.Join(s.files.dir, "*", "*token*")); len(left) > 0 {
				t.Errorf("after the end there is %q", left)
			}
		})
	}
}

func TestAudience(t *testing.T) {
	for _, bad := range []string{"", ".", "..", "a b", "a\n", `a\b`, "a,b", "/", strings.Repeat("a", 201)} {
		if checkAudience(bad) == nil {
			t.Errorf("%q is an audience", bad)
		}
	}
	for _, good := range []string{"https://h.example.com", "registry.example.com:5000", "../x/.."} {
		if err := checkAudience(good); err != nil {
			t.Error(err)
		}
	}
}
