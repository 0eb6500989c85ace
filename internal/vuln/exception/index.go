package exception

import (
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// An Index finds the exceptions that may hold for a finding, by the names and the package of the finding. For most
// findings there are none, so the images of these findings need not be read.
type Index struct {
	named    map[string][]parsedException // exceptions by the name of the finding
	packages map[string][]parsedException // exceptions without the name of a finding, by the name of the package
}

// Index returns an index of the set, or nil if the set is empty.
func (x *Set) Index() *Index {
	if len(x.named)+len(x.rest) == 0 {
		return nil
	}
	index := &Index{map[string][]parsedException{}, map[string][]parsedException{}}
	for _, byName := range x.named {
		for name, exceptions := range byName {
			index.named[name] = append(index.named[name], exceptions...)
		}
	}
	for _, matching := range x.rest {
		for _, e := range matching {
			index.packages[e.purl.name] = append(index.packages[e.purl.name], e)
		}
	}
	return index
}

// about returns the exceptions that may hold for a finding in package p. called are the names of the finding's
// advisory.
func (x *Index) about(p registry.Package, called []string) (exceptions []parsedException) {
	add := func(candidates []parsedException) {
		for _, e := range candidates {
			if e.purl == nil || e.purl.has(p) {
				exceptions = append(exceptions, e)
			}
		}
	}
	for _, name := range called {
		add(x.named[name])
	}
	add(x.packages[p.Name])
	if p.SourceName != p.Name {
		add(x.packages[p.SourceName])
	}
	return exceptions
}

// ForPackage returns the exceptions that may hold for a finding in package p, or nil if there are none. called are the
// names of the finding's advisory.
func (x *Index) ForPackage(p registry.Package, called []string) *Set {
	if exceptions := x.about(p, called); len(exceptions) > 0 {
		return setOf(exceptions)
	}
	return nil
}

// ForFinding returns the exceptions that may hold for a finding. It returns nil if one of the finding's claims has no
// exception, because then the finding is open in every image.
func (x *Index) ForFinding(v finding.Finding) *Set {
	var matching []parsedException
	for _, called := range v.Claims {
		exceptions := x.about(v.Package.Package, called)
		if len(exceptions) == 0 {
			return nil
		}
		matching = append(matching, exceptions...)
	}
	return setOf(matching)
}

// setOf returns a Set of the exceptions, without duplicates.
func setOf(exceptions []parsedException) *Set {
	x := &Set{named: map[resource.UID]map[string][]parsedException{}, rest: map[resource.UID][]parsedException{}}
	seen := map[resource.UID]bool{}
	for _, e := range exceptions {
		if !seen[e.UID] {
			seen[e.UID] = true
			x.add(e)
		}
	}
	return x
}

// SelectsImages reports whether one of the exceptions for repo is restricted to tags or
// to a digest.
func (x *Set) SelectsImages(repo resource.UID) bool {
	isNarrow := func(e parsedException) bool { return e.TagPattern != "" || e.Digest != "" }
	for _, exceptions := range x.named[repo] {
		if slices.ContainsFunc(exceptions, isNarrow) {
			return true
		}
	}
	return slices.ContainsFunc(x.rest[repo], isNarrow)
}
