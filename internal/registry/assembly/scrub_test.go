package assembly_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// scrub scrubs all blobs of a rig and returns the result.
func (r *rig) scrub(t *testing.T) upkeep.Scrubbed {
	t.Helper()
	s := upkeep.Scrubber{Store: registrydb.New(r.store.DB), Storage: blob.NewFolder(r.blobs), Judge: r.Judge}
	all, err := s.Run(t.Context())
	must(t, err)
	return all
}

// file returns the path of the file that contains a blob.
func (r *rig) file(t *testing.T, digest string) string {
	t.Helper()
	b, err := r.store.StoredBlob(t.Context(), digest)
	must(t, err)
	return filepath.Join(r.blobs, b.Path)
}

// damages are ways to damage the file of a blob whose content is "layer".
var damages = map[string]func(name string) error{
	"a changed byte":   func(name string) error { return os.WriteFile(name, []byte("lager"), 0o600) },
	"a lost end":       func(name string) error { return os.Truncate(name, 3) },
	"more at the end":  func(name string) error { return os.WriteFile(name, []byte("layer and more"), 0o600) },
	"an empty file":    func(name string) error { return os.Truncate(name, 0) },
	"a file that went": os.Remove,
}

// TestScrub damages a blob. It checks that a scrub finds the damage, that the blob is then no longer served, and that
// pushing the image again repairs it.
func TestScrub(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		r.pushImage(t, "acme/team/app", "v1", "layer")
		r.pushImage(t, "acme/other", "v1", "layer")
		digest := sha([]byte("layer"))
		path := "/v2/acme/team/app/blobs/" + digest
		if got := r.scrub(t); got.Blobs != 2 || len(got.Rotten) != 0 || got.Bytes != int64(len("layer")+37) {
			t.Errorf("before anything has happened: %+v", got)
		}
		for name, damage := range damages {
			t.Run(name, func(t *testing.T) {
				must(t, damage(r.file(t, digest)))
				for range 2 { // the second scrub finds the blob already marked
					if got := r.scrub(t); len(got.Rotten) != 1 || got.Rotten[0] != digest || got.Repaired != 0 {
						t.Errorf("scrubbed %+v", got)
					}
				}
				for _, method := range []string{"HEAD", "GET"} {
					a := r.want(t, call{method: method, path: path, who: "owner"}, http.StatusNotFound)
					if method == "GET" && a.code() != "BLOB_UNKNOWN" {
						t.Errorf("%s", a.body)
					}
				}
				r.want(t, call{
					method: "POST", path: "/v2/acme/new/blobs/uploads/?mount=" + digest + "&from=acme/other", who: "owner",
				},
					http.StatusAccepted)
				if n, err := s.RottenBlobs(t.Context()); n != 1 || err != nil {
					t.Errorf("%d are rotten, %v", n, err)
				}
				r.pushImage(t, "acme/team/app", "v1", "layer")
				for _, repo := range []string{"acme/team/app", "acme/other"} { // both repos have the blob
					r.wantWhole(t, repo, "v1", nil)
				}
				if got := r.scrub(t); len(got.Rotten) != 0 || got.Repaired != 0 {
					t.Errorf("scrubbed %+v after it was pushed again", got)
				}
			})
		}
	})
}

// TestScrubMistaken checks that a scrub removes the mark from a blob whose bytes are right again, and that it marks
// nothing if the storage is unavailable.
func TestScrubMistaken(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	r.pushImage(t, "acme/team/app", "v1", "layer")
	digest := sha([]byte("layer"))
	file := r.file(t, digest)
	must(t, os.Rename(file, file+".away"))
	if got := r.scrub(t); len(got.Rotten) != 1 {
		t.Errorf("scrubbed %+v", got)
	}
	must(t, os.Rename(file+".away", file))
	if got := r.scrub(t); len(got.Rotten) != 0 || got.Repaired != 1 {
		t.Errorf("scrubbed %+v when it was back", got)
	}
	r.wantWhole(t, "acme/team/app", "v1", nil)

	must(t, os.Rename(r.blobs, r.blobs+".away"))
	if got := r.scrub(t); len(got.Rotten) != 0 || got.Failed != 2 {
		t.Errorf("scrubbed %+v without a storage", got)
	}
	must(t, os.Rename(r.blobs+".away", r.blobs))
	r.wantWhole(t, "acme/team/app", "v1", nil)
	if v, err := r.Judge(t.Context(), "../../etc/passwd"); v != "" || !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("what is no digest is %q, %v", v, err)
	}
	if v, err := r.Judge(t.Context(), sha([]byte("none"))); v != upkeep.Gone || err != nil {
		t.Errorf("a blob that is not there is %s, %v", v, err)
	}
}

// TestScrubRepairs checks that a scrub repairs a blob with the bytes from Config.Repair, if they have the right
// digest.
func TestScrubRepairs(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	digest := sha([]byte("layer"))
	var asked []string
	offer, failure := "", error(nil)
	r := newRig(t, s, assembly.Config{
		Repair: func(_ context.Context, repo resource.UID, d string) (io.ReadCloser, error) {
			asked = append(asked, d)
			if offer == "" || failure != nil {
				return nil, failure
			}
			return io.NopCloser(strings.NewReader(offer)), nil
		},
	})
	r.pushImage(t, "acme/team/app", "v1", "layer")
	must(t, os.Truncate(r.file(t, digest), 1))
	for _, tt := range []struct {
		offer string
		err   error
	}{{"", nil}, {"", errors.New("the upstream is away")}, {"other", nil}, {"layer and more", nil}, {"l", nil}} {
		offer, failure = tt.offer, tt.err
		if got := r.scrub(t); len(got.Rotten) != 1 || got.Repaired != 0 {
			t.Errorf("offered %+v: scrubbed %+v", tt, got)
		}
		if n := r.files(t); n != 2 {
			t.Errorf("offered %+v: there are %d files", tt, n)
		}
	}
	offer, failure = "layer", nil
	if got := r.scrub(t); len(got.Rotten) != 0 || got.Repaired != 1 {
		t.Errorf("scrubbed %+v", got)
	}
	r.wantWhole(t, "acme/team/app", "v1", nil)
	if len(asked) != 6 || asked[0] != digest {
		t.Errorf("asked for %v", asked)
	}
}

// TestScrubHealsRace pushes a blob while a scrub checks it. It checks that the blob can be pulled afterwards,
// whichever ends first.
func TestScrubHealsRace(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		content := bytes.Repeat([]byte("layer"), 10_000)
		digest := sha(content)
		for range 5 {
			r.pushBlob(t, "acme/team/app", content)
			must(t, os.Truncate(r.file(t, digest), 1))
			r.scrub(t)
			judged := make(chan error)
			go func() {
				_, err := r.Judge(t.Context(), digest)
				judged <- err
			}()
			r.pushBlob(t, "acme/team/app", content)
			must(t, <-judged)
			a := r.want(t, call{method: "GET", path: "/v2/acme/team/app/blobs/" + digest, who: "owner"}, http.StatusOK)
			if !bytes.Equal(a.body, content) {
				t.Fatal("other bytes come back")
			}
		}
	})
}
