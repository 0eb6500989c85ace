package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

var setupLink = regexp.MustCompile(`(?m)^holdfastd: set up at (http://.*)/setup\?code=([A-Za-z0-9_-]{43})$`)

// code returns the one-time code in the link that the server printed.
func (r *running) code(t *testing.T) string {
	t.Helper()
	m := setupLink.FindStringSubmatch(r.stderr.String())
	if m == nil || m[1] != r.url {
		t.Fatalf("no set-up link to %s in %s", r.url, r.stderr)
	}
	return m[2]
}

// setUp submits the set-up form as JSON and returns the status and the body of the
// answer.
func (r *running) setUp(t *testing.T, code, organization, issuer, subject string) (int, string) {
	t.Helper()
	body := fmt.Sprintf(
		`{"code": %q, "organization": %q, "ownerIssuer": %q, "ownerSubject": %q}`, code, organization, issuer, subject,
	)
	resp, answer := r.send(t, http.MethodPost, "/setup", body, "Content-Type", "application/json")
	return resp.StatusCode, answer
}

const (
	ownerIssuer  = "https://accounts.example.com"
	ownerSubject = "octavia"
)

// TestSetUpByTheLinkAsPrinted: a client can post to the printed link, so it need not
// extract the code.
func TestSetUpByTheLinkAsPrinted(t *testing.T) {
	r := start(t, server.Config{DataDir: t.TempDir()})
	body := fmt.Sprintf(`{"organization": "acme", "ownerIssuer": %q, "ownerSubject": %q}`, ownerIssuer, ownerSubject)
	resp, answer := r.send(t, http.MethodPost, "/setup?code=wrong", body, "Content-Type", "application/json")
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("with a wrong code = %d %s", resp.StatusCode, answer)
	}
	resp, answer = r.send(t, http.MethodPost, "/setup?code="+r.code(t), body, "Content-Type", "application/json")
	if resp.StatusCode != http.StatusOK || decode[setupResult](t, answer).Token == "" {
		t.Errorf("with the link = %d %s", resp.StatusCode, answer)
	}
}

type setupResult struct{ OrganizationUID, OwnerUID, Token string }

func TestSetUp(t *testing.T) {
	dir := t.TempDir()
	r := start(t, server.Config{DataDir: dir})
	code := r.code(t)
	status, answer := r.setUp(t, code, "acme", ownerIssuer, ownerSubject)
	if status != http.StatusOK {
		t.Fatalf("set-up = %d %s", status, answer)
	}
	got := decode[setupResult](t, answer)
	if want := string(resource.UserUID(ownerIssuer, ownerSubject)); got.OwnerUID != want {
		t.Errorf("owner = %s, want %s", got.OwnerUID, want)
	}
	resp, body := r.send(t, http.MethodGet, "/iam/v2beta1/groups", "", "Authorization", "Bearer "+got.Token)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, got.OrganizationUID) ||
		!strings.Contains(body, `"acme"`) {
		t.Errorf("the owner's token lists %d %s", resp.StatusCode, body)
	}
	if status, answer := r.setUp(t, code, "other", ownerIssuer, ownerSubject); status != http.StatusForbidden {
		t.Errorf("the used code = %d %s", status, answer)
	}
	if resp, body := r.send(t, http.MethodGet, "/setup", ""); resp.StatusCode != http.StatusForbidden ||
		strings.Contains(body, "<form") {
		t.Errorf("the page afterwards = %d %s", resp.StatusCode, body)
	}
	if n := strings.Count(r.stderr.String(), code); n != 1 {
		t.Errorf("the code is written %d times to the log, want only in the link", n)
	}
	r.stop(t)
	if again := start(t, server.Config{DataDir: dir}); setupLink.MatchString(again.stderr.String()) {
		t.Error("a server with an organization prints a set-up link")
	}
}

func TestSetUpKeepsOnlyADigest(t *testing.T) {
	dir := t.TempDir()
	r := start(t, server.Config{DataDir: dir})
	code := r.code(t)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !f.Type().IsRegular() { // skips the control socket
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || strings.Contains(string(b), code) {
			t.Errorf("%s holds the code (%v)", f.Name(), err)
		}
	}
}

