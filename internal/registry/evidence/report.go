package evidence

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Report lists the vulnerabilities that a scanner found in an image.
type Report struct {
	Scanner      string // name of the scanner, as in the document
	Version      string
	DatabaseTime time.Time
	Time         time.Time // time of the scan; zero if unknown
	Matches      []Match
}

// A Match is a vulnerability in a package.
type Match struct {
	ID          string
	Aliases     []string
	Source      string
	Description string
	Details     string
	Severity    Severity
	Scores      []Score
	URLs        []string
	CPEs        []string
	Fix         Fix
	Package     Package
	Locations   []string
}

// A Score is a CVSS score.
type Score struct{ Score, Version string }

// A Fix has the versions in which a vulnerability is fixed.
type Fix struct {
	State    FixState
	Versions []string
}

// A FixState says whether a vulnerability is fixed. Its values are the numbers of the enum in the API.
type FixState int32

// The states of a fix.
const (
	FixUnknown FixState = iota
	Fixed
	NotFixed
	WontFix
)

// A Severity is the severity of a vulnerability. Its values are the numbers of the enum in the API.
type Severity int32

// The severities.
const (
	Unknown Severity = iota
	Low
	Medium
	High
	Critical
	Negligible
)

var severities = map[string]Severity{
	"low": Low, "medium": Medium, "high": High, "critical": Critical, "negligible": Negligible,
}

func severityOf(text string) Severity { return severities[strings.ToLower(text)] }

// Report parses the report of a scanner.
func (d Document) Report() (r Report, err error) {
	switch d.Format {
	case Grype:
		r, err = readGrype(d.Raw)
	case Trivy:
		r, err = readTrivy(d.Raw)
	case SARIF:
		r, err = readSARIF(d.Raw)
	default:
		err = ErrUnknown
	}
	if r.Time.IsZero() {
		r.Time = d.Scanned
	}
	return r, err
}

// The types for documents have fields with the names of the formats. A field has a JSON tag only if its name differs
// from the format's in more than case, because decoding ignores case.

type grypeDocument struct {
	Matches []struct {
		Vulnerability grypeVulnerability
		Related       []grypeVulnerability `json:"relatedVulnerabilities"`
		Artifact      struct {
			ID, Name, Version, PURL string
			CPEs, Licenses          []string
			Locations               []struct{ Path string }
		}
	}
	Descriptor struct {
		Name, Version, Timestamp string
		DB                       struct {
			Built  string
			Status struct{ Built string }
		}
	}
}

type grypeVulnerability struct {
	ID, DataSource, Namespace, Severity, Description string
	URLs                                             []string
	CVSS                                             []struct {
		Version string
		Metrics struct{ BaseScore float64 }
	}
	Fix struct {
		Versions []string
		State    string
	}
}

func (v grypeVulnerability) scores() (all []Score) {
	for _, c := range v.CVSS {
		all = append(all, Score{number(c.Metrics.BaseScore), c.Version})
	}
	return all
}

var grypeFixes = map[string]FixState{"fixed": Fixed, "not-fixed": NotFixed, "wont-fix": WontFix}

func readGrype(raw []byte) (Report, error) {
	var d grypeDocument
	if err := decode(raw, &d); err != nil {
		return Report{}, fmt.Errorf("grype: %w", err)
	}
	r := Report{
		Scanner: first(d.Descriptor.Name, "grype"), Version: d.Descriptor.Version,
		Time:         parseTime(d.Descriptor.Timestamp),
		DatabaseTime: parseTime(first(d.Descriptor.DB.Status.Built, d.Descriptor.DB.Built)),
	}
	for _, m := range d.Matches {
		v, a := m.Vulnerability, m.Artifact
		match := Match{
			ID: v.ID, Source: first(v.Namespace, v.DataSource), Description: v.Description,
			Severity: severityOf(v.Severity),
			URLs:     v.URLs, CPEs: a.CPEs, Fix: Fix{grypeFixes[v.Fix.State], v.Fix.Versions},
			Package: Package{ID: a.ID, Name: a.Name, Version: a.Version, PURL: a.PURL,
				License: strings.Join(a.Licenses, " AND ")},
		}
		match.Scores = v.scores()
		for _, related := range m.Related { // related records have fields that the record of a distribution lacks
			if match.Scores == nil {
				match.Scores = related.scores()
			}
			if related.ID != v.ID {
				match.Aliases = append(match.Aliases, related.ID)
			}
			match.Description = first(match.Description, related.Description)
		}
		for _, l := range a.Locations {
			match.Locations = append(match.Locations, l.Path)
		}
		r.Matches = append(r.Matches, match)
	}
	return r, nil
}

// number formats a score as text, such as 9.8.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

type trivyDocument struct {
	CreatedAt string
	Trivy     struct{ Version string }
	Results   []struct {
		Target          string
		Vulnerabilities []struct {
			VulnerabilityID, PkgID, PkgName, PkgPath string
			InstalledVersion, FixedVersion           string
			Status, Title, Description, Severity     string
			VendorIDs, References                    []string
			PkgIdentifier                            struct{ PURL string }
			DataSource                               struct{ ID string }
			CVSS                                     map[string]struct{ V2Score, V3Score, V40Score float64 }
		}
	}
}

