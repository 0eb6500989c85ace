package advisory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
)

// located returns a distribution's file with an advisory about a component at a location.
func located(id, location string) string {
	return fmt.Sprintf("package: {name: p}\nadvisories:\n  - id: %s\n    events:\n"+
		"      - timestamp: 2024-05-01T08:00:00Z\n        type: detection\n"+
		"        data: {type: scan/v1, data: {componentLocation: %s}}\n", id, location)
}

// TestLongLocation imports components whose locations have the maximum length or are longer. It checks that only the
// longer ones are refused, and that the reason contains the field, its length and the limit.
func TestLongLocation(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		d := newFixture(t, s, outbound.Config{})
		var refused []advisory.Problem
		m, err := d.NewImport(d.ctx, d.org, "test", func(p advisory.Progress) error {
			refused = append(refused, p.Problems...)
			return nil
		})
		must(t, err)
		longest := strings.Repeat("/a", 32<<10)
		for name, text := range map[string]string{
			"long.yaml": located("CGA-1", longest), "longer.yaml": located("CGA-2", longest+"/"),
		} {
			must(t, m.Read(name, strings.NewReader(text), int64(len(text)), ""))
		}
		done, err := m.Close()
		must(t, err)
		if want := (vuln.ImportResult{Created: 1, Failed: 1}); done != want {
			t.Errorf("the result is %+v", done)
		}
		const why = "component_location: has 65537 bytes, and at most 65536 are allowed"
		want := []advisory.Problem{{Name: "longer.yaml", Reason: why + "; events[0].detection.scanv1." + why}}
		if diff := cmp.Diff(want, refused); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		for location, n := range map[string]int64{longest: 1, longest + "/": -1, "/a": 0} {
			found, err := d.List(d.ctx, vuln.AdvisoryFilter{ComponentLocations: []string{location}}, page.Params{})
			if n < 0 && err == nil || n >= 0 && (err != nil || found.Total != n) {
				t.Errorf("a list for a location of %d bytes: %d %v", len(location), found.Total, err)
			}
		}
	})
}
