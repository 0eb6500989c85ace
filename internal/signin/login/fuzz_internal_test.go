package login

import (
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// fuzzed returns a service without a database, which is enough for parsing.
func fuzzed(f *testing.F) *Service {
	f.Helper()
	cfg := Config{Key: secret.NewKey(), Now: func() time.Time { return time.Unix(1_900_000_000, 0) }}
	pages, err := site.New(nil, site.Config{
		Issuer: "http://localhost:8080", Key: cfg.Key, Log: slog.Default(), Now: cfg.Now,
	})
	if err != nil {
		f.Fatal(err)
	}
	return &Service{site: pages, cfg: cfg}
}

func withCookie(t *testing.T, name, value string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: name, Value: value})
	return r
}

// FuzzFlowCookie checks that only a cookie that we have sealed is accepted as a flow, only under its own name, and only
// until it expires.
func FuzzFlowCookie(f *testing.F) {
	s := fuzzed(f)
	const id = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	f.Add(id, "x", []byte(`{"id":"`+id+`","exp":1900000001,"for":"command","leg":"`+id+`.`+id+`","idp":"a/b"}`))
	f.Add(id, "", []byte(`{"id":"`+id+`","exp":1900000000}`))
	f.Add("../"+id, "eyJ9", []byte(`null`))
	f.Fuzz(func(t *testing.T, id, value string, plain []byte) {
		if s.loadFlow(withCookie(t, flowCookie+id, value), id) != nil {
			t.Errorf("%q, which nobody sealed, is a flow", value)
		}
		sealed := base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal(sealedFlow, plain))
		got := s.loadFlow(withCookie(t, flowCookie+id, sealed), id)
		if got != nil && (got.ID != id || got.Expires <= 1_900_000_000 || !flowID.MatchString(id)) {
			t.Errorf("%s is the flow %q", plain, id)
		}
		if leg := s.flowForState(withCookie(t, flowCookie+id, sealed), id+"."+id); leg != nil &&
			(leg.UpstreamState != id+"."+id || leg.Provider == "") {
			t.Errorf("%s has the leg %q", plain, id)
		}
		other := base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal("passkey", plain))
		if s.loadFlow(withCookie(t, flowCookie+id, other), id) != nil {
			t.Error("what was sealed for something else is a flow")
		}
	})
}

var userForm = regexp.MustCompile(`^[` + userLetters + `]*$`)

// FuzzCodes checks that any text, typed as a code or sent by a program, gives either an error or a valid code.
func FuzzCodes(f *testing.F) {
	f.Add("bcdf-ghjk")
	f.Add("ABCDE-FGH01")
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("http://127.0.0.1:1/?x#y")
	f.Add("eyJpbnZpdGUiOiJhIiwic2VjcmV0IjoiQUEifQ")
	f.Fuzz(func(t *testing.T, code string) {
		if got := readUserCode(code); !userForm.MatchString(got) || readUserCode(shownUserCode(got)) != got {
			t.Errorf("%q is read as the user code %q", code, got)
		}
		if got := checkCode(code); len(got) != 9 {
			t.Errorf("%q is checked by %q", code, got)
		}
		if h, err := encryptFor(code, "token", "refresh"); err == nil && (strings.Contains(string(h.Token), "token") ||
			len(h.Refresh) == 0) {
			t.Errorf("%q gets the token in the plain", code)
		}
		if p, err := readInvite(code); err == nil && (p.UID == "" || len(p.Digest) == 0) {
			t.Errorf("%q is the invite %+v", code, p)
		}
		if u, ok := input.Loopback(code); ok && u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" &&
			u.Hostname() != "::1" {
			t.Errorf("%q leads to %q", code, u.Host)
		}
	})
}