var trivyFixes = map[string]FixState{
	"fixed": Fixed, "affected": NotFixed, "fix_deferred": NotFixed, "will_not_fix": WontFix, "end_of_life": WontFix,
}

func readTrivy(raw []byte) (Report, error) {
	var d trivyDocument
	if err := decode(raw, &d); err != nil {
		return Report{}, fmt.Errorf("trivy: %w", err)
	}
	r := Report{Scanner: "trivy", Version: d.Trivy.Version, Time: parseTime(d.CreatedAt)}
	for _, result := range d.Results {
		for _, v := range result.Vulnerabilities {
			match := Match{
				ID: v.VulnerabilityID, Aliases: v.VendorIDs, Source: v.DataSource.ID, Description: v.Title,
				Details: v.Description, Severity: severityOf(v.Severity), URLs: v.References,
				Fix:       Fix{State: trivyFixes[v.Status], Versions: versions(v.FixedVersion)},
				Locations: []string{first(v.PkgPath, result.Target)},
				Package: Package{ID: v.PkgID, Name: v.PkgName, Version: v.InstalledVersion,
					PURL: v.PkgIdentifier.PURL},
			}
			if match.Fix.State == FixUnknown && v.FixedVersion != "" {
				match.Fix.State = Fixed
			}
			for _, c := range v.CVSS {
				for version, score := range map[string]float64{"2.0": c.V2Score, "3.1": c.V3Score, "4.0": c.V40Score} {
					if score != 0 {
						match.Scores = append(match.Scores, Score{number(score), version})
					}
				}
			}
			slices.SortFunc(match.Scores,
				func(a, b Score) int { return strings.Compare(a.Version+a.Score, b.Version+b.Score) })
			match.Scores = slices.Compact(match.Scores)
			r.Matches = append(r.Matches, match)
		}
	}
	return r, nil
}

// versions splits Trivy's comma-separated list of versions.
func versions(text string) []string {
	var all []string
	for v := range strings.SplitSeq(text, ",") {
		if v = strings.TrimSpace(v); v != "" {
			all = append(all, v)
		}
	}
	return all
}

type sarifDocument struct {
	Runs []struct {
		Tool struct {
			Driver struct {
				Name, Version, SemanticVersion string
				Rules                          []sarifRule
			}
		}
		Invocations []struct{ EndTimeUTC string }
		Results     []struct {
			RuleID, Level string
			Message       struct{ Text string }
			Locations     []struct {
				PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
			}
		}
	}
}

type sarifRule struct {
	ID, HelpURI      string
	ShortDescription struct{ Text string }
	Properties       struct {
		Score string `json:"security-severity"`
		PURLs []string
	}
}

// readSARIF parses a report of any tool. The rules in a SARIF document are the vulnerabilities. SARIF has no
// packages, but some tools add package URLs.
func readSARIF(raw []byte) (Report, error) {
	var d sarifDocument
	if err := decode(raw, &d); err != nil {
		return Report{}, fmt.Errorf("SARIF: %w", err)
	}
	var r Report
	for _, run := range d.Runs {
		driver := run.Tool.Driver
		r.Scanner, r.Version = first(r.Scanner, driver.Name), first(r.Version, driver.SemanticVersion, driver.Version)
		if n := len(run.Invocations); n > 0 {
			r.Time = parseTime(run.Invocations[n-1].EndTimeUTC)
		}
		rules := map[string]sarifRule{}
		for _, rule := range driver.Rules {
			rules[rule.ID] = rule
		}
		for _, result := range run.Results {
			rule := rules[result.RuleID]
			match := Match{ID: result.RuleID, Description: first(rule.ShortDescription.Text, result.Message.Text),
				Details: result.Message.Text}
			match.Severity = sarifSeverity(rule.Properties.Score, result.Level)
			if rule.Properties.Score != "" {
				match.Scores = []Score{{Score: rule.Properties.Score}}
			}
			if rule.HelpURI != "" {
				match.URLs = []string{rule.HelpURI}
			}
			if len(rule.Properties.PURLs) > 0 {
				match.Package.PURL = rule.Properties.PURLs[0]
			}
			for _, l := range result.Locations {
				match.Locations = append(match.Locations, l.PhysicalLocation.ArtifactLocation.URI)
			}
			r.Matches = append(r.Matches, match)
		}
	}
	return r, nil
}

// sarifSeverity returns the severity for a score or, if there is no score, for a level.
func sarifSeverity(score, level string) Severity {
	f, err := strconv.ParseFloat(score, 64)
	switch {
	case err != nil || math.IsNaN(f) || f <= 0:
		return map[string]Severity{"error": High, "warning": Medium, "note": Low}[level]
	case f < 4:
		return Low
	case f < 7:
		return Medium
	case f < 9:
		return High
	}
	return Critical
}
