package query_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// onDebian returns an advisory about the Debian packages of the test. It has a word of the vendor or a CVSS vector, if
// they are not empty.
func onDebian(word, vector, id string, aliases ...string) vuln.Advisory {
	a := affecting(id, "9.1.0")
	a.Summary, a.Aliases, a.Affected = "", aliases, a.Affected[:0]
	for _, v := range affecting(id, "9.1.0").Affected {
		if v.Ecosystem == "Debian:12" {
			v.VendorSeverity = word
			a.Affected = append(a.Affected, v)
		}
	}
	if vector != "" {
		a.Severities = []vuln.Severity{{Type: vuln.CVSSv3, Score: vector}}
	}
	return a
}

// elsewhere returns a record about another package.
func elsewhere(a vuln.Advisory) vuln.Advisory {
	a.ArtifactName, a.Affected = "elsewhere", []vuln.Affected{{Ecosystem: "npm", Name: "elsewhere"}}
	return a
}

const (
	worst    = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H" // 9.8
	harmless = "CVSS:3.1/AV:P/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N" // 1.6
)

// TestRuleAndAuthorBelow checks that no advisory of a folder weakens a rule of the organization or an exception's
// bounds, that advisories of the folder may still refuse more, and that they decide for the folder's own rules.
func TestRuleAndAuthorBelow(t *testing.T) {
	t.Parallel()
	critical := vuln.PullRule{MinSeverity: int32(finding.SeverityCritical)}
	unknown := critical
	unknown.UnknownSeverity = vuln.UnknownSeverityRefuse
	tests := map[string]struct {
		above, below []vuln.Advisory
		rule         vuln.PullRule
		excepted     string // an exception of the organization
		before       bool   // whether the rule refuses without the advisories of the folder
		after, own   bool   // whether the rule, and the same rule in the folder, refuse with them
	}{
		"a word of a vendor by the folder": {above: []vuln.Advisory{onDebian("", worst, "GHSA-1", accepted)},
			below: []vuln.Advisory{onDebian("low", "", "X-1", accepted)}, rule: critical, before: true, after: true},
		"two vulnerabilities are said to be one": {
			above: []vuln.Advisory{onDebian("", worst, accepted), onDebian("low", "", exploited)},
			below: []vuln.Advisory{onDebian("", "", "X-1", accepted, exploited)},
			rule:  critical, before: true, after: true},
		"a low score of a vulnerability without a rating": {above: []vuln.Advisory{onDebian("", "", accepted)},
			below: []vuln.Advisory{onDebian("", harmless, "X-1", accepted)}, rule: unknown, before: true, after: true},
		"a low score in a record about another package": {above: []vuln.Advisory{onDebian("", "", accepted)},
			below: []vuln.Advisory{elsewhere(onDebian("", harmless, "X-1", accepted))},
			rule:  unknown, before: true, after: true},
		"an exception for one of two vulnerabilities": {
			above: []vuln.Advisory{onDebian("", worst, accepted), onDebian("", worst, exploited)},
			below: []vuln.Advisory{onDebian("", worst, "X-1", accepted, exploited)},
			rule:  critical, excepted: accepted, before: true, after: true, own: true},
		"a vulnerability that only the folder knows": {below: []vuln.Advisory{onDebian("", worst, accepted)},
			rule: critical, after: true, own: true},
		"a higher word by the folder": {above: []vuln.Advisory{onDebian("low", "", accepted)},
			below: []vuln.Advisory{onDebian("critical", "", "X-1", accepted)}, rule: critical, after: true, own: true},
	}
	storyGame(t, func(t *testing.T, g *game) {
		org, folder := g.groups[0], g.groups[3]
		repo := g.aRepo(t, folder, "app")
		d := push(t, g.Store, repo, "a0")
		for name, tt := range tests {
			check := func(when string, home resource.UID, want bool) {
				if got := g.rates(t, home, repo.UID, d, tt.rule); got != want {
					t.Errorf("%s: %s: the rule refuses: %v, want %v", name, when, got, want)
				}
			}
			now := time.Now().UTC().Truncate(time.Millisecond)
			e := vuln.Exception{UID: org.NewChild(), Target: org, Reason: "r", Advisory: tt.excepted, CreateTime: now,
				UpdateTime: now, ApproveTime: now}
			if tt.excepted != "" {
				must(t, g.InsertExceptions(t.Context(), org, []vuln.Exception{e}))
			}
			g.imports(t, org, tt.above...)
			check("before", org, tt.before)
			g.imports(t, folder, tt.below...)
			check("after", org, tt.after)
			check("own rule", folder, tt.own)
			g.forget(t)
			if tt.excepted != "" {
				must(t, g.policy.DeleteException(g.as(t, "owner of a"), e.UID))
			}
		}
	})
}

// forget deletes all advisories.
func (g *game) forget(t *testing.T) {
	t.Helper()
	var uids []resource.UID
	must(t, g.Rows(t.Context(), `SELECT uid FROM advisories`, nil, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		err := row.Scan(&uid)
		uids = append(uids, uid)
		return false, err
	}))
	for _, uid := range uids {
		must(t, g.DeleteAdvisory(t.Context(), uid))
	}
	g.settle(t)
}

// as returns a context of a caller.
func (g *game) as(t *testing.T, caller string) context.Context {
	return authz.WithCaller(t.Context(), g.callers[caller])
}
