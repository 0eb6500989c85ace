package api_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// The tests in this file make the requests of clients that were written for the public
// API, and check that these clients work.

// push stores a manifest with the content word in a repo, with tags. It returns the
// digest of the manifest.
func (w *world) push(t *testing.T, group, repo, word string, tags ...string) (digest string) {
	t.Helper()
	digest = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(word)))
	m := registry.Manifest{Digest: digest, MediaType: "application/vnd.oci.image.index.v1+json", Body: []byte(word)}
	_, err := w.store.PutManifest(t.Context(), registrydb.RepoRef{Group: resource.UID(group), Name: repo}, m, tags)
	must(t, err)
	return digest
}

// holder returns the token of a new identity that holds capabilities in a group.
func (w *world) holder(t *testing.T, group, name string, capabilities ...string) string {
	t.Helper()
	role := w.make(t, "roles/"+string(w.org),
		`{"name":"`+name+`","capabilities":["`+strings.Join(capabilities, `","`)+`"]}`)
	identity := w.make(t, "identities/"+string(w.org),
		`{"name":"`+name+`","claimMatch":{"issuer":"https://ci.example.com","subject":"`+name+`"}}`)
	w.make(t, "roleBindings/"+group, `{"identityUid":"`+identity+`","roleUid":"`+role+`"}`)
	return w.mint(token.Claims{Subject: resource.UID(identity), Audience: []string{audience}, Life: 3600e9})
}

// TestTagsWithoutDigest: a provisioning tool of version 1 never sends the digest of a
// tag. It only sets the bundles of tags that a push has created.
func TestTagsWithoutDigest(t *testing.T) {
	w := newWorld(t)
	folder := w.make(t, "groups/"+string(w.org), `{"name":"web"}`)
	repo, _ := w.do(t, "POST /registry/v2beta1/repos/"+folder, `{"name":"app"}`).field("uid").(string)
	digest := w.push(t, folder, "app", "one", "v1")
	made := w.do(t, "POST /registry/v1/tags/"+repo, `{"name":"v1","bundles":["base"]}`)
	if made.status != 200 || made.field("digest") != digest || !strings.Contains(made.text, `"bundles":["base"]`) {
		t.Fatalf("create: %s", made.text)
	}
	tag, _ := made.field("id").(string)
	changed := w.do(t, "PUT /registry/v1/tags/"+tag, `{"name":"v1","deprecated":true}`)
	if changed.status != 200 || changed.field("digest") != digest || changed.field("deprecated") != true ||
		!strings.Contains(changed.text, `"bundles":[]`) {
		t.Fatalf("update: %s", changed.text)
	}
	moved := w.push(t, folder, "app", "two", "v1")
	if got := w.do(t, "PUT /registry/v1/tags/"+tag, `{}`); got.field("digest") != moved {
		t.Errorf("update after a push: %s, want %s", got.text, moved)
	}
	for request, body := range map[string]string{
		"POST /registry/v1/tags/" + repo:      `{"name":"v2"}`,
		"POST /registry/v2beta1/tags/" + repo: `{"name":"v1"}`, // v2beta1 requires the digest
		"PUT /registry/v1/tags/" + tag:        `{"digest":"sha256:x"}`,
	} {
		if got := w.do(t, request, body); got.status != 400 || strings.Join(got.violations(), " ") != "digest" {
			t.Errorf("%s %s: %s", request, body, got.text)
		}
	}
	asks := func(bearer, name string) answer {
		return w.do(t, "POST /registry/v1/tags/"+repo, `{"name":"`+name+`"}`, "Authorization", "Bearer "+bearer)
	}
	blind := w.holder(t, folder, "blind", "CAP_TAG_CREATE") // may create tags, but not list them
	there, gone := asks(blind, "v1"), asks(blind, "v9")
	if there.status != 400 || strings.ReplaceAll(there.text, "v1", "v9") != gone.text {
		t.Errorf("to somebody who may not see tags: %s\nand %s", there.text, gone.text)
	}
	if got := asks(w.holder(t, folder, "reader", "CAP_TAG_LIST"), "v1"); got.status != 403 {
		t.Errorf("to a reader: %s", got.text)
	}
}

