package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// inTx runs do in a transaction that can change findings.
func inTx(t *testing.T, s *storetest.Store, do func(context.Context, findingdb.Tx) error) {
	t.Helper()
	must(t, s.Write(t.Context(), func(tx *store.Tx) error { return do(t.Context(), findingdb.In(tx)) }))
}

// announced returns the numbers of the images whose changes wait to be announced.
func announced(t *testing.T, s *storetest.Store) []int64 {
	t.Helper()
	all, err := s.NextChangedImages(t.Context(), 0, 100)
	must(t, err)
	return all
}

// A bulletin is an organization with a folder and packages, whose advisories share names.
type bulletin struct {
	*storetest.Store
	org, folder resource.UID
	packages    []int64
	known       map[string]resource.UID // the advisories, by their first name and group
}

func newBulletin(t *testing.T, s *storetest.Store) *bulletin {
	t.Helper()
	l := &bulletin{Store: s, org: addGroup(t, s, "", "org").UID, known: map[string]resource.UID{}}
	l.folder = addGroup(t, s, l.org, "folder").UID
	ids, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left", Version: "1"},
		{Ecosystem: "npm", Name: "left", Version: "2"}, {Ecosystem: "npm", Name: "right", Version: "1"}})
	must(t, err)
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
		want.Advisories[key] = findingdb.NamedAdvisory{UID: uid, Names: names}
	}
	inTx(t, l.Store, func(ctx context.Context, tx findingdb.Tx) error {
		return tx.MatchAdvisories(ctx, []int64{key}, want, nil, func(changed findingdb.Change) error {
			c = changed
			return nil
		})
	})
	return c
}

// set returns the number of the alias set that an advisory belongs to.
func (l *bulletin) set(t *testing.T, group resource.UID, id string) (set int64) {
	t.Helper()
	must(t, l.Row(t.Context(), `SELECT alias_set FROM matched_advisories WHERE advisory = $1`,
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
		l.affect(t, l.org, []string{"DSA-1", "CVE-1"}, l.packages[1])
		l.affect(t, l.org, []string{"CVE-2"}, l.packages[1])
		set := l.set(t, l.org, "CVE-1")
		if l.set(t, l.org, "DSA-1") != set || l.set(t, l.org, "CVE-2") == set || set == 0 {
			t.Error("the sets are others")
		}
		if diff := cmp.Diff([]string{"CVE-1", "DSA-1", "GHSA-1"}, l.names(t, set, 10)); diff != "" {
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
		c := l.affect(t, l.org, []string{"DSA-1", "CVE-1", "CVE-2"}, l.packages[2])
		parts := c.Sets.Parts(c.Sets.SetOf(store.Segment(l.known["DSA-1"+string(l.org)])))
		slices.Sort(parts)
		if diff := cmp.Diff([]int64{min(one, two), max(one, two)}, parts); diff != "" {
			t.Error(diff)
		}
		for _, id := range []string{"CVE-1", "CVE-2", "DSA-1"} {
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
		l.affect(t, l.org, []string{"DSA-1", "CVE-1"}, l.packages[0])
		l.affect(t, l.org, []string{"DSA-1"}, l.packages[0])
		if l.set(t, l.org, "CVE-1") != l.set(t, l.org, "DSA-1") {
			t.Error("it did")
		}
	},
	"an advisory that affects nothing any more keeps its set": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1"}, l.packages[0])
		l.affect(t, l.org, []string{"DSA-1", "CVE-1"}, l.packages[0])
		c := l.affect(t, l.org, []string{"CVE-1"})
		if got := c.Sets.SetOf(store.Segment(l.known["CVE-1"+string(l.org)])); len(c.Closed) != 1 ||
			got != l.set(t, l.org, "DSA-1") {
			t.Errorf("%d matches of %d end", len(c.Closed), got)
		}
	},
	"the matches of a set are those of all its advisories, or a few too many": func(t *testing.T, l *bulletin) {
		l.affect(t, l.org, []string{"CVE-1"}, l.packages[0], l.packages[1])
		l.affect(t, l.org, []string{"DSA-1", "CVE-1"}, l.packages[1])
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
		other := addGroup(t, l.Store, "", "other").UID
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
			storetest.Each(t, func(t *testing.T, s *storetest.Store) { promise(t, newBulletin(t, s)) })
		})
	}
}

