package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// Week is how long the trash keeps deleted images in most tests.
const Week = 7 * 24 * time.Hour

// trashName describes an entry in a few words.
func trashName(e registry.TrashEntry) string {
	switch e.Kind {
	case registry.TrashTag:
		return "tag " + e.Tag
	case registry.TrashManifest:
		return "manifest " + e.Digest
	}
	return "repo " + e.RepoName
}

// Trashed returns the trash entries below a group or repo, and checks the total.
func Trashed(t testing.TB, s *RegistryStore, place resource.UID) map[string]registry.TrashEntry {
	t.Helper()
	entries := map[string]registry.TrashEntry{}
	p := page.Request{Size: 2, Order: page.Order{Field: "create_time", Desc: true}}
	for {
		got, err := s.Trash(t.Context(), store.Reach{Under: []resource.UID{place.Root()}},
			resource.Filter{UIDs: resource.UIDFilter{DescendantsOf: place}}, p)
		testkit.Must(t, err)
		for _, e := range got.Items {
			entries[trashName(e)] = e
		}
		if p.After = got.Last; got.Last == nil {
			if got.Total != int64(len(entries)) {
				t.Errorf("total = %d of %v", got.Total, entries)
			}
			return entries
		}
	}
}

// WantTrash checks the trash entries below a group or repo, and returns them.
func WantTrash(t testing.TB, s *RegistryStore, place resource.UID, want ...string) map[string]registry.TrashEntry {
	t.Helper()
	got := Trashed(t, s, place)
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Sort(want)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("trash (-want +got):\n%s", diff)
	}
	return got
}

// Restore restores an entry of the trash, and returns all entries that it restores.
func Restore(
	t testing.TB, s *RegistryStore, e registry.TrashEntry, how registrydb.Restoration,
) []registry.TrashEntry {
	t.Helper()
	restored, err := s.Restore(t.Context(), e.UID, how)
	testkit.Must(t, err)
	if len(restored) == 0 || restored[0].UID != e.UID {
		t.Fatalf("restored %v", restored)
	}
	return restored
}

// CollectAll runs the steps of the garbage collector as if much time had passed.
func CollectAll(t testing.TB, s *Store) {
	t.Helper()
	later := s.Now().Add(time.Hour)
	for {
		n, err := s.SweepTrashBlobs(t.Context(), 100)
		testkit.Must(t, err)
		if n == 0 {
			break
		}
	}
	idle, _, err := s.IdleBlobs(t.Context(), nil, later, 1000)
	testkit.Must(t, err)
	testkit.Must(t, s.MarkIdle(t.Context(), idle, later))
	_, _, err = s.UnlinkIdle(t.Context(), later, 1000)
	testkit.Must(t, err)
	unheld, err := s.UnheldBlobs(t.Context(), "", 1000)
	testkit.Must(t, err)
	_, err = s.PurgeUnheld(t.Context(), unheld)
	testkit.Must(t, err)
}

// BlobExists reports whether the blob with the digest of a word is stored.
func BlobExists(t testing.TB, s *RegistryStore, word string) bool {
	t.Helper()
	blobs, err := s.BlobsAfter(t.Context(), "", 1000)
	testkit.Must(t, err)
	return slices.ContainsFunc(blobs, func(b registry.Blob) bool { return b.Digest == Digest(word) })
}

// NewReferrer returns a manifest whose subject is about.
func NewReferrer(word string, about registry.Manifest) registry.Manifest {
	return registry.Manifest{Digest: Digest("referrer " + word),
		MediaType:    "application/vnd.oci.image.manifest.v1+json",
		ArtifactType: "application/x", Subject: about.Digest, Body: []byte(word)}
}

// AddDeleted pushes an image, deletes its manifest, and returns the manifest's entry in the trash.
func AddDeleted(t testing.TB, s *RegistryStore, r registry.Repo, word string) registry.TrashEntry {
	t.Helper()
	m := AddImage(t, s, r, "t-"+word, word)
	testkit.Must(t, s.DeleteManifest(t.Context(), r.UID, m.Digest, nil))
	return Trashed(t, s, r.UID)["manifest "+m.Digest]
}

// CheckWhole returns an error unless the tag for a word names its image and the repo has the blob.
func CheckWhole(t testing.TB, s *RegistryStore, r registry.Repo, word string) error {
	m, err := s.Manifest(t.Context(), r.UID, "t-"+word)
	if err == nil && m.Digest != NewImage(word).Digest {
		err = fmt.Errorf("the tag stands for %s", m.Digest)
	}
	_, lost := s.Blob(t.Context(), r.UID, Digest(word))
	return errors.Join(err, lost)
}

// CheckRestorable restores the image for a word if it does not exist, and checks that it is
// complete.
func CheckRestorable(t testing.TB, s *Store, r registry.Repo, word string) error {
	unheld, err := s.UnheldBlobs(t.Context(), "", 1000)
	testkit.Must(t, err)
	_, err = s.PurgeUnheld(t.Context(), unheld)
	testkit.Must(t, err)
	if _, err := s.Manifest(t.Context(), r.UID, "t-"+word); errors.Is(err, fault.NotFound) {
		e := Trashed(t, s.RegistryStore, r.UID)["tag t-"+word]
		if _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); err != nil {
			return err
		}
	}
	return CheckWhole(t, s.RegistryStore, r, word)
}
