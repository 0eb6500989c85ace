package advisorydb_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// TestPartitions checks that advisories are in one partition if the same people have written and reviewed their events,
// in whatever order and how often, and in another one otherwise.
func TestPartitions(t *testing.T) {
	ann, bob := [2]string{"ann", "eve"}, [2]string{"bob", "max"} // an author and a reviewer
	tests := map[string]struct {
		a, b [][2]string
		want int
	}{
		"the same events":             {[][2]string{ann}, [][2]string{ann}, 1},
		"more of them":                {[][2]string{ann}, [][2]string{ann, ann}, 1},
		"another order":               {[][2]string{ann, bob}, [][2]string{bob, ann}, 1},
		"one without a reviewer":      {[][2]string{ann}, [][2]string{ann, {"ann", ""}}, 1},
		"one without an author":       {[][2]string{ann}, [][2]string{ann, {"", "eve"}}, 1},
		"another reviewer":            {[][2]string{ann}, [][2]string{{"ann", "max"}}, 2},
		"a reviewer, and none":        {[][2]string{ann}, [][2]string{{"ann", ""}}, 2},
		"another author":              {[][2]string{ann}, [][2]string{{"bob", "eve"}}, 2},
		"a second author":             {[][2]string{ann}, [][2]string{ann, {"bob", "eve"}}, 2},
		"a second reviewer":           {[][2]string{ann}, [][2]string{ann, {"ann", "max"}}, 2},
		"author and reviewer swapped": {[][2]string{ann}, [][2]string{{"eve", "ann"}}, 2},
	}
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		for name, tt := range tests {
			group := iamtest.AddGroup(t, s.IAMStore, "", name).UID
			for i, people := range [][][2]string{tt.a, tt.b} {
				var events []vuln.AdvisoryEvent
				for _, p := range people {
					events = append(events, vuln.AdvisoryEvent{CreateTime: iamtest.Epoch, Author: p[0], Reviewer: p[1],
						ReviewState: vuln.ReviewApproved, Type: vuln.EventDetection})
				}
				_, err := s.InsertAdvisory(t.Context(), group, vuln.Advisory{ID: fmt.Sprint("A-", i), Author: "db",
					ArtifactName: "curl", ArtifactType: "apk", Events: events})
				testkit.Must(t, err)
			}
			got, err := store.ReadColumn[int](t.Context(), s.Rows,
				`SELECT count(*) FROM advisory_partitions WHERE grp = $1`, string(group))
			testkit.Must(t, err)
			if diff := cmp.Diff([]int{tt.want}, got); diff != "" {
				t.Errorf("%s: the number of partitions: %s", name, diff)
			}
		}
	})
}
