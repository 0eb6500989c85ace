package query_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
)

// TestGateFollowsExceptions creates and deletes an exception while clients pull from all replicas. It checks that every
// replica applies the change as soon as the call has returned.
func TestGateFollowsExceptions(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		g := newGame(t, url)
		org := g.groups[0]
		repo := registry.Repo{UID: org.NewChild(), Name: "app", CreateTime: time.Now().UTC(), UpdateTime: time.Now().UTC()}
		must(t, g.InsertRepo(t.Context(), repo))
		d := push(t, g.Store, repo, "a0")
		for i := range 6 { // every image of the test has at least one of these packages
			for _, ecosystem := range []string{"npm", "Debian:12"} {
				a := vuln.Advisory{ID: fmt.Sprintf("A-%s-%d", ecosystem, i), Aliases: []string{"CVE-1"},
					Affected: []vuln.Affected{{Ecosystem: ecosystem, Name: fmt.Sprintf("p%d", i),
						Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}}}}}}}
				a.Source.Digest = []byte(a.ID)
				_, err := g.ImportAdvisories(t.Context(), org, "test", []vuln.Advisory{a})
				must(t, err)
			}
		}
		g.settle(t)
		now := time.Now().UTC().Truncate(time.Millisecond)
		must(t, g.InsertPullRule(t.Context(), vuln.PullRule{UID: org.NewChild(), Target: org, Enforce: true,
			CreateTime: now, UpdateTime: now}))
		var gates []*policy.Gate
		for _, r := range g.replicas {
			gates = append(gates, policy.NewGate(findingdb.New(r.DB), imagedb.New(r.DB), advisorydb.New(r.DB), nil,
				metric.Metrics{}))
		}
		m, err := g.StatManifest(t.Context(), repo.UID, d)
		must(t, err)
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		pulling, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		for _, gate := range gates {
			running.Go(func() {
				for pulling.Err() == nil {
					_, _ = gate.Check(pulling, repo.UID, m, false)
				}
			})
		}
		defer running.Wait()
		defer stop()
		refused := func(when string, want bool) {
			t.Helper()
			for i, gate := range gates {
				why, err := gate.Check(ctx, repo.UID, m, false)
				must(t, err)
				if (why != "") != want {
					t.Fatalf("%s, replica %d says %q", when, i, why)
				}
			}
		}
		for range 10 {
			refused("without an exception", true)
			e, err := g.policy.CreateException(ctx, org, vuln.Exception{Advisory: "CVE-1", Reason: "r"})
			must(t, err)
			refused("with an exception", false)
			must(t, g.policy.DeleteException(ctx, e.UID))
		}
	})
}

// TestGateKnownExploited checks that a rule about known exploitation refuses an image only if a catalog lists the CVE.
// The catalog must be in a group that contains the repo.
func TestGateKnownExploited(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGame(t, url)
		org, foreign, folder, deep := g.groups[0], g.groups[1], g.groups[3], g.groups[4]
		now := time.Now().UTC().Truncate(time.Millisecond)
		repo := registry.Repo{UID: folder.NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
		must(t, g.InsertRepo(t.Context(), repo))
		d := push(t, g.Store, repo, "a0")
		for i := range 6 { // every image of the test has at least one of these packages
			for _, ecosystem := range []string{"npm", "Debian:12"} {
				a := vuln.Advisory{ID: fmt.Sprintf("A-%s-%d", ecosystem, i), Aliases: []string{"CVE-2026-1000"},
					Affected: []vuln.Affected{{Ecosystem: ecosystem, Name: fmt.Sprintf("p%d", i), Ranges: []vuln.AffectedRange{
						{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}}}}}}}
				a.Source.Digest = []byte(a.ID)
				_, err := g.ImportAdvisories(t.Context(), folder, "test", []vuln.Advisory{a})
				must(t, err)
			}
		}
		g.settle(t)
		must(t, g.InsertPullRule(t.Context(), vuln.PullRule{UID: folder.NewChild(), Target: folder, KEV: true,
			Enforce: true, CreateTime: now, UpdateTime: now}))
		m, err := g.StatManifest(t.Context(), repo.UID, d)
		must(t, err)
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		cve, _ := vuln.ParseCVE("CVE-2026-1000")
		for _, tt := range []struct {
			catalog string
			group   resource.UID
			format  vuln.ExploitFormat
			cve     vuln.CVE
			refused bool
		}{
			{"of another organization", foreign, vuln.KEV, cve, false},
			{"of the organization above the rule", org, vuln.KEV, cve, true},
			{"of a group that does not contain the repo", deep, vuln.KEV, cve, false},
			{"with a probability", folder, vuln.EPSS, cve, false},
			{"with the CVE before", folder, vuln.KEV, cve - 1, false},
			{"of the folder", folder, vuln.KEV, cve, true},
		} {
			_, err := g.ReplaceExploits(t.Context(), vuln.ExploitList{Group: tt.group, Format: tt.format, Time: now},
				[]vuln.Exploit{{CVE: tt.cve, Exploitation: vuln.Exploitation{Known: true, Probability: 1e9}}})
			must(t, err)
			gate := policy.NewGate(findingdb.New(g.DB), imagedb.New(g.DB), advisorydb.New(g.DB), nil,
				metric.Metrics{}) // a new gate, because the cache of the old one has verdicts from before
			why, err := gate.Check(ctx, repo.UID, m, false)
			must(t, err)
			if (why != "") != tt.refused {
				t.Errorf("with a list %s the pull is refused: %q", tt.catalog, why)
			}
			must(t, g.DeleteExploitList(t.Context(), tt.group, tt.format))
		}
	})
}
