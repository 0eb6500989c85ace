package assembly_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A tokenAnswer is the response of the token endpoint.
type tokenAnswer struct {
	Token   string
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Scope   string
	Life    int `json:"expires_in"`
}

func (r *rig) readToken(t *testing.T, c call) (got tokenAnswer) {
	t.Helper()
	must(t, json.Unmarshal(r.want(t, c, 200).body, &got))
	if got.Token == "" || got.Token != got.Access {
		t.Fatalf("the tokens are %q and %q", got.Token, got.Access)
	}
	return got
}

// scoped gets a token for scopes as an identity, and lets the rig use it with the name who.
func (r *rig) scoped(t *testing.T, who, as string, scopes ...string) tokenAnswer {
	t.Helper()
	q := url.Values{"service": {r.host}, "scope": scopes}
	got := r.readToken(t, call{method: "GET", path: "/v2/token?" + q.Encode(), headers: basicAuth("_token", r.tokens[as])})
	r.tokens[who] = got.Token
	return got
}

func basicAuth(user, password string) []string {
	return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}
}

// refusedScope checks that a token does not suffice for a request, and that the challenge names the missing scope.
func (r *rig) refusedScope(t *testing.T, c call, scope string) {
	t.Helper()
	a := r.do(t, c)
	if got := a.header.Get("Www-Authenticate"); a.status != 401 || !strings.Contains(got, `scope="`+scope+`"`) ||
		!strings.Contains(got, `error="insufficient_scope"`) {
		t.Errorf("%s %s by %s = %d %s, %s, want a challenge for %s", c.method, c.path, c.who, a.status, a.body, got, scope)
	}
}

// TestAttackTokenScope: a token that was requested for one repo is good for no other repo, for no other action, and not
// for the catalog, although the roles of its identity allow them. Nor can it be exchanged for a token that can do more.
func TestAttackTokenScope(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		r.pushImage(t, "acme/team/base", "v1", "layer of base")
		r.pushImage(t, "acme/team/built", "v1", "layer of built")
		const base, built = "/v2/acme/team/base/", "/v2/acme/team/built/"
		life := r.scoped(t, "puller", "owner", "repository:acme/team/base:pull").Life
		if life > 900 || life < 60 {
			t.Errorf("the token is valid for %d seconds", life)
		}
		r.want(t, call{method: "GET", path: base + "manifests/v1", who: "puller"}, 200)
		refused := func(t *testing.T) {
			for _, path := range []string{
				"manifests/v1", "tags/list", "blobs/" + sha([]byte("layer of built")), "referrers/" + sha([]byte("x")),
				"manifests/none",
			} {
				r.refusedScope(t, call{method: "GET", path: built + path, who: "puller"}, "repository:acme/team/built:pull")
			}
			r.refusedScope(t, call{method: "GET", path: "/v2/acme/none/app/manifests/v1", who: "puller"},
				"repository:acme/none/app:pull")
			r.refusedScope(t, call{method: "POST", path: base + "blobs/uploads/", who: "puller"},
				"repository:acme/team/base:pull,push")
			r.refusedScope(t, call{method: "DELETE", path: base + "manifests/v1", who: "puller"},
				"repository:acme/team/base:delete")
			r.refusedScope(t, call{method: "GET", path: "/v2/_catalog", who: "puller"}, "registry:catalog:*")
		}
		refused(t)
		r.scoped(t, "puller", "puller", "repository:acme/team/base:pull,push,delete repository:acme/team/built:*",
			"registry:catalog:*")
		refused(t)
		r.want(t, call{method: "GET", path: base + "manifests/v1", who: "puller"}, 200)
		r.scoped(t, "puller", "puller")
		refused(t)
		r.want(t, call{method: "GET", path: base + "manifests/v1", who: "puller"}, 200)
	})
}

// TestAttackMountOutOfScope: a token mounts no blob from a repo that it is not for, whether or not the client names the
// repo.
func TestAttackMountOutOfScope(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		attackMountOutOfScope(t, newRig(t, s, assembly.Config{}))
	})
}

