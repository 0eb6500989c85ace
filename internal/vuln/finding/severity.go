package finding

import (
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// A Severity is a rating on the CVSS scale.
type Severity int

// The severities.
const (
	SeverityUnknown Severity = iota
	SeverityLow
	SeverityMedium
	SeverityHigh
	SeverityCritical
)

// SeverityOf returns the severity of a CVSS score.
func SeverityOf(score float64) Severity {
	switch {
	case score <= 0:
		return SeverityUnknown
	case score < 4:
		return SeverityLow
	case score < 7:
		return SeverityMedium
	case score < 9:
		return SeverityHigh
	}
	return SeverityCritical
}

// Score returns the CVSS score of an advisory for the package with that name, or 0. A
// score for the package takes precedence over a score for all packages, and a newer
// version of CVSS over an older one.
func Score(a vuln.Advisory, name string) float64 {
	for _, affected := range a.Affected {
		if affected.Name == name {
			if score := newest(affected.Severities); score > 0 {
				return score
			}
		}
	}
	return newest(a.Severities)
}

// newest returns the highest score in the newest version of CVSS, or 0.
func newest(severities []vuln.Severity) (score float64) {
	for _, t := range []vuln.SeverityType{vuln.CVSSv4, vuln.CVSSv3, vuln.CVSSv2} {
		for _, s := range severities {
			if s.Type == t {
				score = max(score, format.Score(s))
			}
		}
		if score > 0 {
			return score
		}
	}
	return 0
}
