package assembly_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A clock moves only when the test moves it, so that the test does not depend on the speed of the machine.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func TestCollect(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		c := newClock()
		s.Now = c.now
		r := newRig(t, s, assembly.Config{Now: c.now})
		collect := func(dry bool) upkeep.Collected {
			t.Helper()
			took, err := r.Collect(t.Context(), upkeep.Collection{Grace: time.Hour, DryRun: dry})
			must(t, err)
			return took
		}
		kept := r.pushImage(t, "acme/team/app", "v1", "kept")
		gone := r.pushImage(t, "acme/team/app", "v2", "gone")
		r.pushImage(t, "acme/other", "v1", "gone") // another repo has the same layer
		r.pushBlob(t, "acme/team/app", []byte("never needed"))
		r.want(t, call{method: "POST", path: "/v2/acme/team/app/blobs/uploads/", who: "owner"}, 202)
		if took := collect(false); took != (upkeep.Collected{}) {
			t.Errorf("took %+v of what is new", took)
		}
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/" + sha(gone), who: "owner"}, 202)
		c.pass(2 * time.Hour)
		if took := collect(true); took.Links != 2 || took.Blobs != 1 || took.Bytes != int64(len("never needed")) {
			t.Errorf("a dry run counts %+v", took)
		}
		if took := collect(false); took != (upkeep.Collected{}) {
			t.Errorf("took %+v at first sight", took)
		}
		c.pass(2 * time.Hour)
		r.want(t, call{method: "HEAD", path: "/v2/acme/team/app/blobs/" + sha([]byte("never needed")), who: "owner"},
			200)
		// Only the layer is removed from the repo, because the other blob was just requested. The layer stays stored,
		// because another repo needs it.
		if took := collect(false); took != (upkeep.Collected{Links: 1}) {
			t.Errorf("took %+v", took)
		}
		must(t, s.DeleteRepo(t.Context(), mustRepo(t, s, "acme", "other")))
		if took := collect(false); took.Blobs != 1 || took.Bytes != int64(len("gone")) {
			t.Errorf("took %+v", took)
		}
		lost := filepath.Join(r.blobs, "blobs", "00", "00-lost")
		must(t, os.MkdirAll(filepath.Dir(lost), 0o700))
		must(t, os.WriteFile(lost, []byte("x"), 0o600))
		c.pass(upkeep.UploadAge)
		if took := collect(true); took.Uploads != 1 || took.Files != 1 {
			t.Errorf("a dry run counts %+v", took)
		}
		if took := collect(false); took.Uploads != 1 || took.Files != 1 {
			t.Errorf("took %+v", took)
		}
		c.pass(2 * time.Hour)
		collect(false)
		if n := r.files(t); n != 2 { // the config and the layer of the kept image remain
			t.Errorf("%d files are left", n)
		}
		r.wantWhole(t, "acme/team/app", "v1", kept)
	})
}

// TestCollectTrash checks that the collector removes entries of the trash after they have expired, and not before.
func TestCollectTrash(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		const week = 7 * 24 * time.Hour
		c := newClock()
		s.Now = c.now
		r := newRig(t, s, assembly.Config{Now: c.now, KeepTrash: week})
		collect := func(dry bool) upkeep.Collected {
			t.Helper()
			took, err := r.Collect(t.Context(), upkeep.Collection{Grace: time.Hour, DryRun: dry})
			must(t, err)
			return took
		}
		m := r.pushImage(t, "acme/team/app", "v1", "layer")
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/" + sha(m), who: "owner"}, 202)
		r.want(t, call{method: "GET", path: "/v2/acme/team/app/manifests/" + sha(m), who: "owner"}, 404)
		c.pass(2 * time.Hour)
		if took := collect(true); took != (upkeep.Collected{Links: 2}) {
			t.Errorf("a dry run counts %+v", took)
		}
		collect(false)
		c.pass(2 * time.Hour)
		if took := collect(false); took != (upkeep.Collected{Links: 2}) || r.files(t) != 2 {
			t.Errorf("took %+v of what can be restored, and %d files are left", took, r.files(t))
		}
		r.want(t, call{method: "HEAD", path: "/v2/acme/team/app/blobs/" + sha([]byte("layer")), who: "owner"}, 404)
		repo := mustRepo(t, s, "acme", "team", "app")
		got, err := s.Trash(t.Context(), store.Reach{Under: []resource.UID{repo}}, resource.Filter{},
			page.Request{Size: 10, Order: page.Order{Field: "create_time"}})
		must(t, err)
		_, err = s.Restore(t.Context(), got.Items[0].UID, registrydb.Restoration{})
		must(t, err)
		r.wantWhole(t, "acme/team/app", "v1", m)
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/" + sha(m), who: "owner"}, 202)
		c.pass(week)
		if took := collect(true); took.Trash != 2 {
			t.Errorf("a dry run counts %+v", took)
		}
		if took := collect(false); took.Trash != 2 {
			t.Errorf("took %+v when it has expired", took)
		}
		c.pass(2 * time.Hour)
		if took := collect(false); took.Blobs != 2 || r.files(t) != 0 {
			t.Errorf("took %+v, and %d files are left", took, r.files(t))
		}
	})
}

