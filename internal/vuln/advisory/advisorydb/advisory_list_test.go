package advisorydb_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// anyAdvisory returns a random advisory with values from small sets, so that filters match some
// advisories.
func anyAdvisory(r *rand.Rand, i int) vuln.Advisory {
	a := vuln.Advisory{
		ID: fmt.Sprintf("A-%03d", i), Author: pick(r, "db", "ann"), ArtifactName: pick(r, "openssl", "curl", "Zlib"),
		ArtifactType: pick(r, "apk", "golang", "npm"), ArtifactArchitecture: pick(r, "", "x86_64"),
		ComponentName: pick(r, "", "libssl", "OpenSSL-core"), ComponentType: pick(r, "", "so"), ComponentLocation: pick(r,
			"", "/usr/lib/libssl.so"),
		Source: vuln.AdvisorySource{Format: "osv", Digest: []byte("1")},
	}
	if r.IntN(3) == 0 {
		a.Affected = []vuln.Affected{{Ecosystem: "Go", Name: a.ArtifactName},
			{Ecosystem: "Go", Name: pick(r, "curl", "extra")}}
	}
	for range r.IntN(3) {
		a.Aliases = append(a.Aliases, fmt.Sprintf("CVE-2026-%d", r.IntN(40)))
	}
	if r.IntN(4) == 0 {
		a.LegacyID = pick(r, "old-1", "old-2")
	}
	for j := range r.IntN(4) {
		a.Events = append(a.Events, vuln.AdvisoryEvent{
			CreateTime: iamtest.Epoch.Add(time.Duration(j) * time.Hour), Author: pick(r, "db", "ann", "bob"), Reviewer: pick(r,
				"",
				"eve"),
			ReviewState: pick(r, vuln.ReviewPending, vuln.ReviewApproved, vuln.ReviewRejected),
			Type:        pick(r, vuln.EventDetection, vuln.EventFixed, vuln.EventFalsePositive),
		})
	}
	return a
}

// anyFilter returns a random filter. Most filters have only one condition.
func anyFilter(r *rand.Rand) vuln.AdvisoryFilter {
	var f vuln.AdvisoryFilter
	some := func(all ...string) []string {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:1+r.IntN(2)]
	}
	set := []func(){
		func() { f.IDs = some("A-001", "A-007", "A-020", "A-999") },
		func() { f.LegacyIDs = some("old-1", "old-2", "old-3") },
		func() { f.ArtifactNames = some("openssl", "curl", "extra", "none") },
		func() { f.ArtifactTypes = some("apk", "golang", "none") },
		func() { f.ArtifactArchitectures = some("x86_64", "arm") },
		func() { f.ComponentNames = some("libssl", "OpenSSL-core", "none") },
		func() { f.ComponentTypes = some("so", "none") },
		func() { f.ComponentLocations = some("/usr/lib/libssl.so", "none") },
		func() { f.Aliases = some("CVE-2026-1", "CVE-2026-2", "CVE-2026-11", "none") },
		func() {
			f.ReviewStates = []vuln.ReviewState{pick(r, vuln.ReviewPending, vuln.ReviewApproved)}
		},
		func() { f.EventAuthors = some("ann", "bob", "none") },
		func() { f.NotEventAuthors = some("ann", "bob", "none") },
		func() { f.EventReviewers = some("eve", "none") },
		func() {
			f.EventTypes = []vuln.AdvisoryEventType{pick(r, vuln.EventFixed, vuln.EventDetection), vuln.EventPatched}
		},
		func() { f.LatestEventType = pick(r, vuln.EventFixed, vuln.EventFalsePositive) },
		func() { f.Query = pick(r, "SSL", "cve-2026-1", "zlib", "a-00", "none") },
	}
	for range pick(r, 0, 1, 1, 1, 2, 3) {
		pick(r, set...)()
	}
	return f
}

