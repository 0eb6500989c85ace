package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// directory enables the directory of an identity provider, and returns a function that sends a request of the
// directory.
func (w *tenants) directory(t *testing.T, provider string) (send func(verb, path, body string) map[string]any) {
	t.Helper()
	at := "/iam/v2beta1/identityProviders/" + provider
	var made struct{ Token string }
	r := w.send(t, w.Token, http.MethodPost, at+":generateScimToken", `{}`)
	if err := json.Unmarshal([]byte(r.body), &made); err != nil || made.Token == "" {
		t.Fatalf("no token of a directory: %s", r.body)
	}
	var state struct{ Etag string }
	if err := json.Unmarshal([]byte(w.send(t, w.Token, http.MethodGet, "/access/v1/directories/"+provider, "").body),
		&state); err != nil {
		t.Fatal(err)
	}
	if r := w.send(t, w.Token, http.MethodPost, at+":setScimEnabled", fmt.Sprintf(`{"enabled":true,"etag":%q}`,
		state.Etag)); r.status != http.StatusOK {
		t.Fatalf("the directory is not enabled: %s", r.body)
	}
	return func(verb, path, body string) (got map[string]any) {
		t.Helper()
		r := w.send(t, made.Token, verb, "/scim/v2/"+segmentOf(provider)+path, body)
		if r.status >= http.StatusMultipleChoices {
			t.Fatalf("%s %s: %d %s", verb, path, r.status, r.body)
		}
		_ = json.Unmarshal([]byte(r.body), &got)
		return got
	}
}

// TestAttackDeactivatedByDirectory checks that the tokens of a person, the tokens of identities that the person has
// assumed, the pull tokens that the person has created, and the tokens that were issued for one of these, stop at the
// next request after the directory has deactivated the person. A pull token of a colleague keeps working.
func TestAttackDeactivatedByDirectory(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		send := w.directory(t, w.idp)
		id := w.idToken("ben", "client-a")
		ben := w.join(t, w.Token, w.a, ownerRole, id)
		user := send(http.MethodPost, "/Users", `{"userName":"ben","externalId":"ben","active":true}`)
		bearer, colleague := w.through(t, "HTTP", w.idp, id), w.through(t, "HTTP", w.idp, w.idToken("ann", "client-a"))
		pullToken := func(by, name string) string {
			i := must[*iampb.Identity](t, w.overGRPC, by, &iampb.CreateIdentityRequest{Parent: w.a,
				Identity: &iampb.Identity{Name: name, Relationship: &iampb.Identity_StaticKeys_{
					StaticKeys: &iampb.Identity_StaticKeys{
						Issuer: w.AuthURL + "/pull-tokens", Subject: "job", IssuerKeys: string(fakeKeySet())}}}})
			w.bind(t, w.a, i.GetUid(), string(resource.ManagedRoleUID("registry.pull")))
			return i.GetUid()
		}
		assumed := w.workload(t, w.AuthURL, func(m *iampb.Identity_ClaimMatch) {
			m.Sub = &iampb.Identity_ClaimMatch_Subject{Subject: ben}
			m.Aud = &iampb.Identity_ClaimMatch_Audience{Audience: w.BaseURL}
		})
		w.bind(t, w.a, assumed, ownerRole)
		throughAssumed := w.exchange(t, bearer, assumed)
		password := w.issuer.token(map[string]any{"iss": w.AuthURL + "/pull-tokens"})
		own, ofColleague := pullToken(bearer, "own"), pullToken(colleague, "of a colleague")
		byWorkload := pullToken(throughAssumed, "by a workload")
		w.pushImage(t, "dev/app", "1.0", "amd64", "layer")
		calls := func(bearer string) func() bool {
			return func() bool {
				return w.send(t, bearer, http.MethodGet, "/iam/v2beta1/groups", "").status == http.StatusOK
			}
		}
		pulls := func(bearer string) func() bool {
			return func() bool {
				return w.send(t, bearer, http.MethodGet, "/v2/dev/app/manifests/1.0", "").status == http.StatusOK
			}
		}
		logsIn := func(user, password string) func() bool {
			return func() bool { got, _ := w.scopedToken(t, user, password); return got != "" }
		}
		issued := func(user string) string { got, _ := w.scopedToken(t, user, password); return got }
		uses := map[string]func() bool{
			"access token":                              calls(bearer),
			"token of the provider":                     func() bool { return w.through(t, "gRPC", w.idp, id) != "" },
			"token of an assumed identity":              calls(throughAssumed),
			"exchange for an assumed identity":          func() bool { return w.assumes(t, bearer, assumed) },
			"exchange for the registry":                 logsIn("_token", w.registryTokenOf(t, bearer)),
			"pull token":                                logsIn(own, password),
			"registry token of a pull token":            pulls(issued(own)),
			"pull token by an assumed identity":         logsIn(byWorkload, password),
			"registry token of the person":              pulls(w.registryTokenOf(t, bearer)),
			"registry token of that other pull token":   pulls(issued(byWorkload)),
			"pull token of a colleague (stays valid)":   logsIn(ofColleague, password),
			"registry token of a colleague (also this)": pulls(issued(ofColleague)),
		}
		for name, works := range uses {
			if !works() {
				t.Errorf("before the deactivation: the %s does not work", name)
			}
		}
		send(http.MethodPatch, fmt.Sprintf("/Users/%s", user["id"]),
			`{"Operations":[{"op":"replace","path":"active","value":false}]}`)
		for name, works := range uses {
			stays := name == "pull token of a colleague (stays valid)" || name == "registry token of a colleague (also this)"
			if works() != stays {
				t.Errorf("after the deactivation: the %s works: %t", name, !stays)
			}
		}
	})
}

// assumes reports whether a token can be exchanged for an identity.
func (w *tenants) assumes(t *testing.T, bearer, identity string) bool {
	t.Helper()
	_, st := w.exchangeHTTP(t, bearer, w.wish(identity))
	return st == nil
}

// registryTokenOf returns a token of the registry for an API token.
func (w *tenants) registryTokenOf(t *testing.T, bearer string) string {
	t.Helper()
	got, st := w.exchangeHTTP(t, bearer, url.Values{"aud": {w.RegistryHost}})
	if st != nil {
		t.Fatal(st)
	}
	return got.GetToken()
}
