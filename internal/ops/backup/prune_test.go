package backup_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ops/backup"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// An album is a folder with three back-ups of an installation. They share five blobs, and each has one blob of
// its own.
type album struct {
	*origin
	folder string
	own    []string // digests of the blobs that belong to only one back-up
}

func newAlbum(t *testing.T) *album {
	t.Helper()
	a := &album{origin: newOrigin(t, storetest.SQLite(t)), folder: t.TempDir()}
	for _, content := range []string{"first", "second", "third"} {
		digest := a.push(t, content)
		a.own = append(a.own, digest)
		a.save(t)
		must(t, a.store.DeleteBlob(t.Context(), a.repo, digest))
		_, err := a.store.PurgeUnheld(t.Context(), []registry.Blob{{Digest: digest, Path: pathOf(t, a.store, digest)}})
		must(t, err)
	}
	return a
}

func (a *album) place() blob.Storage { return blob.NewFolder(a.folder) }

func (a *album) save(t *testing.T) {
	t.Helper()
	_, err := backup.Save(t.Context(), a.Installation, a.place(), quiet)
	must(t, err)
}

func (a *album) snapshots(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(a.folder + "/snapshots/*")
	must(t, err)
	slices.Sort(all)
	return all
}

// has reports for each back-up whether the blob that belongs only to it still exists.
func (a *album) has(t *testing.T) (all []bool) {
	t.Helper()
	for _, digest := range a.own {
		sum := strings.TrimPrefix(digest, "sha256:")
		_, err := os.Stat(filepath.Join(a.folder, "blobs/sha256", sum[:2], sum))
		all = append(all, err == nil)
	}
	return all
}

func (a *album) prune(t *testing.T, keep, want int) {
	t.Helper()
	removed, err := backup.Prune(t.Context(), a.place(), keep)
	if err != nil || removed != want {
		t.Fatalf("%d were removed, want %d: %v", removed, want, err)
	}
}

// TestPrune checks that Prune removes the oldest snapshots and the blobs that only they need, and that the remaining
// snapshots can be restored.
func TestPrune(t *testing.T) {
	a := newAlbum(t)
	a.prune(t, 3, 0)
	a.prune(t, 2, 1)
	if got := a.has(t); !slices.Equal(got, []bool{false, true, true}) || len(a.snapshots(t)) != 2 {
		t.Errorf("blobs %v, snapshots %v", got, a.snapshots(t))
	}
	into := target(t, t.TempDir()+"/second.db", a.Key)
	at, err := time.Parse("20060102T150405Z", filepath.Base(a.snapshots(t)[0]))
	must(t, err)
	into.At = at
	if _, got := restored(t, a.place(), into); len(got) != 6 || got[a.own[1]] != "second" {
		t.Errorf("the second has %v", got)
	}
	a.prune(t, 1, 1)
	_, got := restored(t, a.place(), target(t, t.TempDir()+"/third.db", a.Key))
	if len(got) != 6 || got[a.own[2]] != "third" {
		t.Errorf("the third has %v", got)
	}
}

// TestPruneGoesOn checks that Prune finishes an interrupted removal, and removes an interrupted back-up.
func TestPruneGoesOn(t *testing.T) {
	a := newAlbum(t)
	first := a.snapshots(t)[0]
	must(t, os.Rename(first+"/manifest.json", first+"/removing.json"))
	crashed := a.folder + "/snapshots/20200101T000000Z"
	must(t, os.MkdirAll(crashed, 0o700))
	must(t, os.WriteFile(crashed+"/groups", []byte("half"), 0o600))
	a.prune(t, 5, 2)
	if got := a.has(t); !slices.Equal(got, []bool{false, true, true}) || len(a.snapshots(t)) != 2 {
		t.Errorf("blobs %v, snapshots %v", got, a.snapshots(t))
	}
}

// TestPruneAfterTheClockWasSetBack checks that Prune does not remove the back-up that was made last, even if the
// names of older back-ups contain later times.
func TestPruneAfterTheClockWasSetBack(t *testing.T) {
	a := newAlbum(t)
	past := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	a.Now = func() time.Time { return past }
	a.save(t)
	a.prune(t, 1, 3)
	if _, got := restored(t, a.place(), target(t, t.TempDir()+"/new.db", a.Key)); len(got) != 5 {
		t.Errorf("the last has %v", got)
	}
}

// TestPruneRefuses checks that nothing is removed if the needed blobs cannot be determined.
func TestPruneRefuses(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, newest string){
		"a list of blobs": func(t *testing.T, newest string) {
			must(t, os.WriteFile(newest+"/blobs", []byte("nonsense"), 0o600))
		},
		"a manifest": func(t *testing.T, newest string) {
			must(t, os.WriteFile(newest+"/manifest.json", []byte("{}"), 0o600))
		},
	} {
		a := newAlbum(t)
		damage(t, a.snapshots(t)[2])
		removed, err := backup.Prune(t.Context(), a.place(), 1)
		if got := a.has(t); err == nil || removed != 0 || slices.Contains(got, false) || len(a.snapshots(t)) != 3 {
			t.Errorf("%s: %d removed, %v; blobs %v", name, removed, err, got)
		}
	}
}
