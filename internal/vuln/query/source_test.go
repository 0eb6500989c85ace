package query_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
)

// written returns an advisory of an author.
func written(author string, a vuln.Advisory) vuln.Advisory {
	a.Author = author
	return a
}

// scoring returns an advisory about all packages, with a score instead of a word.
func scoring(vector, id string, aliases ...string) vuln.Advisory {
	a := affecting(id, "9.1.0")
	a.Summary, a.Aliases, a.Severities = "", aliases, []vuln.Severity{{Type: vuln.CVSSv3, Score: vector}}
	return a
}

// sourceTests are advisories about accepted, with the severity of its findings and the source of the severity.
var sourceTests = map[string]struct {
	advisories []vuln.Advisory
	severity   finding.Severity
	source     string
	announced  string // source in the events, which know only advisories about the package
}{
	"the word of a vendor": {
		[]vuln.Advisory{written("AlmaLinux", fixing("ALSA-2025:1", "9.1.0", accepted))},
		finding.SeverityHigh, "AlmaLinux", "AlmaLinux",
	},
	"a score, and not the word of others": {
		[]vuln.Advisory{
			written("Words", only("npm", withWord("low", affecting("PYSEC-1", "9.1.0")))),
			written("NVD", scoring(worst, accepted, "PYSEC-1")),
		},
		finding.SeverityCritical, "NVD", "NVD",
	},
	"the highest score of the same severity": {
		[]vuln.Advisory{
			written("Above", scoring("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:N", "PYSEC-1", accepted)), // 9.1
			written("NVD", scoring(worst, accepted)),
		},
		finding.SeverityCritical, "NVD", "NVD",
	},
	"the first by name of equal ones": {
		[]vuln.Advisory{written("NVD", scoring(worst, accepted)), written("GitHub", scoring(worst, "GHSA-1", accepted))},
		finding.SeverityCritical, "GitHub", "GitHub",
	},
	"a record about no package": {
		[]vuln.Advisory{written("Go", withWord("", affecting(accepted, "9.1.0"))), scored("GHSA-1", accepted)},
		finding.SeverityCritical, "GitHub", "",
	},
	"unknown": {
		[]vuln.Advisory{written("Go", withWord("", affecting(accepted, "9.1.0")))}, finding.SeverityUnknown, "", "",
	},
}

// withWord returns an advisory with the word of a vendor.
func withWord(word string, a vuln.Advisory) vuln.Advisory {
	a.Summary, a.VendorSeverity = "", word
	return a
}

// only returns an advisory that affects only packages of one ecosystem.
func only(ecosystem string, a vuln.Advisory) vuln.Advisory {
	a.Affected = slices.DeleteFunc(a.Affected, func(v vuln.Affected) bool { return v.Ecosystem != ecosystem })
	return a
}

// otherImage returns a word from which an image is made that lacks packages of the image a0, and the names of these.
func otherImage(t *testing.T) (word string, names []string) {
	t.Helper()
	for i := range 10 {
		word = fmt.Sprintf("b%d", i)
		var others []string
		for _, p := range contents(word, 1) {
			others = append(others, cmp.Or(p.SourceName, p.Name))
		}
		names = nil
		for _, p := range contents("a0", 1) {
			if p.Owner == "" && p.Ecosystem == "npm" && !slices.Contains(others, p.Name) {
				names = append(names, p.Name)
			}
		}
		if len(names) > 0 {
			return word, names
		}
	}
	t.Fatal("all images have the same packages")
	return "", nil
}

// TestSourceOfSeverity checks that events, the lists of a report, and the list of an image name the same source of a
// severity, both while findings are open and after they were fixed.
func TestSourceOfSeverity(t *testing.T) {
	t.Parallel()
	other, names := otherImage(t)
	for name, tt := range sourceTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.StoryURL(t, func(t *testing.T, url string) {
				l := newListener(t, url)
				l.plain = true
				repo := l.aRepo(t, l.groups[0], "app")
				d := push(t, l.Store, repo, "a0")
				l.settle(t)
				l.opened(t)
				advisories := slices.Clone(tt.advisories)
				for i, a := range advisories {
					advisories[i].Affected = nil
					for _, v := range a.Affected {
						if slices.Contains(names, v.Name) || v.Name == a.ArtifactName {
							advisories[i].Affected = append(advisories[i].Affected, v)
						}
					}
				}
				l.imports(t, l.groups[0], advisories...)
				for _, f := range l.byName(t, repo.UID, d)[accepted] {
					if f.SeveritySource != tt.source {
						t.Errorf("the list says %q", f.SeveritySource)
					}
				}
				news, _ := l.opened(t)
				for _, n := range news {
					if f := n.Findings[0]; f.ID != accepted || f.Source != tt.announced {
						t.Errorf("the event says %s by %q, want %q", f.ID, f.Source, tt.announced)
					}
				}
				open := l.report(t).Open
				if len(open) == 0 || len(news) == 0 {
					t.Fatalf("%d findings and %d events", len(open), len(news))
				}
				l.move(t, repo, "v-a0", other)
				fixed := l.report(t)
				if len(fixed.Open) > 0 || len(fixed.Closed) != len(open) {
					t.Errorf("%d findings are open, and %d of %d are fixed", len(fixed.Open), len(fixed.Closed), len(open))
				}
				for _, v := range slices.Concat(open, fixed.Closed) {
					if v.ID != accepted || v.Severity != tt.severity || v.RatedBy != tt.source {
						t.Errorf("the report has %s with severity %d by %q, want %d by %q", v.ID, v.Severity, v.RatedBy,
							tt.severity, tt.source)
					}
				}
			})
		})
	}
}

// report returns the report about the first organization.
func (g *game) report(t *testing.T) report.Report {
	t.Helper()
	r, err := g.reports.Get(g.as(t, "owner of a"), g.groups[0])
	must(t, err)
	return r
}

// move moves a tag to the image that is made from a word.
func (g *game) move(t *testing.T, repo registry.Repo, tag, word string) {
	t.Helper()
	push(t, g.Store, repo, word)
	ref, body := registrydb.RepoRef{Group: repo.UID.Parent(), Name: repo.Name}, bodyOf(word)
	_, err := g.PutManifest(t.Context(), ref, registry.Manifest{
		Digest: digest(string(body)), MediaType: registry.ImageManifests[0], ArtifactType: registry.ImageConfigs[0],
		Size: int64(len(body)), Body: body, Needs: []registry.Need{{Digest: digest(word)}},
	}, []string{tag})
	must(t, err)
	g.settle(t)
}
