package assembly_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// mintNarrow returns a registry token that is narrowed to a group.
func (r *rig) mintNarrow(t *testing.T, identity, group resource.UID) string {
	t.Helper()
	raw, err := r.issuer.Mint(t.Context(), token.Claims{
		Subject: identity, Audience: []string{r.host}, Scopes: []resource.UID{group},
	})
	must(t, err)
	return raw
}

// TestAttackNarrowedToOnePlace: an owner's token is narrowed to a group. It cannot copy images into another group or
// from there, sync from there, or mount blobs from there. Within its group, it can.
func TestAttackNarrowedToOnePlace(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		r.pushImage(t, "acme/team/app", "v1", "a layer of the team")
		r.pushImage(t, "acme/prod/own", "v1", "a layer of production")
		own := r.repo(t, "acme/prod/own").UID
		narrowed := authz.WithCaller(t.Context(),
			authz.Caller{Identity: r.uids["owner"], Scopes: []resource.UID{r.prod.UID}})
		copying := func(group, from resource.UID, to string) error {
			_, err := r.service.CopyImages(narrowed,
				registry.CopyRequest{Group: group, Repo: to, From: from, References: []string{"v1"}})
			return err
		}
		testkit.WantFault(t, copying(r.prod.UID, r.source.UID, "stolen"), fault.PermissionDenied, fault.Resource{})
		testkit.WantFault(t, copying(r.folder.UID, own, "planted"), fault.PermissionDenied, fault.Resource{})
		must(t, copying(r.prod.UID, own, "copied"))
		_, err := r.service.CreateRepo(narrowed, r.prod.UID, following("stolen", "acme/team/app"))
		testkit.WantFault(t, err, fault.InvalidArgument, fault.Resource{})
		_, err = r.service.CreateRepo(narrowed, r.folder.UID, following("planted", "acme/prod/own"))
		testkit.WantFault(t, err, fault.PermissionDenied, fault.Resource{})
		_, err = r.service.CreateRepo(narrowed, r.prod.UID, following("following", "acme/prod/own"))
		must(t, err)
		r.tokens["narrowed"] = r.mintNarrow(t, r.uids["owner"], r.prod.UID)
		for layer, want := range map[string]int{
			"a layer of the team&from=acme/team/app": http.StatusAccepted, "a layer of the team": http.StatusAccepted,
			"a layer of production&from=acme/prod/own": http.StatusCreated, "a layer of production": http.StatusCreated,
		} {
			content, from, _ := bytes.Cut([]byte(layer), []byte("&"))
			path := "/v2/acme/prod/mounted/blobs/uploads/?mount=" + sha(content) + "&" + string(from)
			r.want(t, call{method: http.MethodPost, path: path, who: "narrowed"}, want)
		}
	})
}

// TestAttackUploadOfDeletedRepo: a caller who may push, but not create repos, completes an upload after the repo was
// deleted. The repo does not appear again. A caller who may create repos creates it again.
func TestAttackUploadOfDeletedRepo(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		role := resource.Role{UID: r.org.UID.NewChild(), Name: "pushes", CreateTime: s.Now(), UpdateTime: s.Now(),
			Capabilities: resource.CapabilitySet("manifest.create", "tag.create", "manifest.list", "repo.blobs.get")}
		must(t, s.InsertRole(t.Context(), role))
		_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{{
			UID: r.org.UID.NewChild(), Identity: r.uids["stranger"], Role: role.UID, CreateTime: s.Now(),
		}})
		must(t, err)
		content := []byte("a layer")
		for who, want := range map[string]int{"stranger": http.StatusForbidden, "registry.push": http.StatusCreated} {
			r.pushImage(t, "acme/team/gone", "v1", "before")
			repo := r.repo(t, "acme/team/gone")
			begun := r.want(t, call{method: http.MethodPost, path: "/v2/acme/team/gone/blobs/uploads/", who: who},
				http.StatusAccepted)
			at := begun.header.Get("Location")
			r.want(t, call{method: http.MethodPatch, path: at, who: who, body: bytes.NewReader(content)},
				http.StatusAccepted)
			must(t, r.service.DeleteRepo(r.as(t, "owner"), repo.UID))
			r.want(t, call{method: http.MethodPut, path: at + "?digest=" + sha(content), who: who}, want)
			_, err = s.RepoAt(t.Context(), []string{"acme", "team", "gone"})
			if exists := err == nil; exists != (want == http.StatusCreated) {
				t.Errorf("the repo exists after the upload by %s: %v", who, exists)
			}
		}
	})
}
