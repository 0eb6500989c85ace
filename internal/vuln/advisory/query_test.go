package advisory_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
)

// TestQuery checks that Query finds the advisories that affect a version. The versions are at the edges of ranges,
// among others.
func TestQuery(t *testing.T) {
	affected := func(ecosystem, name string, events ...vuln.RangeEvent) []vuln.Affected {
		return []vuln.Affected{{Ecosystem: ecosystem, Name: name,
			Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: events}}}}
	}
	approved := func(kind vuln.AdvisoryEventType) []vuln.AdvisoryEvent {
		return []vuln.AdvisoryEvent{{Type: kind, ReviewState: vuln.ReviewApproved}}
	}
	pending := []vuln.AdvisoryEvent{{Type: vuln.EventFalsePositive, ReviewState: vuln.ReviewPending}}
	from, until := vuln.RangeEvent{Introduced: "1.0.0"}, vuln.RangeEvent{Fixed: "1.10.0"}
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
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		d := newFixture(t, s, outbound.Config{})
		for _, a := range []vuln.Advisory{
			{ID: "A-1", ArtifactName: "p", Affected: affected("npm", "p", from, until)},
			{ID: "A-2", ArtifactName: "p", Affected: affected("npm", "p", from, until), DeleteTime: d.now},
			{ID: "A-3", ArtifactName: "p", Affected: affected("npm", "p", from, until),
				Events: approved(vuln.EventFalsePositive)},
			{ID: "A-4", ArtifactName: "p", Affected: affected("npm", "p", from, until), Events: pending},
			{ID: "A-5", ArtifactName: "a",
				Affected: affected("Alpine:v3.20", "a", vuln.RangeEvent{Introduced: "0"},
					vuln.RangeEvent{Fixed: "1.1-r0"})},
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

// TestReopened checks which versions are affected after a fix was withdrawn, by a person or by the advisory's source,
// and in a stored advisory whose range still contains the fix.
func TestReopened(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		d := newFixture(t, s, outbound.Config{})
		event := func(kind vuln.AdvisoryEventType, fixed string) vuln.AdvisoryEvent {
			e := vuln.AdvisoryEvent{Type: kind, ReviewState: vuln.ReviewApproved}
			if fixed != "" {
				e.Fixed = &vuln.Fix{Version: fixed}
			}
			return e
		}
		// affects returns which of the versions 0.9.0, 1.5.0 and 2.0.0 are affected, each with its fixed versions.
		affects := func(name string) (got []string) {
			t.Helper()
			for _, v := range []string{"0.9.0", "1.5.0", "2.0.0"} {
				found, err := d.Query(d.ctx, resource.UIDFilter{},
					advisory.Package{Ecosystem: "npm", Name: name, Version: v})
				must(t, err)
				for _, m := range found {
					got = append(got, v+" fixed in "+strings.Join(m.Fixed, ","))
				}
			}
			return got
		}
		check := func(step, name string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, affects(name)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", step, diff)
			}
		}
		untilFix := []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "1.0.0"}}
		a := vuln.Advisory{ID: "A-1", ArtifactName: "p", Affected: []vuln.Affected{{Ecosystem: "npm", Name: "p",
			Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: untilFix}}}}}
		made, err := d.Create(d.ctx, d.org, a)
		must(t, err)
		for _, step := range []struct {
			name string
			vuln.AdvisoryEvent
			want []string
		}{
			{"fixed", event(vuln.EventFixed, "1.0.0"), []string{"0.9.0 fixed in 1.0.0"}},
			{"re-opened", event(vuln.EventDetection, ""),
				[]string{"0.9.0 fixed in ", "1.5.0 fixed in ", "2.0.0 fixed in "}},
			{"fixed again", event(vuln.EventFixed, "2.0.0"), []string{"0.9.0 fixed in 2.0.0", "1.5.0 fixed in 2.0.0"}},
			{"a false positive", event(vuln.EventFalsePositive, ""), nil},
		} {
			d.now = d.now.Add(time.Hour)
			_, err := d.AddEvent(d.ctx, made.UID, step.AdvisoryEvent)
			must(t, err)
			check(step.name, "p", step.want...)
		}

		old := a
		old.ID, old.ArtifactName, old.Affected[0].Name = "A-2", "q", "q"
		old.Events = []vuln.AdvisoryEvent{event(vuln.EventFixed, "1.0.0"), event(vuln.EventFixNotPlanned, "")}
		_, err = s.InsertAdvisory(t.Context(), d.org, old)
		must(t, err)
		check("with the fix in its range", "q", "0.9.0 fixed in ", "1.5.0 fixed in ", "2.0.0 fixed in ")
	})
}