func TestSetUpRefuses(t *testing.T) {
	r := start(t, server.Config{})
	code := r.code(t)
	tests := map[string]struct {
		body   string
		status int
		says   []string
	}{
		"a wrong code": {
			`{"code": "wrong", "organization": "acme"}`, 403, []string{`"code":7`, `"PERMISSION_DENIED"`, `ErrorInfo`},
		},
		"no code": {`{}`, 403, []string{`"code":7`}},
		"no fields": {
			`{"code": "` + code + `"}`, 400,
			[]string{`"code":3`, `"organization"`, `"owner_issuer"`, `"owner_subject"`, `BadRequest`},
		},
		"a bad name": {
			`{"code": "` + code + `", "organization": "東京", "ownerIssuer": "https://x.example", "ownerSubject": "x"}`, 400,
			[]string{`needs a letter`},
		},
		"a hidden name": {
			`{"code": "` + code + `", "organization": "a\u202eb", "ownerIssuer": "https://x.example", "ownerSubject": "x"}`,
			400, []string{`must not contain line breaks`},
		},
		"a bad issuer": {
			`{"code": "` + code + `", "organization": "no", "ownerIssuer": "x", "ownerSubject": "x"}`, 400,
			[]string{`"owner_issuer"`},
		},
		"no JSON":       {`{"code`, 400, []string{`"body"`}},
		"an odd key":    {`{"codes": "x"}`, 400, []string{`"body"`}},
		"a large body":  {`{"code": "` + strings.Repeat("x", 1<<17) + `"}`, 400, []string{`"body"`}},
		"a wrong place": {`[]`, 400, []string{`"body"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			resp, answer := r.send(t, http.MethodPost, "/setup", tt.body, "Content-Type", "application/json")
			if resp.StatusCode != tt.status {
				t.Errorf("status = %d %s, want %d", resp.StatusCode, answer, tt.status)
			}
			for _, want := range tt.says {
				if !strings.Contains(answer, want) {
					t.Errorf("%s does not say %s", answer, want)
				}
			}
		})
	}
	if status, answer := r.setUp(t, code, "acme", ownerIssuer, ownerSubject); status != http.StatusOK {
		t.Errorf("after all that, the code = %d %s", status, answer)
	}
}

func TestSetUpPage(t *testing.T) {
	r := start(t, server.Config{})
	code := r.code(t)
	resp, body := r.send(t, http.MethodGet, "/setup?code="+code, "", "Accept", "text/html")
	if got := resp.Request.URL.RequestURI(); got != "/setup" {
		t.Fatalf("the link leads to %s, and the code stays in the history", got)
	}
	cookie := resp.Request.Response.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || strings.Contains(body, code) {
		t.Errorf("the code is in %s", cookie)
	}
	resp, body = r.send(t, http.MethodGet, "/setup", "", "Accept", "text/html", "Cookie", cookie.Name+"="+cookie.Value)
	headers := map[string]string{}
	for _, name := range []string{
		"Content-Type", "Referrer-Policy", "Cache-Control", "X-Content-Type-Options", "X-Frame-Options",
	} {
		headers[name] = resp.Header.Get(name)
	}
	if diff := cmp.Diff(map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Referrer-Policy": "no-referrer",
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
	}, headers); diff != "" {
		t.Error(diff)
	}
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(body, "<script") {
		t.Errorf("the page may run scripts, or be framed: %s", policy)
	}
	for _, want := range []string{
		`value="` + code + `"`, `<label for="organization">`, `<label for="owner_issuer">`, `<label for="owner_subject">`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the form lacks %s", want)
		}
	}
	form := url.Values{
		"code": {code}, "organization": {`"><?>`}, "owner_issuer": {ownerIssuer}, "owner_subject": {ownerSubject},
	}
	resp, body = r.send(
		t, http.MethodPost, "/setup", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Accept",
		"text/html",
	)
	if resp.StatusCode != http.StatusBadRequest || strings.Contains(body, `"><?>`) ||
		!strings.Contains(body, `id="organization-wrong"`) || !strings.Contains(body, `aria-invalid="true"`) ||
		!strings.Contains(body, `value="`+ownerSubject+`"`) || !strings.Contains(body, `value="`+code+`"`) {
		t.Errorf("a form with a mistake = %d %s", resp.StatusCode, body)
	}
	form.Set("organization", "acme")
	evil := url.Values{"organization": {"evil"}}.Encode()
	if resp, _ := r.send(t, http.MethodPost, "/setup", evil, "Content-Type", "application/x-www-form-urlencoded",
		"Cookie", cookie.Name+"="+cookie.Value); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a form without the code, in the browser that has it = %d", resp.StatusCode)
	}
	resp, body = r.send(
		t, http.MethodPost, "/setup", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Accept",
		"text/html",
	)
	owner := string(resource.UserUID(ownerIssuer, ownerSubject))
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, owner) ||
		!strings.Contains(body, "Authorization: Bearer ey") {
		t.Errorf("a good form = %d %s", resp.StatusCode, body)
	}
}

