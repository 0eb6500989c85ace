package store_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestSearch checks searches against a scan of all groups, for random trees, reaches and texts.
func TestSearch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		random := rand.New(rand.NewPCG(1, 2))
		words := []string{"a", "ab", "abc", "ab-c", "b", "a.b", "a_b", "a b", "z"}
		orgs := []resource.Group{iamtest.AddGroup(t, s.IAMStore, "", "ab"), iamtest.AddGroup(t, s.IAMStore, "", "b")}
		all := slices.Clone(orgs)
		for i := range 30 {
			all = append(all, iamtest.AddGroup(t, s.IAMStore, orgs[i%2].UID, fmt.Sprint("folder", i)))
		}
		for i := range 120 {
			in := all[random.IntN(len(all))]
			if in.UID.Depth() < 7 {
				all = append(all, iamtest.AddGroup(t, s.IAMStore, in.UID, fmt.Sprintf("%s%d", words[random.IntN(len(words))],
					i%40+i/40*100)))
			}
		}
		texts := append(slices.Clone(words), "a1", "ab1", "%", "_", "a%", "a\\", "nothing", "é", "\u202e", "\U0010ffff",
			"'", all[7].Name)
		for range 200 {
			r := store.Reach{Under: someOf(random, all)}
			n := store.NameSearch{Table: "groups", GroupUID: true, Text: texts[random.IntN(len(texts))],
				Exact: random.IntN(4) == 0, Limit: 1 + random.IntN(7)}
			if random.IntN(3) == 0 {
				n.In = all[random.IntN(len(all))].UID
			}
			got, err := s.Search(t.Context(), r, n)
			testkit.Must(t, err)
			if diff := gocmp.Diff(expected(all, r, n), uidsOf(got)); diff != "" {
				t.Fatalf("%+v in %v: %s", n, r, diff)
			}
		}
		for name, n := range map[string]store.NameSearch{
			"no text": {Table: "groups", GroupUID: true, Limit: 5}, "no results": {Table: "groups", GroupUID: true, Text: "a"},
		} {
			if got, err := s.Search(t.Context(), store.Reach{Under: []resource.UID{orgs[0].UID}}, n); err != nil ||
				len(got) != 0 {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	})
}

// someOf returns the groups for a random reach. They are sorted, and no group is below another.
func someOf(random *rand.Rand, all []resource.Group) (under []resource.UID) {
	if random.IntN(3) == 0 { // only groups of the same depth, so that many remain
		all = all[2:32]
	}
	for range 1 + random.IntN(4)*random.IntN(10) {
		under = append(under, all[random.IntN(len(all))].UID)
	}
	slices.Sort(under)
	return slices.DeleteFunc(slices.Compact(under), func(g resource.UID) bool {
		return slices.ContainsFunc(under, func(above resource.UID) bool { return above != g && above.Covers(g) })
	})
}

// expected returns the groups that a search must return.
func expected(all []resource.Group, r store.Reach, n store.NameSearch) []resource.UID {
	all = slices.DeleteFunc(slices.Clone(all), func(g resource.Group) bool {
		return !store.Covered(r.Under, g.UID) || n.In != "" && g.UID.Parent() != n.In ||
			n.Exact && g.Name != n.Text || !strings.HasPrefix(g.Name, n.Text)
	})
	slices.SortFunc(all, func(a, b resource.Group) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(store.Segment(a.UID), store.Segment(b.UID)))
	})
	var uids []resource.UID
	for _, g := range all[:min(n.Limit, len(all))] {
		uids = append(uids, g.UID)
	}
	return uids
}

func uidsOf(all []resource.Info) (uids []resource.UID) {
	for _, i := range all {
		uids = append(uids, i.UID)
	}
	return uids
}

func TestAfterPrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"a": "b", "ab": "ac", "z": "{", "\x7f": "\u0080", "é": "ê", "\ud7ff": "\ue000", "a\U0010ffff": "b",
		"\U0010ffff": "", "": "",
	} {
		got := store.AfterPrefix(prefix)
		if got != want || got != "" && got <= prefix+"\U0010ffff\U0010ffff" {
			t.Errorf("after %q: %q, want %q", prefix, got, want)
		}
	}
}

// TestCounts checks that counts equal the totals of lists.
func TestCounts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		folder := iamtest.AddGroup(t, s.IAMStore, org.UID, "folder")
		deep := iamtest.AddGroup(t, s.IAMStore, folder.UID, "deep")
		iamtest.AddGroup(t, s.IAMStore, folder.UID, "beside")
		for i := range 3 {
			testkit.Must(t, s.InsertRepo(t.Context(), registry.Repo{UID: deep.UID.NewChild(), Name: fmt.Sprint("r", i),
				CreateTime: org.CreateTime, UpdateTime: org.CreateTime}))
		}
		groups := []resource.UID{deep.UID, org.UID, resource.NewRoot(), folder.UID}
		got, err := s.Counts(t.Context(), []string{"repos", "groups", "roles"}, groups)
		testkit.Must(t, err)
		want := [][]store.Count{
			{{Direct: 3, All: 3}, {}, {}}, {{All: 3}, {Direct: 1, All: 3}, {}}, {{}, {}, {}}, {{All: 3}, {Direct: 2, All: 2},
				{}},
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for _, none := range [][]resource.UID{nil, {}} {
			if got, err := s.Counts(t.Context(), []string{"repos"}, none); err != nil || len(got) != 0 {
				t.Errorf("of no groups: %v, %v", got, err)
			}
		}
	})
}
