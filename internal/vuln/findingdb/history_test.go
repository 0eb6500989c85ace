package findingdb_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// A past is an organization with a package, an advisory, and a clock.
type past struct {
	*vulntest.Store
	org      resource.UID
	packages []findingdb.StoredPackage
	advisory resource.UID
	now      time.Time
}

func newPast(t *testing.T, s *vulntest.Store) *past {
	t.Helper()
	p := &past{Store: s, org: iamtest.AddGroup(t, s.IAMStore, "", "org").UID, now: iamtest.Epoch}
	s.Now = func() time.Time { return p.now }
	p.advisory = p.org.NewChild()
	left := registry.Package{Ecosystem: "npm", Name: "left", Version: "1"}
	ids, err := s.AddPackages(t.Context(), []registry.Package{left})
	testkit.Must(t, err)
	p.packages = []findingdb.StoredPackage{{ID: ids[0], Package: left}}
	return p
}

// key returns the key for the match between the package and the advisory.
func (p *past) key() findingdb.Match {
	return findingdb.Match{Package: p.packages[0].ID, Root: store.Segment(p.org), Advisory: store.Segment(p.advisory)}
}

// match makes the advisory affect the package with a score. If score is 0, the advisory no longer
// affects it.
func (p *past) match(t *testing.T, after time.Duration, score int64, source string) findingdb.Change {
	t.Helper()
	p.now = p.now.Add(after)
	want := findingdb.NewMatches()
	if score > 0 {
		want.Ratings[p.key()] = findingdb.Rating{Score: score, Fixed: []string{"2"}}
		want.Advisories[p.key().Advisory] = findingdb.NamedAdvisory{UID: p.advisory, Names: []string{"CVE-1", "GHSA-1"}}
	}
	var c findingdb.Change
	testkit.Must(t, p.Write(t.Context(), func(tx *store.Tx) error {
		return findingdb.In(tx).MatchAdvisories(t.Context(), []int64{p.key().Advisory}, want,
			map[int64]string{p.key().Advisory: source}, func(changed findingdb.Change) error { c = changed; return nil })
	}))
	return c
}

// hits returns the matches for the package. Current matches come before ended ones.
func (p *past) hits(t *testing.T) []findingdb.Hit {
	t.Helper()
	ids, roots := []int64{p.packages[0].ID}, []resource.UID{p.org}
	all, err := p.HitsOf(t.Context(), ids, roots)
	testkit.Must(t, err)
	gone, err := p.PastHitsOf(t.Context(), ids, roots, 0)
	testkit.Must(t, err)
	return append(all, gone...)
}

func ms(after time.Duration) int64 { return store.MS(iamtest.Epoch.Add(after)) }