// matches reports whether a filter selects an advisory, without an index.
func matches(a vuln.Advisory, f vuln.AdvisoryFilter) bool {
	any := func(wanted []string, have ...string) bool {
		return len(wanted) == 0 || slices.ContainsFunc(wanted, func(s string) bool { return slices.Contains(have, s) })
	}
	var authors, reviewers []string
	var states []vuln.ReviewState
	var types []vuln.AdvisoryEventType
	for _, e := range a.Events {
		authors, reviewers, states, types = append(authors, e.Author), append(reviewers, e.Reviewer), append(states,
			e.ReviewState), append(types, e.Type)
	}
	text := strings.ToLower(strings.Join(slices.Concat([]string{a.ID, a.ComponentName}, a.Names(), a.Aliases), "\n"))
	latest := vuln.EventUnspecified
	if e := a.Latest(); e != nil {
		latest = e.Type
	}
	return any(f.IDs, a.ID) && any(f.LegacyIDs, a.LegacyID) && any(f.ArtifactNames, a.Names()...) &&
		any(f.ArtifactTypes, a.ArtifactType) &&
		any(f.ArtifactArchitectures, a.ArtifactArchitecture) && any(f.ComponentNames, a.ComponentName) &&
		any(f.ComponentTypes, a.ComponentType) &&
		any(f.ComponentLocations, a.ComponentLocation) && any(f.Aliases, a.Aliases...) && any(f.EventAuthors, authors...) &&
		any(f.EventReviewers, reviewers...) && (len(f.NotEventAuthors) == 0 || !any(f.NotEventAuthors, authors...)) &&
		(len(f.ReviewStates) == 0 || slices.ContainsFunc(f.ReviewStates, func(s vuln.ReviewState) bool {
			return slices.Contains(states, s)
		})) &&
		(len(f.EventTypes) == 0 || slices.ContainsFunc(f.EventTypes, func(t vuln.AdvisoryEventType) bool {
			return slices.Contains(types, t)
		})) &&
		(f.LatestEventType == vuln.EventUnspecified || f.LatestEventType == latest) &&
		strings.Contains(text, strings.ToLower(f.Query))
}

// A library is a tree of groups with advisories, and a list of these advisories.
type library struct {
	*vulntest.Store
	org, a, b, deep resource.UID
	all             map[resource.UID]vuln.Advisory
}

// newLibrary adds advisories to groups by imports and by hand. Then it changes,
// imports again and deletes some of them.
func newLibrary(t *testing.T, s *vulntest.Store, r *rand.Rand) library {
	t.Helper()
	org, _ := iamtest.AddOrganization(t, s.IAMStore, "library", iamtest.Alice)
	l := library{Store: s, org: org.UID, all: map[resource.UID]vuln.Advisory{}}
	l.a, l.b = iamtest.AddGroup(t, s.IAMStore, l.org, "a").UID, iamtest.AddGroup(t, s.IAMStore, l.org, "b").UID
	l.deep = iamtest.AddGroup(t, s.IAMStore, l.a, "deep").UID
	s.GenerationSize = 9 // so small that there are several generations
	now := iamtest.Epoch
	s.Now = func() time.Time { now = now.Add(time.Duration(r.IntN(3)) * time.Millisecond); return now }
	for _, g := range []resource.UID{l.org, l.a, l.b, l.deep} {
		var batch []vuln.Advisory
		for i := range 40 {
			batch = append(batch, anyAdvisory(r, i))
		}
		_, err := s.ImportAdvisories(t.Context(), g, "test", batch[:25])
		testkit.Must(t, err)
		for _, a := range batch[25:] {
			_, err := s.InsertAdvisory(t.Context(), g, a)
			testkit.Must(t, err)
		}
		for i := range batch[:10] {
			batch[i] = anyAdvisory(r, i)
			batch[i].Source.Digest = []byte{byte(r.IntN(2)), 2}
		}
		_, err = s.ImportAdvisories(t.Context(), g, "test", batch[:12])
		testkit.Must(t, err)
	}
	for i, a := range l.read(t, vuln.AdvisoryFilter{}, page.Order{Field: "uid"}, 200) {
		switch i % 9 {
		case 0:
			testkit.Must(t, s.DeleteAdvisory(t.Context(), a.UID))
		case 1:
			_, err := s.UpdateAdvisory(t.Context(), a.UID, func(a *vuln.Advisory) error {
				a.ArtifactName, a.Aliases = "openssl", []string{"CVE-2026-2"}
				return nil
			})
			testkit.Must(t, err)
		}
	}
	for _, g := range []resource.UID{l.org, l.a, l.b, l.deep} {
		p, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{l.org}},
			vuln.AdvisoryFilter{UIDs: resource.UIDFilter{ChildrenOf: g}},
			page.Request{Size: 200, Order: page.Order{Field: "uid"}}, true)
		testkit.Must(t, err)
		for _, a := range p.Items {
			whole, err := s.Advisory(t.Context(), a.UID)
			testkit.Must(t, err)
			if diff := gocmp.Diff(whole, a); diff != "" {
				t.Fatalf("a list has another advisory than get\n%s", diff)
			}
			l.all[a.UID] = a
		}
	}
	return l
}