// TestLooseRules: the ID and the number of a Google project can have any form, but
// neither can be empty. A claim can be required both by its value and by a pattern.
func TestLooseRules(t *testing.T) {
	w := newWorld(t)
	folder := w.make(t, "groups/"+string(w.org), `{"name":"web"}`)
	project := `{"projectId":"example.com:Legacy_Project","projectNumber":"number 7"}`
	made := w.do(t, "POST /iam/v2beta1/accountAssociations/"+folder, `{"name":"a","google":`+project+`}`)
	if made.status != 200 || !strings.Contains(made.text, `"google":`+project) {
		t.Errorf("association: %s", made.text)
	}
	for field, body := range map[string]string{
		"google.project_id":     `{"google":{"projectId":""}}`,
		"google.project_number": `{"google":{"projectNumber":""}}`,
	} {
		if got := w.do(t, "PATCH /iam/v2beta1/accountAssociations/"+folder,
			body); strings.Join(got.violations(), " ") != field {
			t.Errorf("%s: %s", body, got.text)
		}
	}
	claims := `"claims":{"team":"web"},"claimPatterns":{"team":"w.*"}`
	made = w.do(t, "POST /iam/v2beta1/identities/"+folder,
		`{"name":"ci","claimMatch":{"issuer":"https://ci.example.com","subject":"s",`+claims+`}}`)
	if made.status != 200 || !strings.Contains(made.text, claims) {
		t.Errorf("identity: %s", made.text)
	}
}

// TestPageTokenAlone: the next page needs only the page token. If the request repeats
// parameters of the list, they must be the same as before.
func TestPageTokenAlone(t *testing.T) {
	w := newWorld(t)
	folder, other := w.make(t, "groups/"+string(w.org), `{"name":"web"}`), w.make(t, "groups/"+string(w.org),
		`{"name":"other"}`)
	for _, name := range []string{"a", "b", "c"} {
		w.make(t, "groups/"+folder, `{"name":"`+name+`"}`)
	}
	names := func(got answer) (all string) {
		groups, _ := got.json["groups"].([]any)
		for _, g := range groups {
			all += g.(map[string]any)["name"].(string)
		}
		return all
	}
	const list = "GET /iam/v2beta1/groups?page_size=1"
	first := w.do(t, list+"&order_by=name%20desc&uidp.children_of="+folder, "")
	next, _ := first.field("nextPageToken").(string)
	for given, want := range map[string]string{
		"":                               "b",
		"&order_by=name%20desc":          "b",
		"&skip=1":                        "a",
		"&order_by=name":                 "page_token",
		"&order_by=created_at":           "page_token",
		"&name=b":                        "page_token",
		"&uidp.in_root=true":             "page_token",
		"&uidp.children_of=" + folder:    "b",
		"&uidp.children_of=" + other:     "page_token",
		"&uidp.descendants_of=" + folder: "page_token",
	} {
		got := w.do(t, list+"&page_token="+next+given, "")
		if names(got)+strings.Join(got.violations(), " ") != want {
			t.Errorf("with %s: %s, want %s", given, got.text, want)
		}
	}
	second := w.do(t, list+"&page_token="+next, "")
	next, _ = second.field("nextPageToken").(string)
	if third := w.do(t, list+"&page_token="+next, ""); names(third) != "a" || third.field("totalCount") != "3" ||
		third.field("nextPageToken") != "" {
		t.Errorf("the last page: %s", third.text)
	}
	if got := w.do(t, "GET /iam/v2beta1/identities?page_token="+next,
		""); strings.Join(got.violations(), " ") != "page_token" {
		t.Errorf("for another list: %s", got.text)
	}
	// A page token grants nothing. It selects the list, and the caller's grants decide which
	// items the caller sees.
	reader := w.holder(t, other, "reader", "CAP_IAM_GROUPS_LIST")
	if got := w.do(t, list+"&page_token="+next, "", "Authorization", "Bearer "+reader); got.status != 200 ||
		names(got) != "" || got.field("totalCount") != "0" {
		t.Errorf("for somebody who may not see the folder: %s", got.text)
	}
}

