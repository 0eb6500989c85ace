package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// Advise sets the advice of findings: the smallest version of the package that none of its open findings with a fix
// affects. findings must contain all findings of a package, and advisories all of their evidence. Findings that are
// excepted or closed get no advice and are not considered.
func Advise(findings []*Finding, advisories map[resource.UID]vuln.Advisory) {
	open := map[registry.Package][]*Finding{}
	for _, v := range findings {
		if v.State != StateExcepted && v.State != StateClosed && v.FixedVersion != "" {
			open[v.Package.Package] = append(open[v.Package.Package], v)
		}
	}
	for p, fixable := range open {
		advice := advise(p, fixable, advisories)
		for _, v := range fixable {
			v.Advice = advice
		}
	}
}

// advise returns the smallest version of a package that fixes all findings, or "" if there is none. No version below
// the fixed version of a finding is considered.
func advise(p registry.Package, findings []*Finding, advisories map[resource.UID]vuln.Advisory) string {
	compare := func(a, b string) int {
		order, err := version.Compare(p.Ecosystem, a, b)
		if err != nil {
			return 0
		}
		return order
	}
	var candidates []string
	var evidence []resource.UID
	least := findings[0].FixedVersion
	for _, v := range findings {
		candidates, evidence = append(candidates, v.Fixed...), append(evidence, v.Advisories...)
		if compare(v.FixedVersion, least) > 0 {
			least = v.FixedVersion
		}
	}
	slices.Sort(evidence)
	evidence = slices.Compact(evidence)
	slices.Sort(candidates)
	candidates = slices.DeleteFunc(slices.Compact(candidates), func(v string) bool { return compare(v, least) < 0 })
	slices.SortStableFunc(candidates, compare)
	for _, candidate := range candidates {
		if !slices.ContainsFunc(evidence, func(uid resource.UID) bool {
			ecosystem, name := nameIn(p, advisories[uid])
			query, err := version.NewQuery(ecosystem, candidate)
			return err != nil || query.Affects(advisories[uid], name)
		}) {
			return candidate
		}
	}
	return ""
}

// nameIn returns the ecosystem and the name under which an advisory is about a package. An advisory is about a Java
// archive without a group under the name of a Maven package with the same artifact ID.
func nameIn(p registry.Package, a vuln.Advisory) (ecosystem, name string) {
	if p.Ecosystem != version.JAR {
		return p.Ecosystem, cmp.Or(p.SourceName, p.Name)
	}
	for _, v := range a.Affected {
		if strings.HasSuffix(v.Name, ":"+p.Name) && version.SameEcosystem("Maven", v.Ecosystem) {
			return "Maven", v.Name
		}
	}
	return "Maven", p.Name
}

// ByUID returns advisories by UID.
func ByUID(advisories map[int64]vuln.Advisory) map[resource.UID]vuln.Advisory {
	byUID := make(map[resource.UID]vuln.Advisory, len(advisories))
	for _, a := range advisories {
		byUID[a.UID] = a
	}
	return byUID
}
