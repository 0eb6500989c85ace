package match

import (
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// An eventFinding is the content of events about a vulnerability, with packages by ID.
type eventFinding struct {
	vuln.NewFinding
	packages []int64
	source   finding.Source // source of the severity
	known    map[int64]vuln.NewsPackage
}

// newEventFinding returns the content of events about a vulnerability that affects packages. names are its names.
func newEventFinding(
	hits map[int64][]findingdb.Hit, packages []int64, known map[int64]registry.Package, names []string,
) eventFinding {
	f := eventFinding{packages: packages, known: map[int64]vuln.NewsPackage{}}
	for _, p := range packages {
		k := known[p]
		var fixed []string
		var rank int64
		for _, h := range hits[p] {
			f.Score, rank = max(f.Score, h.Score), max(rank, finding.Rank(k.Ecosystem, h.Rating))
			fixed = append(fixed, h.Fixed...)
		}
		for _, h := range hits[p] {
			if finding.Rank(k.Ecosystem, h.Rating) == rank {
				f.source.Add(rank, h.Score, h.Advisory)
			}
		}
		f.Severity = max(f.Severity, int64(finding.SeverityOfRank(rank)))
		f.known[p] = vuln.NewsPackage{Ecosystem: k.Ecosystem, Name: k.Name, Version: k.Version, PURL: k.PURL,
			Fixed: finding.SmallestFix(k, fixed)}
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	f.ID = finding.NameOf(names)
	for _, name := range names {
		if name != f.ID && len(f.Aliases) < maxNames {
			f.Aliases = append(f.Aliases, clipName(name))
		}
	}
	f.ID = clipName(f.ID)
	return f
}

func clipName(name string) string {
	name = name[:min(len(name), maxNameText)]
	return strings.ToValidUTF8(strings.ReplaceAll(name, "\x00", "\uFFFD"), "\uFFFD")
}

// in returns the finding with only the packages for which has returns true.
func (f eventFinding) in(has func(int64) bool) vuln.NewFinding {
	v := f.NewFinding
	for _, p := range f.packages {
		if has(p) && len(v.Packages) < maxListed {
			v.Packages = append(v.Packages, f.known[p])
		}
	}
	return v
}

// complete returns the finding with all its packages.
func (f eventFinding) complete() vuln.NewFinding { return f.in(func(int64) bool { return true }) }
