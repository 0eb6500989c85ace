package e2e_test

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// ask sends a request as a script in the browser would. header contains alternating names and values.
func (b *signInBrowser) ask(method, path, body string, header ...string) shownPage {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.w.BaseURL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return shownPage{resp.StatusCode, string(got), resp.Header.Get("Location"), resp.Header}
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// identityOf returns the UID of the identity that belongs to an account.
func (w *world) identityOf(t *testing.T, p localPerson) string {
	t.Helper()
	accounts := must[*signinpb.ListAccountsResponse](t, w.overGRPC, w.Token, &signinpb.ListAccountsRequest{})
	for _, a := range accounts.GetAccounts() {
		if a.GetUid() == p.uid {
			return a.GetIdentityUid()
		}
	}
	t.Fatalf("no account %s", p.uid)
	return ""
}

// TestConsoleSession checks that the session cookie of the sign-in pages authenticates API requests of the console,
// and no other requests.
func TestConsoleSession(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		ann := w.personIn(t, w.Token, org, "ann@example.test", "a quiet violet anchor of ann")
		b := w.signInBrowser(t, "127.0.0.1")
		if !b.try("", ann.email, ann.password).in() {
			t.Fatal("sign-in failed")
		}
		const groups = "/iam/v2beta1/groups"
		sameOrigin := []string{"Holdfast-Console", "1", "Sec-Fetch-Site", "same-origin"}
		if p := b.ask("GET", groups, "", sameOrigin...); p.status != 200 || strings.Contains(p.body, org) ||
			p.header.Get("Cache-Control") != "no-store" {
			t.Errorf("answer to a person without a role: %d %s %v", p.status, p.body, p.header)
		}
		w.bind(t, org, w.identityOf(t, ann), string(resource.OwnerRole))
		if p := b.ask("GET", groups, "", sameOrigin...); p.status != 200 || !strings.Contains(p.body, org) {
			t.Errorf("answer to the owner: %d %s", p.status, p.body)
		}
		if p := b.ask("POST", groups+"/"+org, `{"name": "made-here"}`, sameOrigin...); p.status != 200 {
			t.Errorf("the owner creates a folder: %d %s", p.status, p.body)
		}
		w.sessionCountsNot(t, b, org)
		stranger := w.signInBrowser(t, "127.0.0.1")
		if p := stranger.ask("GET", groups, "", sameOrigin...); p.status != 401 || !strings.Contains(p.body, "sign in") {
			t.Errorf("without a session: %d %s", p.status, p.body)
		}
		stolen := w.signInBrowser(t, "127.0.0.1")
		stolen.Jar = b.Jar
		b.post("/signout", "csrf", csrfField.FindStringSubmatch(b.get("/account").body)[1])
		for _, who := range []*signInBrowser{b, stolen} {
			if p := who.ask("GET", groups, "", sameOrigin...); p.status != 401 {
				t.Errorf("after signing out: %d %s", p.status, p.body)
			}
		}
	})
}

