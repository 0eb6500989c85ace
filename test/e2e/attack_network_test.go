package e2e_test

import (
	"strings"
	"testing"

	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// TestAttackProviderTest lets an owner test identity providers at internal addresses. All answers must be the same,
// so that they reveal nothing about the network.
func TestAttackProviderTest(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		for protocol, call := range w.protocols() {
			answers := map[string]string{}
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
				answers[strings.ReplaceAll(got.GetChecks()[0].GetDetail(), issuer, "")] = what
			}
			if len(answers) != 1 {
				t.Errorf("%s: the answers differ: %v", protocol, answers)
			}
		}
	})
}

// TestAttackIssuerProblems lets an owner name issuers at internal addresses. All explanations must be the same, so
// that they reveal nothing about the network.
func TestAttackIssuerProblems(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		causes := map[string]string{}
		for what, issuer := range map[string]string{
			"a name that does not exist": "https://nobody.invalid",
			"a private address":          "https://10.0.0.1",
			"a closed port":              "http://127.0.0.1:1",
		} {
			identity := w.workload(t, issuer, nil)
			tok := jws(rsaHeader, `{"iss":"`+issuer+`","sub":"job","aud":"x","exp":9999999999}`, nothing)
			causes[w.signatureProblem(t, identity, tok)] = what
		}
		if len(causes) != 1 {
			t.Errorf("the explanations differ: %v", causes)
		}
	})
}

// signatureProblem returns the cause that ExplainToken gives for an invalid signature.
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
	t.Fatalf("the explanation does not mention the signature: %v", got)
	return ""
}
