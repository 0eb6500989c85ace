package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

// A ChangeKind is a kind of difference between two images.
type ChangeKind int

// The kinds of changes, in the order of the list.
const (
	ChangeNew ChangeKind = 1 + iota
	ChangeFixed
	ChangeRemaining
	PackageChanged
	PackageAdded
	PackageRemoved

	ChangeKinds // the number of kinds and one
)

// A Change is a difference between two images in a package or in a finding.
type Change struct {
	Kind      ChangeKind
	Ecosystem string             // ecosystem of the package, without the release of a distribution
	Name      string             // name of the package
	From, To  []registry.Package // versions in the first and in the second image; for a finding, the affected versions
	Finding   *Finding           // the finding in the second image, or in the first if the second does not have it
}

// family returns an ecosystem without the release of a distribution.
func family(ecosystem string) string {
	name, _, _ := strings.Cut(ecosystem, ":")
	return name
}

// A packageName identifies all versions of a package.
type packageName struct{ ecosystem, name string }

func nameOf(p registry.Package) packageName { return packageName{family(p.Ecosystem), p.Name} }

// ComparePackages returns a change for every package that differs. An image can have several versions of a package. A
// package of a distribution also counts as changed if the release of the distribution changed.
func ComparePackages(from, to []registry.ImagePackage) (changes []Change) {
	before, after := byName(from), byName(to)
	for name, had := range before {
		has, ok := after[name]
		switch {
		case !ok:
			changes = append(changes, Change{Kind: PackageRemoved, Ecosystem: name.ecosystem, Name: name.name, From: had})
		case !slices.EqualFunc(had, has, sameVersion):
			changes = append(changes,
				Change{Kind: PackageChanged, Ecosystem: name.ecosystem, Name: name.name, From: had, To: has})
		}
	}
	for name, has := range after {
		if _, ok := before[name]; !ok {
			changes = append(changes, Change{Kind: PackageAdded, Ecosystem: name.ecosystem, Name: name.name, To: has})
		}
	}
	return changes
}

func sameVersion(a, b registry.Package) bool {
	return a.Version == b.Version && a.Ecosystem == b.Ecosystem
}

// byName returns the versions of each package, in alphabetical order.
func byName(packages []registry.ImagePackage) map[packageName][]registry.Package {
	named := map[packageName][]registry.Package{}
	for _, p := range packages {
		named[nameOf(p.Package)] = append(named[nameOf(p.Package)], p.Package)
	}
	for name := range named {
		named[name] = distinct(named[name])
	}
	return named
}

// distinct sorts versions and removes duplicates.
func distinct(versions []registry.Package) []registry.Package {
	slices.SortFunc(versions, func(a, b registry.Package) int {
		return cmp.Or(cmp.Compare(a.Ecosystem, b.Ecosystem), cmp.Compare(a.Version, b.Version), cmp.Compare(a.PURL, b.PURL))
	})
	return slices.CompactFunc(versions, sameVersion)
}

// CompareFindings returns a change for every finding of either image. Findings of one
// package are the same if they share a name, directly or through other findings.
func CompareFindings(from, to []Finding) (changes []Change) {
	type side struct{ from, to []Finding }
	var groups []side
	index := map[packageName]map[string]int{} // index in groups, by package and by name of the finding
	add := func(f Finding, second bool) {
		p := nameOf(f.Package.Package)
		if index[p] == nil {
			index[p] = map[string]int{}
		}
		into := len(groups)
		groups = append(groups, side{})
		if second {
			groups[into].to = []Finding{f}
		} else {
			groups[into].from = []Finding{f}
		}
		for _, name := range append([]string{f.ID}, f.Aliases...) {
			if pos, ok := index[p][name]; ok && pos != into { // the two groups are the same finding
				groups[into] = side{append(groups[pos].from, groups[into].from...), append(groups[pos].to, groups[into].to...)}
				groups[pos] = side{}
				for n, g := range index[p] {
					if g == pos {
						index[p][n] = into
					}
				}
			}
			index[p][name] = into
		}
	}
	for _, f := range from {
		add(f, false)
	}
	for _, f := range to {
		add(f, true)
	}
	for _, g := range groups {
		if len(g.from)+len(g.to) > 0 {
			changes = append(changes, findingChange(g.from, g.to))
		}
	}
	return changes
}

// findingChange returns the change of a finding. from and to are the finding in the affected versions of a package in
// each image. The finding is open if it is open in one of these versions.
func findingChange(from, to []Finding) Change {
	urgent := func(findings []Finding) *Finding {
		f := slices.MaxFunc(findings, func(a, b Finding) int {
			return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(a.Key(), b.Key()))
		})
		return &f
	}
	v := Change{Kind: ChangeRemaining}
	switch {
	case len(to) == 0:
		v.Kind, v.Finding = ChangeFixed, urgent(from)
	case len(from) == 0:
		v.Kind, v.Finding = ChangeNew, urgent(to)
	default:
		v.Finding = urgent(to)
	}
	name := nameOf(v.Finding.Package.Package)
	v.Ecosystem, v.Name = name.ecosystem, name.name
	v.From, v.To = packagesOf(from), packagesOf(to)
	return v
}

func packagesOf(findings []Finding) (packages []registry.Package) {
	for _, f := range findings {
		packages = append(packages, f.Package.Package)
	}
	return distinct(packages)
}

// Key returns a text by which changes are sorted: by kind, then findings by urgency, the most urgent first, and
// packages by name.
func (c Change) Key() string {
	if c.Finding == nil {
		return fmt.Sprintf("%d%s\x00%s", c.Kind, c.Name, c.Ecosystem)
	}
	rank, _, _ := strings.Cut(c.Finding.Key(), "\x00")
	inverse := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '9' - (r - '0')
		}
		return r
	}, rank)
	return fmt.Sprintf("%d%s\x00%s\x00%s\x00%s", c.Kind, inverse, c.Name, c.Ecosystem, c.Finding.ID)
}
