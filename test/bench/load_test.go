package main

import (
	"context"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
)

// eachEngine runs a test with a measurement on each engine that is at hand.
func eachEngine(t *testing.T, f func(t *testing.T, m *measurement)) {
	for _, name := range []string{"sqlite", "postgres"} {
		t.Run(name, func(t *testing.T) {
			if name == "postgres" && os.Getenv("HOLDFAST_TEST_POSTGRES") == "" {
				t.Skip("HOLDFAST_TEST_POSTGRES is not set: make test sets it")
			}
			b := &bench{folder: t.TempDir(), only: regexp.MustCompile(""), progress: io.Discard}
			e, err := b.open(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := e.dropAll(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
			m := &measurement{bench: b, report: &report{}, engine: e}
			if err := m.run(t.Context(), func(context.Context, *measurement) { f(t, m) }); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What is measured must be what the store would have written itself.
func TestADatasetIsAsTheStoreWouldHaveWrittenIt(t *testing.T) {
	eachEngine(t, func(t *testing.T, m *measurement) {
		d := m.bindings(t.Context(), 2000)
		checkDataset(t, d)
		checkIndexes(t, m.engine, d)
	})
}

// checkDataset fails the test if the store finds anything wrong with d.
func checkDataset(t *testing.T, d dataset) {
	t.Helper()
	s, err := store.Open(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	drifts, err := recount.Drifts(t.Context(), s)
	if err != nil || len(drifts) > 0 {
		t.Errorf("%d counters are wrong: %v", len(drifts), err)
	}
	reach, byName := store.Reach{Under: []resource.UID{d.org}},
		page.Request{Size: 200, Order: page.Order{Field: "name"}}
	for _, under := range []resource.UID{d.org, d.folders()[7]} {
		want := smallRows + folders
		if under != d.org {
			want = smallRows / folders
		}
		f := resource.Filter{UIDs: resource.UIDFilter{DescendantsOf: under}}
		got, err := iamdb.New(s).Groups(t.Context(), reach, f, byName)
		if err != nil {
			t.Fatal(err)
		}
		sorted := slices.IsSortedFunc(got.Items,
			func(a, b resource.Group) int { return strings.Compare(a.Name, b.Name) })
		if got.Total != int64(want) || len(got.Items) != min(want, 200) || !sorted {
			t.Errorf("under %s: %d of %d groups, sorted %v; want %d", under, len(got.Items), got.Total, sorted, want)
		}
	}
	grants, err := iamdb.New(s).GrantsOf(t.Context(), d.identity(3))
	if err != nil || len(grants) != grantsEach {
		t.Errorf("%d grants, %v; want %d", len(grants), err, grantsEach)
	}
	if i, err := iamdb.New(s).Identity(t.Context(), d.identity(3)); err != nil || i.Relationship.Subject() != "workload-3" {
		t.Errorf("identity = %+v, %v", i, err)
	}
}

// checkIndexes fails the test if d does not have the indexes of an empty store.
func checkIndexes(t *testing.T, e engine, d dataset) {
	t.Helper()
	url, _ := e.create(t.Context(), "empty")
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(indexes(t, e, url), indexes(t, e, d.url)); diff != "" {
		t.Errorf("indexes (-empty +loaded):\n%s", diff)
	}
}

func indexes(t *testing.T, e engine, url string) []string {
	t.Helper()
	db := e.connect(url, 1)
	defer db.Close()
	on, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	query := `SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1`
	if e.name() == "postgres" {
		query = `SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1`
	}
	all := texts(t.Context(), on, query)
	if len(all) == 0 {
		t.Fatal("there are no indexes")
	}
	return all
}
