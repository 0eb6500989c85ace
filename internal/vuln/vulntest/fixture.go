package vulntest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// NewAdvisory returns an advisory like the ones in a public database.
func NewAdvisory(id string) vuln.Advisory {
	return vuln.Advisory{
		ID: id, Author: "db", ArtifactName: "example.test/pkg", ArtifactType: "golang", Summary: "Reads past the end",
		Aliases: []string{"CVE-2026-" + id},
		Affected: []vuln.Affected{{
			Ecosystem: "Go", Name: "example.test/pkg",
			Ranges: []vuln.AffectedRange{{Type: "SEMVER", Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "1.2.3"}}}},
		}},
		Events: []vuln.AdvisoryEvent{{
			CreateTime: iamtest.Epoch, Author: "db", ReviewState: vuln.ReviewApproved, Type: vuln.EventDetection,
			Detection: &vuln.Detection{Manual: true},
		}},
		Source: vuln.AdvisorySource{Format: "osv", Name: id + ".json", Published: iamtest.Epoch, Digest: []byte("1")},
	}
}

// AddAdvisory inserts an advisory like the ones in a public database.
func AddAdvisory(t testing.TB, s *AdvisoryStore, group resource.UID, id string) vuln.Advisory {
	t.Helper()
	a, err := s.InsertAdvisory(t.Context(), group, NewAdvisory(id))
	testkit.Must(t, err)
	return a
}

// NewFeed returns a feed of a group.
func NewFeed(group resource.UID, name string) vuln.AdvisoryFeed {
	return vuln.AdvisoryFeed{
		UID: group.NewChild(), Name: name, Address: "https://feeds.test/" + name, Interval: time.Hour,
		CreateTime: iamtest.Epoch,
		UpdateTime: iamtest.Epoch,
	}
}

// AddFeed inserts a feed.
func AddFeed(t testing.TB, s *AdvisoryStore, group resource.UID, name string) vuln.AdvisoryFeed {
	t.Helper()
	f := NewFeed(group, name)
	testkit.Must(t, s.InsertFeed(t.Context(), f))
	return f
}

// NewScore returns an entry with the score of the n-th CVE of 2020, in thousandths.
func NewScore(n vuln.CVE, thousandths vuln.Fraction) vuln.Exploit {
	return vuln.Exploit{CVE: 2020_000000000 + n,
		Exploitation: vuln.Exploitation{Scored: true, Probability: thousandths * 1e6, Percentile: 1e9}}
}

// NewExploited returns an entry that lists the n-th CVE of 2020 as exploited.
func NewExploited(n vuln.CVE, due vuln.Day) vuln.Exploit {
	return vuln.Exploit{CVE: 2020_000000000 + n, Exploitation: vuln.Exploitation{Known: true, Added: 1, Due: due}}
}

// ReplaceExploits replaces the list of a group with entries.
func ReplaceExploits(
	ctx context.Context, s *AdvisoryStore, group resource.UID, at time.Time, all ...vuln.Exploit,
) (vuln.ImportResult, error) {
	f := vuln.EPSS
	if all[0].Known {
		f = vuln.KEV
	}
	return s.ReplaceExploits(ctx, vuln.ExploitList{Group: group, Format: f, Version: "v1", Time: at,
		Count: int64(len(all)), Source: "test"}, all)
}

// NewException returns an exception of a group for an image, a repo or a group.
func NewException(group, target resource.UID) vuln.Exception {
	return vuln.Exception{UID: group.NewChild(), Target: target, Advisory: "CVE-1", Reason: "not used",
		CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch}
}

// AddException inserts an exception.
func AddException(t testing.TB, s *FindingStore, group, target resource.UID) vuln.Exception {
	t.Helper()
	e := NewException(group, target)
	testkit.Must(t, s.InsertExceptions(t.Context(), group, []vuln.Exception{e}))
	return e
}

// NewPullRule returns a pull rule of a group.
func NewPullRule(group resource.UID) vuln.PullRule {
	return vuln.PullRule{UID: group.NewChild(), Target: group, CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch}
}

// AddPullRule inserts a pull rule.
func AddPullRule(t testing.TB, s *FindingStore, group resource.UID) vuln.PullRule {
	t.Helper()
	r := NewPullRule(group)
	testkit.Must(t, s.InsertPullRule(t.Context(), r))
	return r
}

// NewPlace returns a place in a group, and the images that run there. The inventory is from now and
// valid for a day.
func NewPlace(
	s *FindingStore, group resource.UID, name string, entries int,
) (vuln.InventoryPlace, []vuln.InventoryEntry) {
	pushed := s.Time()
	var running []vuln.InventoryEntry
	for i := range entries {
		running = append(running, vuln.InventoryEntry{Namespace: name, Workload: fmt.Sprint(i),
			Digest: fmt.Sprintf("sha256:%064d", i), Copies: i + 1})
	}
	return vuln.InventoryPlace{Group: group, Name: name, Identity: "a1", PushTime: pushed,
		ExpireTime: pushed.Add(24 * time.Hour), Entries: entries}, running
}

// PushPlace replaces the inventory of a place.
func PushPlace(t testing.TB, s *FindingStore, group resource.UID, name string, entries int) {
	t.Helper()
	p, running := NewPlace(s, group, name, entries)
	testkit.Must(t, s.ReplaceInventory(t.Context(), p, running))
}

// FindAdvisory returns the advisory of an organization with an id.
func FindAdvisory(t testing.TB, s *AdvisoryStore, org resource.UID, id string) vuln.Advisory {
	t.Helper()
	p, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{org}}, vuln.AdvisoryFilter{IDs: []string{id}},
		iamtest.ByUID, true)
	testkit.Must(t, err)
	if len(p.Items) != 1 {
		t.Fatalf("%d advisories have the id %s", len(p.Items), id)
	}
	return p.Items[0]
}