func mustRepo(t *testing.T, s *storetest.Store, names ...string) resource.UID {
	t.Helper()
	uid, err := s.RepoAt(t.Context(), names)
	must(t, err)
	return uid
}

// wantWhole pulls an image with all of its blobs, and fails the test if one is missing.
func (r *rig) wantWhole(t testing.TB, repo, reference string, m []byte) {
	t.Helper()
	a := r.want(t, call{method: "GET", path: "/v2/" + repo + "/manifests/" + reference, who: "owner"}, 200)
	if m != nil && string(a.body) != string(m) {
		t.Errorf("%s:%s is another manifest", repo, reference)
	}
	for _, d := range digestsIn(string(a.body)) {
		b := r.want(t, call{method: "GET", path: "/v2/" + repo + "/blobs/" + d, who: "owner"}, 200)
		if sha(b.body) != d {
			t.Errorf("%s holds other bytes", d)
		}
	}
}

// digestsIn returns the digests of the blobs to which the manifest of an image refers.
func digestsIn(m string) (all []string) {
	for part := range strings.SplitSeq(m, `"digest":"`) {
		if d, _, ok := strings.Cut(part, `"`); ok && strings.HasPrefix(d, "sha256:") {
			all = append(all, d)
		}
	}
	return all
}

// TestCollectBesidePushes runs the collector with a short grace period while images are pushed and deleted. It checks
// that every pushed image is complete.
func TestCollectBesidePushes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		c := newClock()
		s.Now = c.now
		r := newRig(t, s, assembly.Config{Now: c.now})
		const pushers, rounds = 4, 12
		var collecting sync.WaitGroup
		stop := make(chan struct{})
		collecting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// A push takes no time on the test's clock, and the grace period ends after two rounds.
				if _, err := r.Collect(t.Context(), upkeep.Collection{Grace: time.Second}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		for i := range rounds {
			var pushing sync.WaitGroup
			var pushed []byte // manifest that all pushers of a round push
			for p := range pushers {
				pushing.Go(func() {
					repo := fmt.Sprintf("acme/team/app%d", p%2) // two pushers use the same repo
					tag := fmt.Sprintf("p%d-%d", p, i)
					m := r.pushImage(t, repo, tag, fmt.Sprintf("layer %d", i)) // the same layer for all pushers of a round
					r.wantWhole(t, repo, tag, m)
					if p == 0 {
						pushed = m
					}
					r.do(t, call{method: "DELETE", path: "/v2/" + repo + "/manifests/" + tag, who: "owner"})
				})
			}
			pushing.Wait()
			for repo := range 2 {
				path := fmt.Sprintf("/v2/acme/team/app%d/manifests/%s", repo, sha(pushed))
				r.want(t, call{method: "DELETE", path: path, who: "owner"}, 202)
			}
			c.pass(600 * time.Millisecond)
		}
		close(stop)
		collecting.Wait()
		for range 4 {
			c.pass(2 * time.Second)
			_, err := r.Collect(t.Context(), upkeep.Collection{Grace: time.Second})
			must(t, err)
		}
		if n := r.files(t); n != 0 {
			t.Errorf("%d files are left", n)
		}
	})
}
