package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/seal"
	"github.com/holdfast-dev/holdfast/store/storetest"
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

// TestAttackReplicas asks one replica for what another has just taken away.
func TestAttackReplicas(t *testing.T) {
	database, key := storetest.Postgres(t), seal.NewKey()
	a, b := replicas(t, database, key)
	f := newFakeIssuer(t, &world{AuthURL: procBase})
	org := string(a.dev.Organization)
	good := func(on *proc, bearer string) bool {
		status, _ := asksAt(t, on, bearer, http.MethodGet, "/iam/v2beta1/groups", nil)
		return status == http.StatusOK
	}

	t.Run("a refresh token that was copied", func(t *testing.T) {
		first, second := refreshAt(t, a, a.dev.RefreshToken)
		other, third := refreshAt(t, b, second)
		if !good(b, first) || !good(a, other) {
			t.Fatal("tokens of one replica are not good at the other")
		}
		if again, _ := refreshAt(t, a, second); again != "" {
			t.Error("it is good a second time, at the other replica")
		}
		for _, on := range []*proc{a, b} {
			if good(on, first) || good(on, other) {
				t.Error("its session goes on")
			}
		}
		if again, _ := refreshAt(t, b, third); again != "" {
			t.Error("the one that came of it is still good")
		}
	})

	status, idp := asksAt(t, a, a.dev.Token, http.MethodPost, "/iam/v2beta1/identityProviders/"+org, map[string]any{
		"name": "idp", "defaultRole": resource.ManagedRoleUID("viewer"), "oidc": map[string]any{"issuer": f.url, "clientId": "c0", "clientSecret": "s"},
	})
	if status != http.StatusOK {
		t.Fatal(idp)
	}
	uid, _ := idp["uid"].(string)
	invited := func(client string) string {
		_, invite := asksAt(t, a, a.dev.Token, http.MethodPost, "/iam/v2beta1/groupInvites/"+org, map[string]any{"roleUid": resource.ManagedRoleUID("viewer"), "ttl": "600s"})
		_, session := asksAt(t, b, f.token(map[string]any{"sub": "pat", "aud": client}), http.MethodPost, "/auth/v1/register", map[string]any{"code": invite["code"]})
		identity, _ := session["identity"].(string)
		return identity
	}
	through := func(on *proc, client string) string {
		path := "/sts/exchange?" + url.Values{"aud": {procBase}, "identity_provider": {uid}}.Encode()
		_, got := asksAt(t, on, f.token(map[string]any{"sub": "pat", "aud": client}), http.MethodPost, path, nil)
		text, _ := got["token"].(string)
		return text
	}
	believe := func(client string) {
		t.Helper()
		status, got := asksAt(t, a, a.dev.Token, http.MethodPatch, "/iam/v2beta1/identityProviders/"+uid, map[string]any{"oidc": map[string]any{"clientId": client, "clientSecret": "s"}})
		if status != http.StatusOK {
			t.Fatal(got)
		}
	}

	t.Run("a provider that believes something else", func(t *testing.T) {
		before := invited("c0")
		token := through(b, "c0")
		if !good(b, token) {
			t.Fatal("its person cannot work")
		}
		believe("c1")
		if good(b, token) || good(a, token) || through(b, "c0") != "" {
			t.Error("what it vouched for before is still good")
		}
		if after := invited("c1"); after == before || after == "" {
			t.Errorf("%s is %s now", before, after)
		}
	})

	t.Run("raced", func(t *testing.T) { // exchanges at b while a changes the provider: none that is of before is good after
		believe("even")
		invited("even")
		for n := range 5 {
			var tokens []string
			var racing sync.WaitGroup
			racing.Go(func() {
				for range 20 {
					if got := through(b, "even"); got != "" {
						tokens = append(tokens, got)
					}
				}
			})
			believe("odd")
			racing.Wait()
			for _, token := range tokens {
				if good(a, token) || good(b, token) {
					t.Fatalf("round %d: a token outlives what its provider believed", n)
				}
			}
			believe("even")
			invited("even")
		}
	})

	t.Run("the operator's trust", func(t *testing.T) {
		if out := order(t, a.data(), database, key, "providers", "trust", uid); !strings.HasPrefix(out, uid) {
			t.Errorf("trust prints %q", out)
		}
		if _, got := asksAt(t, b, b.dev.Token, http.MethodGet, "/iam/v2beta1/identityProviders/"+uid, nil); got["trusted"] != true {
			t.Errorf("at the other replica: %v", got)
		}
		if identity := invited("even"); identity == "" || through(b, "even") == "" {
			t.Error("its people cannot work")
		}
		order(t, b.data(), database, key, "providers", "untrust", uid)
		if _, got := asksAt(t, a, a.dev.Token, http.MethodGet, "/iam/v2beta1/identityProviders/"+uid, nil); got["trusted"] != false {
			t.Errorf("after untrust: %v", got)
		}
		if status, _ := asksAt(t, a, a.dev.Token, http.MethodPatch, "/iam/v2beta1/identityProviders/"+uid, map[string]any{"trusted": true}); status == http.StatusOK {
			if _, got := asksAt(t, a, a.dev.Token, http.MethodGet, "/iam/v2beta1/identityProviders/"+uid, nil); got["trusted"] == true {
				t.Error("an owner can say that the operator trusts it")
			}
		}
	})
}
