package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/ops/backup"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// An origin is an installation with a group, a repo and five blobs.
type origin struct {
	backup.Installation
	store *storetest.Store
	repo  resource.UID
	root  string // folder of the blobs
}

func newOrigin(t *testing.T, url string) *origin {
	t.Helper()
	s := storetest.Open(t, url)
	o := &origin{store: s, root: t.TempDir()}
	o.Installation = backup.Installation{
		DB: s.DB, Blobs: blob.NewFolder(o.root), Key: secret.NewKey(), Version: "test", Now: stepping(),
	}
	now := time.Now()
	org, err := s.InsertGroup(t.Context(), resource.Group{
		UID: resource.NewRoot(), Name: "org", CreateTime: now, UpdateTime: now,
	})
	must(t, err)
	o.repo = org.UID.NewChild()
	must(t, s.InsertRepo(t.Context(), registry.Repo{UID: o.repo, Name: "app", CreateTime: now, UpdateTime: now}))
	for i := range 5 {
		o.push(t, fmt.Sprintf("layer %d", i))
	}
	return o
}

// stepping returns a clock that advances by a minute whenever it is read, because two back-ups cannot have the same
// second.
func stepping() func() time.Time {
	at := time.Now()
	return func() time.Time { at = at.Add(time.Minute); return at }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// push adds a blob, and returns its digest.
func (o *origin) push(t *testing.T, content string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	id := hex.EncodeToString(sum[:16])
	b := registry.Blob{
		Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content)), Path: "/blobs/" + id[:2] + "/" + id,
	}
	must(t, o.Blobs.Put(t.Context(), b.Path, strings.NewReader(content)))
	ref := registrydb.RepoRef{Group: o.repo.Parent(), Name: "app"}
	_, err := o.store.AddBlob(t.Context(), ref, registry.Upload{}, "", b)
	must(t, err)
	return b.Digest
}

func quiet(backup.Progress) {}

// restored restores a back-up into an empty database, and returns its blobs by digest.
func restored(t *testing.T, from backup.Place, into backup.Target) (*storetest.Store, map[string]string) {
	t.Helper()
	_, err := backup.Restore(t.Context(), from, into, quiet)
	must(t, err)
	s := storetest.Open(t, into.Database)
	return s, blobs(t, s, into.Blobs)
}

func blobs(t *testing.T, s *storetest.Store, in blob.Storage) map[string]string {
	t.Helper()
	all, err := s.BlobsAfter(t.Context(), "", 100)
	must(t, err)
	contents := map[string]string{}
	for _, b := range all {
		f, err := in.Open(t.Context(), b.Path)
		must(t, err)
		content, err := io.ReadAll(f)
		must(t, errors.Join(err, f.Close()))
		contents[b.Digest] = string(content)
	}
	return contents
}

func target(t *testing.T, url string, key secret.Key) backup.Target {
	return backup.Target{Database: url, Blobs: blob.NewFolder(t.TempDir()), Key: key, Verify: true}
}

// TestBackup checks that an installation can be moved from each database engine to each engine, through a folder and
// through an archive, with all its blobs and its repo.
func TestBackup(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, from string) {
		o := newOrigin(t, from)
		want := blobs(t, o.store, o.Blobs)
		folder := blob.NewFolder(t.TempDir())
		name := filepath.Join(t.TempDir(), "all.tar")
		a, err := backup.Create(name)
		must(t, err)
		for _, to := range []backup.Place{folder, a} {
			m, err := backup.Save(t.Context(), o.Installation, to, quiet)
			must(t, err)
			if m.Blobs != 5 || len(m.Lost) != 0 || m.Rows() < 10 {
				t.Errorf("%+v", m)
			}
		}
		must(t, a.Close())
		read, err := backup.OpenArchive(name)
		must(t, err)
		t.Cleanup(func() { must(t, read.Close()) })
		for kind, place := range map[string]backup.Place{"folder": folder, "archive": read} {
			storetest.EachEmpty(t, func(t *testing.T, to string) {
				s, got := restored(t, place, target(t, to, o.Key))
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: blobs %v, want %v", kind, got, want)
				}
				if r, err := s.Repo(t.Context(), o.repo); err != nil || r.Name != "app" {
					t.Errorf("%s: %v, %v", kind, r, err)
				}
			})
		}
		if _, err := backup.Create(name); !errors.Is(err, os.ErrExist) {
			t.Errorf("an archive over another: %v", err)
		}
	})
}

