package signin

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
)

// fetch sends a request to a hand-off as a browser does, without following redirects.
func fetch(t *testing.T, method, address, host string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	resp, err := transmit(nil, req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func newHandOff(t *testing.T) *handOff {
	t.Helper()
	h, err := listen(t.Context(), "https://auth.example.com", false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

func TestHandOff(t *testing.T) {
	h := newHandOff(t)
	if u, err := url.Parse(h.address()); err != nil || u.Query().Get("token") != "true" ||
		u.Query().Get("error") != "true" {
		t.Errorf("address = %s, want token=true and error=true in it", h.address())
	}
	resp, _ := fetch(t, "GET", h.origin+h.path+"?code=first&state=s", "")
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "/" {
		t.Errorf("answer = %s to %q, want a redirect to an address without the code", resp.Status, to)
	}
	fetch(t, "GET", h.origin+h.path+"?code=second&state=s", "")
	_, page := fetch(t, "GET", h.origin+"/", "")
	if !strings.Contains(page, "You are signed in") {
		t.Errorf("page = %s", page)
	}
	query, err := h.wait(t.Context())
	if err != nil || query.Get("code") != "first" {
		t.Errorf("received %v, %v; want what came first", query, err)
	}
}

func TestHandOffRefuses(t *testing.T) {
	h := newHandOff(t)
	tests := map[string]struct {
		method, path, host string
		status             int
	}{
		"a guess":                     {"GET", "/callback?code=x", "", http.StatusNotFound},
		"another guess":               {"GET", "/callback/x?code=x", "", http.StatusNotFound},
		"a name that leads here":      {"GET", h.path + "?code=x", "evil.example", http.StatusMisdirectedRequest},
		"a form of somebody else's":   {"POST", h.path + "?code=x", "", http.StatusMethodNotAllowed},
		"the end before it has begun": {"GET", "/", "", http.StatusNotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if resp, _ := fetch(t, tt.method, h.origin+tt.path, tt.host); resp.StatusCode != tt.status {
				t.Errorf("status = %s, want %d", resp.Status, tt.status)
			}
			select {
			case q := <-h.received:
				t.Errorf("it took %v", q)
			default:
			}
		})
	}
}

func TestHandOffTellsWhatWentWrong(t *testing.T) {
	h := newHandOff(t)
	fetch(t, "GET", h.origin+h.path+"?"+url.Values{"error": {"<b>not registered</b>"}, "status_code": {"404"}}.Encode(),
		"")
	resp, page := fetch(t, "GET", h.origin+"/", "")
	if !strings.Contains(page, "&lt;b&gt;not registered") || !strings.Contains(page, "not signed in") {
		t.Errorf("page = %s, want the reason, as text", page)
	}
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		!strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("policy = %q", policy)
	}
}

func TestBrowserCommand(t *testing.T) {
	tests := map[string]struct {
		system string
		env    map[string]string
		want   string
	}{
		"a desktop": {"linux", map[string]string{"DISPLAY": ":0"}, "xdg-open"},
		"wayland":   {"linux", map[string]string{"WAYLAND_DISPLAY": "wayland-0"}, "xdg-open"},
		"a server":  {"linux", nil, ""},
		"a mac":     {"darwin", nil, "open"},
		"windows":   {"windows", nil, "rundll32 url.dll,FileProtocolHandler"},
		"the person's own": {
			"linux", map[string]string{"BROWSER": "firefox --new-window:chromium"}, "firefox --new-window",
		},
		"none, as they wish":   {"darwin", map[string]string{"BROWSER": "none"}, ""},
		"none, on any display": {"linux", map[string]string{"BROWSER": "none", "DISPLAY": ":0"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(browser(tt.system, func(key string) string { return tt.env[key] }), " ")
			if got != tt.want {
				t.Errorf("browser = %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSignInHere simulates the browser and the issuer of a sign-in, and checks the tokens
// or the error.
func TestSignInHere(t *testing.T) {
	t.Setenv("BROWSER", "none")
	tests := map[string]struct {
		// bring returns the query of the browser's redirect. Its argument is the query of the
		// command's request.
		bring func(url.Values) url.Values
		err   string
	}{
		"a code": {
			func(q url.Values) url.Values { return url.Values{"code": {"c"}, "state": q["state"]} }, "",
		},
		"of another sign-in": {
			func(url.Values) url.Values { return url.Values{"code": {"c"}, "state": {"other"}} }, "completed another sign-in",
		},
		"without a state": {
			func(url.Values) url.Values { return url.Values{"code": {"c"}} }, "completed another sign-in",
		},
		"tokens of somebody else": {
			func(url.Values) url.Values { return url.Values{"token": {"t"}, "refresh_token": {"r"}} }, "not signed in",
		},
		"a refusal": {
			func(url.Values) url.Values { return url.Values{"error": {"no such person"}, "status_code": {"404"}} },
			"not signed in: no such person",
		},
		"a code that is not good": {
			func(q url.Values) url.Values { return url.Values{"code": {"used"}, "state": q["state"]} }, "was used before",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, said := quietAgent(t)
			issuer, asked := fakeIssuer(t)
			type result struct {
				t   tokens
				err error
			}
			ended := make(chan result, 1)
			go func() {
				got, err := a.signInHere(t.Context(), issuer, Person{audience: "https://api.example.com"})
				ended <- result{got, err}
			}()
			start, err := url.Parse(<-said)
			if err != nil {
				t.Fatal(err)
			}
			q := start.Query()
			asked <- q.Get("code_challenge")
			back, err := url.Parse(q.Get("redirect"))
			if err != nil {
				t.Fatal(err)
			}
			fetch(t, "GET", "http://"+back.Host+back.Path+"?"+tt.bring(q).Encode(), "")
			fetch(t, "GET", "http://"+back.Host+"/", "")
			got := <-ended
			if tt.err == "" && (got.err != nil || got.t != tokens{Access: "access", Refresh: "refresh"}) {
				t.Errorf("signed in with %v, %v", got.t, got.err)
			}
			if tt.err != "" && (got.err == nil || !strings.Contains(got.err.Error(), tt.err)) {
				t.Errorf("error = %v, want %q", got.err, tt.err)
			}
		})
	}
}

// quietAgent returns an agent that sends the address to open on a channel.
func quietAgent(t *testing.T) (*Agent, <-chan string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	addresses := make(chan string, 1)
	go func() {
		for scan := bufio.NewScanner(r); scan.Scan(); {
			if _, address, ok := strings.Cut(scan.Text(), "sign in at "); ok {
				addresses <- address
			}
		}
	}()
	return newTestAgent(w), addresses
}

// fakeIssuer issues tokens for the code c if the request proves the challenge.
func fakeIssuer(t *testing.T) (address string, challenge chan<- string) {
	t.Helper()
	asked := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if r.URL.Path != "/oauth/token" || r.PostFormValue("code") != "c" ||
			base64.RawURLEncoding.EncodeToString(sum[:]) != <-asked {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error": "invalid_grant", "error_description": "the code was used before"}`))
			return
		}
		_, _ = w.Write([]byte(`{"access_token": "access", "refresh_token": "refresh"}`))
	}))
	t.Cleanup(srv.Close)
	return srv.URL, asked
}
