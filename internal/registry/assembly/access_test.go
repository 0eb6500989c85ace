package assembly_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func digestOf(b []byte) digest.Digest { return digest.FromBytes(b) }

// TestWhoMayDoWhat checks for every endpoint that exactly the right roles may use it, that others get status 403, and
// that requests without a valid token get a challenge.
func TestWhoMayDoWhat(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	m := r.pushImage(t, "acme/team/app", "v1", "layer")
	layer := sha([]byte("layer"))
	pull := []string{"owner", "editor", "viewer", "registry.push", "registry.pull"}
	list := append([]string{"console_viewer"}, pull...)
	push := []string{"owner", "registry.push"}
	tests := map[string]struct {
		method, path string
		may          []string
		status       int
	}{
		"read a blob":         {"GET", "blobs/" + layer, pull, 200},
		"look for a blob":     {"HEAD", "blobs/" + layer, pull, 200},
		"read a manifest":     {"GET", "manifests/v1", list, 200},
		"look for a manifest": {"HEAD", "manifests/" + sha(m), list, 200},
		"list tags":           {"GET", "tags/list", list, 200},
		"list referrers":      {"GET", "referrers/" + layer, list, 200},
		"begin an upload":     {"POST", "blobs/uploads/", push, 202},
		"delete a blob":       {"DELETE", "blobs/" + sha([]byte("none")), push, 404},
		"delete a manifest":   {"DELETE", "manifests/" + sha([]byte("none")), push, 404},
		"delete a tag":        {"DELETE", "manifests/none", push, 404},
		"push a manifest":     {"PUT", "manifests/v1", push, 400},
		"look at an upload":   {"GET", "blobs/uploads/none", push, 404},
		"add to an upload":    {"PATCH", "blobs/uploads/none", push, 404},
		"end an upload":       {"PUT", "blobs/uploads/none?digest=" + layer, push, 404},
		"cancel an upload":    {"DELETE", "blobs/uploads/none", push, 404},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, repo := range []string{"acme/team/app", "acme/team/none", "acme/none/app"} {
				for _, who := range append([]string{"stranger"}, roles...) {
					a := r.do(t, call{method: tt.method, path: "/v2/" + repo + "/" + tt.path, who: who})
					may := strings.Contains(" "+strings.Join(tt.may, " ")+" ", " "+who+" ")
					switch {
					case !may && (a.status != 403 || tt.method != "HEAD" && a.code() != "DENIED"):
						t.Errorf("%s %s = %d %s, want 403", who, repo, a.status, a.body)
					case may && repo == "acme/team/app" && a.status != tt.status:
						t.Errorf("%s %s = %d %s, want %d", who, repo, a.status, a.body, tt.status)
					case may && a.status == 401:
						t.Errorf("%s %s = %d", who, repo, a.status)
					}
				}
				for _, who := range []string{"", "api"} { // no token, and a token for the API instead of the registry
					a := r.do(t, call{method: tt.method, path: "/v2/" + repo + "/" + tt.path, who: who})
					if a.status != 401 ||
						!strings.Contains(a.header.Get("Www-Authenticate"), `scope="repository:`+repo) {
						t.Errorf("%q %s = %d, %s", who, repo, a.status, a.header.Get("Www-Authenticate"))
					}
				}
			}
		})
	}
}

