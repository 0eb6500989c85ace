package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// scored returns a record about another package, with a CVSS score of 9.8.
func scored(id string, aliases ...string) vuln.Advisory {
	a := vuln.Advisory{ID: id, Aliases: aliases, Author: "GitHub", ArtifactName: "elsewhere", Summary: "its own title",
		Affected:   []vuln.Affected{{Ecosystem: "npm", Name: "elsewhere"}},
		Severities: []vuln.Severity{{Type: vuln.CVSSv3, Score: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}}}
	a.Source.Digest = []byte(id)
	return a
}

// rates adds a rule with a minimum severity, and returns whether it refuses an image.
func (g *game) rates(t *testing.T, home, repo resource.UID, digest string, r vuln.PullRule) bool {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	r.UID, r.Target, r.Enforce, r.CreateTime, r.UpdateTime = home.NewChild(), home, true, now, now
	must(t, g.InsertPullRule(t.Context(), r))
	why := g.refusal(t, repo, digest)
	must(t, g.DeletePullRule(t.Context(), r.UID))
	return why != ""
}

// TestSeverityOfVendor checks that the word of a distribution decides the severity of its packages, for lists, for
// summaries and for rules, and that a score that differs is shown, too.
func TestSeverityOfVendor(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org := g.groups[0]
		repo := g.aRepo(t, org, "app")
		d := push(t, g.Store, repo, "a0")
		alsa := fixing("ALSA-2025:1", "9.1.0", accepted)
		alsa.Author, alsa.Summary = "AlmaLinux", "Moderate: a security update"
		g.imports(t, org, alsa, scored("GHSA-1", accepted))
		distribution := 0
		for _, f := range g.byName(t, repo.UID, d)[accepted] {
			want, source := finding.SeverityCritical, "GitHub"
			if f.Package.Ecosystem == "Debian:12" {
				distribution++
				want, source = finding.SeverityMedium, "AlmaLinux"
			} else {
				want, source = finding.SeverityMedium, "AlmaLinux" // nobody scores the finding, so the word counts
			}
			if f.Severity != want || f.SeveritySource != source || f.Score != 9.8 || len(f.Ratings) != 2 ||
				f.Summary != "its own title" {
				t.Errorf("%s: severity %d by %s, ratings %+v", f.Package.Name, f.Severity, f.SeveritySource, f.Ratings)
			}
		}
		if distribution == 0 {
			t.Fatal("the image has no package of the distribution")
		}
		for least, want := range map[finding.Severity]bool{finding.SeverityMedium: true, finding.SeverityHigh: false} {
			if got := g.rates(t, org, repo.UID, d, vuln.PullRule{MinSeverity: int32(least)}); got != want {
				t.Errorf("a rule with severity %d refuses: %v", least, got)
			}
		}
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		_, sum, err := g.service.Summarize(ctx, query.Place{Group: org}, 1, page.Params{})
		must(t, err)
		if now := sum.Total.Now; now[finding.SeverityMedium] == 0 || now[finding.SeverityMedium] != now.Sum() {
			t.Errorf("the summary counts %v", now)
		}
	})
}

// TestSeverityOfAnotherRecord checks that a vulnerability without a rating has the score of another record, if that
// record is in a group that counts.
func TestSeverityOfAnotherRecord(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org, folder, deep := g.groups[0], g.groups[3], g.groups[4]
		repo := g.aRepo(t, folder, "app")
		d := push(t, g.Store, repo, "a0")
		unrated := affecting("GO-2026-1", "9.1.0")
		unrated.Summary, unrated.Aliases = "a title", []string{exploited}
		g.imports(t, org, unrated)
		critical := vuln.PullRule{MinSeverity: int32(finding.SeverityCritical)}
		refuse := critical
		refuse.UnknownSeverity = vuln.UnknownSeverityRefuse
		check := func(when string, want finding.Severity, refused bool) {
			t.Helper()
			for _, f := range g.byName(t, repo.UID, d)[exploited] {
				if f.Severity != want || f.Summary != "a title" {
					t.Errorf("%s: severity %d, want %d, title %q", when, f.Severity, want, f.Summary)
				}
			}
			if got := g.rates(t, folder, repo.UID, d, critical); got != refused {
				t.Errorf("%s: the rule refuses: %v", when, got)
			}
			if !g.rates(t, folder, repo.UID, d, refuse) {
				t.Errorf("%s: a rule about unknown severities does not refuse", when)
			}
			ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
			got, _, err := g.service.ListGroup(ctx, query.Place{Group: org},
				query.Filter{Severities: []finding.Severity{want}}, page.Params{Size: 200})
			must(t, err)
			_, sum, err := g.service.Summarize(ctx, query.Place{Group: org}, 1, page.Params{})
			must(t, err)
			if n := len(got.Items); n == 0 || sum.Total.Now[want] != n || sum.Total.Now.Sum() != n {
				t.Errorf("%s: %d findings in the group, the summary counts %v", when, n, sum.Total.Now)
			}
		}
		check("without another record", finding.SeverityUnknown, false)
		if !g.rates(t, folder, repo.UID, d, vuln.PullRule{}) ||
			g.rates(t, folder, repo.UID, d, vuln.PullRule{UnknownSeverity: vuln.UnknownSeverityAllow}) {
			t.Error("a rule without a minimum severity ignores how it treats unknown severities")
		}
		g.imports(t, deep, scored("GHSA-2", exploited)) // does not contain the repo, but its owner may list it
		check("with a record in a folder below", finding.SeverityUnknown, false)
		g.imports(t, org, scored("GHSA-3", exploited))
		check("with another record", finding.SeverityCritical, true)
		if !g.rates(t, folder, repo.UID, d, vuln.PullRule{UnknownSeverity: vuln.UnknownSeverityAllow}) {
			t.Error("a rule without a minimum severity ignores the rating of another record")
		}
	})
}

