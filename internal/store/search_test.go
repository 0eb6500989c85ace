package store_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestSearch checks searches against a scan of all groups, for random trees, reaches and texts.
func TestSearch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		random := rand.New(rand.NewPCG(1, 2))
		words := []string{"a", "ab", "abc", "ab-c", "b", "a.b", "a_b", "a b", "z"}
		orgs := []resource.Group{addGroup(t, s, "", "ab"), addGroup(t, s, "", "b")}
		all := slices.Clone(orgs)
		for i := range 30 {
			all = append(all, addGroup(t, s, orgs[i%2].UID, fmt.Sprint("folder", i)))
		}
		for i := range 120 {
			in := all[random.IntN(len(all))]
			if in.UID.Depth() < 7 {
				all = append(all, addGroup(t, s, in.UID, fmt.Sprintf("%s%d", words[random.IntN(len(words))], i%40+i/40*100)))
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
			must(t, err)
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
		org := addGroup(t, s, "", "org")
		folder := addGroup(t, s, org.UID, "folder")
		deep := addGroup(t, s, folder.UID, "deep")
		addGroup(t, s, folder.UID, "beside")
		for i := range 3 {
			must(t, s.InsertRepo(t.Context(), registry.Repo{UID: deep.UID.NewChild(), Name: fmt.Sprint("r", i),
				CreateTime: org.CreateTime, UpdateTime: org.CreateTime}))
		}
		groups := []resource.UID{deep.UID, org.UID, resource.NewRoot(), folder.UID}
		got, err := s.Counts(t.Context(), []string{"repos", "groups", "roles"}, groups)
		must(t, err)
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

// TestSearchManifests checks that images are found by their organization, and other manifests by
// their digest.
func TestSearchManifests(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, rival := addGroup(t, s, "", "org"), addGroup(t, s, "", "rival")
		folder := addGroup(t, s, org.UID, "folder")
		repo := func(in resource.UID, name string) resource.UID {
			r := registry.Repo{UID: in.NewChild(), Name: name, CreateTime: org.CreateTime, UpdateTime: org.CreateTime}
			must(t, s.InsertRepo(t.Context(), r))
			return r.UID
		}
		a, b, theirs := repo(org.UID, "a"), repo(folder.UID, "b"), repo(rival.UID, "theirs")
		digest := func(start string) string { return "sha256:" + start + strings.Repeat("0", 64-len(start)) }
		put := func(repo resource.UID, digest string, image bool) {
			err := s.Write(t.Context(), func(x *store.Tx) error {
				_, err := x.Exec(t.Context(), `INSERT INTO manifests
					(repo, digest, media_type, size, subject, artifact_type, annotations, push_ms, body)
					VALUES ($1, $2, '', 0, '', '', '', 0, $3)`, store.Segment(repo), digest, []byte{})
				if err != nil || !image {
					return err
				}
				_, err = x.Exec(t.Context(), `INSERT INTO images
					(repo, digest, root, uid, state, reason, extractors, tries, rank, update_ms)
					VALUES ($1, $2, $3, $4, 0, '', 0, 0, 0, 0)`, store.Segment(repo), digest, store.Segment(repo.Root()), string(repo))
				return err
			})
			must(t, err)
		}
		one, two, other := digest("abcdef0123"), digest("abcdef0199"), digest("ffffffff")
		put(a, one, true)
		put(b, one, false)
		put(b, two, true)
		put(theirs, one, true)
		put(theirs, other, false)
		type found = map[string][]resource.UID
		everything := []resource.UID{org.UID}
		for name, tt := range map[string]struct {
			under  []resource.UID
			prefix string
			n      int
			want   found
		}{
			"a beginning":               {everything, "sha256:abcdef01", 5, found{one: {a, b}, two: {b}}},
			"a longer one":              {everything, "sha256:abcdef0199", 5, found{two: {b}}},
			"a whole digest":            {everything, one, 5, found{one: {a, b}}},
			"in a folder":               {[]resource.UID{folder.UID}, "sha256:abcdef01", 5, found{one: {b}, two: {b}}},
			"only the first":            {[]resource.UID{folder.UID}, "sha256:abcdef01", 1, found{one: {b}}},
			"of another's":              {everything, "sha256:ffffffff", 5, found{}},
			"by the other":              {[]resource.UID{rival.UID}, "sha256:", 5, found{one: {theirs}, other: {theirs}}},
			"of nothing":                {everything, "sha256:00000000", 5, found{}},
			"with another algorithm":    {everything, "sha512:abcdef01", 5, found{}},
			"beyond the last character": {everything, one + "0", 5, found{}},
		} {
			got, err := s.SearchManifests(t.Context(), store.Reach{Under: tt.under}, tt.prefix, tt.n)
			must(t, err)
			all := found{}
			for _, m := range got {
				all[m.Digest] = append(all[m.Digest], m.Repo)
			}
			for _, want := range tt.want {
				slices.Sort(want)
			}
			if diff := gocmp.Diff(tt.want, all); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}

// TestEventsOfRequest checks that EventsOfRequest returns the events of a request in one
// organization only.
func TestEventsOfRequest(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		ctx := resource.WithActor(t.Context(), resource.Actor{RequestID: "r-1"})
		org, err := s.InsertGroup(ctx, newGroup("", "org"))
		must(t, err)
		_, err = s.InsertGroup(ctx, newGroup(org.UID, "folder"))
		must(t, err)
		rival, err := s.InsertGroup(ctx, newGroup("", "rival"))
		must(t, err)
		addGroup(t, s, org.UID, "by nobody")
		for name, tt := range map[string]struct {
			request string
			org     resource.UID
			n, want int
		}{
			"of an organization": {"r-1", org.UID, 10, 2}, "one of them": {"r-1", org.UID, 1, 1}, "of another": {"r-1",
				rival.UID, 10, 1},
			"of no request": {"", org.UID, 10, 0}, "of one that did nothing": {"r-2", org.UID, 10,
				0}, "of the beginning of one": {"r-", org.UID, 10, 0},
		} {
			if got, err := s.EventsOfRequest(t.Context(), tt.request, tt.org, tt.n); err != nil || len(got) != tt.want {
				t.Errorf("%s: %d events, %v, want %d", name, len(got), err, tt.want)
			}
		}
	})
}