func TestLogin(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	good := r.tokens["viewer"]
	basic := func(user, password string) []string {
		return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}
	}
	form := func(pairs ...string) (call, url.Values) {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return call{method: "POST", path: "/v2/token", body: strings.NewReader(v.Encode()),
			headers: []string{"Content-Type", "application/x-www-form-urlencoded"}}, v
	}
	password, _ := form("grant_type", "password", "username", "_token", "password", good)
	refresh, _ := form("grant_type", "refresh_token", "refresh_token", good)
	wrongUser, _ := form("grant_type", "password", "username", "me", "password", good)
	wrongGrant, _ := form("grant_type", "magic")
	tests := map[string]struct {
		call   call
		status int
		life   int // shortest life of the token, in seconds; 0 means no token
	}{
		"basic":                  {call{method: "GET", path: "/v2/token", headers: basic("_token", good)}, 200, 890},
		"a form":                 {password, 200, 890},
		"a refresh token":        {refresh, 200, 890},
		"nobody":                 {call{method: "GET", path: "/v2/token"}, 200, 3500},
		"another user":           {call{method: "GET", path: "/v2/token", headers: basic("me", good)}, 401, 0},
		"another user in a form": {wrongUser, 401, 0},
		"another way":            {wrongGrant, 400, 0},
		"a token for the API": {call{method: "GET", path: "/v2/token",
			headers: basic("_token", r.tokens["api"])}, 401, 0},
		"no token":               {call{method: "GET", path: "/v2/token", headers: basic("_token", "")}, 401, 0},
		"basic without a detour": {call{method: "GET", path: "/v2/", headers: basic("_token", good)}, 200, 0},
		"a scheme nobody knows": {call{method: "GET", path: "/v2/",
			headers: []string{"Authorization", "Digest x"}}, 401, 0},
		"a bearer of nothing": {call{method: "GET", path: "/v2/", headers: []string{"Authorization", "Bearer "}},
			401, 0},
		"what is given to nobody": {call{method: "GET", path: "/v2/",
			headers: []string{"Authorization", "Bearer anonymous"}}, 200, 0},
		"a token that was changed": {call{method: "GET", path: "/v2/",
			headers: []string{"Authorization", "Bearer " + good + "x"}}, 401, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := r.want(t, tt.call, tt.status)
			var got struct {
				Token     string
				ExpiresIn int `json:"expires_in"`
			}
			if tt.life == 0 {
				return
			}
			must(t, json.Unmarshal(a.body, &got))
			if got.Token == "" || got.Token == good || got.ExpiresIn < tt.life {
				t.Errorf("answer = %s", a.body)
			}
		})
	}
}

func TestPublicGroups(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		m := r.pushImage(t, "acme/team/app", "v1", "layer")
		r.tokens["nobody"] = "anonymous"
		reads := map[string]string{
			"manifests/v1": "GET", "blobs/" + sha([]byte("layer")): "GET", "tags/list": "GET",
			"referrers/" + sha(m): "GET",
		}
		for path, method := range reads {
			r.want(t, call{method: method, path: "/v2/acme/team/app/" + path, who: "nobody"}, 401)
		}
		r.settings(t, r.org.UID, func(s *registry.Settings) { s.Public = true })
		for path, method := range reads {
			r.want(t, call{method: method, path: "/v2/acme/team/app/" + path, who: "nobody"}, 200)
			r.want(t, call{method: method, path: "/v2/acme/team/app/" + path, who: "stranger"}, 200)
			r.want(t, call{method: method, path: "/v2/acme/team/app/" + path}, 200)
		}
		r.want(t, call{method: "POST", path: "/v2/acme/team/app/blobs/uploads/", who: "nobody"}, 401)
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/v1", who: "nobody"}, 401)
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/v1", who: "stranger"}, 403)
		r.want(t, call{method: "GET", path: "/v2/acme/none/app/tags/list", who: "nobody"}, 401)
		r.settings(t, r.folder.UID, func(s *registry.Settings) { s.Public = false })
		r.want(t, call{method: "GET", path: "/v2/acme/team/app/manifests/v1", who: "nobody"}, 401)
	})
}

func TestPushCreatesTheRepo(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	a := r.want(t, call{method: "POST", path: "/v2/acme/no/such/blobs/uploads/", who: "owner"}, 403)
	if !strings.Contains(string(a.body), "there is no group for acme/no/such") {
		t.Errorf("body = %s", a.body)
	}
	r.want(t, call{method: "POST", path: "/v2/other/app/blobs/uploads/", who: "owner"}, 403)
	r.want(t, call{method: "POST", path: "/v2/app/blobs/uploads/", who: "owner"}, 403)
	r.pushImage(t, "acme/first", "v1", "layer") // a push by the owner creates the repo
	r.settings(t, r.folder.UID, func(s *registry.Settings) { s.NoCreateOnPush = true })
	a = r.want(t, call{method: "POST", path: "/v2/acme/team/app/blobs/uploads/", who: "owner"}, 403)
	if a.code() != "DENIED" || !strings.Contains(string(a.body), "does not create one on push") {
		t.Errorf("body = %s", a.body)
	}
	now := s.Now()
	must(t, s.InsertRepo(t.Context(),
		registry.Repo{UID: r.folder.UID.NewChild(), Name: "app", CreateTime: now, UpdateTime: now}))
	r.pushImage(t, "acme/team/app", "v1", "layer")
	// A caller that may push but may not create repos can push only to existing repos.
	caps := resource.CapabilitySet("manifest.create", "tag.create", "repo.blobs.get", "manifest.list")
	role := resource.Role{UID: r.org.UID.NewChild(), Name: "pusher", Capabilities: caps, CreateTime: now,
		UpdateTime: now}
	must(t, s.InsertRole(t.Context(), role))
	_, err := s.InsertBindings(t.Context(),
		[]resource.RoleBinding{{UID: r.org.UID.NewChild(), Identity: r.uids["stranger"], Role: role.UID,
			CreateTime: now}})
	must(t, err)
	r.want(t, call{method: "POST", path: "/v2/acme/first/blobs/uploads/", who: "stranger"}, 202)
	r.want(t, call{method: "POST", path: "/v2/acme/second/blobs/uploads/", who: "stranger"}, 403)
}

