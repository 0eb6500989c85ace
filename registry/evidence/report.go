package evidence

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Report lists what a scanner found in an image.
type Report struct {
	Scanner      string // its name in the document
	Version      string
	DatabaseTime time.Time
	Time         time.Time // of the scan; zero if unknown
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

// A Fix tells in which versions a vulnerability is fixed.
type Fix struct {
	State    FixState
	Versions []string
}

// A FixState tells whether a vulnerability is fixed. Its values are those of the API.
type FixState int32

// The states of a fix.
const (
	FixUnknown FixState = iota
	Fixed
	NotFixed
	WontFix
)

// A Severity is the severity of a vulnerability. Its values are those of the API.
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

type grypeDocument struct {
	Matches []struct {
		Vulnerability grypeVulnerability   `json:"vulnerability"`
		Related       []grypeVulnerability `json:"relatedVulnerabilities"`
		Artifact      struct {
			ID        string   `json:"id"`
			Name      string   `json:"name"`
			Version   string   `json:"version"`
			PURL      string   `json:"purl"`
			CPEs      []string `json:"cpes"`
			Licenses  []string `json:"licenses"`
			Locations []struct {
				Path string `json:"path"`
			} `json:"locations"`
		} `json:"artifact"`
	} `json:"matches"`
	Descriptor struct {
		Name      string `json:"name"`
		Version   string `json:"version"`
		Timestamp string `json:"timestamp"`
		DB        struct {
			Built  string `json:"built"`
			Status struct {
				Built string `json:"built"`
			} `json:"status"`
		} `json:"db"`
	} `json:"descriptor"`
}

type grypeVulnerability struct {
	ID          string   `json:"id"`
	Source      string   `json:"dataSource"`
	Namespace   string   `json:"namespace"`
	Severity    string   `json:"severity"`
	URLs        []string `json:"urls"`
	Description string   `json:"description"`
	CVSS        []struct {
		Version string `json:"version"`
		Metrics struct {
			Base float64 `json:"baseScore"`
		} `json:"metrics"`
	} `json:"cvss"`
	Fix struct {
		Versions []string `json:"versions"`
		State    string   `json:"state"`
	} `json:"fix"`
}

func (v grypeVulnerability) scores() (all []Score) {
	for _, c := range v.CVSS {
		all = append(all, Score{number(c.Metrics.Base), c.Version})
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
			ID: v.ID, Source: first(v.Namespace, v.Source), Description: v.Description,
			Severity: severityOf(v.Severity),
			URLs:     v.URLs, CPEs: a.CPEs, Fix: Fix{grypeFixes[v.Fix.State], v.Fix.Versions},
			Package: Package{ID: a.ID, Name: a.Name, Version: a.Version, PURL: a.PURL,
				License: strings.Join(a.Licenses, " AND ")},
		}
		match.Scores = v.scores()
		for _, other := range m.Related { // they have what a distribution's own record lacks
			if match.Scores == nil {
				match.Scores = other.scores()
			}
			if other.ID != v.ID {
				match.Aliases = append(match.Aliases, other.ID)
			}
			match.Description = first(match.Description, other.Description)
		}
		for _, l := range a.Locations {
			match.Locations = append(match.Locations, l.Path)
		}
		r.Matches = append(r.Matches, match)
	}
	return r, nil
}

// number formats a score, such as 9.8.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

type trivyDocument struct {
	Created string `json:"CreatedAt"`
	Trivy   struct {
		Version string `json:"Version"`
	} `json:"Trivy"`
	Results []struct {
		Target          string `json:"Target"`
		Vulnerabilities []struct {
			ID         string   `json:"VulnerabilityID"`
			VendorIDs  []string `json:"VendorIDs"`
			PkgID      string   `json:"PkgID"`
			PkgName    string   `json:"PkgName"`
			PkgPath    string   `json:"PkgPath"`
			Installed  string   `json:"InstalledVersion"`
			FixedIn    string   `json:"FixedVersion"`
			Status     string   `json:"Status"`
			Title      string   `json:"Title"`
			Details    string   `json:"Description"`
			Severity   string   `json:"Severity"`
			References []string `json:"References"`
			Identifier struct {
				PURL string `json:"PURL"`
			} `json:"PkgIdentifier"`
			Source struct {
				ID string `json:"ID"`
			} `json:"DataSource"`
			CVSS map[string]struct {
				V2 float64 `json:"V2Score"`
				V3 float64 `json:"V3Score"`
				V4 float64 `json:"V40Score"`
			} `json:"CVSS"`
		} `json:"Vulnerabilities"`
	} `json:"Results"`
}

