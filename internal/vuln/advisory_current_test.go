package vuln_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// history returns approved events, an hour apart, from texts such as "detected", "fixed 1.0" or "pending fixed 1.0".
func history(words ...string) (events []vuln.AdvisoryEvent) {
	kinds := map[string]vuln.AdvisoryEventType{
		"detected": vuln.EventDetection, "true": vuln.EventTruePositive, "fixed": vuln.EventFixed,
		"false": vuln.EventFalsePositive, "unplanned": vuln.EventFixNotPlanned,
		"upstream": vuln.EventPendingUpstreamFix, "patched": vuln.EventPatched,
	}
	for i, text := range words {
		e := vuln.AdvisoryEvent{CreateTime: time.Date(2026, 1, 1, i, 0, 0, 0, time.UTC), Author: "db",
			ReviewState: vuln.ReviewApproved}
		if rest, ok := strings.CutPrefix(text, "pending "); ok {
			e.ReviewState, text = vuln.ReviewPending, rest
		}
		kind, version, _ := strings.Cut(text, " ")
		e.Type = kinds[kind]
		switch {
		case e.Type == vuln.EventFixed:
			e.Fixed = &vuln.Fix{Version: version}
		case e.Type == vuln.EventPatched:
			e.Patched = strings.Fields(version)
		}
		events = append(events, e)
	}
	return events
}

// shown returns the ranges of an advisory as texts, one for each package.
func shown(a vuln.Advisory) (packages []string) {
	for _, v := range a.Affected {
		text := v.Name
		for _, r := range v.Ranges {
			for _, e := range r.Events {
				switch {
				case e.Introduced != "":
					text += " from " + e.Introduced
				case e.Fixed != "":
					text += " until " + e.Fixed
				default:
					text += " to " + e.LastAffected
				}
			}
		}
		packages = append(packages, text)
	}
	return packages
}

// TestCurrent checks that the affected versions follow from the latest approved event.
func TestCurrent(t *testing.T) {
	stored := func() []vuln.Affected {
		return []vuln.Affected{
			{Name: "p", Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM",
				Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "1.0"}, {Introduced: "2.0"}, {LastAffected: "2.5"}}}}},
			{Name: "q", Ranges: []vuln.AffectedRange{{Type: "GIT",
				Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "c0ffee"}}}}},
		}
	}
	asStored := []string{"p from 0 until 1.0 from 2.0 to 2.5", "q from 0 until c0ffee"}
	open := []string{"p from 0 from 2.0 to 2.5", "q from 0"}
	tests := map[string]struct {
		events []vuln.AdvisoryEvent
		want   []string
	}{
		"without events":                {nil, asStored},
		"detected only":                 {history("detected"), asStored},
		"fixed":                         {history("detected", "fixed 1.0"), asStored},
		"detected after a fix":          {history("detected", "fixed 1.0", "detected"), open},
		"no fix planned after a fix":    {history("fixed 1.0", "unplanned"), open},
		"pending upstream after a fix":  {history("fixed 1.0", "upstream"), open},
		"a true positive after a fix":   {history("fixed 1.0", "true"), open},
		"detected after a patch":        {history("patched 1.0", "detected"), open},
		"a pending event after a fix":   {history("fixed 1.0", "pending detected"), asStored},
		"detected after a proposed fix": {history("detected", "pending fixed 1.0", "detected"), asStored},
		"fixed again in a later version": {history("fixed 1.0", "detected", "fixed 1.5"),
			[]string{"p from 0 from 2.0 to 2.5 until 1.5", "q from 0"}},
		"patched again": {history("fixed 1.0", "detected", "patched 1.5 2.6"),
			[]string{"p from 0 from 2.0 to 2.5 until 1.5 until 2.6", "q from 0"}},
		"fixed again in the same version":    {history("fixed 1.0", "detected", "fixed 1.0"), asStored},
		"fixed again without a version":      {history("fixed 1.0", "detected", "fixed "), asStored},
		"a false positive after a detection": {history("fixed 1.0", "detected", "false"), asStored},
		"two fixes without a detection":      {history("fixed 1.0", "fixed 1.5"), asStored},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := vuln.Advisory{ArtifactName: "p", Affected: stored(), Events: tt.events}
			if diff := cmp.Diff(tt.want, shown(a.Current())); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, shown(a.Current().Current())); diff != "" {
				t.Errorf("the second time: (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(stored(), a.Affected); diff != "" {
				t.Errorf("Current changed the stored ranges:\n%s", diff)
			}
		})
	}
	unaffected := vuln.Advisory{ArtifactName: "p", Affected: []vuln.Affected{{Name: "p"}},
		Events: history("false", "detected")}
	if diff := cmp.Diff([]string{"p from 0"}, shown(unaffected.Current())); diff != "" {
		t.Errorf("detected after a false positive: (-want +got)\n%s", diff)
	}
}

// TestMergeReopened merges new records from a source. It checks that the source's latest event becomes the latest
// event of the advisory, unless a person has added a later one.
func TestMergeReopened(t *testing.T) {
	byHand := history("", "", "", "", "", "", "false")[6:]
	byHand[0].Author = "ann"
	later := func(events []vuln.AdvisoryEvent, hours int) []vuln.AdvisoryEvent {
		for i := range events {
			events[i].CreateTime = events[i].CreateTime.Add(time.Duration(hours) * time.Hour)
		}
		return events
	}
	untimed := history("fixed 1.1")
	untimed[0].CreateTime = time.Time{}
	tests := map[string]struct{ before, next, want []vuln.AdvisoryEvent }{
		"found again": {history("detected", "fixed 1.0"), history("detected", "fixed 1.0", "detected"),
			history("detected", "fixed 1.0", "detected")},
		"found and fixed again": {history("detected", "fixed 1.0"),
			history("detected", "fixed 1.0", "detected", "fixed 1.0"),
			history("detected", "fixed 1.0", "detected", "fixed 1.0")},
		"a fix withdrawn": {history("detected", "fixed 1.0"), history("detected"),
			history("detected", "fixed 1.0", "detected")},
		"the same events at another time": {history("detected", "fixed 1.0"), later(history("detected", "fixed 1.0"), 5),
			history("detected", "fixed 1.0")},
		"another fix, and back": {history("detected", "fixed 1.0", "fixed 1.1"),
			later(history("detected", "fixed 1.0"), 5),
			history("detected", "fixed 1.0", "fixed 1.1", "fixed 1.0")},
		"a person's event stays the latest": {append(history("detected", "fixed 1.0"), byHand...),
			later(history("detected", "fixed 1.0"), 9),
			append(history("detected", "fixed 1.0"), byHand...)},
		"a fix without a time": {history("fixed 1.0"), untimed, history("fixed 1.0", "fixed 1.1")},
	}
	words := func(events []vuln.AdvisoryEvent) (words []string) {
		for _, e := range events {
			words = append(words, fmt.Sprint(e.Author, e.Type, e.FixedVersions()))
		}
		return words
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := vuln.Advisory{Events: tt.before}.Merge(vuln.Advisory{Events: tt.next})
			if diff := cmp.Diff(words(tt.want), words(got.Events)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			again := got.Merge(vuln.Advisory{Events: tt.next})
			if diff := cmp.Diff(words(got.Events), words(again.Events)); diff != "" && name != "a fix without a time" {
				t.Errorf("the same again: (-want +got)\n%s", diff)
			}
			wanted := tt.want[len(tt.want)-1]
			if last := got.Latest(); name != "a fix without a time" && last.Type != wanted.Type {
				t.Errorf("the latest event is %+v", last)
			}
		})
	}
}
