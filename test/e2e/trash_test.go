package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// trash tags an image in a repo, deletes the tag, and returns the UID of the tag's entry in the trash.
func (w *world) trash(t *testing.T, repo, digest string) string {
	t.Helper()
	name := "deleted-" + string(resource.UID(repo).NewChild())[len(repo)+1:]
	uid := w.tag(t, repo, name, digest)
	must[proto.Message](t, w.overGRPC, w.Token, &registrypb.DeleteTagRequest{Uid: uid})
	return w.trashed(t, repo, func(e *ocipb.TrashEntry) bool { return e.GetTag() == name }).GetUid()
}

// trashed returns the first entry in the trash of a repo that the function is accepts. It fails the test if there is
// none.
func (w *world) trashed(t *testing.T, repo string, is func(*ocipb.TrashEntry) bool) *ocipb.TrashEntry {
	t.Helper()
	trash := must[*ocipb.ListTrashEntriesResponse](t, w.overGRPC, w.Token,
		&ocipb.ListTrashEntriesRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: repo}, PageSize: 200})
	for _, e := range trash.GetEntries() {
		if is(e) {
			return e
		}
	}
	t.Fatalf("the entry is not in the trash: %v", trash.GetEntries())
	return nil
}

// askRegistry sends a request to the registry and returns its status.
func (w *world) askRegistry(t *testing.T, bearer, verb, target string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, w.BaseURL+"/v2/"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		r.SetBasicAuth("_token", bearer)
	}
	r.Header.Set("Accept", manifestType)
	return w.roundTrip(t, r).status
}

// TestTrash deletes an image and a layer over the registry protocol. No reader may see deleted content, and it must
// be possible to restore all of it.
func TestTrash(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "bin")
		repo := w.repo(t, folder, "app")
		digest := w.pushImage(t, "dev/bin/app", "v1", "amd64", "layer of trash")
		layer := digestOf("layer of trash")
		readers := map[string]int{
			"dev/bin/app/manifests/v1": http.StatusNotFound, "dev/bin/app/manifests/" + digest: http.StatusNotFound,
			"dev/bin/app/blobs/" + layer: http.StatusNotFound,
		}
		for target := range readers {
			if got := w.askRegistry(t, w.RegistryToken, "GET", target); got != http.StatusOK {
				t.Errorf("GET %s: %d", target, got)
			}
		}
		for _, target := range []string{"dev/bin/app/manifests/" + digest, "dev/bin/app/blobs/" + layer} {
			if got := w.askRegistry(t, w.RegistryToken, "DELETE", target); got != http.StatusAccepted {
				t.Errorf("DELETE %s: %d", target, got)
			}
		}
		for target, want := range readers {
			if got := w.askRegistry(t, w.RegistryToken, "GET", target); got != want {
				t.Errorf("GET %s after it was deleted: %d", target, got)
			}
		}
		if got := w.askRegistry(t, w.RegistryToken, "POST",
			"dev/bin/other/blobs/uploads/?mount="+layer+"&from=dev/bin/app"); got != http.StatusAccepted {
			t.Errorf("a blob in the trash was mounted: %d", got) // with status 202 an upload begins instead of a mount
		}
		e := w.trashed(t, repo, func(e *ocipb.TrashEntry) bool { return e.GetKind() == ocipb.TrashKind_TRASH_KIND_MANIFEST })
		got := must[*ocipb.RestoreTrashEntryResponse](t, w.overHTTP, w.Token,
			&ocipb.RestoreTrashEntryRequest{Uid: e.GetUid()})
		if len(got.GetEntries()) != 2 || got.GetEntries()[0].GetDigest() != digest || got.GetEntries()[1].GetTag() != "v1" {
			t.Errorf("restored %v", got)
		}
		for target := range readers {
			if got := w.askRegistry(t, w.RegistryToken, "GET", target); got != http.StatusOK {
				t.Errorf("GET %s after it was restored: %d", target, got)
			}
		}
	})
}