// historyPromises contains the tests for matches that have ended.
var historyPromises = map[string]func(t *testing.T, s *vulntest.Store){
	"a match that ends is kept with its times and sources": func(t *testing.T, s *vulntest.Store) {
		p := newPast(t, s)
		if c := p.match(t, time.Second, 70, "feed 1"); len(c.Opened) != 1 || len(c.Closed) != 0 {
			t.Errorf("changed: %v", c)
		}
		if c := p.match(t, time.Second, 0, "feed 2"); len(c.Opened) != 0 || len(c.Closed) != 1 {
			t.Errorf("changed: %v", c)
		}
		p.match(t, time.Second, 80, "feed 3")
		want := []findingdb.Hit{
			{Rating: findingdb.Rating{Score: 80, Fixed: []string{"2"}}, Since: ms(3 * time.Second), OpenedBy: "feed 3"},
			{Rating: findingdb.Rating{Score: 70, Fixed: []string{"2"}}, Since: ms(time.Second), OpenedBy: "feed 1",
				Until: ms(2 * time.Second), ClosedBy: "feed 2"},
		}
		ignore := cmpopts.IgnoreFields(findingdb.Hit{}, "Package", "Advisory")
		if diff := cmp.Diff(want, p.hits(t), ignore); diff != "" {
			t.Error(diff)
		}
		gone, err := p.PastHitsOf(t.Context(), []int64{p.packages[0].ID}, []resource.UID{p.org}, ms(2*time.Second))
		testkit.Must(t, err)
		if len(gone) != 0 {
			t.Errorf("after its end there is %v", gone)
		}
	},
	"a match that is rated differently keeps its time and source": func(t *testing.T, s *vulntest.Store) {
		p := newPast(t, s)
		p.match(t, time.Second, 70, "feed 1")
		if c := p.match(t, time.Second, 80, "feed 2"); len(c.Opened)+len(c.Closed) != 0 {
			t.Errorf("changed: %v", c)
		}
		got := p.hits(t)
		if len(got) != 1 || got[0].Since != ms(time.Second) || got[0].OpenedBy != "feed 1" || got[0].Score != 80 {
			t.Errorf("matches: %v", got)
		}
	},
	"a match ends no earlier than it began, whatever the clock says": func(t *testing.T, s *vulntest.Store) {
		p := newPast(t, s)
		p.match(t, time.Second, 70, "")
		p.match(t, -time.Minute, 0, "")
		if got := p.hits(t); len(got) != 1 || got[0].Until != got[0].Since {
			t.Errorf("matches: %v", got)
		}
	},
	"an advisory that is gone keeps its names": func(t *testing.T, s *vulntest.Store) {
		p := newPast(t, s)
		p.match(t, time.Second, 70, "")
		p.match(t, time.Second, 0, "")
		got, err := p.Named(t.Context(), []int64{p.key().Advisory, 1})
		testkit.Must(t, err)
		want := map[int64]findingdb.NamedAdvisory{p.key().Advisory: {UID: p.advisory, Names: []string{"CVE-1", "GHSA-1"}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	},
	"a change of an advisory says what brought it": func(t *testing.T, s *vulntest.Store) {
		p := newPast(t, s)
		a := vuln.Advisory{ID: "CVE-1", Source: vuln.AdvisorySource{Digest: []byte("1")}}
		_, err := s.ImportAdvisories(t.Context(), p.org, "f", []vuln.Advisory{a})
		testkit.Must(t, err)
		wantSource(t, s, "import")
		a.Source.Digest, a.Summary = []byte("2"), "other"
		_, err = s.ImportAdvisories(advisorydb.WithSource(t.Context(), "feed 1"), p.org, "f", []vuln.Advisory{a})
		testkit.Must(t, err)
		wantSource(t, s, "feed 1")
		testkit.Must(t, s.DeleteAdvisory(t.Context(), vulntest.FindAdvisory(t, s.AdvisoryStore, p.org, "CVE-1").UID))
		wantSource(t, s, "api")
	},
	"an image keeps when it was first indexed": func(t *testing.T, s *vulntest.Store) {
		p := newPast(t, s)
		r := registrytest.AddRepo(t, s.RegistryStore, p.org, "app")
		d := registrytest.PushRunnable(t, s.RegistryStore, r, "1")
		p.now = iamtest.Epoch.Add(time.Second)
		_, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil))
		testkit.Must(t, err)
		_, err = s.SweepImages(t.Context(), 2)
		testkit.Must(t, err)
		p.now = iamtest.Epoch.Add(time.Minute)
		_, err = vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil))
		testkit.Must(t, err)
		got, err := s.Images(t.Context(), r.UID, []string{d})
		testkit.Must(t, err)
		if want := iamtest.Epoch.Add(time.Second); !got[d].IndexTime.Equal(want) || !got[d].UpdateTime.Equal(p.now) {
			t.Errorf("indexed at %v, want %v", got[d].IndexTime, want)
		}
	},
}

// wantSource checks the source of the pending changes, and removes them.
func wantSource(t *testing.T, s *vulntest.Store, want string) {
	t.Helper()
	c, err := s.NextChanges(t.Context(), 0, 10)
	testkit.Must(t, err)
	if len(c.Advisories) != 1 || c.Sources[c.Advisories[0]] != want {
		t.Errorf("changes of %v, want one of %q", c.Sources, want)
	}
	testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error { return advisorydb.DeleteChanges(t.Context(), tx, c) }))
}

func TestFindingHistory(t *testing.T) {
	t.Parallel()
	for name, promise := range historyPromises {
		t.Run(name, func(t *testing.T) { vulntest.Each(t, promise) })
	}
}
