package e2e_test

import (
	"strings"
	"testing"

	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// TestAttackProviderTest has the owner of an organization try providers at
// addresses of our network, and compares what is told.
func TestAttackProviderTest(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		for protocol, call := range w.protocols() {
			told := map[string]string{}
			for what, issuer := range map[string]string{
				"a name that does not exist": "https://nobody.invalid",
				"a private address":          "https://10.0.0.1",
				"the metadata service":       "https://169.254.169.254",
				"a closed port":              "http://127.0.0.1:1",
			} {
				p := provider("p")
				p.GetOidc().Issuer = issuer
				got := must[*signinpb.TestIdentityProviderResponse](t, call, w.Token, &signinpb.TestIdentityProviderRequest{
					Parent: string(w.Organization), IdentityProvider: p,
				})
				if got.GetReady() || len(got.GetChecks()) != 1 {
					t.Fatalf("%s, %s: %v", protocol, what, got)
				}
				told[strings.ReplaceAll(got.GetChecks()[0].GetDetail(), issuer, "")] = what
			}
			if len(told) != 1 {
				t.Errorf("%s: what is told differs: %v", protocol, told)
			}
		}
	})
}

// TestAttackIssuerProblems has an owner name issuers at addresses of our network,
// and compares what explain tells of them.
func TestAttackIssuerProblems(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		told := map[string]string{}
		for what, issuer := range map[string]string{
			"a name that does not exist": "https://nobody.invalid",
			"a private address":          "https://10.0.0.1",
			"a closed port":              "http://127.0.0.1:1",
		} {
			identity := w.workload(t, issuer, nil)
			tok := jws(rsaHeader, `{"iss":"`+issuer+`","sub":"job","aud":"x","exp":9999999999}`, nothing)
			told[w.signatureProblem(t, identity, tok)] = what
		}
		if len(told) != 1 {
			t.Errorf("what is told differs: %v", told)
		}
	})
}

// signatureProblem returns what explain tells of the signature of a token.
func (w *world) signatureProblem(t *testing.T, identity, tok string) string {
	t.Helper()
	got, err := federationpb.NewFederationServiceClient(w.conn).ExplainToken(bearing(t, w.Token),
		&federationpb.ExplainTokenRequest{IdentityUid: identity, Token: tok})
	if err != nil || len(got.GetExplanations()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	for _, c := range got.GetExplanations()[0].GetChecks() {
		if c.GetClaim() == "signature" && !c.GetOk() {
			return c.GetCause()
		}
	}
	t.Fatalf("the signature is not to blame: %v", got)
	return ""
}
