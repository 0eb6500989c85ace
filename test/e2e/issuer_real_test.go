package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// A realIssuer is a third-party program that issues tokens.
type realIssuer struct {
	start func(t *testing.T) (issuer string)
	// token gets a token for the audience from the issuer.
	token func(t *testing.T, issuer, audience string) string
	// audience is the audience that the issuer's tokens have. It is empty if the client can choose the audience.
	audience string
}

var realOnes = map[string]realIssuer{
	"dex":           {startDex, dexToken, "job"},
	"oidc-provider": {startProvider, providerToken, ""},
}

// launch runs a program until the test ends, and returns a scanner for its standard output.
func launch(t *testing.T, name string, args ...string) *bufio.Scanner {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // an error is expected, because the process was killed
	})
	return bufio.NewScanner(out)
}

func startDex(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close() // closes the port, because dex opens its own listener
	issuer := "http://" + addr + "/dex"
	config := filepath.Join(t.TempDir(), "dex.yaml")
	text := fmt.Sprintf(`
issuer: %s
storage: {type: memory}
web: {http: %s}
enablePasswordDB: true
oauth2: {passwordConnector: local, grantTypes: [password, authorization_code]}
staticClients: [{id: job, name: job, secret: a-secret-of-a-test, redirectURIs: ["http://127.0.0.1/"]}]
staticPasswords: [{email: job@example.com, username: job, userID: "1234", `+
		`hash: "$2y$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"}]
`, issuer, addr)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, testprogram.Path(t, "dex"), "serve", config)
	awaitIssuer(t, issuer)
	return issuer
}

// awaitIssuer waits until an issuer serves its discovery document.
func awaitIssuer(t *testing.T, issuer string) {
	t.Helper()
	procUntil(t, issuer+" answers", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, issuer+"/.well-known/openid-configuration", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func dexToken(t *testing.T, issuer, _ string) string {
	t.Helper()
	got := askForToken(t, issuer+"/token", url.Values{
		"grant_type": {"password"}, "username": {"job@example.com"}, "password": {"password"}, "scope": {"openid"},
	})
	return got["id_token"]
}

func startProvider(t *testing.T) string {
	t.Helper()
	out := launch(t, testprogram.Path(t, "node/bin/node"), testprogram.Path(t, "oidc-provider/server.mjs"))
	if !out.Scan() {
		t.Fatalf("oidc-provider printed nothing: %v", out.Err())
	}
	awaitIssuer(t, out.Text())
	return out.Text()
}

func providerToken(t *testing.T, issuer, audience string) string {
	t.Helper()
	got := askForToken(t, issuer+"/token", url.Values{"grant_type": {"client_credentials"}, "resource": {audience}})
	return got["access_token"]
}

// askForToken requests a token from a token endpoint, as the client with the ID job.
func askForToken(t *testing.T, endpoint string, form url.Values) map[string]string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("job", "a-secret-of-a-test")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var fields map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&fields); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s returned %s: %v, %v", endpoint, resp.Status, fields, err)
	}
	texts := map[string]string{}
	for name, v := range fields {
		texts[name], _ = v.(string)
	}
	return texts
}

// TestRealIssuers checks that tokens from third-party issuers can be exchanged.
func TestRealIssuers(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	for name, real := range realOnes {
		t.Run(name, func(t *testing.T) {
			address := real.start(t)
			bearer := real.token(t, address, w.AuthURL)
			claims := said(t, bearer)
			subject, _ := claims["sub"].(string)
			trusting := func(issuer, subject string) string {
				return w.workload(t, issuer, func(m *iampb.Identity_ClaimMatch) {
					m.Sub = &iampb.Identity_ClaimMatch_Subject{Subject: subject}
					if real.audience != "" {
						m.Aud = &iampb.Identity_ClaimMatch_Audience{Audience: real.audience}
					}
				})
			}
			identity := trusting(address, subject)
			w.bind(t, string(w.Organization), identity, viewer)
			issued := w.exchange(t, bearer, identity)
			if act, _ := said(t, issued)["act"].(map[string]any); act["iss"] != address || act["sub"] != subject {
				t.Errorf("token claims %v", said(t, issued))
			}
			if code := w.status(t, issued, "/iam/v2beta1/groups/"+string(w.Organization)); code != http.StatusOK {
				t.Errorf("the token is refused: %d", code)
			}
			if _, st := w.exchangeGRPC(t, bearer, w.wish(trusting(address, "other"))); st.Code() != codes.PermissionDenied {
				t.Errorf("for another subject: %v", st)
			}
			if _, st := w.exchangeGRPC(t, bearer, w.wish(trusting(address+"/x", subject))); st.Code() != codes.PermissionDenied {
				t.Errorf("for another issuer: %v", st)
			}
			parts := strings.Split(bearer, ".")
			_, st := w.exchangeGRPC(t, parts[0]+"."+parts[1]+"."+strings.Repeat("A", len(parts[2])), w.wish(identity))
			if st.Code() != codes.Unauthenticated {
				t.Errorf("with another signature: %v", st)
			}
		})
	}
}