func TestImmutableTags(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		m := r.pushImage(t, "acme/team/app", "v1", "one")
		r.settings(t, r.org.UID, func(s *registry.Settings) {
			s.ImmutableTags, s.ImmutableExcept = true, []string{"latest", "dev-*"}
		})
		other := image(r.pushBlob(t, "acme/team/app", []byte("{}")))
		a := r.want(t, r.putting("acme/team/app", "v1", other), 409)
		if a.code() != "DENIED" || !strings.Contains(string(a.body), "tag v1 is immutable here") {
			t.Errorf("body = %s", a.body)
		}
		r.want(t, r.putting("acme/team/app", "v1", m), 201) // allowed, because the tag already points to this image
		for _, tag := range []string{"latest", "dev-1", "v2"} {
			r.want(t, r.putting("acme/team/app", tag, m), 201)
		}
		r.want(t, r.putting("acme/team/app", "latest", other), 201)
		r.want(t, r.putting("acme/team/app", "dev-1", other), 201)
		r.want(t, r.putting("acme/team/app", "v2", other), 409)
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/v1", who: "owner"}, 405)
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/" + sha(m), who: "owner"}, 405)
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/latest", who: "owner"}, 202)
		a = r.want(t, call{method: "GET", path: "/v2/acme/team/app/manifests/v1", who: "viewer"}, 200)
		if !bytes.Equal(a.body, m) {
			t.Error("the tag moved")
		}
	})
}

// TestMountNeedsPull checks that a caller cannot read a blob of another organization by mounting it.
func TestMountNeedsPull(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	r.pushImage(t, "acme/team/app", "v1", "secret")
	secret := sha([]byte("secret"))
	mine := r.group(t, "", "mine")
	r.bind(t, r.uids["stranger"], "owner", mine.UID)
	for _, from := range []string{"", "&from=acme/team/app", "&from=acme/none", "&from=..", "&from=mine/x"} {
		r.want(t, call{method: "POST", path: "/v2/mine/app/blobs/uploads/?mount=" + secret + from, who: "stranger"},
			202)
	}
	r.want(t, call{method: "GET", path: "/v2/mine/app/blobs/" + secret, who: "stranger"}, 404)
	r.bind(t, r.uids["stranger"], "registry.pull", r.folder.UID)
	r.want(t, call{method: "POST", path: "/v2/mine/app/blobs/uploads/?mount=" + secret, who: "stranger"}, 201)
	r.want(t, call{method: "GET", path: "/v2/mine/app/blobs/" + secret, who: "stranger"}, 200)
	r.want(t, call{method: "POST", path: "/v2/mine/two/blobs/uploads/?from=acme/team/app&mount=" + secret,
		who: "stranger"}, 201)
}

func TestCatalogShowsWhatTheCallerMaySee(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	for _, repo := range []string{"acme/a", "acme/team/b", "acme/team/c"} {
		r.pushImage(t, repo, "v1", "layer")
	}
	r.bind(t, r.uids["stranger"], "registry.pull", r.folder.UID)
	seen := func(who, query string) (names []string, next string) {
		a := r.want(t, call{method: "GET", path: "/v2/_catalog" + query, who: who}, 200)
		var got struct{ Repositories []string }
		must(t, json.Unmarshal(a.body, &got))
		next, _, _ = strings.Cut(strings.TrimPrefix(a.header.Get("Link"), "</v2/_catalog"), ">")
		return got.Repositories, next
	}
	if all, _ := seen("viewer", ""); len(all) != 3 {
		t.Errorf("repositories = %v", all)
	}
	if some, _ := seen("stranger", ""); len(some) != 2 {
		t.Errorf("repositories = %v", some)
	}
	first, next := seen("viewer", "?n=2")
	rest, end := seen("viewer", next)
	if len(first) != 2 || len(rest) != 1 || end != "" {
		t.Errorf("pages = %v, %v, then %q", first, rest, end)
	}
}