// newsPromises contains the tests for images whose events are not written yet.
var newsPromises = map[string]func(t *testing.T, s *storetest.Store){
	"an image that gets its number is news, the very first one, too": func(t *testing.T, s *storetest.Store) {
		l := newBulletin(t, s)
		r := addRepo(t, s, l.org, "app")
		pushRunnable(t, s, r, "1")
		n, err := settleImage(t.Context(), s, *take(t, s, nil), l.packages...)
		must(t, err)
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
		must(t, err)
		if len(later) != 0 {
			t.Errorf("after it there is %v", later)
		}
	},
	"one that was there before is told of quietly": func(t *testing.T, s *storetest.Store) {
		l := newBulletin(t, s)
		pushRunnable(t, s, addRepo(t, s, l.org, "app"), "1")
		must(t, ignore(s.Exec(t.Context(), `UPDATE images SET rank = $1`, registrydb.RankAgain)))
		n, err := settleImage(t.Context(), s, *take(t, s, nil), l.packages...)
		must(t, err)
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			got, err := tx.ChangedImages(ctx, []int64{n})
			if len(got) != 1 || !got[0].Quiet {
				t.Errorf("news: %+v", got)
			}
			return err
		})
	},
	"what changes twice keeps what events told before the first time": func(t *testing.T, s *storetest.Store) {
		l := newBulletin(t, s)
		pushRunnable(t, s, addRepo(t, s, l.org, "app"), "1")
		n, err := settleImage(t.Context(), s, *take(t, s, nil), l.packages...)
		must(t, err)
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
	"an organization is told of its own images": func(t *testing.T, s *storetest.Store) {
		l := newBulletin(t, s)
		other := addGroup(t, s, "", "other").UID
		pushRunnable(t, s, addRepo(t, s, other, "app"), "1")
		_, err := settleImage(t.Context(), s, *take(t, s, nil), l.packages...)
		must(t, err)
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			for org, want := range map[resource.UID]int{l.org: 0, other: 1} {
				got, err := tx.ChangedImagesOf(ctx, store.Segment(org))
				must(t, err)
				in, err := tx.ImagesIn(ctx, org)
				must(t, err)
				have := map[int64]findingdb.Images{}
				must(t, tx.ImagesWith(ctx, l.packages, in, have))
				if len(got) != want || in.Len() != want || have[l.packages[0]].Len() != want || len(have) != len(l.packages) {
					t.Errorf("%d news, %d images, %d with the package, want %d", len(got), in.Len(), have[l.packages[0]].Len(), want)
				}
			}
			return nil
		})
	},
	"images are read by their numbers, the last first, without those that are gone": func(t *testing.T,
		s *storetest.Store) {
		l := newBulletin(t, s)
		r := addRepo(t, s, l.org, "app")
		var digests []string
		var numbers []int64
		for _, word := range []string{"1", "2", "3"} {
			digests = append(digests, pushRunnable(t, s, r, word))
			n, err := settleImage(t.Context(), s, *take(t, s, nil))
			must(t, err)
			numbers = append(numbers, n)
		}
		must(t, s.DeleteManifest(t.Context(), r.UID, digests[1], nil))
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
	"the content of an image is known when all of it was compared": func(t *testing.T, s *storetest.Store) {
		l := newBulletin(t, s)
		r := addRepo(t, s, l.org, "app")
		d := pushRunnable(t, s, r, "1")
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
		_, err := settleImage(t.Context(), s, *take(t, s, nil), l.packages[:2]...)
		must(t, err)
		content(l.packages[:2], false)
		inTx(t, s, func(ctx context.Context, tx findingdb.Tx) error {
			return tx.MatchPackages(ctx, []findingdb.StoredPackage{{ID: l.packages[0]}, {ID: l.packages[1]}},
				findingdb.NewMatches(), nil)
		})
		content(l.packages[:2], true)
	},
	"owners are those of the group itself, the first ones": func(t *testing.T, s *storetest.Store) {
		l := newBulletin(t, s)
		now, owner := epoch, addRole(t, s, l.org, "owner").UID
		var want []resource.UID
		for _, at := range []resource.UID{l.org, l.folder, l.folder, l.folder} {
			b := resource.RoleBinding{UID: at.NewChild(), Identity: resource.NewRoot(), Role: owner, CreateTime: now}
			_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{b})
			must(t, err)
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
		t.Run(name, func(t *testing.T) { storetest.Each(t, promise) })
	}
}
