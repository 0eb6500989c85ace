package match

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// An eventFinding is the content of events about an alias set, with packages by ID.
type eventFinding struct {
	vuln.NewFinding
	packages []int64
	known    map[int64]vuln.NewsPackage
}

// newEventFinding returns the content of events about an alias set that affects packages. called are the stored
// names of the set. advisories are the advisories whose names are new.
func newEventFinding(
	hits map[int64][]findingdb.Hit, packages []int64, known map[int64]registry.Package,
	advisories map[int64]findingdb.NamedAdvisory, called []string,
) eventFinding {
	f := eventFinding{packages: packages, known: map[int64]vuln.NewsPackage{}}
	names := slices.Clone(called)
	for _, p := range packages {
		k := known[p]
		var fixed []string
		for _, h := range hits[p] {
			f.Score = max(f.Score, h.Score)
			fixed = append(fixed, h.Fixed...)
			if a, ok := advisories[h.Advisory]; ok {
				names = append(names, a.Names...)
				if f.ID == "" || a.Names[0] < f.ID {
					f.ID = a.Names[0]
				}
			}
		}
		f.known[p] = vuln.NewsPackage{Ecosystem: k.Ecosystem, Name: k.Name, Version: k.Version, PURL: k.PURL,
			Fixed: smallestFix(k, fixed)}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if f.ID == "" && len(names) > 0 { // in this case no advisory of the set has changed
		f.ID = names[0]
	}
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

// smallestFix returns the smallest version that fixes a package and is above its
// current version, or "".
func smallestFix(p registry.Package, fixed []string) (least string) {
	installed := p.Version
	if p.SourceName != "" {
		installed = cmp.Or(p.SourceVersion, installed)
	}
	for _, v := range fixed {
		above, err := version.Compare(p.Ecosystem, v, installed)
		if err != nil || above <= 0 {
			continue
		}
		if least == "" {
			least = v
		} else if order, err := version.Compare(p.Ecosystem, v, least); err == nil && order < 0 {
			least = v
		}
	}
	return least
}
