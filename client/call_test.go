package client_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/client"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

func proof(token string) client.Proof {
	return func(context.Context, string, string) (string, error) { return token, nil }
}

// TestCredentials: every credential gets a token once, and a new token if the server
// refuses the first one. The calls succeed.
func TestCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(t *testing.T, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		credential client.Credential
		want       []string // expected exchanges, before and after the server refuses the first token
	}{
		"a refresh token": {client.RefreshToken("refresh-0"), nil},
		"a file": {
			client.Workload{Identity: "uid", Proof: client.File(file)},
			[]string{`from-file as "uid" for ADDRESS`, `fresh-file as "uid" for ADDRESS`},
		},
		"a function": {
			client.Workload{Identity: "uid", Proof: proof("made")},
			[]string{`made as "uid" for ADDRESS`, `made as "uid" for ADDRESS`},
		},
		"a proof without an identity": {
			client.Workload{Proof: proof("made")}, []string{`made as "" for ADDRESS`, `made as "" for ADDRESS`},
		},
		"the token of the platform": {
			client.Workload{Identity: "uid"}, []string{`from-job as "uid" for ADDRESS`, `from-job as "uid" for ADDRESS`},
		},
	}
	t.Setenv("HOLDFAST_ID_TOKEN", "from-job")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			write(t, "from-file\n")
			f := startFar(t)
			c := f.dial(t, client.Config{Credential: tt.credential})
			for range 3 {
				if err := get(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			first := f.calls[0]
			if len(f.exchanges)+f.refreshes != 1 || !slices.Equal(f.calls, []string{first, first, first}) {
				t.Fatalf("after three calls: %d exchanges, %d refreshes, bearers %q", len(f.exchanges), f.refreshes, f.calls)
			}
			write(t, "fresh-file")
			f.refused = []string{first}
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if err := get(t.Context(), c); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if len(f.exchanges)+f.refreshes != 2 {
				t.Errorf("after the token was refused: %d exchanges, %d refreshes", len(f.exchanges), f.refreshes)
			}
			for i := range tt.want {
				tt.want[i] = strings.ReplaceAll(tt.want[i], "ADDRESS", f.address)
			}
			if diff := cmp.Diff(tt.want, f.exchanges); diff != "" {
				t.Errorf("exchanges (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStaticToken: a static token is sent unchanged. If the server refuses it, the call
// fails with the server's error and is not repeated.
func TestStaticToken(t *testing.T) {
	for name, token := range map[string]string{
		"a token of the server": access("elsewhere", "1", 0), "an opaque token": "opaque",
	} {
		t.Run(name, func(t *testing.T) {
			f := startFar(t)
			c := f.dial(t, client.Config{Credential: client.Token(token)})
			if err := get(t.Context(), c); err != nil || !slices.Equal(f.calls, []string{token}) {
				t.Fatalf("bearers %q, %v", f.calls, err)
			}
			f.refused = []string{token}
			err := get(t.Context(), c)
			if status.Code(err) != codes.Unauthenticated || len(f.calls) != 2 {
				t.Errorf("%d calls, %v", len(f.calls), err)
			}
		})
	}
}

// TestRenewalRefused: if a renewal is refused, the call fails with an error that names
// the issuer.
func TestRenewalRefused(t *testing.T) {
	f, issuer := startFar(t), startFar(t)
	c := f.dial(t, client.Config{Issuer: issuer.address, Credential: client.RefreshToken("stolen")})
	err := get(t.Context(), c)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || status.Code(err) != codes.Unauthenticated || e.Address != issuer.address ||
		!strings.HasSuffix(e.Method, "/ExchangeRefreshToken") || len(f.calls) > 0 {
		t.Errorf("error = %v (%+v), and the server saw %q", err, e, f.calls)
	}
	if strings.Contains(fmt.Sprintf("%v %+v", err, err), "stolen") {
		t.Errorf("the error shows the token: %v", err)
	}
}

// TestNoToken: a text that is not a token is neither sent nor shown in an error.
func TestNoToken(t *testing.T) {
	f := startFar(t)
	c := f.dial(t, client.Config{Credential: client.Workload{Identity: "uid", Proof: proof("hush hush")}})
	_, exchanged := c.Issuer().Exchange(t.Context(), "", &oidcpb.ExchangeRequest{})
	_, refreshed := c.Issuer().Refresh(t.Context(), "hush\nhush")
	for name, err := range map[string]error{
		"a proof of two words": get(t.Context(), c), "nothing": exchanged, "two lines": refreshed,
	} {
		if err == nil || !strings.Contains(err.Error(), "not a token") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(f.exchanges)+len(f.calls) > 0 {
		t.Errorf("the server saw %q, %q", f.exchanges, f.calls)
	}
}

// TestNoProof: if a workload cannot get its proof, the client makes no call.
func TestNoProof(t *testing.T) {
	f := startFar(t)
	missing := filepath.Join(t.TempDir(), "token")
	c := f.dial(t, client.Config{Credential: client.Workload{Identity: "uid", Proof: client.File(missing)}})
	if err := get(t.Context(), c); !errors.Is(err, fs.ErrNotExist) || len(f.calls)+len(f.exchanges) > 0 {
		t.Errorf("error = %v, and the server saw %q, %q", err, f.calls, f.exchanges)
	}
	export := &advisoriespb.ExportAdvisoriesRequest{}
	advisories := advisoriespb.NewAdvisoryReadingServiceClient(c)
	if _, err := advisories.ExportAdvisories(t.Context(), export); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a stream: %v", err)
	}
}

func TestNoCredential(t *testing.T) {
	f := startFar(t)
	c := f.dial(t, client.Config{})
	if err := get(t.Context(), c); err != nil || !slices.Equal(f.calls, []string{""}) {
		t.Errorf("bearers %q, %v", f.calls, err)
	}
	if _, err := c.Token(t.Context()); !errors.Is(err, client.ErrNoCredential) {
		t.Errorf("a token without a credential: %v", err)
	}
	c = f.dial(t, client.Config{Credential: client.RefreshToken("")})
	if err := get(t.Context(), c); !errors.Is(err, client.ErrNoCredential) {
		t.Errorf("an empty refresh token: %v", err)
	}
}

// TestTokensStayPrivate: tokens are not sent unencrypted, even if a dial option makes the
// connection insecure.
func TestTokensStayPrivate(t *testing.T) {
	f := startFar(t)
	there := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(f.address, "http://"))
	}
	redirected := []grpc.DialOption{
		grpc.WithContextDialer(there), grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
	tests := map[string]struct {
		cfg  client.Config
		sent bool
	}{
		"to this machine":           {client.Config{Address: f.address}, true},
		"to a name of this machine": {client.Config{Address: "http://localhost:1"}, true},
		"elsewhere":                 {client.Config{Address: "http://198.51.100.1"}, false},
		"elsewhere, allowed":        {client.Config{Address: "http://198.51.100.1", InTheOpen: true}, true},
		"TLS removed":               {client.Config{Address: address}, false},
		"TLS removed, allowed":      {client.Config{Address: address, InTheOpen: true}, false},
		"TLS removed, this machine": {client.Config{Address: "https://127.0.0.1"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f.exchanges = nil
			tt.cfg.Options = redirected
			c := f.dial(t, tt.cfg)
			_, err := c.Issuer().Exchange(t.Context(), "secret", &oidcpb.ExchangeRequest{})
			if (err == nil) != tt.sent || (len(f.exchanges) == 1) != tt.sent {
				t.Errorf("sent %q, %v; want it sent: %v", f.exchanges, err, tt.sent)
			}
		})
	}
}

// TestTLS: no token is sent to a server with an unknown certificate. If CAFile contains
// the certificate, calls succeed.
func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler()) // only its certificate is used
	defer web.Close()
	f := startFar(t, grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	at := strings.Replace(f.address, "http:", "https:", 1)
	stranger := f.dial(t, client.Config{Address: at, Credential: client.Token("t")})
	if err := get(t.Context(), stranger); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "x509: ") || len(f.calls) > 0 {
		t.Errorf("without the certificate: %v, and the server saw %q", err, f.calls)
	}
	friend := f.dial(t, client.Config{Address: at, CAFile: file, Credential: client.Token("t")})
	if err := get(t.Context(), friend); err != nil || !slices.Equal(f.calls, []string{"t"}) {
		t.Errorf("with it: %v, and the server saw %q", err, f.calls)
	}
}

func TestBadSettings(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	const good = "https://holdfast.example.com"
	tests := map[string]struct {
		cfg  client.Config
		want []string // expected lines of the error
	}{
		"nothing": {
			client.Config{}, []string{`Address: "" is not an address like https://holdfast.example.com`},
		},
		"a host alone": {
			client.Config{Address: "holdfast.example.com:443"}, []string{`Address: "holdfast.example.com:443" is not`},
		},
		"a port alone": {client.Config{Address: "https://:443"}, []string{`Address: "https://:443" is not`}},
		"a path": {
			client.Config{Address: good + "/iam"}, []string{`Address: "https://holdfast.example.com/iam" is not`},
		},
		"a query":            {client.Config{Address: good + "?x"}, []string{"Address: "}},
		"a user":             {client.Config{Address: "https://me@holdfast.example.com"}, []string{"Address: "}},
		"another scheme":     {client.Config{Address: "ftp://holdfast.example.com"}, []string{"Address: "}},
		"control characters": {client.Config{Address: "https://h\x00"}, []string{"Address: "}},
		"a bad issuer":       {client.Config{Address: good, Issuer: "issuer"}, []string{`Issuer: "issuer" is not`}},
		"a token in the open": {
			client.Config{Address: "http://h.example.com", Credential: client.Token("t")},
			[]string{"Address: tokens would be sent unencrypted: use https://"},
		},
		"an issuer in the open": {
			client.Config{Address: good, Issuer: "http://h.example.com", Credential: client.Token("t")},
			[]string{"Issuer: tokens would be sent unencrypted: use https://"},
		},
		"a missing file": {
			client.Config{Address: good, CAFile: filepath.Join(dir, "missing")}, []string{"CAFile: open "},
		},
		"a file without certificates": {
			client.Config{Address: good, CAFile: empty}, []string{"CAFile: there is no certificate in " + empty},
		},
		"no time": {client.Config{Address: good, Timeout: -1}, []string{"Timeout: -1ns is negative"}},
		"no token": {
			client.Config{Address: good, Credential: client.Token("")}, []string{"Credential: the token is empty or contains"},
		},
		"a token of two lines": {
			client.Config{Address: good, Credential: client.Token("hush\nhush")}, []string{"Credential: the token is empty"},
		},
		"a refresh token with gaps": {
			client.Config{Address: good, Credential: client.RefreshToken("hush hush")},
			[]string{"Credential: the token is empty or contains"},
		},
		"several mistakes": {
			client.Config{Address: "x", Issuer: "y", CAFile: empty, Timeout: -1, Credential: client.Token("")},
			[]string{`Address: "x" is not`, `Issuer: "y" is not`, "Timeout: ", "CAFile: ", "Credential: "},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := client.Dial(tt.cfg)
			if err == nil {
				c.Close()
				t.Fatal("there is no error")
			}
			got := strings.Split(err.Error(), "\n")
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) || strings.Contains(err.Error(), "hush") {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

// TestErrorOfStream: the error of a stream has all details that the server sent.
func TestErrorOfStream(t *testing.T) {
	f := startFar(t)
	c := f.dial(t, client.Config{Credential: client.Token("t")})
	stream, err := advisoriespb.NewAdvisoryReadingServiceClient(c).ExportAdvisories(t.Context(),
		&advisoriespb.ExportAdvisoriesRequest{Format: "bad"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || string(m.GetData()) != "one" || !slices.Equal(f.calls, []string{"t"}) {
		t.Fatalf("received %v, %v with %q", m, err, f.calls)
	}
	_, err = stream.Recv()
	e, ok := errors.AsType[*client.Error](fmt.Errorf("export: %w", err))
	if !ok || e.RequestID != "request-1" || e.Reason() != "REASON" || e.Address != f.address ||
		e.Method != "/holdfast.advisories.v1.AdvisoryReadingService/ExportAdvisories" {
		t.Fatalf("error = %#v", err)
	}
	if got := e.Fields(); len(got) != 1 || got[0].GetField() != "format" || got[0].GetDescription() != "no" {
		t.Errorf("fields = %v", got)
	}
	if _, ok := client.Detail[*errdetails.QuotaFailure](err); ok {
		t.Error("there is a detail that the server did not send")
	}
	stream, err = advisoriespb.NewAdvisoryReadingServiceClient(c).ExportAdvisories(t.Context(),
		&advisoriespb.ExportAdvisoriesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF {
		t.Errorf("a stream that ends well ends with %v", err)
	}
}

// TestUnanswered: a call whose context ended and a call that the server did not answer
// have different errors.
func TestUnanswered(t *testing.T) {
	f := startFar(t)
	c := f.dial(t, client.Config{Credential: client.Token("t")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := get(ctx, c); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("canceled: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := get(ctx, c); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("too late: %v", err)
	}
	nobody := f.dial(t, client.Config{Address: "http://127.0.0.1:1", Credential: client.Token("t")})
	err := get(t.Context(), nobody)
	if e, ok := errors.AsType[*client.Error](err); !ok || status.Code(err) != codes.Unavailable ||
		e.Address != "http://127.0.0.1:1" || e.RequestID != "" || e.Reason() != "" || e.Fields() != nil {
		t.Errorf("nobody there: %#v", err)
	}
}

func TestAudience(t *testing.T) {
	for address, want := range map[string]string{
		"https://H.example.com/": "https://h.example.com", "https://h.example.com:443": "https://h.example.com",
		"http://127.0.0.1:8080": "http://127.0.0.1:8080", "http://h:80": "http://h", "https://h:80": "https://h:80",
		"http://[::1]:80": "http://[::1]",
	} {
		if got := client.Audience(address); got != want {
			t.Errorf("audience of %s = %s, want %s", address, got, want)
		}
	}
	for address, want := range map[string]bool{
		"https://h.example.com": false, "http://h.example.com": true, "http://localhost": false,
		"http://127.1.2.3:8080": false, "http://[::1]:8080": false,
		"http://localhost.example.com": true, "http://10.0.0.1": true, "http://0.0.0.0": true,
	} {
		if got := client.InTheOpen(address); got != want {
			t.Errorf("%s in the open: %v, want %v", address, got, want)
		}
	}
}

// FuzzAddress: every accepted address has one canonical form.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{
		"", "https://h", "http://[::1]:80", "https://h:443/", "http://h:99999", "https://%41", "http://[fe80::1%25en0]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if client.CheckAddress(s) != nil {
			return
		}
		once := client.Audience(s)
		if err := client.CheckAddress(once); err != nil || client.Audience(once) != once ||
			client.InTheOpen(once) != client.InTheOpen(s) {
			t.Errorf("%q becomes %q (%v), and that %q", s, once, err, client.Audience(once))
		}
	})
}