// TestIncremental checks that a second back-up copies only new blobs, and that both snapshots can be restored.
func TestIncremental(t *testing.T) {
	o := newOrigin(t, storetest.SQLite(t))
	to := blob.NewFolder(t.TempDir())
	first, err := backup.Save(t.Context(), o.Installation, to, quiet)
	must(t, err)
	added := o.push(t, "another layer")
	var last backup.Progress
	_, err = backup.Save(t.Context(), o.Installation, to, func(p backup.Progress) { last = p })
	must(t, err)
	if last.Blobs != 1 {
		t.Errorf("%d blobs were copied, want the new one", last.Blobs)
	}
	if _, got := restored(t, to, target(t, t.TempDir()+"/new.db", o.Key)); len(got) != 6 || got[added] == "" {
		t.Errorf("the newest has %v", got)
	}
	old := target(t, t.TempDir()+"/old.db", o.Key)
	old.At = first.Time
	if _, got := restored(t, to, old); len(got) != 5 {
		t.Errorf("the first has %v", got)
	}
}

// TestRotten backs up an installation that has lost two blobs. A blob that an earlier back-up contains is sound in the
// restored installation. A blob that is also missing in the back-up is listed as lost, and is still marked as rotten
// after the restore.
func TestRotten(t *testing.T) {
	o := newOrigin(t, storetest.SQLite(t))
	to := blob.NewFolder(t.TempDir())
	_, err := backup.Save(t.Context(), o.Installation, to, quiet)
	must(t, err)
	all, err := o.store.BlobsAfter(t.Context(), "", 2)
	must(t, err)
	for _, b := range all {
		must(t, o.Blobs.Remove(t.Context(), b.Path))
		_, err = o.store.MarkRotten(t.Context(), b, time.Now())
		must(t, err)
	}
	// The second blob is missing in the back-up, too.
	must(t, to.RemoveAll(t.Context(), "/blobs/sha256/"+all[1].Digest[7:9]))
	m, err := backup.Save(t.Context(), o.Installation, to, quiet)
	if err != nil || len(m.Lost) != 1 {
		t.Fatalf("lost %v, %v", m.Lost, err)
	}
	into := target(t, t.TempDir()+"/new.db", o.Key)
	_, err = backup.Restore(t.Context(), to, into, quiet)
	must(t, err)
	s := storetest.Open(t, into.Database)
	for i, b := range all {
		if got, err := s.StoredBlob(t.Context(), b.Digest); err != nil || got.Rotten != (i == 1) {
			t.Errorf("restored %+v, %v", got, err)
		}
	}
}

// A hooked is a Place that calls a function once, before it writes the first file of a snapshot.
type hooked struct {
	blob.Storage
	once sync.Once
	do   func()
}

func (h *hooked) Put(ctx context.Context, path string, content io.Reader) error {
	if strings.HasPrefix(path, "/snapshots/") {
		h.once.Do(h.do)
	}
	return h.Storage.Put(ctx, path, content)
}

