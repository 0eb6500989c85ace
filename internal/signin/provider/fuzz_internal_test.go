package provider

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
)

// FuzzClaims checks that the accepted claims of a provider are bounded in size and can be stored.
func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{"groups":["a","b"],"email":"a@b.test","email_verified":true,"oid":"x"}`), "groups", "sub", true)
	f.Add([]byte(`{"groups":"a","email_verified":"true"}`), "groups", "sub", false)
	f.Add([]byte(`{"groups":[1,null,{"a":[]},""],"email":1,"name":["x"]}`), "groups", "", false)
	f.Add([]byte(`{"":"x","email":"a\u0000@b.test"}`), "", "a\x00", false)
	f.Fuzz(func(t *testing.T, text []byte, claim, subject string, byObject bool) {
		var claims map[string]any
		if json.Unmarshal(text, &claims) != nil {
			return
		}
		p := resource.IdentityProvider{OIDC: &resource.OIDC{GroupsClaim: claim}}
		if byObject {
			p.OIDC.CorrelationRule = resource.CorrelationObjectID
		}
		got, err := readClaims(p, &oidc.IDToken{Subject: subject}, claims, "raw")
		if err != nil {
			return
		}
		if got.Subject == "" || len(got.Subject) > 2048 || !input.Readable(got.Subject) || len(got.Email) > 254 ||
			!input.Readable(got.Email) {
			t.Errorf("subject %q, e-mail %q", got.Subject, got.Email)
		}
		if len(got.Groups) > maxGroups {
			t.Errorf("%d groups", len(got.Groups))
		}
		for _, g := range got.Groups {
			if g == "" || len(g) > maxGroup {
				t.Errorf("a group %q", g)
			}
		}
		if got.EmailVerified && claims["email_verified"] != true && claims["email_verified"] != "true" {
			t.Errorf("%v is verified", claims["email_verified"])
		}
		for name, value := range claims {
			if shown := shownClaim(name, value); strings.ContainsAny(shown, "\r\n\x00") || len(shown) > 500 {
				t.Errorf("shown as %q", shown)
			}
		}
	})
}

// shownClaim returns a claim in the form in which the trial page shows it.
func shownClaim(name string, value any) string { return input.Short(name) + " " + Text(value) }