// TestAssociationsOfGroup: an account association is found by its group. Its paths in
// version 1 also work in later versions.
func TestAssociationsOfGroup(t *testing.T) {
	w := newWorld(t)
	folder := w.make(t, "groups/"+string(w.org), `{"name":"web"}`)
	below := w.make(t, "groups/"+folder, `{"name":"below"}`)
	for _, group := range []string{string(w.org), folder, below} {
		w.make(t, "account_associations/"+group, `{"name":"a","amazon":{"account":"123456789012"}}`)
	}
	for query, want := range map[string]string{
		"": "3", "?uidp.descendants_of=" + folder: "2", "?uidp.children_of=" + folder: "1", "?uidp.children_of=" + below: "1",
		"?uidp.descendants_of=" + string(w.org): "3", "?uidp.ids=" + folder: "1",
	} {
		for _, path := range []string{
			"v2beta1/accountAssociations", "v2beta1/account_associations", "v2/account_associations",
		} {
			if got := w.do(t, "GET /iam/"+path+query, ""); got.field("totalCount") != want {
				t.Errorf("%s%s: %s, want %s", path, query, got.text, want)
			}
		}
	}
	viewer := string(resource.ManagedRoleUID("viewer"))
	binding := w.make(t, "rolebindings/"+folder, `{"identityUid":"`+string(w.owner.UID)+`","roleUid":"`+viewer+`"}`)
	batch := `{"requests":[{"roleBinding":{"identityUid":"` + string(w.owner.UID) + `","roleUid":"` + viewer + `"}}]}`
	if got := w.do(t, "POST /iam/v2beta1/rolebindings/batch/"+below, batch); got.status != 200 {
		t.Errorf("batch: %s", got.text)
	}
	if got := w.do(t, "DELETE /iam/v2beta1/rolebindings/"+binding, ""); got.status != 200 {
		t.Errorf("delete: %s", got.text)
	}
}

// TestExchangeErrors: the token service has the same errors as other services. The error
// code is at the start of a short body, because clients look for it there.
func TestExchangeErrors(t *testing.T) {
	w := newWorld(t)
	for request, want := range map[string]string{
		"GET /sts/exchange?aud=" + audience + "&identity=x":        "INVALID_ARGUMENT",
		"POST /sts/exchange?aud=" + audience:                       "UNAUTHENTICATED",
		"POST /sts/exchange_refresh_token?aud=" + audience:         "UNAUTHENTICATED",
		"POST /sts/exchange?aud=" + strings.Repeat("x&aud=", 1000): "INVALID_ARGUMENT",
		"GET /sts/nothing":  "NOT_FOUND",
		"PUT /sts/exchange": "UNIMPLEMENTED",
	} {
		got := w.do(t, request, "", "Authorization", "Bearer x")
		details, _ := got.json["details"].([]any)
		if len(details) == 0 || !strings.HasPrefix(got.text, `{"code":`) || len(got.text) > 4096 {
			t.Errorf("%s: %d %s", request, got.status, got.text)
			continue
		}
		info, _ := details[0].(map[string]any)
		if info["@type"] != "type.googleapis.com/google.rpc.ErrorInfo" || info["reason"] != want || info["domain"] != domain {
			t.Errorf("%s: %s, want %s", request, got.text, want)
		}
	}
}

// TestTagsByCreation: a tag has a creation time, which does not change when the tag
// moves. Lists can be ordered by it.
func TestTagsByCreation(t *testing.T) {
	w := newWorld(t)
	folder := w.make(t, "groups/"+string(w.org), `{"name":"web"}`)
	repo, _ := w.do(t, "POST /registry/v2beta1/repos/"+folder, `{"name":"app"}`).field("uid").(string)
	w.store.Now = func() time.Time { return w.now }
	for _, tag := range []string{"c", "a", "b"} {
		w.now = w.now.Add(time.Second)
		w.push(t, folder, "app", "one "+tag, tag)
	}
	w.now = w.now.Add(time.Second)
	w.push(t, folder, "app", "two", "c") // moves tag c
	for query, want := range map[string]string{
		"order_by=created_at": "cab", "order_by=create_time%20desc": "bac", "order_by=createTime": "cab",
		"order_by=updated_at": "abc",
	} {
		for _, place := range []string{"", "&uidp.children_of=" + repo, "&uidp.descendants_of=" + folder} {
			got := w.do(t, "GET /registry/v2beta1/tags?"+query+place, "")
			tags, _ := got.json["tags"].([]any)
			var names string
			for _, tag := range tags {
				names += tag.(map[string]any)["name"].(string)
			}
			if names != want {
				t.Errorf("%s%s: %s, want %s", query, place, got.text, want)
			}
		}
	}
	first := w.do(t, "GET /registry/v2beta1/tags?order_by=created_at&page_size=1", "")
	tag, _ := first.json["tags"].([]any)[0].(map[string]any)
	made, _ := tag["createTime"].(string)
	if made == "" || made >= tag["updateTime"].(string) {
		t.Errorf("the first tag: %s", first.text)
	}
}