var trivyFixes = map[string]FixState{
	"fixed": Fixed, "affected": NotFixed, "fix_deferred": NotFixed, "will_not_fix": WontFix, "end_of_life": WontFix,
}

func readTrivy(raw []byte) (Report, error) {
	var d trivyDocument
	if err := decode(raw, &d); err != nil {
		return Report{}, fmt.Errorf("trivy: %w", err)
	}
	r := Report{Scanner: "trivy", Version: d.Trivy.Version, Time: parseTime(d.Created)}
	for _, result := range d.Results {
		for _, v := range result.Vulnerabilities {
			match := Match{
				ID: v.ID, Aliases: v.VendorIDs, Source: v.Source.ID, Description: v.Title, Details: v.Details,
				Severity: severityOf(v.Severity), URLs: v.References,
				Fix:       Fix{State: trivyFixes[v.Status], Versions: versions(v.FixedIn)},
				Locations: []string{first(v.PkgPath, result.Target)},
				Package:   Package{ID: v.PkgID, Name: v.PkgName, Version: v.Installed, PURL: v.Identifier.PURL},
			}
			if match.Fix.State == FixUnknown && v.FixedIn != "" {
				match.Fix.State = Fixed
			}
			for _, c := range v.CVSS {
				for version, score := range map[string]float64{"2.0": c.V2, "3.1": c.V3, "4.0": c.V4} {
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
				Name    string      `json:"name"`
				Version string      `json:"version"`
				SemVer  string      `json:"semanticVersion"`
				Rules   []sarifRule `json:"rules"`
			} `json:"driver"`
		} `json:"tool"`
		Invocations []struct {
			End string `json:"endTimeUtc"`
		} `json:"invocations"`
		Results []struct {
			Rule    string `json:"ruleId"`
			Level   string `json:"level"`
			Message struct {
				Text string `json:"text"`
			} `json:"message"`
			Locations []struct {
				Physical struct {
					Artifact struct {
						URI string `json:"uri"`
					} `json:"artifactLocation"`
				} `json:"physicalLocation"`
			} `json:"locations"`
		} `json:"results"`
	} `json:"runs"`
}

type sarifRule struct {
	ID    string `json:"id"`
	Help  string `json:"helpUri"`
	Short struct {
		Text string `json:"text"`
	} `json:"shortDescription"`
	Properties struct {
		Score string   `json:"security-severity"`
		PURLs []string `json:"purls"`
	} `json:"properties"`
}

// readSARIF parses a report of any tool. The rules of SARIF are vulnerabilities.
// SARIF has no packages, but some tools add their package URLs.
func readSARIF(raw []byte) (Report, error) {
	var d sarifDocument
	if err := decode(raw, &d); err != nil {
		return Report{}, fmt.Errorf("SARIF: %w", err)
	}
	var r Report
	for _, run := range d.Runs {
		driver := run.Tool.Driver
		r.Scanner, r.Version = first(r.Scanner, driver.Name), first(r.Version, driver.SemVer, driver.Version)
		if n := len(run.Invocations); n > 0 {
			r.Time = parseTime(run.Invocations[n-1].End)
		}
		rules := map[string]sarifRule{}
		for _, rule := range driver.Rules {
			rules[rule.ID] = rule
		}
		for _, result := range run.Results {
			rule := rules[result.Rule]
			match := Match{ID: result.Rule, Description: first(rule.Short.Text, result.Message.Text),
				Details: result.Message.Text}
			match.Severity = sarifSeverity(rule.Properties.Score, result.Level)
			if rule.Properties.Score != "" {
				match.Scores = []Score{{Score: rule.Properties.Score}}
			}
			if rule.Help != "" {
				match.URLs = []string{rule.Help}
			}
			if len(rule.Properties.PURLs) > 0 {
				match.Package.PURL = rule.Properties.PURLs[0]
			}
			for _, l := range result.Locations {
				match.Locations = append(match.Locations, l.Physical.Artifact.URI)
			}
			r.Matches = append(r.Matches, match)
		}
	}
	return r, nil
}

// sarifSeverity returns the severity of a score, or of a level if there is no score.
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
