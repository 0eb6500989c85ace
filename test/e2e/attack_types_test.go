package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// TestAttackTokenTypes sends tokens that an issuer has signed for another purpose: a logout token, a security event,
// a proof of possession. They have the claims of an identity token, but must be refused because they are not identity
// tokens.
func TestAttackTokenTypes(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		f := newFakeIssuer(t, w)
		identity := w.workload(t, f.url, nil)
		typed := func(typ string) string {
			return jws(fmt.Sprintf(`{"alg":"RS256","kid":"rsa","typ":%s}`, typ), f.claims(nil), withRSA)
		}
		logout := map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}
		for name, tt := range map[string]struct {
			bearer string
			claim  string // claim that is the reason of the refusal; empty if the token is accepted
		}{
			"no type":                       {jws(`{"alg":"RS256","kid":"rsa"}`, f.claims(nil), withRSA), ""},
			"JWT":                           {typed(`"JWT"`), ""},
			"jwt":                           {typed(`"jwt"`), ""},
			"application/jwt":               {typed(`"application/jwt"`), ""},
			"JOSE":                          {typed(`"JOSE"`), ""},
			"an access token":               {typed(`"at+jwt"`), ""},
			"an access token, in full":      {typed(`"application/at+JWT"`), ""},
			"a claim events that is text":   {f.token(map[string]any{"events": "push"}), ""},
			"a claim events that is a list": {f.token(map[string]any{"events": []string{"push"}}), ""},
			"a logout token":                {typed(`"logout+jwt"`), `"typ"`},
			"a logout token, in capitals":   {typed(`"LOGOUT+JWT"`), `"typ"`},
			"a logout token, in full":       {typed(`"application/logout+jwt"`), `"typ"`},
			"a logout token without a type": {
				jws(`{"alg":"RS256","kid":"rsa"}`, f.claims(map[string]any{"events": logout}), withRSA), `"events"`,
			},
			"a logout token of the type JWT": {f.token(map[string]any{"events": logout}), `"events"`},
			"an event without a type, escaped": {
				jws(rsaHeader, strings.TrimSuffix(f.claims(nil), "}")+`,"\u0065vents": {}}`, withRSA), `"events"`,
			},
			"a security event":           {typed(`"secevent+jwt"`), `"typ"`},
			"a proof of possession":      {typed(`"dpop+jwt"`), `"typ"`},
			"an authorization request":   {typed(`"oauth-authz-req+jwt"`), `"typ"`},
			"an answer of introspection": {typed(`"token-introspection+jwt"`), `"typ"`},
			"a verifiable credential":    {typed(`"vc+sd-jwt"`), `"typ"`},
			"nothing that is known":      {typed(`"x"`), `"typ"`},
			"an empty type":              {typed(`""`), `"typ"`},
			"a number":                   {typed(`1`), `"typ"`},
			"null":                       {typed(`null`), `"typ"`},
			"two in one":                 {typed(`"JWT, logout+jwt"`), `"typ"`},
			"another tree":               {typed(`"text/jwt"`), `"typ"`},
		} {
			t.Run(name, func(t *testing.T) {
				_, http := w.exchangeHTTP(t, tt.bearer, w.wish(identity))
				_, grpc := w.exchangeGRPC(t, tt.bearer, w.wish(identity))
				if http.Code() != grpc.Code() {
					t.Errorf("HTTP: %v, gRPC: %v", http, grpc)
				}
				if tt.claim == "" && grpc.Code() != codes.OK {
					t.Errorf("refused: %v", grpc)
				}
				if tt.claim != "" && (grpc.Code() != codes.Unauthenticated || !strings.Contains(grpc.Message(), tt.claim)) {
					t.Errorf("%v, want an error about %s", grpc, tt.claim)
				}
			})
		}
	})
}
