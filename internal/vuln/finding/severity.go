package finding

import (
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// A Severity is a rating by the scale of CVSS.
type Severity int

// The severities.
const (
	SeverityUnknown Severity = iota
	SeverityLow
	SeverityMedium
	SeverityHigh
	SeverityCritical
)

// SeverityOf returns the rating of a score.
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

// Score returns the score that an advisory gives, by the newest version of CVSS that it
// has one of. One for the package of that name comes before one for all.
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

func newest(all []vuln.Severity) (score float64) {
	for _, t := range []vuln.SeverityType{vuln.CVSSv4, vuln.CVSSv3, vuln.CVSSv2} {
		for _, s := range all {
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