// TestCollectedMeanwhile pushes a blob after the blobs were copied and before the snapshot. It deletes the blob before
// the snapshot has copied it, as the garbage collector does if the push is undone. It checks that Save takes another
// snapshot, and that no blob is lost.
func TestCollectedMeanwhile(t *testing.T) {
	o := newOrigin(t, storetest.SQLite(t))
	clock, late := o.Now, ""
	snapshots := 0
	o.Now = func() time.Time { // called when a snapshot begins
		if snapshots++; late == "" {
			late = o.push(t, "pushed late")
		}
		return clock()
	}
	to := &hooked{Storage: blob.NewFolder(t.TempDir()), do: func() {
		path := pathOf(t, o.store, late)
		must(t, o.store.DeleteBlob(t.Context(), o.repo, late))
		_, err := o.store.PurgeUnheld(t.Context(), []registry.Blob{{Digest: late, Path: path}})
		must(t, err)
		must(t, os.Remove(filepath.Join(o.root, path)))
	}}
	m, err := backup.Save(t.Context(), o.Installation, to, quiet)
	must(t, err)
	if snapshots != 2 || m.Blobs != 5 || len(m.Lost) > 0 {
		t.Errorf("%d snapshots; the last has %d blobs and lacks %v", snapshots, m.Blobs, m.Lost)
	}
}

func pathOf(t *testing.T, s *storetest.Store, digest string) string {
	t.Helper()
	all, err := s.BlobsAfter(t.Context(), "", 100)
	must(t, err)
	for _, b := range all {
		if b.Digest == digest {
			return b.Path
		}
	}
	t.Fatalf("there is no blob %s", digest)
	return ""
}

// TestLostBlobs checks that the other blobs are backed up and restored if one is missing and one is damaged,
// and that the manifest lists the two.
func TestLostBlobs(t *testing.T) {
	o := newOrigin(t, storetest.SQLite(t))
	missing, damaged := o.push(t, "missing"), o.push(t, "damaged")
	must(t, os.Remove(filepath.Join(o.root, pathOf(t, o.store, missing))))
	must(t, os.WriteFile(filepath.Join(o.root, pathOf(t, o.store, damaged)), []byte("DAMAGED"), 0o600))
	to := blob.NewFolder(t.TempDir())
	m, err := backup.Save(t.Context(), o.Installation, to, quiet)
	must(t, err)
	lost := fmt.Sprint(m.Lost)
	if len(m.Lost) != 2 || !strings.Contains(lost, missing) || !strings.Contains(lost, damaged) {
		t.Errorf("lost %v, want %s and %s", m.Lost, missing, damaged)
	}
	into := target(t, t.TempDir()+"/new.db", o.Key)
	_, err = backup.Restore(t.Context(), to, into, quiet)
	must(t, err)
}

// TestRestoreRefuses checks that a changed back-up is not restored, and that nothing is written.
func TestRestoreRefuses(t *testing.T) {
	o := newOrigin(t, storetest.SQLite(t))
	replace := func(before, after string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(before), []byte(after), 1) }
	}
	for name, change := range map[string]func(t *testing.T, root string, into *backup.Target){
		"another key":        func(_ *testing.T, _ string, into *backup.Target) { into.Key = secret.NewKey() },
		"no manifest":        func(t *testing.T, root string, _ *backup.Target) { must(t, os.Remove(root+"/latest.json")) },
		"another time":       func(_ *testing.T, _ string, into *backup.Target) { into.At = time.Unix(1, 0) },
		"no JSON":            edit("latest.json", func([]byte) []byte { return []byte("{") }),
		"an empty manifest":  edit("latest.json", func([]byte) []byte { return []byte("{}") }),
		"a changed manifest": edit("latest.json", replace(`"test"`, `"best"`)),
		"another format":     edit("latest.json", replace(`"format": 1`, `"format": 2`)),
		"a changed table":    edit("snapshots/*/groups", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }),
		"a short table":      edit("snapshots/*/groups", func(b []byte) []byte { return b[:len(b)/2] }),
		"a long table":       edit("snapshots/*/groups", func(b []byte) []byte { return append(b, b...) }),
		"an empty table":     edit("snapshots/*/groups", func([]byte) []byte { return nil }),
		"a table of another": edit("snapshots/*/roles", func([]byte) []byte { return nil }),
		"a missing table": func(t *testing.T, root string, _ *backup.Target) {
			must(t, os.Remove(match(t, root, "snapshots/*/pulls")))
		},
		"a missing blob": func(t *testing.T, root string, _ *backup.Target) {
			must(t, os.Remove(match(t, root, "blobs/sha256/*/*")))
		},
		"a short blob":   edit("blobs/sha256/*/*", func(b []byte) []byte { return b[1:] }),
		"a changed blob": edit("blobs/sha256/*/*", func(b []byte) []byte { b[0] ^= 1; return b }),
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			_, err := backup.Save(t.Context(), o.Installation, blob.NewFolder(root), quiet)
			must(t, err)
			blobRoot := t.TempDir()
			into := backup.Target{Database: t.TempDir() + "/new.db", Blobs: blob.NewFolder(blobRoot), Key: o.Key, Verify: true}
			change(t, root, &into)
			_, err = backup.Restore(t.Context(), blob.NewFolder(root), into, quiet)
			if err == nil {
				t.Fatal("restored")
			}
			t.Log(err)
			left, _ := filepath.Glob(blobRoot + "/*")
			if _, err := os.Stat(into.Database); !errors.Is(err, os.ErrNotExist) || len(left) > 0 {
				t.Errorf("something was written: %v, %v", err, left)
			}
		})
	}
}