// TestUpdateInvite: a caller may change an unused invite if it could create the changed
// invite.
func TestUpdateInvite(t *testing.T) {
	w := newWorld(t)
	folder := w.make(t, "groups/"+string(w.org), `{"name":"web"}`)
	viewer, owner := string(resource.ManagedRoleUID("viewer")), string(resource.ManagedRoleUID("owner"))
	made := w.do(t, "POST /iam/v2beta1/groupInvites/"+folder,
		`{"roleUid":"`+viewer+`","ttl":"3600s","email":"ann@example.com"}`)
	uid, _ := made.field("uid").(string)
	if made.field("updateTime") != made.field("createTime") {
		t.Errorf("create: %s", made.text)
	}
	w.now = w.now.Add(time.Second)
	w.store.Now = func() time.Time { return w.now }
	change := func(body, query string, header ...string) answer {
		return w.do(t, "PATCH /iam/v2beta1/groupInvites/"+uid+query, body, header...)
	}
	later := w.now.UTC().Add(48 * time.Hour).Format("2006-01-02T15:04:05.000Z")
	got := change(`{"email":"bob@example.com","roleUid":"`+owner+`","expirationTime":"`+later+`"}`, "")
	if got.status != 200 || got.field("email") != "bob@example.com" || got.field("roleUid") != owner ||
		got.field("role.name") != "owner" ||
		got.field("expirationTime") != later || got.field("code") != "" || got.field("keyId") != made.field("keyId") ||
		got.field("createTime") != made.field("createTime") || got.field("updateTime") == made.field("updateTime") {
		t.Fatalf("update: %s", got.text)
	}
	if read := w.do(t, "GET /iam/v2beta1/groupInvites/"+uid, ""); read.text != got.text {
		t.Errorf("get: %s\nwant %s", read.text, got.text)
	}
	if echo := change(got.text, ""); echo.status != 200 || echo.field("expirationTime") != later {
		t.Errorf("what was answered, sent back: %s", echo.text)
	}
	soon := w.now.UTC().Add(time.Hour).Truncate(time.Millisecond).Format("2006-01-02T15:04:05.000Z")
	if got := change(`{"ttl":"3600s","email":""}`, "?updateMask=ttl"); got.field("expirationTime") != soon ||
		got.field("email") != "bob@example.com" {
		t.Errorf("by ttl: %s, want %s", got.text, soon)
	}
	for body, fields := range map[string]string{
		`{"ttl":"1s"}`: "ttl",
		`{"ttl":"3600s","expirationTime":"` + later + `"}`:               "ttl",
		`{"expirationTime":"2020-01-01T00:00:00Z"}`:                      "expiration_time",
		`{"expirationTime":"2099-01-01T00:00:00Z"}`:                      "expiration_time",
		`{"expirationTime":null}`:                                        "expiration_time",
		`{"email":"Bob <bob@example.com>"}`:                              "email",
		`{"roleUid":""}`:                                                 "role_uid",
		`{"roleUid":"` + folder + `/0123456789abcdef/0123456789abcdef"}`: "role_uid",
		`{"singleUse":true}`:                                             "single_use",
		`{"singleuse":true}`:                                             "singleuse",
	} {
		if got := change(body, ""); got.status != 400 || strings.Join(got.violations(), " ") != fields {
			t.Errorf("%s: %s, want a complaint about %s", body, got.text, fields)
		}
	}
	inviter := w.holder(t, folder, "inviter", "CAP_IAM_GROUP_INVITES_CREATE", "CAP_IAM_GROUP_INVITES_LIST",
		"CAP_IAM_ROLE_BINDINGS_CREATE", "CAP_IAM_ROLES_LIST")
	few := resource.NewCapabilities(resource.GroupInvitesCreate, resource.RoleBindingsCreate)
	narrow := token.Claims{Subject: w.owner.UID, Audience: []string{audience}, Life: time.Hour, Caps: &few}
	for name, bearer := range map[string]string{
		"who lacks the role": inviter,
		"an inviter of another tree": w.holder(t, w.make(t, "groups/"+string(w.org), `{"name":"other"}`), "elsewhere",
			"CAP_IAM_GROUP_INVITES_CREATE", "CAP_IAM_ROLE_BINDINGS_CREATE"),
		"a reader":         w.holder(t, folder, "readers", "CAP_IAM_GROUP_INVITES_LIST"),
		"a narrowed owner": w.mint(narrow),
	} {
		// The first two changes keep the role, the third replaces it.
		for _, body := range []string{`{"email":"eve@example.com"}`, `{"ttl":"7200s"}`, `{"roleUid":"` + owner + `"}`} {
			if got := change(body, "", "Authorization", "Bearer "+bearer); got.status != 403 {
				t.Errorf("%s: %s: %d %s", name, body, got.status, got.text)
			}
		}
	}
	lesser := w.make(t, "roles/"+string(w.org), `{"name":"lesser","capabilities":["CAP_IAM_ROLES_LIST"]}`)
	if got := change(`{"roleUid":"`+lesser+`"}`, "", "Authorization", "Bearer "+inviter); got.status != 200 {
		t.Errorf("to a role that the inviter holds: %s", got.text)
	}
	for _, missing := range []string{folder + "/0123456789abcdef", string(w.org) + uid[strings.LastIndex(uid, "/"):]} {
		if got := w.do(t, "PATCH /iam/v2beta1/groupInvites/"+missing, `{"email":""}`); got.status != 404 {
			t.Errorf("%s: %s", missing, got.text)
		}
	}
	w.do(t, "DELETE /iam/v2beta1/groupInvites/"+uid, "")
	if got := change(`{"email":""}`, ""); got.status != 404 {
		t.Errorf("of a deleted one: %s", got.text)
	}
}