// TestSetUpKeepsNames: set-up stores the names that people type as display names, in
// addition to the names in paths.
func TestSetUpKeepsNames(t *testing.T) {
	r := start(t, server.Config{})
	form := url.Values{
		"code": {r.code(t)}, "organization": {"Größe & Söhne <AG>"}, "owner_name": {"Zoe\u0308 Müller"},
		"owner_email":    {"zoe@example.com"},
		"owner_password": {"nine unrelated words of hers"},
	}
	resp, body := r.send(t, http.MethodPost, "/setup", form.Encode(), "Content-Type",
		"application/x-www-form-urlencoded", "Accept", "text/html")
	if resp.StatusCode != http.StatusOK ||
		!strings.Contains(body,
			"<strong>Größe &amp; Söhne &lt;AG&gt;</strong> exists, in paths <strong>grosse-sohne-ag</strong>") {
		t.Fatalf("set-up = %d %s", resp.StatusCode, body)
	}
	_, token, _ := strings.Cut(body, "Authorization: Bearer ")
	token, _, _ = strings.Cut(token, `"`)
	for path, want := range map[string][]string{
		"/iam/v2beta1/groups": {`"name":"grosse-sohne-ag"`, `"displayName":"Größe & Söhne <AG>"`},
		"/iam/v2beta1/roleBindings": {
			`"name":"zoe muller"`, `"displayName":"Zoë Müller"`, `"displayName":"Größe & Söhne <AG>"`,
		},
	} {
		resp, body := r.send(t, http.MethodGet, path, "", "Authorization", "Bearer "+token)
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s = %d %s lacks %s", path, resp.StatusCode, body, text)
			}
		}
	}
}

func TestSetUpCodeEnds(t *testing.T) {
	t.Run("after a day", func(t *testing.T) {
		var c clock
		r := start(t, server.Config{Now: c.now})
		c.forward(24 * time.Hour)
		if status, answer := r.setUp(t, r.code(t), "acme", ownerIssuer, ownerSubject); status != http.StatusForbidden {
			t.Errorf("the expired code = %d %s", status, answer)
		}
	})
	t.Run("with a new start", func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, server.Config{DataDir: dir})
		old := r.code(t)
		r.stop(t)
		again := start(t, server.Config{DataDir: dir})
		if status, answer := again.setUp(t, old, "acme", ownerIssuer, ownerSubject); status != http.StatusForbidden {
			t.Errorf("the old code = %d %s", status, answer)
		}
		if status, answer := again.setUp(t, again.code(t), "acme", ownerIssuer, ownerSubject); status != http.StatusOK {
			t.Errorf("the new code = %d %s", status, answer)
		}
	})
}