// match returns the first file that a pattern matches.
func match(t *testing.T, root, pattern string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, pattern))
	must(t, err)
	if len(all) == 0 {
		t.Fatalf("nothing is called %s", pattern)
	}
	return all[0]
}

// edit returns a function that changes the first file of a back-up that pattern matches.
func edit(pattern string, change func([]byte) []byte) func(*testing.T, string, *backup.Target) {
	return func(t *testing.T, root string, _ *backup.Target) {
		t.Helper()
		file := match(t, root, pattern)
		b, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, change(b), 0o600))
	}
}

// TestZeroByte checks that Restore refuses a text with a zero byte, which PostgreSQL cannot store, before it writes
// anything.
func TestZeroByte(t *testing.T) {
	o := newOrigin(t, storetest.SQLite(t))
	_, err := o.store.Exec(t.Context(), `UPDATE repos SET name = 'a' || char(0) || 'b'`)
	must(t, err)
	to := blob.NewFolder(t.TempDir())
	_, err = backup.Save(t.Context(), o.Installation, to, quiet)
	must(t, err)
	into := target(t, storetest.EmptyPostgres(t), o.Key)
	if _, err := backup.Restore(t.Context(), to, into, quiet); !errors.Is(err, fault.FailedPrecondition) {
		t.Errorf("%v, want FailedPrecondition", err)
	}
	if _, got := restored(t, to, target(t, t.TempDir()+"/new.db", o.Key)); len(got) != 5 {
		t.Errorf("SQLite: %v", got)
	}
}

// TestBlobsStay restores into a storage that already has the blobs, as in a move to another database. It checks that a
// damaged blob is replaced if its size is wrong, or if Target.Verify is set.
func TestBlobsStay(t *testing.T) {
	o := newOrigin(t, storetest.SQLite(t))
	to := blob.NewFolder(t.TempDir())
	_, err := backup.Save(t.Context(), o.Installation, to, quiet)
	must(t, err)
	want := blobs(t, o.store, o.Blobs)
	damaged := filepath.Join(o.root, pathOf(t, o.store, o.push(t, "layer 1")))
	for _, tt := range []struct {
		verify  bool
		content string
		copied  int64
	}{{false, "layer 1", 0}, {true, "LAYER 1", 1}, {false, "short", 1}} {
		must(t, os.WriteFile(damaged, []byte(tt.content), 0o600))
		into := backup.Target{Database: t.TempDir() + "/new.db", Blobs: o.Blobs, Key: o.Key, Verify: tt.verify}
		var last backup.Progress
		_, err := backup.Restore(t.Context(), to, into, func(p backup.Progress) { last = p })
		must(t, err)
		if got := blobs(t, o.store, o.Blobs); last.Blobs != tt.copied || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v: %d blobs were copied, %v", tt, last.Blobs, got)
		}
	}
}