// TestLongNames: a name may have 1024 characters. The name of a group may have only 128,
// because the paths of repos contain it. The error states the maximum.
func TestLongNames(t *testing.T) {
	w := newWorld(t)
	org, long := string(w.org), strings.Repeat("n", 1024)
	viewer := string(resource.ManagedRoleUID("viewer"))
	rest := map[string]string{
		"roles":               `"capabilities":["CAP_IAM_GROUPS_LIST"]`,
		"identities":          `"claimMatch":{"issuer":"https://ci.example.com","subject":"s"}`,
		"identityProviders":   `"defaultRole":"` + viewer + `",` + oidc,
		"accountAssociations": `"amazon":{"account":"123456789012"}`,
	}
	for kind, fields := range rest {
		w.make(t, kind+"/"+org, `{"name":"`+long+`",`+fields+`}`)
		got := w.do(t, "GET /iam/v2beta1/"+kind+"?page_size=1&order_by=name&uidp.descendants_of="+org+"&name="+long, "")
		if !strings.Contains(got.text, `"name":"`+long+`"`) {
			t.Errorf("%s: %s", kind, got.text)
		}
		if got := w.do(t, "POST /iam/v2beta1/"+kind+"/"+org,
			`{"name":"`+long+`n",`+fields+`}`); !strings.Contains(got.text, "at most 1024 characters") {
			t.Errorf("one more: %s", got.text)
		}
	}
	w.make(t, "groups/"+org, `{"name":"`+long[:128]+`"}`)
	if got := w.do(t, "POST /iam/v2beta1/groups/"+org,
		`{"name":"`+long[:129]+`"}`); !strings.Contains(got.text, "at most 128 characters, because the paths of repos") {
		t.Errorf("a group: %s", got.text)
	}
}
