package findingdb_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// inTx runs do in a transaction that can change findings.
func inTx(t *testing.T, s *vulntest.Store, do func(context.Context, findingdb.Tx) error) {
	t.Helper()
	testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error { return do(t.Context(), findingdb.In(tx)) }))
}

// announced returns the numbers of the images whose changes wait to be announced.
func announced(t *testing.T, s *vulntest.Store) []int64 {
	t.Helper()
	all, err := s.NextChangedImages(t.Context(), 0, 100)
	testkit.Must(t, err)
	return all
}

// A bulletin is an organization with a folder and packages, whose advisories share names.
type bulletin struct {
	*vulntest.Store
	org, folder resource.UID
	packages    []int64
	known       map[string]resource.UID // the advisories, by their first name and group
	fixes       []string                // vulnerabilities that the next advisory fixes
}

func newBulletin(t *testing.T, s *vulntest.Store) *bulletin {
	t.Helper()
	l := &bulletin{Store: s, org: iamtest.AddGroup(t, s.IAMStore, "", "org").UID, known: map[string]resource.UID{}}
	l.folder = iamtest.AddGroup(t, s.IAMStore, l.org, "folder").UID
	ids, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left", Version: "1"},
		{Ecosystem: "npm", Name: "left", Version: "2"}, {Ecosystem: "npm", Name: "right", Version: "1"}})
	testkit.Must(t, err)
	l.packages = slices.Sorted(slices.Values(ids))
	return l
}

// affect makes an advisory in a group affect packages, and returns the resulting change.
func (l *bulletin) affect(t *testing.T, group resource.UID, names []string, packages ...int64) (c findingdb.Change) {
	t.Helper()
	uid, ok := l.known[names[0]+string(group)]
	if !ok {
		uid = group.NewChild()
		l.known[names[0]+string(group)] = uid
	}
	want, key := findingdb.NewMatches(), store.Segment(uid)
	for _, p := range packages {
		want.Ratings[findingdb.Match{Package: p, Root: store.Segment(group.Root()),
			Advisory: key}] = findingdb.Rating{Score: 70}
		want.Advisories[key] = findingdb.NamedAdvisory{UID: uid, Names: names, Fixes: l.fixes}
	}
	inTx(t, l.Store, func(ctx context.Context, tx findingdb.Tx) error {
		return tx.MatchAdvisories(ctx, []int64{key}, want, nil, func(changed findingdb.Change) error {
			c = changed
			return nil
		})
	})
	return c
}

// fix makes an advisory of the organization that fixes vulnerabilities affect packages, and returns the resulting
// change.
func (l *bulletin) fix(t *testing.T, id string, fixes []string, packages ...int64) findingdb.Change {
	t.Helper()
	l.fixes = fixes
	defer func() { l.fixes = nil }()
	return l.affect(t, l.org, []string{id}, packages...)
}

// set returns the number of the only vulnerability that an advisory describes.
func (l *bulletin) set(t *testing.T, group resource.UID, id string) (set int64) {
	t.Helper()
	testkit.Must(t, l.Row(t.Context(), `SELECT vulnerability FROM advisory_vulnerabilities WHERE advisory = $1`,
		[]any{store.Segment(l.known[id+string(group)])}, &set))
	return set
}

func (l *bulletin) names(t *testing.T, set int64, n int) (all []string) {
	t.Helper()
	inTx(t, l.Store, func(ctx context.Context, tx findingdb.Tx) (err error) {
		all, err = tx.SetNames(ctx, []int64{set}, n)
		return err
	})
	return all
}

