package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A Mention is a match of a package with an advisory that describes a vulnerability. Names are the names that the
// advisory gives to the vulnerability. An advisory that fixes several vulnerabilities mentions each of them.
type Mention struct {
	findingdb.Hit
	Names []string
}

// ByVulnerability returns the mentions of each vulnerability in hits. Two mentions are about the same vulnerability if
// they share a name, directly or through other mentions. It sorts hits.
func ByVulnerability(hits []findingdb.Hit, advisories map[int64]vuln.Advisory) [][]Mention {
	slices.SortFunc(hits, func(a, b findingdb.Hit) int {
		return cmp.Or(cmp.Compare(advisories[a.Advisory].ID, advisories[b.Advisory].ID), cmp.Compare(a.Advisory, b.Advisory))
	})
	var mentions []Mention
	for _, h := range hits {
		for _, names := range advisories[h.Advisory].Vulnerabilities() {
			mentions = append(mentions, Mention{h, names})
		}
	}
	return join(mentions)
}

// join groups mentions that share a name, directly or through other mentions.
func join(mentions []Mention) (groups [][]Mention) {
	group := map[string]int{} // index of a group in groups, by name
	for _, m := range mentions {
		into := -1
		for _, name := range m.Names {
			pos, ok := group[name]
			switch {
			case !ok:
			case into < 0:
				into = pos
			case pos != into: // this mention has names in two groups, so it joins them
				groups[into], groups[pos] = append(groups[into], groups[pos]...), nil
				for n, g := range group {
					if g == pos {
						group[n] = into
					}
				}
			}
		}
		if into < 0 {
			into, groups = len(groups), append(groups, nil)
		}
		groups[into] = append(groups[into], m)
		for _, name := range m.Names {
			group[name] = into
		}
	}
	return slices.DeleteFunc(groups, func(g []Mention) bool { return g == nil })
}

// Claims returns, for each mention of a vulnerability, the names by which an exception can select it. These are its
// names, and the names of all mentions that share a name with it and whose advisory is in the same group or in a group
// above. Advisories of other groups do not count. Otherwise an author in a folder could extend an exception to a
// vulnerability in an advisory of the organization, by writing an advisory that names both.
func Claims(mentions []Mention, advisories map[int64]vuln.Advisory) (claims [][]string) {
	for _, w := range ViewsOf(mentions, advisories) {
		claims = append(claims, w.Names)
	}
	return claims
}

// NamesOf returns all names in mentions, each once and in order.
func NamesOf(mentions []Mention) (names []string) {
	for _, m := range mentions {
		names = append(names, m.Names...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NameOf returns the name by which a vulnerability is called: its CVE, or else the first of its names in alphabetical
// order. An ID that Holdfast generated is used only if there is no other name.
func NameOf(names []string) string {
	rank := func(name string) int {
		switch {
		case vuln.IsCVE(name):
			return 0
		case strings.HasPrefix(name, vuln.AdvisoryIDPrefix):
			return 2
		}
		return 1
	}
	return slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}

// SmallestFix returns the smallest of several fixed versions that is above the current version of a package, or "".
func SmallestFix(p registry.Package, fixed []string) (least string) {
	for _, v := range fixed {
		above, err := version.Compare(p.Ecosystem, v, installed(p))
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

// installed returns the version of a package that advisories use. For a distribution's package, this is the version of
// the source package.
func installed(p registry.Package) string {
	if p.SourceName != "" {
		return cmp.Or(p.SourceVersion, p.Version)
	}
	return p.Version
}
