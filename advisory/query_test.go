package advisory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/outbound"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// TestQuery asks about versions at the edges of ranges.
func TestQuery(t *testing.T) {
	affected := func(ecosystem, name string, events ...resource.RangeEvent) []resource.Affected {
		return []resource.Affected{{Ecosystem: ecosystem, Name: name,
			Ranges: []resource.AffectedRange{{Type: "ECOSYSTEM", Events: events}}}}
	}
	approved := func(kind resource.AdvisoryEventType) []resource.AdvisoryEvent {
		return []resource.AdvisoryEvent{{Type: kind, ReviewState: resource.ReviewApproved}}
	}
	pending := []resource.AdvisoryEvent{{Type: resource.EventFalsePositive, ReviewState: resource.ReviewPending}}
	from, until := resource.RangeEvent{Introduced: "1.0.0"}, resource.RangeEvent{Fixed: "1.10.0"}
	tests := map[string]struct {
		ask  advisory.Package
		want []string
	}{
		"before": {advisory.Package{Ecosystem: "npm", Name: "p", Version: "0.9.0"}, nil},
		"at the start": {advisory.Package{Ecosystem: "npm", Name: "p", Version: "1.0.0"},
			[]string{"A-1", "A-4"}},
		"inside, by number": {advisory.Package{Ecosystem: "npm", Name: "p", Version: "1.9.0"},
			[]string{"A-1", "A-4"}},
		"at the end":           {advisory.Package{Ecosystem: "npm", Name: "p", Version: "1.10.0"}, nil},
		"by its address":       {advisory.Package{PURL: "pkg:npm/p@1.2.3"}, []string{"A-1", "A-4"}},
		"of another ecosystem": {advisory.Package{Ecosystem: "PyPI", Name: "p", Version: "1.2.3"}, nil},
		"of another name":      {advisory.Package{Ecosystem: "npm", Name: "q", Version: "1.2.3"}, nil},
		"of an ecosystem's release": {advisory.Package{Ecosystem: "Alpine:v3.20", Name: "a", Version: "1.0-r0"},
			[]string{"A-5"}},
		"of another release": {advisory.Package{Ecosystem: "Alpine:v3.19", Name: "a", Version: "1.0-r0"}, nil},
	}
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		d := newDesk(t, s, outbound.Config{})
		for _, a := range []resource.Advisory{
			{ID: "A-1", ArtifactName: "p", Affected: affected("npm", "p", from, until)},
			{ID: "A-2", ArtifactName: "p", Affected: affected("npm", "p", from, until), DeleteTime: d.now},
			{ID: "A-3", ArtifactName: "p", Affected: affected("npm", "p", from, until),
				Events: approved(resource.EventFalsePositive)},
			{ID: "A-4", ArtifactName: "p", Affected: affected("npm", "p", from, until), Events: pending},
			{ID: "A-5", ArtifactName: "a",
				Affected: affected("Alpine:v3.20", "a", resource.RangeEvent{Introduced: "0"},
					resource.RangeEvent{Fixed: "1.1-r0"})},
		} {
			_, err := d.Create(d.ctx, d.org, a)
			must(t, err)
		}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				found, err := d.Query(d.ctx, resource.UIDFilter{}, tt.ask)
				must(t, err)
				var got []string
				for _, m := range found {
					got = append(got, m.ID)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	})
}
