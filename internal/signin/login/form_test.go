package login_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// oddTexts are values that no field expects.
var oddTexts = map[string]string{
	"a NUL": "a\x00b", "not UTF-8": "\xff\xfe", "a line break": "a\r\nSet-Cookie: x=y",
	"markup": `"><script>alert(1)</script>`, "without end": strings.Repeat("x", 8<<10),
}

// TestBadForms sends odd texts in every field of every form. The response is never a server
// error.
func TestBadForms(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		idp := x.keep(t, newProvider(t))
		b := x.browser(t)
		b.signIn()
		csrf := b.csrf()
		_, invite := x.invite(t, resource.GroupInvite{})
		forms := map[string][]string{
			"/signin/organization": {"organization"}, "/signin/password": {"email", "password"},
			"/signin/provider": {"provider"}, "/signin/totp": {"code"},
			"/signin/recovery": {"recovery"}, "/signin/join/start": {"flow"}, "/signin/join": {"email", "name", "password"},
			"/signin/confirm": {"answer", "csrf"},
			"/signin/other":   {"flow"}, "/link": {"password"}, "/device": {"user_code"},
			"/account/password": {"current", "password"}, "/account/totp": {"code"}, "/account/totp/remove": {"current"},
			"/account/recovery":        {"current"},
			"/account/passkeys/remove": {"id"}, "/account/sessions/end": {"id"}, "/signin/passkey/start": {"flow"},
			"/signin/passkey":             {"credential"},
			"/oauth/token":                {"grant_type", "code", "device_code", "refresh_token", "code_verifier", "audience"},
			"/oauth/device_authorization": {"client_id", "audience"},
		}
		queries := map[string][]string{
			"/oauth": {
				"redirect", "client_id", "idp_id", "state", "invite", "identity", "scope", "audience", "headless_code",
				"code_challenge",
			},
			"/orgcheck": {"name"}, "/join": {"code"}, "/link": {"code"}, "/device": {"user_code"}, "/signin": {"flow"},
			"/signin/provider":                        {"flow", "provider"},
			"/oauth/callback/" + lastSegment(idp.UID): {"state", "code", "iss", "error"},
		}
		check := func(what string, a answer) {
			t.Helper()
			if a.status >= 500 && a.status != http.StatusBadGateway || strings.Contains(a.body, "<script>alert") ||
				a.header.Get("Set-Cookie") == "x=y" {
				t.Errorf("%s: %d %s\n%.300s", what, a.status, a.location, a.body)
			}
		}
		for odd, text := range oddTexts {
			for path, fields := range forms {
				for _, field := range fields {
					c := x.browser(t)
					if strings.HasPrefix(path, "/account") {
						c = b
					}
					form := url.Values{
						"csrf": {csrf}, "client_id": {"x"}, "password": {"a quiet violet anchor"},
						"email": {"odd@example.test"}, "name": {"Odd"}, "current": {"wrong"},
					}
					if strings.HasPrefix(path, "/signin") {
						form.Set("flow", c.start("invite="+invite))
					}
					for _, grant := range []string{"", "authorization_code", "refresh_token",
						"urn:ietf:params:oauth:grant-type:device_code"} {
						form.Set("grant_type", grant)
						form.Set(field, text)
						check(
							fmt.Sprintf("POST %s with %s for %s", path, odd, field), c.do(http.MethodPost, path, form),
						)
						if path != "/oauth/token" {
							break
						}
					}
					x.clock.move(15 * time.Minute) // resets the limits
				}
			}
			for path, fields := range queries {
				for _, field := range fields {
					q := url.Values{field: {text[:min(len(text), 4000)]}}
					check(fmt.Sprintf("GET %s with %s for %s", path, odd, field), b.get(path+"?"+q.Encode()))
				}
			}
		}
		if strings.Contains(x.logs.String(), `"level":"ERROR"`) {
			t.Errorf("errors of ours are logged:\n%.2000s", x.logs)
		}
	})
}
