package finding

import (
	"strconv"

	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
)

var reportSeverities = map[Severity]evidence.Severity{
	SeverityUnknown: evidence.Unknown, SeverityLow: evidence.Low, SeverityMedium: evidence.Medium,
	SeverityHigh: evidence.High, SeverityCritical: evidence.Critical,
}

// Match returns a finding in the form of a report by the given scanner.
func (v Finding) Match(scanner string) evidence.Match {
	m := evidence.Match{
		ID: v.ID, Aliases: v.Aliases, Source: scanner, Description: v.Summary, Severity: reportSeverities[v.Severity],
		Package: evidence.Package{ID: v.Package.PURL, Name: v.Package.Name, Version: v.Package.Version, PURL: v.Package.PURL},
	}
	if v.Package.Place != "" {
		m.Locations = []string{v.Package.Place}
	}
	if v.Score > 0 {
		m.Scores = []evidence.Score{{Score: strconv.FormatFloat(v.Score, 'f', 1, 64)}}
	}
	if len(v.Fixed) > 0 {
		m.Fix = evidence.Fix{State: evidence.Fixed, Versions: v.Fixed}
	}
	return m
}
