package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// asksAt sends a request to a replica and returns the status and the decoded response.
func asksAt(t *testing.T, p *proc, bearer, verb, path string, body any) (int, map[string]any) {
	t.Helper()
	a, err := procDial(p.address, bearer).call(t.Context(), verb, path, body)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	_ = json.Unmarshal(a.body, &got) // fails for the response to a delete, which has no body
	return a.status, got
}

// refreshAt uses a refresh token at a replica. It returns the new access token and the new refresh token, or "" for
// both.
func refreshAt(t *testing.T, p *proc, refresh string) (access, next string) {
	t.Helper()
	_, got := asksAt(t, p, refresh, http.MethodPost, "/sts/exchange_refresh_token?aud="+url.QueryEscape(procBase), nil)
	word := func(name string) string {
		m, _ := got[name].(map[string]any)
		text, _ := m["token"].(string)
		return text
	}
	return word("token"), word("refreshToken")
}

// A replicated has two replicas of a server, and an identity provider whose issuer signs every token that a test asks
// for.
type replicated struct {
	a, b     *proc
	database string
	key      secret.Key
	issuer   *fakeIssuer
	provider string // UID of the identity provider
}

// TestAttackReplicas checks that tokens and rights that one replica has just revoked do not work at the other
// replica.
func TestAttackReplicas(t *testing.T) {
	x := replicated{
		database: storetest.Postgres(t), key: secret.NewKey(), issuer: newFakeIssuer(t, &world{AuthURL: procBase}),
	}
	x.a, x.b = replicas(t, x.database, x.key)
	status, idp := asksAt(t, x.a, x.a.dev.Token, http.MethodPost,
		"/iam/v2beta1/identityProviders/"+string(x.a.dev.Organization), map[string]any{
			"name": "idp", "defaultRole": resource.ManagedRoleUID("viewer"),
			"oidc": map[string]any{"issuer": x.issuer.url, "clientId": "c0", "clientSecret": "s"},
		})
	if status != http.StatusOK {
		t.Fatal(idp)
	}
	x.provider, _ = idp["uid"].(string)
	t.Run("a refresh token that was copied", x.copiedRefresh)
	t.Run("a provider that believes something else", x.otherBeliefs)
	t.Run("raced", x.racedBeliefs)
	t.Run("the operator's trust", x.operatorsTrust)
}

// good reports whether a replica accepts an API token.
func (x replicated) good(t *testing.T, on *proc, bearer string) bool {
	t.Helper()
	status, _ := asksAt(t, on, bearer, http.MethodGet, "/iam/v2beta1/groups", nil)
	return status == http.StatusOK
}

// invite lets the person pat join, with a token of the issuer for a client. It returns the UID of pat's identity.
func (x replicated) invite(t *testing.T, client string) string {
	t.Helper()
	_, invite := asksAt(t, x.a, x.a.dev.Token, http.MethodPost, "/iam/v2beta1/groupInvites/"+string(x.a.dev.Organization),
		map[string]any{"roleUid": resource.ManagedRoleUID("viewer"), "ttl": "600s"})
	_, session := asksAt(t, x.b, x.issuer.token(map[string]any{"sub": "pat", "aud": client}), http.MethodPost,
		"/auth/v1/register",
		map[string]any{"code": invite["code"]})
	identity, _ := session["identity"].(string)
	return identity
}

// exchange exchanges pat's token for a client at a replica. It returns the new token, or "" if the replica refuses.
func (x replicated) exchange(t *testing.T, on *proc, client string) string {
	t.Helper()
	path := "/sts/exchange?" + url.Values{"aud": {procBase}, "identity_provider": {x.provider}}.Encode()
	_, got := asksAt(t, on, x.issuer.token(map[string]any{"sub": "pat", "aud": client}), http.MethodPost, path, nil)
	text, _ := got["token"].(string)
	return text
}

