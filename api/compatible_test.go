package api_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/registrydb"
	"github.com/holdfast-dev/holdfast/token"
)

// This file walks what clients written for the public API do, and what would stop
// them.

// push gives a repo a manifest named by a word, with tags.
func (w *world) push(t *testing.T, group, repo, word string, tags ...string) (digest string) {
	t.Helper()
	digest = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(word)))
	m := resource.Manifest{Digest: digest, MediaType: "application/vnd.oci.image.index.v1+json", Body: []byte(word)}
	_, err := w.store.PutManifest(t.Context(), registrydb.RepoRef{Group: resource.UID(group), Name: repo}, m, tags, nil)
	must(t, err)
	return digest
}

// holder returns the token of a new identity that holds capabilities in a group.
func (w *world) holder(t *testing.T, group, name string, capabilities ...string) string {
	t.Helper()
	role := w.make(t, "roles/"+string(w.org), `{"name":"`+name+`","capabilities":["`+strings.Join(capabilities, `","`)+`"]}`)
	identity := w.make(t, "identities/"+string(w.org), `{"name":"`+name+`","claimMatch":{"issuer":"https://ci.example.com","subject":"`+name+`"}}`)
	w.make(t, "roleBindings/"+group, `{"identityUid":"`+identity+`","roleUid":"`+role+`"}`)
	return w.mint(token.Claims{Subject: resource.UID(identity), Audience: []string{audience}, Life: 3600e9})
}

// A provisioning tool of version 1 never sends the digest of a tag: it sets the
// bundles of tags that a push has made.
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
	if changed.status != 200 || changed.field("digest") != digest || changed.field("deprecated") != true || !strings.Contains(changed.text, `"bundles":[]`) {
		t.Fatalf("update: %s", changed.text)
	}
	moved := w.push(t, folder, "app", "two", "v1")
	if got := w.do(t, "PUT /registry/v1/tags/"+tag, `{}`); got.field("digest") != moved {
		t.Errorf("update after a push: %s, want %s", got.text, moved)
	}
	for request, body := range map[string]string{
		"POST /registry/v1/tags/" + repo:      `{"name":"v2"}`,
		"POST /registry/v2beta1/tags/" + repo: `{"name":"v1"}`, // where it is required
		"PUT /registry/v1/tags/" + tag:        `{"digest":"sha256:x"}`,
	} {
		if got := w.do(t, request, body); got.status != 400 || strings.Join(got.violations(), " ") != "digest" {
			t.Errorf("%s %s: %s", request, body, got.text)
		}
	}
	asks := func(bearer, name string) answer {
		return w.do(t, "POST /registry/v1/tags/"+repo, `{"name":"`+name+`"}`, "Authorization", "Bearer "+bearer)
	}
	blind := w.holder(t, folder, "blind", "CAP_TAG_CREATE") // may tag, and may not see tags
	there, gone := asks(blind, "v1"), asks(blind, "v9")
	if there.status != 400 || strings.ReplaceAll(there.text, "v1", "v9") != gone.text {
		t.Errorf("to somebody who may not see tags: %s\nand %s", there.text, gone.text)
	}
	if got := asks(w.holder(t, folder, "reader", "CAP_TAG_LIST"), "v1"); got.status != 403 {
		t.Errorf("to a reader: %s", got.text)
	}
}

// A Google project has any id and number, as long as it has both. A claim may be
// required by its value and by a pattern.
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
		if got := w.do(t, "PATCH /iam/v2beta1/accountAssociations/"+folder, body); strings.Join(got.violations(), " ") != field {
			t.Errorf("%s: %s", body, got.text)
		}
	}
	claims := `"claims":{"team":"web"},"claimPatterns":{"team":"w.*"}`
	made = w.do(t, "POST /iam/v2beta1/identities/"+folder, `{"name":"ci","claimMatch":{"issuer":"https://ci.example.com","subject":"s",`+claims+`}}`)
	if made.status != 200 || !strings.Contains(made.text, claims) {
		t.Errorf("identity: %s", made.text)
	}
}