func attackMountOutOfScope(t *testing.T, r *rig) {
	r.pushImage(t, "acme/team/base", "v1", "secret layer")
	layer := sha([]byte("secret layer"))
	const to = "/v2/acme/team/built/blobs/uploads/?mount="
	r.scoped(t, "pusher", "owner", "repository:acme/team/built:pull,push")
	for _, from := range []string{"acme/team/base", "acme/team/none"} {
		r.refusedScope(t, call{method: "POST", path: to + layer + "&from=" + from, who: "pusher"},
			"repository:acme/team/built:pull,push repository:"+from+":pull")
	}
	r.want(t, call{method: "POST", path: to + layer, who: "pusher"}, 202)
	r.scoped(t, "mounter", "owner", "repository:acme/team/built:pull,push", "repository:acme/team/base:push")
	r.want(t, call{method: "POST", path: to + layer + "&from=acme/team/base", who: "mounter"}, 401)
	r.scoped(t, "mounter", "owner", "repository:acme/team/built:pull,push", "repository:acme/team/base:pull")
	r.want(t, call{method: "POST", path: to + layer + "&from=acme/team/base", who: "mounter"}, 201)
	r.want(t, call{method: "POST", path: to + layer, who: "mounter"}, 201)
}

// TestTokenScopes checks the forms in which clients request scopes, and what the token is then good for.
func TestTokenScopes(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) { testTokenScopes(t, newRig(t, s, assembly.Config{})) })
}

func testTokenScopes(t *testing.T, r *rig) {
	r.pushImage(t, "acme/team/app", "v1", "layer")
	r.pushImage(t, "acme/team/other", "v1", "layer")
	can := func(t *testing.T, token string) (actions []string) {
		t.Helper()
		r.tokens["it"] = token
		for _, try := range []struct {
			name, method, path string
			good               int
		}{
			{"pull", "GET", "acme/team/app/manifests/v1", 200}, {"push", "POST", "acme/team/app/blobs/uploads/", 202},
			{"delete", "DELETE", "acme/team/app/manifests/none", 404}, {"create", "POST", "acme/team/new/blobs/uploads/", 202},
			{"other", "GET", "acme/team/other/manifests/v1", 200}, {"catalog", "GET", "_catalog", 200}, {"ping", "GET", "", 200},
		} {
			switch a := r.do(t, call{method: try.method, path: "/v2/" + try.path, who: "it"}); a.status {
			case try.good:
				actions = append(actions, try.name)
			case 401:
			default:
				t.Errorf("%s: %d %s", try.name, a.status, a.body)
			}
		}
		return actions
	}
	for name, tt := range map[string]struct {
		scopes []string
		want   string
	}{
		"none":             {nil, "ping"},
		"an empty one":     {[]string{""}, "ping"},
		"pull":             {[]string{"repository:acme/team/app:pull"}, "pull ping"},
		"pull and push":    {[]string{"repository:acme/team/app:pull,push"}, "pull push ping"},
		"in another order": {[]string{"repository:acme/team/app:push,pull"}, "pull push ping"},
		"delete":           {[]string{"repository:acme/team/app:delete"}, "delete ping"},
		"everything":       {[]string{"repository:acme/team/app:*"}, "pull push delete ping"},
		"a new repo":       {[]string{"repository:acme/team/new:pull,push"}, "create ping"},
		"two, repeated": {
			[]string{"repository:acme/team/app:pull", "repository:acme/team/other:pull"}, "pull other ping",
		},
		"two, with a space":  {[]string{"repository:acme/team/app:pull repository:acme/team/other:pull"}, "pull other ping"},
		"the same repo":      {[]string{"repository:acme/team/app:pull", "repository:acme/team/app:push"}, "pull push ping"},
		"the catalog":        {[]string{"registry:catalog:*"}, "catalog ping"},
		"a class":            {[]string{"repository(plugin):acme/team/app:pull"}, "pull ping"},
		"an unknown type":    {[]string{"chart:acme/team/app:pull"}, "ping"},
		"an unknown action":  {[]string{"repository:acme/team/app:fly,pull"}, "pull ping"},
		"no action":          {[]string{"repository:acme/team/app:"}, "ping"},
		"nothing of a scope": {[]string{"repository", ":::", "a:b"}, "ping"},
	} {
		q := url.Values{"service": {r.host}, "scope": tt.scopes, "client_id": {"test"}}
		get := r.readToken(t, call{method: "GET", path: "/v2/token?" + q.Encode(),
			headers: basicAuth("_token", r.tokens["owner"])})
		if got := strings.Join(can(t, get.Token), " "); got != tt.want {
			t.Errorf("%s: can %s, want %s", name, got, tt.want)
		}
		q.Set("grant_type", "password")
		q.Set("username", "_token")
		q.Set("password", r.tokens["owner"])
		post := r.readToken(t, call{method: "POST", path: "/v2/token", body: strings.NewReader(q.Encode()),
			headers: []string{"Content-Type", "application/x-www-form-urlencoded"}})
		if got := strings.Join(can(t, post.Token), " "); got != tt.want {
			t.Errorf("%s, in a form: can %s, want %s", name, got, tt.want)
		}
	}
	got := r.scoped(t, "x", "viewer", "repository:acme/team/app:push,pull").Scope
	if got != "repository:acme/team/app:pull" {
		t.Errorf("the scope is %q", got)
	}
	r.want(t, call{method: "POST", path: "/v2/acme/team/app/blobs/uploads/", who: "x"}, 403) // the reason, no challenge
	many := url.Values{"scope": {strings.Repeat("repository:acme/team/app:pull ", 1000)}}
	r.want(t, call{method: "GET", path: "/v2/token?" + many.Encode(),
		headers: basicAuth("_token", r.tokens["owner"])}, 400)
}

