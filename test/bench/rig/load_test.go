package rig_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
	"github.com/holdfast-dev/holdfast/test/bench/rig/rigtest"
)

// TestADatasetIsAsTheStoreWouldHaveWrittenIt checks that a loaded dataset is the same as if the store had written it.
func TestADatasetIsAsTheStoreWouldHaveWrittenIt(t *testing.T) {
	rigtest.EachEngine(t, func(t *testing.T, m *rig.Measurement) {
		d := m.Bindings(t.Context(), 2000)
		checkDataset(t, d)
		checkIndexes(t, m.Engine, d)
	})
}

// checkDataset fails the test if the store finds anything wrong with d.
func checkDataset(t *testing.T, d rig.Dataset) {
	t.Helper()
	s, err := store.Open(t.Context(), d.URL)
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
	reach, byName := store.Reach{Under: []resource.UID{d.Org}},
		page.Request{Size: 200, Order: page.Order{Field: "name"}}
	for _, under := range []resource.UID{d.Org, d.Folders()[7]} {
		want := rig.SmallRows + rig.Folders
		if under != d.Org {
			want = rig.SmallRows / rig.Folders
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
	grants, err := iamdb.New(s).GrantsOf(t.Context(), d.Identity(3))
	if err != nil || len(grants) != rig.GrantsEach {
		t.Errorf("%d grants, %v; want %d", len(grants), err, rig.GrantsEach)
	}
	if i, err := iamdb.New(s).Identity(t.Context(), d.Identity(3)); err != nil ||
		i.Relationship.Subject() != "workload-3" {
		t.Errorf("identity = %+v, %v", i, err)
	}
}

// checkIndexes fails the test if d does not have the same indexes as an empty store.
func checkIndexes(t *testing.T, e rig.Engine, d rig.Dataset) {
	t.Helper()
	url, _ := e.Create(t.Context(), "empty")
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(indexes(t, e, url), indexes(t, e, d.URL)); diff != "" {
		t.Errorf("indexes (-empty +loaded):\n%s", diff)
	}
}

func indexes(t *testing.T, e rig.Engine, url string) []string {
	t.Helper()
	db := e.Connect(url, 1)
	defer db.Close()
	query := `SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1`
	if e.Name() == "postgres" {
		query = `SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1`
	}
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var definition string
		if err := rows.Scan(&definition); err != nil {
			t.Fatal(err)
		}
		all = append(all, definition)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there are no indexes")
	}
	return all
}