// sessionCountsNot checks that the session cookie is not accepted in requests from pages of other sites, forms and
// programs.
func (w *world) sessionCountsNot(t *testing.T, b *signInBrowser, org string) {
	t.Helper()
	const console = "Holdfast-Console"
	type request struct {
		method, path string
		header       []string
		status       int
	}
	groups := "/iam/v2beta1/groups"
	origin := func(text string) []string { return []string{console, "1", "Origin", text} }
	for name, tt := range map[string]request{
		"a cookie alone":          {"GET", groups, nil, 401},
		"a form of another site":  {"POST", groups + "/" + org, []string{"Sec-Fetch-Site", "cross-site"}, 401},
		"a form of ours":          {"POST", groups + "/" + org, []string{"Sec-Fetch-Site", "same-origin"}, 401},
		"a page of another site":  {"GET", groups, []string{console, "1", "Sec-Fetch-Site", "cross-site"}, 403},
		"a page of the same site": {"GET", groups, []string{console, "1", "Sec-Fetch-Site", "same-site"}, 403},
		"an address typed":        {"GET", groups, []string{console, "1", "Sec-Fetch-Site", "none"}, 403},
		"two sites": {
			"GET", groups, []string{console, "1", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Site", "cross-site"}, 403,
		},
		"a lie about the origin": {
			"GET", groups, []string{console, "1", "Sec-Fetch-Site", "cross-site", "Origin", w.BaseURL}, 403,
		},
		"another origin":                {"POST", groups + "/" + org, origin("https://evil.example"), 403},
		"another port":                  {"POST", groups + "/" + org, origin(w.BaseURL + "0"), 403},
		"no origin":                     {"POST", groups + "/" + org, origin("null"), 403},
		"a change from nowhere":         {"POST", groups + "/" + org, []string{console, "1"}, 403},
		"a read from nowhere":           {"GET", groups, []string{console, "1"}, 200},
		"our origin, of an old browser": {"GET", groups, origin("http://issuer.test"), 200},
		"a token that is void": {
			"GET", groups, []string{console, "1", "Sec-Fetch-Site", "same-origin", "Authorization", "Bearer x"}, 401,
		},
		"a token of the API for the script": {
			"POST", "/sts/exchange?aud=x", []string{console, "1", "Sec-Fetch-Site", "same-origin"}, 401,
		},
	} {
		if p := b.ask(tt.method, tt.path, "", tt.header...); p.status != tt.status {
			t.Errorf("%s: %d, want %d: %s", name, p.status, tt.status, p.body)
		}
	}
}

// TestConsoleReturn checks that a sign-in returns to the console page that asked for it, and to no other address.
func TestConsoleReturn(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{Now: ticking()}, nil)
	ann := w.personIn(t, w.Token, string(w.Organization), "ann@example.test", "a quiet violet anchor of ann")
	for address, want := range map[string]string{
		"/console/":                             "/console/",
		"/console/tree?open=a%2Fb&q=%23x":       "/console/tree?open=a%2Fb&q=%23x",
		"/console":                              "/account",
		"/account/sessions":                     "/account",
		"https://evil.example/console/":         "/account",
		"//evil.example/console/":               "/account",
		`/\evil.example/console/`:               "/account",
		`/console/\evil`:                        "/account",
		"/console/../signout":                   "/account",
		"javascript:alert(1)":                   "/account",
		"/console/" + strings.Repeat("a", 3000): "/account",
	} {
		b := w.signInBrowser(t, "127.0.0.1")
		query := "?return=" + url.QueryEscape(address)
		_, flow, _ := strings.Cut(b.get("/signin"+query).location, "flow=")
		p := b.post("/signin/password", "flow", flow, "email", ann.email, "password", ann.password)
		if p.location != want {
			t.Errorf("sign-in with return address %.100s leads to %d %.100s, want %s", address, p.status, p.location, want)
		}
		next := b.get("/signin" + query) // the browser is now signed in
		if _, flow, ok := strings.Cut(next.location, "flow="); ok {
			next = b.get("/signin?flow=" + flow)
		}
		if next.location != want {
			t.Errorf("return address %.100s after the sign-in leads to %.100s, want %s", address, next.location, want)
		}
	}
}

// TestRegistryServesNoPages checks that a manifest that claims to be a web page is sandboxed, so that a browser does
// not run its scripts. The scripts could otherwise act with the rights of the person who opens it.
func TestRegistryServesNoPages(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{Now: ticking()}, nil)
	w.repo(t, string(w.Organization), "app")
	path := organizationName(t, w) + "/app"
	w.pushManifest(t, path, "page", "text/html", map[string]any{
		"mediaType": "text/html", "title": "<script>fetch('/x')</script>",
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+"/v2/"+path+"/manifests/page", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("_token", w.RegistryToken)
	got := w.roundTrip(t, r)
	policy := got.header.Get("Content-Security-Policy")
	if got.status != 200 || got.header.Get("Content-Type") != "text/html" ||
		policy != "sandbox; default-src 'none'" {
		t.Errorf("the manifest is not sandboxed: %d %v", got.status, got.header)
	}
}