// TestCreateGroupsOnPush checks that a push creates missing groups only if the settings allow it and the caller may
// create groups.
func TestCreateGroupsOnPush(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		index := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
		push := func(who, path string) answer {
			return r.do(t, call{method: "PUT", path: "/v2/" + path + "/manifests/v1", who: who, body: bytes.NewReader(index),
				headers: []string{"Content-Type", "application/vnd.oci.image.index.v1+json"}})
		}
		start := func(who, path string) answer {
			return r.do(t, call{method: "POST", path: "/v2/" + path + "/blobs/uploads/", who: who})
		}
		there := func(names ...string) bool {
			_, err := s.GroupAt(t.Context(), names)
			return err == nil
		}
		if a := push("owner", "acme/new/app"); a.status != 403 || there("acme", "new") {
			t.Errorf("where it is not set: %d %s", a.status, a.body)
		}
		on := func(set *registry.Settings) { set.CreateGroups = true }
		r.settings(t, r.org.UID, on)
		now := s.Now()
		role := resource.Role{UID: r.org.UID.NewChild(), Name: "pusher", CreateTime: now, UpdateTime: now,
			Capabilities: resource.CapabilitySet("manifest.create", "tag.create", "repo.create")} // lacks groups.create
		must(t, s.InsertRole(t.Context(), role))
		_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{
			{UID: r.org.UID.NewChild(), Identity: r.uids["stranger"], Role: role.UID, CreateTime: now},
		})
		must(t, err)
		for who, want := range map[string]int{"stranger": 403, "viewer": 403, "": 401} {
			for _, do := range []func(string, string) answer{push, start} {
				if a := do(who, "acme/new/app"); a.status != want || there("acme", "new") {
					t.Errorf("%q: %d %s", who, a.status, a.body)
				}
			}
		}
		for _, path := range []string{"acme/new/app", "acme/team/new/deeper/app"} {
			for range 2 {
				if a := push("owner", path); a.status != 201 {
					t.Errorf("%s: %d %s", path, a.status, a.body)
				}
			}
		}
		if a := start("owner", "acme/uploaded/app"); a.status != 202 || !there("acme", "uploaded") {
			t.Errorf("an upload: %d %s", a.status, a.body)
		}
		r.pushImage(t, "acme/image/of/blobs", "v1", "layer")
		for name, path := range map[string]string{
			"no organization": "none/new/app", "another's": "other/new/app",
			"too deep": "acme" + strings.Repeat("/d", 16) + "/app",
		} {
			if a := push("owner", path); a.status != 403 && a.status != 400 {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
		r.want(t, call{method: "GET", path: "/v2/acme/pulled/app/manifests/v1", who: "owner"}, 404)
		r.want(t, call{method: "PATCH", path: "/v2/acme/patched/app/blobs/uploads/x", who: "owner"}, 403)
		if there("none") || there("acme", "d") || there("acme", "pulled") || there("acme", "patched") {
			t.Error("groups were created")
		}
		r.settings(t, r.folder.UID, func(set *registry.Settings) { set.NoCreateOnPush = true })
		if a := push("owner", "acme/team/closed/app"); a.status != 403 || there("acme", "team", "closed") {
			t.Errorf("where repos are not created: %d %s", a.status, a.body)
		}
	})
}

// TestCreateGroupsOnPushAtOnce checks that concurrent pushes succeed if they are the first below the same new groups.
func TestCreateGroupsOnPushAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		r.settings(t, r.org.UID, func(set *registry.Settings) { set.CreateGroups = true })
		for round := range 5 {
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() { r.pushImage(t, fmt.Sprintf("acme/at-once-%d/deep/app%d", round, i), "v1", "layer") })
			}
			all.Wait()
		}
		drifts, err := s.Drifts(t.Context())
		must(t, err)
		if len(drifts) > 0 {
			t.Errorf("counters: %v", drifts)
		}
	})
}
