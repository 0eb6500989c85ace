package vuln_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

func TestStableAdvisoryID(t *testing.T) {
	id := vuln.StableAdvisoryID("openssl", "CVE-2026-1")
	if !regexp.MustCompile(`^HFA(-[0-9a-z]{4}){3}$`).MatchString(id) ||
		id != vuln.StableAdvisoryID("openssl", "CVE-2026-1") {
		t.Errorf("the id is %s", id)
	}
	if id == vuln.StableAdvisoryID("opensslC", "VE-2026-1") {
		t.Error("different words have the same id")
	}
	a := vuln.Advisory{ID: id, ArtifactName: "openssl"}
	if err := a.Validate(); err != nil {
		t.Error(err)
	}
}

func TestRisingChildren(t *testing.T) {
	parent, start := resource.NewRoot(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	last := resource.UID("")
	for i := range 10_000 {
		if i%100 == 0 {
			start = start.Add(time.Millisecond)
		}
		uid := parent.NewRisingChild(start)
		if _, err := resource.ParseUID("uid", string(uid)); err != nil || uid.Parent() != parent {
			t.Fatalf("%s: %v", uid, err)
		}
		if uid <= last {
			t.Fatalf("%s comes after %s", uid, last)
		}
		last = uid
	}
}

func TestAdvisoryLatest(t *testing.T) {
	event := func(hour int, kind vuln.AdvisoryEventType, state vuln.ReviewState) vuln.AdvisoryEvent {
		return vuln.AdvisoryEvent{CreateTime: time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC), Type: kind,
			ReviewState: state}
	}
	a := vuln.Advisory{Events: []vuln.AdvisoryEvent{
		event(1, vuln.EventDetection, vuln.ReviewApproved), event(3, vuln.EventFixed, vuln.ReviewApproved),
		event(2, vuln.EventTruePositive, vuln.ReviewApproved),
		event(4, vuln.EventFalsePositive, vuln.ReviewPending),
	}}
	if latest := a.Latest(); latest == nil || latest.Type != vuln.EventFixed {
		t.Errorf("the newest approved event is %+v", latest)
	}
	if (vuln.Advisory{}).Latest() != nil {
		t.Error("an advisory without events has a newest event")
	}
}

func TestAdvisoryBounds(t *testing.T) {
	big := vuln.Affected{Ecosystem: "npm", Name: "p", Versions: make([]string, 16_000)}
	for i := range big.Versions {
		big.Versions[i] = strings.Repeat("1", 250)
	}
	tests := map[string]vuln.Advisory{
		"no artifact":       {},
		"too many bytes":    {ArtifactName: "p", Affected: []vuln.Affected{big}},
		"too many events":   {ArtifactName: "p", Events: make([]vuln.AdvisoryEvent, 1025)},
		"too many packages": {ArtifactName: "p", Affected: make([]vuln.Affected, 4097)},
	}
	for name, a := range tests {
		if err := a.Validate(); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