// believe changes the client ID of the identity provider, so that it accepts tokens for that client.
func (x replicated) believe(t *testing.T, client string) {
	t.Helper()
	status, got := asksAt(t, x.a, x.a.dev.Token, http.MethodPatch, "/iam/v2beta1/identityProviders/"+x.provider,
		map[string]any{"oidc": map[string]any{"clientId": client, "clientSecret": "s"}})
	if status != http.StatusOK {
		t.Fatal(got)
	}
}

// trusted returns whether a replica says that the operator trusts the identity provider.
func (x replicated) trusted(t *testing.T, on *proc) bool {
	t.Helper()
	_, got := asksAt(t, on, on.dev.Token, http.MethodGet, "/iam/v2beta1/identityProviders/"+x.provider, nil)
	if got["uid"] != x.provider {
		t.Errorf("the provider is %v", got)
	}
	return got["trusted"] == true // false is left out
}

func (x replicated) copiedRefresh(t *testing.T) {
	accessA, second := refreshAt(t, x.a, x.a.dev.RefreshToken)
	accessB, third := refreshAt(t, x.b, second)
	if !x.good(t, x.b, accessA) || !x.good(t, x.a, accessB) {
		t.Fatal("tokens of one replica are not valid at the other")
	}
	if again, _ := refreshAt(t, x.a, second); again != "" {
		t.Error("the other replica accepts a used refresh token")
	}
	for _, on := range []*proc{x.a, x.b} {
		if x.good(t, on, accessA) || x.good(t, on, accessB) {
			t.Error("the session did not end after a refresh token was used twice")
		}
	}
	if again, _ := refreshAt(t, x.b, third); again != "" {
		t.Error("the next refresh token is still valid")
	}
}

func (x replicated) otherBeliefs(t *testing.T) {
	before := x.invite(t, "c0")
	token := x.exchange(t, x.b, "c0")
	if !x.good(t, x.b, token) {
		t.Fatal("the person of the provider has no access")
	}
	x.believe(t, "c1")
	if x.good(t, x.b, token) || x.good(t, x.a, token) || x.exchange(t, x.b, "c0") != "" {
		t.Error("tokens from before the change are still valid")
	}
	if after := x.invite(t, "c1"); after == before || after == "" {
		t.Errorf("person %s is %s after the change, want a new person", before, after)
	}
}

// racedBeliefs exchanges tokens at one replica while the other replica changes the identity provider. No token from
// before the change may be valid after it.
func (x replicated) racedBeliefs(t *testing.T) {
	x.believe(t, "even")
	x.invite(t, "even")
	for n := range 5 {
		var tokens []string
		var racing sync.WaitGroup
		racing.Go(func() {
			for range 20 {
				if got := x.exchange(t, x.b, "even"); got != "" {
					tokens = append(tokens, got)
				}
			}
		})
		x.believe(t, "odd")
		racing.Wait()
		for _, token := range tokens {
			if x.good(t, x.a, token) || x.good(t, x.b, token) {
				t.Fatalf("round %d: a token is valid after its provider was changed", n)
			}
		}
		x.believe(t, "even")
		x.invite(t, "even")
	}
}

func (x replicated) operatorsTrust(t *testing.T) {
	out := order(t, x.a.data(), x.database, x.key, "providers", "trust", x.provider)
	if !strings.HasPrefix(out, x.provider) {
		t.Errorf("trust prints %q", out)
	}
	if !x.trusted(t, x.b) {
		t.Error("the other replica does not trust the provider")
	}
	if identity := x.invite(t, "even"); identity == "" || x.exchange(t, x.b, "even") == "" {
		t.Error("people of the provider have no access")
	}
	order(t, x.b.data(), x.database, x.key, "providers", "untrust", x.provider)
	if x.trusted(t, x.a) {
		t.Error("the provider is trusted after untrust")
	}
	// The server must refuse or ignore this field.
	asksAt(t, x.a, x.a.dev.Token, http.MethodPatch, "/iam/v2beta1/identityProviders/"+x.provider, map[string]any{
		"trusted": true,
	})
	if x.trusted(t, x.a) {
		t.Error("an owner can set that the operator trusts the provider")
	}
}