// TestTrashAttacks checks that callers without the needed rights cannot see or restore deleted content.
func TestTrashAttacks(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		repo := h.repo(t, h.folder, "app")
		digest := h.pushImage(t, "dev/folder/app", "v1", "amd64", "layer")
		tag := h.trash(t, repo, digest)
		gone := h.repo(t, h.folder, "gone")
		must[proto.Message](t, w.overGRPC, w.Token, &registrypb.DeleteRepoRequest{Uid: gone})
		whole := h.trashed(t, gone,
			func(e *ocipb.TrashEntry) bool { return e.GetKind() == ocipb.TrashKind_TRASH_KIND_REPO }).GetUid()
		pusher := h.caller(t, h.folder,
			h.role(t, h.org, h.name(), capabilities("manifest.create", "tag.create", "repo.list", "tag.list")...))
		segment := func(uid string) string { return uid[strings.LastIndexByte(uid, '/'):] }
		for name, tt := range map[string]struct {
			bearer string
			in     proto.Message
			code   codes.Code
		}{
			"restore without a token": {"", &ocipb.RestoreTrashEntryRequest{Uid: tag}, codes.Unauthenticated},
			"restore from another organization": {
				h.full["other"], &ocipb.RestoreTrashEntryRequest{Uid: tag}, codes.PermissionDenied,
			},
			"restore from a sibling": {
				h.full["sibling"], &ocipb.RestoreTrashEntryRequest{Uid: whole}, codes.PermissionDenied,
			},
			"restore with the segment alone": {
				h.full["other"], &ocipb.RestoreTrashEntryRequest{Uid: h.other + "/0123456789abcdef" + segment(tag)},
				codes.NotFound,
			},
			"restore with a token for the registry": {
				w.RegistryToken, &ocipb.RestoreTrashEntryRequest{Uid: tag}, codes.Unauthenticated,
			},
			"restore a repo without repo.create": {
				pusher, &ocipb.RestoreTrashEntryRequest{Uid: whole}, codes.PermissionDenied,
			},
			"restore without tag.create": {
				h.lacking["tag.create"], &ocipb.RestoreTrashEntryRequest{Uid: tag}, codes.PermissionDenied,
			},
			"look without tag.list": {
				h.lacking["tag.list"], &ocipb.GetTrashEntryRequest{Uid: tag}, codes.PermissionDenied,
			},
			"remove as one who may push": {pusher, &ocipb.DeleteTrashEntryRequest{Uid: tag}, codes.PermissionDenied},
			"remove without manifest.delete": {
				h.lacking["manifest.delete"], &ocipb.DeleteTrashEntryRequest{Uid: tag}, codes.PermissionDenied,
			},
			"empty without tag.delete": {
				h.lacking["tag.delete"], &ocipb.EmptyTrashRequest{Uid: h.folder}, codes.PermissionDenied,
			},
			"empty another's": {
				h.full["other"], &ocipb.EmptyTrashRequest{Uid: h.folder}, codes.PermissionDenied,
			},
			"empty the segment of another's": {
				h.full["other"], &ocipb.EmptyTrashRequest{Uid: h.other + segment(h.folder)}, codes.NotFound,
			},
			"empty what is above": {
				h.full["folder"], &ocipb.EmptyTrashRequest{Uid: h.org}, codes.PermissionDenied,
			},
		} {
			for protocol, call := range w.protocols() {
				if out, st := call(t, tt.bearer, tt.in); st.Code() != tt.code {
					t.Errorf("%s over %s: %v, %v", name, protocol, out, st)
				}
			}
		}
		must[proto.Message](t, w.overGRPC, pusher, &ocipb.RestoreTrashEntryRequest{Uid: tag})
		must[proto.Message](t, w.overGRPC, h.full["folder"], &ocipb.RestoreTrashEntryRequest{Uid: whole})
		must[proto.Message](t, w.overGRPC, w.Token, &registrypb.GetRepoRequest{Uid: gone})
	})
}