// aliasPromises contains the tests for which advisories are about the same vulnerability.
var aliasPromises = map[string]func(t *testing.T, l *bulletin){
	"advisories of a group that share a name are one set": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1", "GHSA-1"}, l.packages[0])
		l.affect(t, l.org, []string{"PSF-1", "CVE-1"}, l.packages[1])
		l.affect(t, l.org, []string{"CVE-2"}, l.packages[1])
		set := l.set(t, l.org, "CVE-1")
		if l.set(t, l.org, "PSF-1") != set || l.set(t, l.org, "CVE-2") == set || set == 0 {
			t.Error("the sets are others")
		}
		if diff := cmp.Diff([]string{"CVE-1", "GHSA-1", "PSF-1"}, l.names(t, set, 10)); diff != "" {
			t.Error(diff)
		}
		if got := l.names(t, set, 2); len(got) != 2 {
			t.Errorf("two names are %v", got)
		}
	},
	"advisories of two groups are never one set": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1"}, l.packages[0])
		l.affect(t, l.folder, []string{"CVE-1"}, l.packages[0])
		if l.set(t, l.org, "CVE-1") == l.set(t, l.folder, "CVE-1") {
			t.Error("a folder can speak for the organization")
		}
	},
	"an advisory joins sets, which a change knows by their parts": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1"}, l.packages[0])
		l.affect(t, l.org, []string{"CVE-2"}, l.packages[1])
		one, two := l.set(t, l.org, "CVE-1"), l.set(t, l.org, "CVE-2")
		c := l.affect(t, l.org, []string{"PSF-1", "CVE-1", "CVE-2"}, l.packages[2])
		parts := c.Sets.Parts(c.Sets.SetsOf(store.Segment(l.known["PSF-1"+string(l.org)]))[0])
		slices.Sort(parts)
		if diff := cmp.Diff([]int64{min(one, two), max(one, two)}, parts); diff != "" {
			t.Error(diff)
		}
		for _, id := range []string{"CVE-1", "CVE-2", "PSF-1"} {
			if got := l.set(t, l.org, id); got != min(one, two) {
				t.Errorf("%s is in %d", id, got)
			}
		}
		if got := l.names(t, min(one, two), 10); len(got) != 3 {
			t.Errorf("its names are %v", got)
		}
	},
	"a set does not fall apart": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1"}, l.packages[0])
		l.affect(t, l.org, []string{"PSF-1", "CVE-1"}, l.packages[0])
		l.affect(t, l.org, []string{"PSF-1"}, l.packages[0])
		if l.set(t, l.org, "CVE-1") != l.set(t, l.org, "PSF-1") {
			t.Error("it did")
		}
	},
	"an advisory that affects nothing any more keeps its set": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1"}, l.packages[0])
		l.affect(t, l.org, []string{"PSF-1", "CVE-1"}, l.packages[0])
		c := l.affect(t, l.org, []string{"CVE-1"})
		if got := c.Sets.SetsOf(store.Segment(l.known["CVE-1"+string(l.org)])); len(c.Closed) != 1 ||
			!slices.Equal(got, []int64{l.set(t, l.org, "PSF-1")}) {
			t.Errorf("%d matches of %d end", len(c.Closed), got)
		}
	},
	"an advisory of a distribution describes each vulnerability that it fixes": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1", "GHSA-1"}, l.packages[0])
		l.fix(t, "ALSA-1", []string{"CVE-1", "CVE-2"}, l.packages[1])
		one := l.set(t, l.org, "CVE-1")
		if diff := cmp.Diff([]string{"CVE-1", "GHSA-1"}, l.names(t, one, 10)); diff != "" {
			t.Error(diff)
		}
		inTx(t, l.Store, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := tx.HitsOfOrganization(ctx, store.Segment(l.org), l.packages[1:2])
			if len(got) != 2 || got[0].Set == got[1].Set || got[0].Set != one && got[1].Set != one ||
				!slices.Equal(got[0].By.Fixes, []string{"CVE-1", "CVE-2"}) || !slices.Equal(got[0].By.Names, []string{"ALSA-1"}) {
				t.Errorf("matches: %+v", got)
			}
			return err
		})
	},
	"an advisory that fixes other vulnerabilities than before moves its matches": func(t *testing.T, l *bulletin) {
		l.fix(t, "ALSA-1", []string{"CVE-1", "CVE-2"}, l.packages[0], l.packages[1])
		c := l.fix(t, "ALSA-1", []string{"CVE-2", "CVE-3"}, l.packages[0], l.packages[1])
		key := store.Segment(l.known["ALSA-1"+string(l.org)])
		before, after := c.Sets.SetsBefore(key), c.Sets.SetsOf(key)
		if len(c.Opened)+len(c.Closed) != 0 || len(c.Moved) != 2 || len(before) != 2 || len(after) != 2 {
			t.Errorf("moved: %+v, from %v to %v", c.Moved, before, after)
		}
		if c := l.fix(t, "ALSA-1", []string{"CVE-2", "CVE-3"}, l.packages[0]); len(c.Moved) != 0 || len(c.Closed) != 1 {
			t.Errorf("moved again: %+v", c.Moved)
		}
		var n int
		testkit.Must(t, l.Row(t.Context(), `SELECT count(*) FROM advisory_vulnerabilities`, nil, &n))
		if n != 2 {
			t.Errorf("%d vulnerabilities are stored, want 2", n)
		}
	},
	"advisories of an earlier version are converted": func(t *testing.T, l *bulletin) {
		for i, names := range []string{`["ALSA-1","CVE-1","CVE-2"]`, `["GHSA-1","CVE-1"]`, `["ALBA-1","CVE-3"]`} {
			uid := l.org.NewChild()
			testkit.Must(t, testkit.Ignore(l.Exec(t.Context(), `INSERT INTO matched_advisories
				(advisory, uid, names, alias_set) VALUES ($1, $2, $3, 7)`, store.Segment(uid), string(uid), names)))
			testkit.Must(t, testkit.Ignore(l.Exec(t.Context(), `INSERT INTO matches (package, root, advisory, since_ms)
				VALUES ($1, $2, $3, 1)`, l.packages[i], store.Segment(l.org), store.Segment(uid))))
		}
		for _, want := range []int{2, 1, 0} {
			inTx(t, l.Store, func(ctx context.Context, tx findingdb.Tx) error {
				got, err := tx.ConvertAdvisories(ctx, 2)
				if len(got) != want {
					t.Errorf("%d are converted, want %d", len(got), want)
				}
				return err
			})
		}
		inTx(t, l.Store, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := tx.HitsOfOrganization(ctx, store.Segment(l.org), l.packages)
			sets := map[int64]map[int64]int{}
			for _, h := range got {
				if sets[h.Package] == nil {
					sets[h.Package] = map[int64]int{}
				}
				sets[h.Package][h.Set]++
			}
			shared := 0
			for set := range sets[l.packages[1]] {
				shared += sets[l.packages[0]][set]
			}
			if len(sets[l.packages[0]]) != 2 || len(sets[l.packages[1]]) != 1 || shared != 1 || len(sets) != 2 {
				t.Errorf("vulnerabilities by package: %v", sets)
			}
			return err
		})
	},
	"the matches of a set are those of all its advisories, or a few too many": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1"}, l.packages[0], l.packages[1])
		l.affect(t, l.org, []string{"PSF-1", "CVE-1"}, l.packages[1])
		l.affect(t, l.org, []string{"CVE-2"}, l.packages[2])
		set := l.set(t, l.org, "CVE-1")
		for most, want := range map[int]int{3: 3, 2: 3, 1: 2} {
			inTx(t, l.Store, func(ctx context.Context, tx findingdb.Tx) error {
				got, err := tx.SetHits(ctx, []int64{set}, most)
				if len(got) != 1 || len(got[set]) != want {
					t.Errorf("at most %d: %d matches, want %d", most, len(got[set]), want)
				}
				return err
			})
		}
	},
	"packages have matches with advisories of one organization": func(t *testing.T, l *bulletin) {
		other := iamtest.AddGroup(t, l.IAMStore, "", "other").UID
		l.affect(t, l.folder, []string{"CVE-1", "GHSA-1"}, l.packages[0])
		l.affect(t, other, []string{"CVE-2"}, l.packages[0])
		inTx(t, l.Store, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := tx.HitsOfOrganization(ctx, store.Segment(l.org), l.packages)
			if len(got) != 1 || got[0].Package != l.packages[0] || got[0].Set != l.set(t, l.folder, "CVE-1") ||
				got[0].By.UID.Parent() != l.folder || !slices.Equal(got[0].By.Names, []string{"CVE-1", "GHSA-1"}) {
				t.Errorf("matches: %+v", got)
			}
			return err
		})
	},
}