// TestRatingsOfTwoRecords checks that a list and a summary prefer the score of one record to the word of another.
func TestRatingsOfTwoRecords(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org := g.groups[0]
		repo := g.aRepo(t, org, "app")
		d := push(t, g.Store, repo, "a0")
		unrated := affecting("GO-2026-1", "9.1.0")
		unrated.Aliases = []string{exploited}
		g.imports(t, org, unrated, elsewhere(onDebian("", harmless, "GHSA-1", "GO-2026-1")),
			func() vuln.Advisory {
				a := elsewhere(onDebian("", "", exploited))
				a.VendorSeverity = "critical"
				return a
			}())
		found := g.byName(t, repo.UID, d)[exploited]
		for _, f := range found {
			if f.Severity != finding.SeverityLow {
				t.Errorf("the severity of %s in the list is %d", f.Package.Name, f.Severity)
			}
		}
		_, sum, err := g.service.Summarize(g.as(t, "owner of a"), query.Place{Group: org}, 1, page.Params{})
		must(t, err)
		now, last := sum.Total.Now, sum.Series[len(sum.Series)-1].Open
		if len(found) == 0 || now[finding.SeverityLow] == 0 || now[finding.SeverityLow] != now.Sum() || last != now {
			t.Errorf("the summary counts %v, its series %v", now, last)
		}
	})
}

// TestNamesWithoutAdvisory checks the errors for a name that no advisory has: a CVE that only distributions' advisories
// fix is similar, and a CVE with only a probability is not called exploited.
func TestNamesWithoutAdvisory(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org := g.groups[0]
		g.imports(t, org, fixing("ALSA-2026:1", "9.1.0", "CVE-2026-1000"))
		for format, e := range map[vuln.ExploitFormat]vuln.Exploit{
			vuln.KEV:  {CVE: 2_026_000_005_555, Exploitation: vuln.Exploitation{Known: true}},
			vuln.EPSS: {CVE: 2_026_000_006_666, Exploitation: vuln.Exploitation{Scored: true, Probability: 1}},
		} {
			_, err := g.ReplaceExploits(t.Context(),
				vuln.ExploitList{Group: org, Format: format, Time: time.Now(), Count: 1}, []vuln.Exploit{e})
			must(t, err)
		}
		for id, want := range map[string]string{
			"CVE-2026-1001": "similar: CVE-2026-1000",
			"CVE-2026-5555": "is in a list of exploited vulnerabilities, but no advisory",
			"CVE-2026-6666": "has a probability of exploitation (EPSS), but no advisory",
		} {
			_, _, err := g.service.AffectedImages(g.as(t, "owner of a"), id, query.Place{}, page.Params{})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", id, err, want)
			}
		}
	})
}

// TestIneffectiveRules checks that a rule says that it cannot refuse anything as long as its data is missing.
func TestIneffectiveRules(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org, foreign, folder, deep := g.groups[0], g.groups[1], g.groups[3], g.groups[4]
		says := func(r vuln.PullRule, part string) {
			t.Helper()
			r.UID, r.Target = folder.NewChild(), folder
			why, err := g.policy.Ineffective(t.Context(), r)
			must(t, err)
			if part == "" && why != "" || !strings.Contains(why, part) {
				t.Errorf("%+v: %q, want %q", r, why, part)
			}
		}
		catalog := func(group resource.UID) {
			t.Helper()
			_, err := g.ReplaceExploits(t.Context(),
				vuln.ExploitList{Group: group, Format: vuln.KEV, Time: time.Now(), Count: 1},
				[]vuln.Exploit{{CVE: 2_026_000_001_000, Exploitation: vuln.Exploitation{Known: true}}})
			must(t, err)
		}
		g.imports(t, foreign, affecting("CVE-1", "9.0.0"))
		says(vuln.PullRule{}, "no advisories")
		says(vuln.PullRule{RefuseUnknown: true}, "")
		says(vuln.PullRule{Unsigned: true}, "")
		g.imports(t, deep, affecting("CVE-1", "9.0.0"))
		says(vuln.PullRule{}, "")
		says(vuln.PullRule{KEV: true}, "no catalog")
		catalog(foreign)
		says(vuln.PullRule{KEV: true}, "no catalog")
		catalog(org)
		says(vuln.PullRule{KEV: true}, "")
	})
}
