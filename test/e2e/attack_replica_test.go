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

// asksAt makes a call at a replica and returns its status and what it answered.
func asksAt(t *testing.T, p *proc, bearer, verb, path string, body any) (int, map[string]any) {
	t.Helper()
	a, err := procDial(p.address, bearer).call(t.Context(), verb, path, body)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	_ = json.Unmarshal(a.body, &got) // a delete answers nothing
	return a.status, got
}

// refreshAt uses a refresh token at a replica and returns the two tokens that come
// of it, or "".
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

// replicated are two replicas of a server with an identity provider, whose issuer
// signs whatever it is asked to.
type replicated struct {
	a, b     *proc
	database string
	key      secret.Key
	issuer   *fakeIssuer
	provider string // its uid
}

// TestAttackReplicas asks one replica for what another has just taken away.
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

// good reports whether a replica takes a token.
func (x replicated) good(t *testing.T, on *proc, bearer string) bool {
	t.Helper()
	status, _ := asksAt(t, on, bearer, http.MethodGet, "/iam/v2beta1/groups", nil)
	return status == http.StatusOK
}

// invite lets pat in, who comes with a token for a client, and returns who that is.
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

// exchange returns what pat gets for a token for a client, or "".
func (x replicated) exchange(t *testing.T, on *proc, client string) string {
	t.Helper()
	path := "/sts/exchange?" + url.Values{"aud": {procBase}, "identity_provider": {x.provider}}.Encode()
	_, got := asksAt(t, on, x.issuer.token(map[string]any{"sub": "pat", "aud": client}), http.MethodPost, path, nil)
	text, _ := got["token"].(string)
	return text
}

// believe has the provider take tokens for a client.
func (x replicated) believe(t *testing.T, client string) {
	t.Helper()
	status, got := asksAt(t, x.a, x.a.dev.Token, http.MethodPatch, "/iam/v2beta1/identityProviders/"+x.provider,
		map[string]any{"oidc": map[string]any{"clientId": client, "clientSecret": "s"}})
	if status != http.StatusOK {
		t.Fatal(got)
	}
}

// trusted returns what a replica says of the operator's trust.
func (x replicated) trusted(t *testing.T, on *proc) any {
	t.Helper()
	_, got := asksAt(t, on, on.dev.Token, http.MethodGet, "/iam/v2beta1/identityProviders/"+x.provider, nil)
	return got["trusted"]
}

func (x replicated) copiedRefresh(t *testing.T) {
	first, second := refreshAt(t, x.a, x.a.dev.RefreshToken)
	other, third := refreshAt(t, x.b, second)
	if !x.good(t, x.b, first) || !x.good(t, x.a, other) {
		t.Fatal("tokens of one replica are not good at the other")
	}
	if again, _ := refreshAt(t, x.a, second); again != "" {
		t.Error("it is good a second time, at the other replica")
	}
	for _, on := range []*proc{x.a, x.b} {
		if x.good(t, on, first) || x.good(t, on, other) {
			t.Error("its session goes on")
		}
	}
	if again, _ := refreshAt(t, x.b, third); again != "" {
		t.Error("the one that came of it is still good")
	}
}

func (x replicated) otherBeliefs(t *testing.T) {
	before := x.invite(t, "c0")
	token := x.exchange(t, x.b, "c0")
	if !x.good(t, x.b, token) {
		t.Fatal("its person cannot work")
	}
	x.believe(t, "c1")
	if x.good(t, x.b, token) || x.good(t, x.a, token) || x.exchange(t, x.b, "c0") != "" {
		t.Error("what it vouched for before is still good")
	}
	if after := x.invite(t, "c1"); after == before || after == "" {
		t.Errorf("%s is %s now", before, after)
	}
}

// racedBeliefs exchanges at one replica while the other changes the provider: no
// token of before is good after.
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
				t.Fatalf("round %d: a token outlives what its provider believed", n)
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
	if x.trusted(t, x.b) != true {
		t.Error("the other replica does not know of it")
	}
	if identity := x.invite(t, "even"); identity == "" || x.exchange(t, x.b, "even") == "" {
		t.Error("its people cannot work")
	}
	order(t, x.b.data(), x.database, x.key, "providers", "untrust", x.provider)
	if x.trusted(t, x.a) != false {
		t.Error("after untrust it is trusted")
	}
	// refused, or without effect
	asksAt(t, x.a, x.a.dev.Token, http.MethodPatch, "/iam/v2beta1/identityProviders/"+x.provider, map[string]any{
		"trusted": true,
	})
	if x.trusted(t, x.a) != false {
		t.Error("an owner can say that the operator trusts it")
	}
}