// TestOfflineToken: a client that wants a refresh token gets one, and gets tokens for other scopes with it.
func TestOfflineToken(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) { testOfflineToken(t, newRig(t, s, assembly.Config{})) })
}

func testOfflineToken(t *testing.T, r *rig) {
	r.pushImage(t, "acme/team/app", "v1", "layer")
	form := func(v url.Values) tokenAnswer {
		t.Helper()
		return r.readToken(t, call{method: "POST", path: "/v2/token", body: strings.NewReader(v.Encode()),
			headers: []string{"Content-Type", "application/x-www-form-urlencoded"}})
	}
	login := basicAuth("_token", r.tokens["viewer"])
	if got := r.readToken(t, call{method: "GET", path: "/v2/token", headers: login}); got.Refresh != "" {
		t.Error("a refresh token that was not requested")
	}
	one := r.readToken(t, call{method: "GET", path: "/v2/token?offline_token=true&account=_token", headers: login})
	two := form(url.Values{"grant_type": {"password"}, "username": {"_token"}, "password": {r.tokens["viewer"]},
		"access_type": {"offline"}})
	for _, refresh := range []string{one.Refresh, two.Refresh} {
		got := form(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh},
			"scope": {"repository:acme/team/app:pull"}})
		r.tokens["it"] = got.Token
		r.want(t, call{method: "GET", path: "/v2/acme/team/app/manifests/v1", who: "it"}, 200)
	}
	narrow := r.scoped(t, "narrow", "viewer", "repository:acme/team/app:pull")
	got := r.readToken(t, call{method: "GET", path: "/v2/token?offline_token=true",
		headers: basicAuth("_token", narrow.Token)})
	r.tokens["it"] = form(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {got.Refresh},
		"scope": {"registry:catalog:*"}}).Token
	r.refusedScope(t, call{method: "GET", path: "/v2/_catalog", who: "it"}, "registry:catalog:*")
	if got := r.readToken(t, call{method: "GET", path: "/v2/token?offline_token=true"}); got.Refresh != "" {
		t.Error("an anonymous client has a refresh token")
	}
}

// TestScopedTokenWorks: a client with a token for the repo, and a token for two repos, pushes, mounts, pulls and
// deletes. Public repos need no scope from clients without a login.
func TestScopedTokenWorks(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) { testScopedTokenWorks(t, newRig(t, s, assembly.Config{})) })
}

func testScopedTokenWorks(t *testing.T, r *rig) {
	r.pushImage(t, "acme/team/base", "v1", "layer")
	layer := sha([]byte("layer"))
	login := r.tokens["owner"]
	r.scoped(t, "owner", "owner", "repository:acme/team/base:pull", "repository:acme/team/fresh:pull,push")
	r.want(t, call{method: "POST", path: "/v2/acme/team/fresh/blobs/uploads/?mount=" + layer + "&from=acme/team/base",
		who: "owner"}, 201)
	r.pushImage(t, "acme/team/fresh", "v1", "another layer")
	r.want(t, call{method: "GET", path: "/v2/acme/team/fresh/tags/list", who: "owner"}, 200)
	r.want(t, call{method: "GET", path: "/v2/acme/team/fresh/referrers/" + layer, who: "owner"}, 200)
	r.tokens["owner"] = login
	r.scoped(t, "cleaner", "owner", "repository:acme/team/fresh:delete")
	r.want(t, call{method: "DELETE", path: "/v2/acme/team/fresh/manifests/v1", who: "cleaner"}, 202)
	r.scoped(t, "lister", "owner", "registry:catalog:*")
	if a := r.want(t, call{method: "GET", path: "/v2/_catalog", who: "lister"}, 200); !bytes.Contains(a.body,
		[]byte("acme/team/base")) {
		t.Errorf("the catalog is %s", a.body)
	}
	r.settings(t, r.org.UID, func(s *registry.Settings) { s.Public = true })
	r.tokens["nobody"] = r.readToken(t, call{method: "GET", path: "/v2/token?scope=repository:acme/team/base:pull"}).Token
	r.want(t, call{method: "GET", path: "/v2/acme/team/base/manifests/v1", who: "nobody"}, 200)
	r.scoped(t, "guest", "stranger", "repository:acme/team/base:pull")
	r.want(t, call{method: "GET", path: "/v2/acme/team/base/manifests/v1", who: "guest"}, 200)
}

