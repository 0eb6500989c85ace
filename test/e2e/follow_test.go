package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// follower creates a repo that syncs from another repo, and returns its UID.
func (w *world) follower(t *testing.T, group, name, source string) string {
	t.Helper()
	in := &registrypb.CreateRepoRequest{
		Parent: group, Repo: &registrypb.Repo{Name: name, SyncConfig: &registrypb.SyncConfig{Source: source}},
	}
	return must[*registrypb.Repo](t, w.overGRPC, w.Token, in).GetUid()
}

// stands waits until the sync of a repo has the given state, and returns the sync.
func (w *world) stands(t *testing.T, repo string, want ocipb.SyncState) (s *ocipb.Sync) {
	t.Helper()
	procUntil(t, fmt.Sprintf("the sync of %s is %s", repo, want), func() bool {
		s = must[*ocipb.Sync](t, w.overGRPC, w.Token, &ocipb.GetSyncRequest{Uid: repo})
		return s.GetState() == want
	})
	return s
}

func (w *world) equal(t *testing.T, repo string) *ocipb.Sync {
	t.Helper()
	return w.stands(t, repo, ocipb.SyncState_SYNC_STATE_EQUAL)
}

// TestFollow checks that a synced repo gets the pushes to its source and the deletions in it, and that version 1 of
// the API returns the sync status.
func TestFollow(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		staging, prod := w.child(t, string(w.Organization), "staging"), w.child(t, string(w.Organization), "prod")
		source := w.repo(t, staging, "app")
		w.pushIndex(t, "dev/staging/app", "1.0", "amd64", "arm64")
		repo := w.follower(t, prod, "app", "dev/staging/app")
		has := func(tag string, want int) {
			t.Helper()
			procUntil(t, tag, func() bool {
				return w.askRegistry(t, w.RegistryToken, "GET", "dev/prod/app/manifests/"+tag) == want
			})
		}
		has("1.0", http.StatusOK)
		w.pushImage(t, "dev/staging/app", "1.1", "amd64", "a later layer")
		has("1.1", http.StatusOK)
		got := w.askRegistry(t, w.RegistryToken, "GET", "dev/prod/app/blobs/"+digestOf("a later layer"))
		if got != http.StatusOK {
			t.Errorf("pull of the layer: %d", got)
		}
		if got := w.askRegistry(t, w.RegistryToken, "DELETE", "dev/staging/app/manifests/1.0"); got != http.StatusAccepted {
			t.Fatalf("delete: %d", got)
		}
		has("1.0", http.StatusNotFound)
		var s *ocipb.Sync
		v1, v1List := &registryv1pb.SyncStatus{}, &registryv1pb.SyncStatusList{}
		procUntil(t, "both versions return the same state", func() bool { // the deletion may queue the sync once more
			s = w.equal(t, repo)
			w.readV1(t, "repos/"+repo+":syncstatus", v1)
			w.readV1(t, "syncstatuses?registry_id="+string(w.Organization), v1List)
			return v1.GetStatus() == registryv1pb.SyncStatus_UNKNOWN && proto.Equal(v1.GetCreateTime(), s.GetStateTime())
		})
		if len(v1List.GetItems()) != 1 || v1List.GetItems()[0].GetRepoId() != repo || s.GetTags() == 0 ||
			s.GetSourceUid() != source {
			t.Errorf("sync %v, in version 1 %v, in the list of version 1 %v", s, v1, v1List)
		}
		must[proto.Message](t, w.overGRPC, w.Token, &registrypb.DeleteRepoRequest{Uid: source})
		if s := w.stands(t, repo, ocipb.SyncState_SYNC_STATE_FAILED); s.GetError() != "the source is gone" {
			t.Errorf("failed sync: %v", s)
		}
		has("1.1", http.StatusOK)
		if w.readV1(t, "repos/"+repo+":syncstatus", v1); v1.GetStatus() == registryv1pb.SyncStatus_UNKNOWN {
			t.Errorf("sync status in version 1: %v", v1)
		}
	})
}

// readV1 sends a GET request to version 1 of the registry API and decodes the response.
func (w *world) readV1(t *testing.T, path string, into proto.Message) {
	t.Helper()
	got := w.send(t, w.Token, "GET", "/registry/v1/"+path, "")
	if err := protojson.Unmarshal([]byte(got.body), into); got.status != http.StatusOK || err != nil {
		t.Fatalf("GET %s: %d %s, %v", path, got.status, got.body, err)
	}
}