func TestSetUpLimitsTries(t *testing.T) {
	var c clock
	r := start(t, server.Config{Now: c.now})
	code := r.code(t)
	for i := range 5 {
		if status, _ := r.setUp(t, "wrong", "acme", ownerIssuer, ownerSubject); status != http.StatusForbidden {
			t.Fatalf("try %d = %d", i, status)
		}
	}
	resp, answer := r.send(t, http.MethodPost, "/setup", `{"code": "`+code+`"}`, "Content-Type", "application/json")
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
		!strings.Contains(answer, "RetryInfo") {
		t.Errorf("the sixth try = %d %s", resp.StatusCode, answer)
	}
	c.forward(time.Minute)
	if status, answer := r.setUp(t, code, "acme", ownerIssuer, ownerSubject); status != http.StatusOK {
		t.Errorf("a minute later = %d %s", status, answer)
	}
}

func TestSetUpOnceAtATime(t *testing.T) {
	r := start(t, server.Config{})
	code := r.code(t)
	statuses := make([]int, 8)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() { statuses[i], _ = r.setUp(t, code, fmt.Sprintf("org %d", i), ownerIssuer, ownerSubject) })
	}
	wg.Wait()
	made := 0
	for _, status := range statuses {
		if status == http.StatusOK {
			made++
		}
	}
	if made != 1 {
		t.Errorf("answers = %v, want one 200", statuses)
	}
}

// TestSetUpOnceOnReplicas sends one code to two replicas, several times concurrently.
// Exactly one request may succeed.
func TestSetUpOnceOnReplicas(t *testing.T) {
	cfg := server.Config{Database: storetest.EmptyPostgres(t), EncryptionKey: secret.NewKey().Text()}
	one, two := start(t, cfg), start(t, cfg)
	code := two.code(t)
	if status, answer := one.setUp(t, one.code(t), "acme", ownerIssuer, ownerSubject); status != http.StatusForbidden {
		t.Errorf("the code that a later start has replaced = %d %s", status, answer)
	}
	weak := `{"code": "` + code + `", "organization": "acme", "ownerEmail": "ann@example.com", "ownerPassword": "short"}`
	if resp, answer := two.send(t, http.MethodPost, "/setup", weak, "Content-Type",
		"application/json"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a weak password = %d %s", resp.StatusCode, answer)
	}
	statuses := make([]int, 8)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() {
			statuses[i], _ = []*running{one, two}[i%2].setUp(
				t, code, fmt.Sprintf("org %d", i), ownerIssuer, ownerSubject,
			)
		})
	}
	wg.Wait()
	slices.Sort(statuses)
	if statuses[0] != http.StatusOK || statuses[1] == http.StatusOK {
		t.Errorf("answers = %v, want one 200", statuses)
	}
}

// TestUnattendedSetUpOnReplicas starts two servers at the same time that both create the
// organization. Both must start.
func TestUnattendedSetUpOnReplicas(t *testing.T) {
	for range 3 {
		cfg := server.Config{
			Database: storetest.EmptyPostgres(t), EncryptionKey: secret.NewKey().Text(), Organization: "acme",
			OwnerEmail: "ann@example.com",
		}
		storetest.Open(t, cfg.Database) // creates the schema, so that the servers do not wait for each other to create it
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { newClose(t, cfg) })
		}
		wg.Wait()
	}
}

// newClose creates a server and closes it without running it.
func newClose(t *testing.T, cfg server.Config) {
	t.Helper()
	cfg.Listen, cfg.DataDir, cfg.Stderr = "127.0.0.1:0", t.TempDir(), &buffer{}
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Error(err)
		return
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestUnattendedSetUp(t *testing.T) {
	cfg := server.Config{
		DataDir: t.TempDir(), Organization: "acme", OwnerIssuer: ownerIssuer, OwnerSubject: ownerSubject,
	}
	r := start(t, cfg)
	if log := r.stderr.String(); setupLink.MatchString(log) ||
		!strings.Contains(log, string(resource.UserUID(ownerIssuer, ownerSubject))) {
		t.Errorf("log = %s, want the owner and no link", log)
	}
	if status, answer := r.setUp(t, "", "other", ownerIssuer, ownerSubject); status != http.StatusForbidden {
		t.Errorf("set-up by hand = %d %s", status, answer)
	}
	r.stop(t)
	if again := start(t, cfg); strings.Contains(again.stderr.String(), "organization created") {
		t.Error("a second start creates the organization again")
	}
}