func TestAliasSets(t *testing.T) {
	t.Parallel()
	for name, promise := range aliasPromises {
		t.Run(name, func(t *testing.T) {
			vulntest.Each(t, func(t *testing.T, s *vulntest.Store) { promise(t, newBulletin(t, s)) })
		})
	}
}

// newsPromises contains the tests for images whose events are not written yet.
var newsPromises = map[string]func(t *testing.T, s *vulntest.Store){
	"an image that gets its number is news, the very first one, too": func(t *testing.T, s *vulntest.Store) {
		l := newBulletin(t, s)
		r := registrytest.AddRepo(t, s.RegistryStore, l.org, "app")
		registrytest.PushRunnable(t, s.RegistryStore, r, "1")
		n, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil), l.packages...)
		testkit.Must(t, err)
		if diff := cmp.Diff([]int64{n}, announced(t, s)); diff != "" {
			t.Error(diff)
		}
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := tx.ChangedImages(ctx, []int64{n, n + 1})
			want := []findingdb.ChangedImage{{Number: n, Root: store.Segment(l.org)}}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			return err
		})
		later, err := s.NextChangedImages(t.Context(), n+1, 10)
		testkit.Must(t, err)
		if len(later) != 0 {
			t.Errorf("after it there is %v", later)
		}
	},
	"one that was there before is told of quietly": func(t *testing.T, s *vulntest.Store) {
		l := newBulletin(t, s)
		registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore, l.org, "app"), "1")
		testkit.Must(t, testkit.Ignore(s.Exec(t.Context(), `UPDATE images SET rank = $1`, registrydb.RankAgain)))
		n, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil), l.packages...)
		testkit.Must(t, err)
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := tx.ChangedImages(ctx, []int64{n})
			if len(got) != 1 || !got[0].Quiet {
				t.Errorf("news: %+v", got)
			}
			return err
		})
	},
	"what changes twice keeps what events told before the first time": func(t *testing.T, s *vulntest.Store) {
		l := newBulletin(t, s)
		registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore, l.org, "app"), "1")
		n, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil), l.packages...)
		testkit.Must(t, err)
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error { return tx.DropChangedImage(ctx, n) })
		if got := announced(t, s); len(got) != 0 {
			t.Errorf("dropped, and still there: %v", got)
		}
		for _, told := range [][]int64{{1, 300, 70_000}, {2}} {
			inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
				return tx.MarkChanging(ctx, []int64{n, n + 1}, told, false)
			})
		}
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := tx.ChangedImagesOf(ctx, store.Segment(l.org))
			want := []findingdb.ChangedImage{{Number: n, Root: store.Segment(l.org), Announced: []int64{1, 300, 70_000}}}
			if diff := cmp.Diff(want, got); diff != "" { // the image that does not exist is not in the result
				t.Error(diff)
			}
			return err
		})
	},
	"an organization is told of its own images": func(t *testing.T, s *vulntest.Store) {
		l := newBulletin(t, s)
		other := iamtest.AddGroup(t, s.IAMStore, "", "other").UID
		registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore, other, "app"), "1")
		_, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil), l.packages...)
		testkit.Must(t, err)
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			for org, want := range map[resource.UID]int{l.org: 0, other: 1} {
				got, err := tx.ChangedImagesOf(ctx, store.Segment(org))
				testkit.Must(t, err)
				in, err := tx.ImagesIn(ctx, org)
				testkit.Must(t, err)
				have := map[int64]findingdb.Images{}
				testkit.Must(t, tx.ImagesWith(ctx, l.packages, in, have))
				if len(got) != want || in.Len() != want || have[l.packages[0]].Len() != want || len(have) != len(l.packages) {
					t.Errorf("%d news, %d images, %d with the package, want %d", len(got), in.Len(), have[l.packages[0]].Len(), want)
				}
			}
			return nil
		})
	},
	"images are read by their numbers, the last first, without those that are gone": func(t *testing.T,
		s *vulntest.Store) {
		l := newBulletin(t, s)
		r := registrytest.AddRepo(t, s.RegistryStore, l.org, "app")
		var digests []string
		var numbers []int64
		for _, word := range []string{"1", "2", "3"} {
			digests = append(digests, registrytest.PushRunnable(t, s.RegistryStore, r, word))
			n, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil))
			testkit.Must(t, err)
			numbers = append(numbers, n)
		}
		testkit.Must(t, s.DeleteManifest(t.Context(), r.UID, digests[1], nil))
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := tx.ImagesByNumber(ctx, numbers)
			want := []findingdb.ImageNumber{{Number: numbers[2], NewsImage: vuln.NewsImage{Repo: r.UID, Digest: digests[2]}},
				{Number: numbers[0], NewsImage: vuln.NewsImage{Repo: r.UID, Digest: digests[0]}}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			return err
		})
	},
	"the content of an image is known when all of it was compared": func(t *testing.T, s *vulntest.Store) {
		l := newBulletin(t, s)
		r := registrytest.AddRepo(t, s.RegistryStore, l.org, "app")
		d := registrytest.PushRunnable(t, s.RegistryStore, r, "1")
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			_, err := tx.SaveInspection(ctx, registry.Inspection{Digest: d, Packages: make([]registry.ImagePackage, 2)},
				l.packages[:2])
			return err
		})
		image := vuln.NewsImage{Repo: r.UID, Digest: d}
		content := func(want []int64, compared bool) {
			t.Helper()
			inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
				ids, matched, err := tx.Content(ctx, image)
				if diff := cmp.Diff(want, ids, cmpopts.EquateEmpty()); diff != "" || matched != compared {
					t.Errorf("compared: %v; %s", matched, diff)
				}
				return err
			})
		}
		content(nil, true) // the image is not inspected yet
		_, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil), l.packages[:2]...)
		testkit.Must(t, err)
		content(l.packages[:2], false)
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			return tx.MatchPackages(ctx, []findingdb.StoredPackage{{ID: l.packages[0]}, {ID: l.packages[1]}},
				findingdb.NewMatches(), nil)
		})
		content(l.packages[:2], true)
	},
	"owners are those of the group itself, the first ones": func(t *testing.T, s *vulntest.Store) {
		l := newBulletin(t, s)
		now, owner := iamtest.Epoch, iamtest.AddRole(t, s.IAMStore, l.org, "owner").UID
		var want []resource.UID
		for _, at := range []resource.UID{l.org, l.folder, l.folder, l.folder} {
			b := resource.RoleBinding{UID: at.NewChild(), Identity: resource.NewRoot(), Role: owner, CreateTime: now}
			_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{b})
			testkit.Must(t, err)
			want, now = append(want, b.Identity), now.Add(time.Second)
		}
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := iamdb.In(tx.Tx).Holders(ctx, l.folder, owner, 2)
			if diff := cmp.Diff(want[1:3], got); diff != "" {
				t.Error(diff)
			}
			return err
		})
	},
}

func TestNews(t *testing.T) {
	t.Parallel()
	for name, promise := range newsPromises {
		t.Run(name, func(t *testing.T) { vulntest.Each(t, promise) })
	}
}