// TestFollowAttacks checks that a caller cannot sync from a repo without the right to pull from it, cannot sync to a
// repo without the right to push to it, and cannot read the status of a sync that the caller may not see.
func TestFollowAttacks(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		secret := h.repo(t, h.folder, "secret")
		digest := h.pushImage(t, "dev/folder/secret", "v1", "amd64", "a secret layer")
		theirs := h.repo(t, h.other, "own")
		h.pushImage(t, "other/own", "v1", "amd64", "my layer")
		sibling := h.repo(t, h.sibling, "target")
		follower := h.follower(t, h.folder, "follower", secret)
		segment := func(uid string) string { return uid[strings.LastIndexByte(uid, '/'):] }
		create := func(group, source string) proto.Message {
			return &registrypb.CreateRepoRequest{
				Parent: group, Repo: &registrypb.Repo{Name: h.name(), SyncConfig: &registrypb.SyncConfig{Source: source}},
			}
		}
		update := func(repo, source string) proto.Message {
			return &registrypb.UpdateRepoRequest{
				Repo:       &registrypb.Repo{Uid: repo, SyncConfig: &registrypb.SyncConfig{Source: source}},
				UpdateMask: mask("sync_config.source"),
			}
		}
		writes := resource.NewCapabilities(resource.RepoList, resource.RepoUpdate, resource.RepoCreate)
		pulls := resource.NewCapabilities(resource.RepoList)
		narrowed := h.mint(t, h.Owner, token.Claims{Caps: &writes})
		elsewhere := h.mint(t, h.Owner, token.Claims{Scopes: []resource.UID{resource.UID(h.sibling)}})
		reader := h.mint(t, h.Owner, token.Claims{Caps: &pulls})
		for name, tt := range map[string]struct {
			bearer string
			in     proto.Message
			code   codes.Code
		}{
			"follow another organization's": {h.full["other"], create(h.other, secret), codes.InvalidArgument},
			"by its path":                   {h.full["other"], create(h.other, "dev/folder/secret"), codes.InvalidArgument},
			"by its segment": {
				h.full["other"], create(h.other, h.other+segment(secret)), codes.InvalidArgument,
			},
			"follow a sibling's":                 {h.full["sibling"], update(sibling, secret), codes.InvalidArgument},
			"into another organization":          {h.full["other"], create(h.folder, theirs), codes.PermissionDenied},
			"into another's repo":                {h.full["other"], update(secret, theirs), codes.PermissionDenied},
			"into the segment of another's repo": {h.full["other"], update(h.other+segment(secret), theirs), codes.NotFound},
			"without tag.create":                 {h.lacking["tag.create"], create(h.folder, secret), codes.PermissionDenied},
			"without tag.delete":                 {h.lacking["tag.delete"], create(h.folder, secret), codes.PermissionDenied},
			"without manifest.create": {
				h.lacking["manifest.create"], create(h.folder, secret), codes.PermissionDenied,
			},
			"without what a pull needs":       {h.lacking["repo.blobs.get"], create(h.folder, secret), codes.InvalidArgument},
			"without referrers.list":          {h.lacking["referrers.list"], create(h.folder, secret), codes.InvalidArgument},
			"with a token that cannot push":   {narrowed, create(h.folder, secret), codes.InvalidArgument},
			"with a token for another folder": {elsewhere, update(sibling, secret), codes.InvalidArgument},
			"see another organization's": {
				h.full["other"], &ocipb.GetSyncRequest{Uid: follower}, codes.PermissionDenied,
			},
			"see the segment of another's": {
				h.full["other"], &ocipb.GetSyncRequest{Uid: h.other + segment(follower)}, codes.NotFound,
			},
			"list another organization's": {
				h.full["other"], &ocipb.ListSyncsRequest{GroupUid: h.folder}, codes.PermissionDenied,
			},
			"list the segment of another's": {
				h.full["other"], &ocipb.ListSyncsRequest{GroupUid: h.other + segment(h.folder)}, codes.NotFound,
			},
			"run another organization's": {h.full["other"], &ocipb.RunSyncRequest{Uid: follower}, codes.PermissionDenied},
			"run the segment of another's": {
				h.full["other"], &ocipb.RunSyncRequest{Uid: h.other + segment(follower)}, codes.NotFound,
			},
			"run a sibling's": {
				h.full["sibling"], &ocipb.RunSyncRequest{Uid: follower}, codes.PermissionDenied,
			},
			"run with a token that reads":         {reader, &ocipb.RunSyncRequest{Uid: follower}, codes.PermissionDenied},
			"see with a token for another folder": {elsewhere, &ocipb.GetSyncRequest{Uid: follower}, codes.PermissionDenied},
			"see without a token":                 {"", &ocipb.GetSyncRequest{Uid: follower}, codes.Unauthenticated},
			"run with a token for the registry": {
				w.RegistryToken, &ocipb.RunSyncRequest{Uid: follower}, codes.Unauthenticated,
			},
		} {
			for protocol, call := range w.protocols() {
				if out, st := call(t, tt.bearer, tt.in); st.Code() != tt.code {
					t.Errorf("%s over %s: %v, %v", name, protocol, out, st)
				}
			}
		}
		w.equal(t, follower)
		for _, target := range []string{"other/own/manifests/" + digest, "dev/sibling/target/manifests/" + digest} {
			if got := w.askRegistry(t, w.RegistryToken, "GET", target); got == http.StatusOK {
				t.Errorf("GET %s: %d", target, got)
			}
		}
		seen := must[*ocipb.Sync](t, w.overGRPC, reader, &ocipb.GetSyncRequest{Uid: follower})
		if seen.GetSetByUid() != "" {
			t.Errorf("a caller who may not list identities sees %v", seen)
		}
	})
}