// TestAttackCatalogPosition: a stranger names a private repo as the position from which the catalog continues. The
// answer is the same as for a repo that does not exist. A caller who may list the repo continues there.
func TestAttackCatalogPosition(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		r.pushImage(t, "acme/team/app", "v1", "layer")
		for _, who := range []string{"stranger", "owner"} {
			private := r.do(t, call{method: "GET", path: "/v2/_catalog?last=acme/team/app", who: who})
			missing := r.do(t, call{method: "GET", path: "/v2/_catalog?last=acme/team/xxx", who: who})
			same := private.status == missing.status &&
				strings.ReplaceAll(string(private.body), "app", "xxx") == string(missing.body)
			if same != (who == "stranger") {
				t.Errorf("%s gets %d %s, and %d %s for a missing repo", who, private.status, private.body, missing.status,
					missing.body)
			}
		}
	})
}

// TestAttackScopesNotHeld: a caller requests a token for more than the caller may do. The token and its answer contain
// only the actions that the caller holds, and they are the same for a private repo and a missing one.
func TestAttackScopesNotHeld(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		r.pushImage(t, "acme/team/app", "v1", "layer")
		scopes := func(who, name string) string {
			got := r.scoped(t, "x", who, "repository:"+name+":*").Scope
			return strings.TrimPrefix(got, "repository:"+name+":")
		}
		for who, want := range map[string][3]string{ // for an existing repo, a new one in its group, and one elsewhere
			"owner": {"pull,push,delete", "pull,push,delete", "pull,push,delete"}, "viewer": {"pull", "pull", "pull"},
			"registry.pull": {"pull", "pull", "pull"},
			"registry.push": {"pull,push,delete", "pull,push,delete", "pull,push,delete"},
			"stranger":      {"", "", ""},
		} {
			for i, name := range []string{"acme/team/app", "acme/team/new", "acme/none/app"} {
				if got := scopes(who, name); got != want[i] {
					t.Errorf("%s may %q %s, want %q", who, got, name, want[i])
				}
			}
		}
		r.scoped(t, "guest", "stranger", "repository:acme/team/app:pull", "repository:acme/team/none:pull")
		private := r.want(t, call{method: "GET", path: "/v2/acme/team/app/manifests/v1", who: "guest"}, 403)
		missing := r.want(t, call{method: "GET", path: "/v2/acme/team/none/manifests/v1", who: "guest"}, 403)
		if got := strings.ReplaceAll(string(missing.body), "none", "app"); got != string(private.body) {
			t.Errorf("a private repo: %s, a missing one: %s", private.body, got)
		}
		r.scoped(t, "early", "stranger", "repository:acme/team/app:pull")
		r.settings(t, r.org.UID, func(s *registry.Settings) { s.Public = true })
		r.refusedScope(t, call{method: "GET", path: "/v2/acme/team/app/manifests/v1", who: "early"},
			"repository:acme/team/app:pull") // the token does not grow, but the client can get another one
		if got := scopes("stranger", "acme/team/app"); got != "pull" {
			t.Errorf("a stranger may %q a public repo", got)
		}
	})
}

// TestMountWithoutPull: a client that may not pull from the repo of a blob uploads the blob, and gets no challenge for
// a token that it cannot get.
func TestMountWithoutPull(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		r.pushImage(t, "acme/team/base", "v1", "secret layer")
		r.bind(t, r.uids["stranger"], "owner", r.group(t, "", "mine").UID)
		r.scoped(t, "x", "stranger", "repository:mine/built:pull,push", "repository:acme/team/base:pull")
		r.want(t, call{method: "POST", who: "x", path: "/v2/mine/built/blobs/uploads/?mount=" +
			sha([]byte("secret layer")) + "&from=acme/team/base"}, 202)
	})
}