// read reads a whole list, page by page, and checks that the total equals the number of items.
func (l library) read(t *testing.T, f vuln.AdvisoryFilter, o page.Order, size int,
	under ...resource.UID) (all []vuln.Advisory) {
	t.Helper()
	if under == nil {
		under = []resource.UID{l.org}
	}
	p := page.Request{Size: size, Order: o}
	total := int64(-1)
	for {
		got, err := l.Advisories(t.Context(), store.Reach{Under: under}, f, p, true)
		testkit.Must(t, err)
		if total >= 0 && got.Total != total {
			t.Fatalf("the total changes from %d to %d", total, got.Total)
		}
		total = got.Total
		all = append(all, got.Items...)
		if got.Last == nil {
			break
		}
		p.After = got.Last
	}
	if int64(len(all)) != total {
		t.Fatalf("%d advisories of a total of %d", len(all), total)
	}
	return all
}

// want returns the advisories that a list must contain, in its order.
func (l library) want(f vuln.AdvisoryFilter, o page.Order, under []resource.UID) (uids []resource.UID) {
	var all []vuln.Advisory
	for uid, a := range l.all {
		in := slices.ContainsFunc(under, func(g resource.UID) bool { return g.Covers(uid.Parent()) })
		p := f.UIDs
		in = in && (p.ChildrenOf == "" || uid.Parent() == p.ChildrenOf) &&
			(p.DescendantsOf == "" || p.DescendantsOf.Covers(uid)) &&
			(len(p.IDs) == 0 || slices.Contains(p.IDs, uid))
		if in && matches(a, f) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(x, y vuln.Advisory) int {
		n := cmp.Compare(x.UID, y.UID)
		segments := func(u resource.UID) string { return string(u[len(u)-16:]) }
		switch o.Field {
		case "create_time":
			n = cmp.Or(x.CreateTime.Compare(y.CreateTime), cmp.Compare(segments(x.UID), segments(y.UID)))
		case "update_time":
			n = cmp.Or(x.UpdateTime.Compare(y.UpdateTime), cmp.Compare(segments(x.UID), segments(y.UID)))
		}
		if o.Desc {
			return -n
		}
		return n
	})
	for _, a := range all {
		uids = append(uids, a.UID)
	}
	return uids
}

// TestAdvisoryLists checks lists with random filters, orders, scopes and page
// sizes against a search through all advisories.
func TestAdvisoryLists(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		r := rand.New(rand.NewPCG(1, 2))
		l := newLibrary(t, s, r)
		dbtest.WantExact(t, s.DB)
		var some []resource.UID
		for uid := range l.all {
			if some = append(some, uid); len(some) == 20 {
				break
			}
		}
		for range 80 {
			f := anyFilter(r)
			switch r.IntN(8) {
			case 0:
				f.UIDs.ChildrenOf = pick(r, l.org, l.a, l.deep)
			case 1:
				f.UIDs.DescendantsOf = pick(r, l.a, l.b)
			case 2:
				f.UIDs.IDs = some
			}
			o := page.Order{Field: pick(r, "uid", "create_time", "update_time"), Desc: r.IntN(2) == 0}
			under := pick(r, []resource.UID{l.org}, []resource.UID{l.org}, []resource.UID{l.a, l.b}, []resource.UID{l.deep})
			slices.Sort(under)
			var got []resource.UID
			for _, a := range l.read(t, f, o, pick(r, 3, 10, 200), under...) {
				got = append(got, a.UID)
			}
			if diff := gocmp.Diff(l.want(f, o, under), got); diff != "" {
				t.Fatalf("%+v by %v under %v\n%s", f, o, under, diff)
			}
		}
	})
}

// TestAdvisorySkip checks that skip leaves out the first items, with and
// without a cursor.
func TestAdvisorySkip(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		l := newLibrary(t, s, rand.New(rand.NewPCG(3, 4)))
		for _, f := range []vuln.AdvisoryFilter{{}, {ArtifactTypes: []string{"apk", "npm"}},
			{ArtifactNames: []string{"curl"}}, {Query: "ssl"}} {
			for _, field := range []string{"uid", "create_time", "update_time"} {
				o := page.Order{Field: field}
				want := l.want(f, o, []resource.UID{l.org})
				p := page.Request{Size: 5, Skip: 3, Order: o}
				first, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{l.org}}, f, p, false)
				testkit.Must(t, err)
				p.After = first.Last
				second, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{l.org}}, f, p, false)
				testkit.Must(t, err)
				var got []resource.UID
				for _, a := range append(first.Items, second.Items...) {
					got = append(got, a.UID)
				}
				if diff := gocmp.Diff(slices.Concat(want[3:8], want[11:16]), got); diff != "" {
					t.Errorf("%+v by %s\n%s", f, field, diff)
				}
			}
		}
	})
}
