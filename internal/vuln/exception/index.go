package exception

import (
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// An Index finds the exceptions that may be about a finding, as far as its names and
// its package tell. Most findings have none, and then nobody has to look at their images.
type Index struct {
	named    map[string][]heldException // by the name of the finding
	packages map[string][]heldException // by the name of the package, those of packages alone
}

// Index returns an index of the set, or nil if it is empty.
func (x *Set) Index() *Index {
	if len(x.named)+len(x.rest) == 0 {
		return nil
	}
	all := &Index{map[string][]heldException{}, map[string][]heldException{}}
	for _, byName := range x.named {
		for name, of := range byName {
			all.named[name] = append(all.named[name], of...)
		}
	}
	for _, of := range x.rest {
		for _, e := range of {
			all.packages[e.purl.name] = append(all.packages[e.purl.name], e)
		}
	}
	return all
}

// about returns the exceptions that may be about a package under one of the names.
func (x *Index) about(p registry.Package, called []string) (all []heldException) {
	add := func(some []heldException) {
		for _, e := range some {
			if e.purl == nil || e.purl.has(p) {
				all = append(all, e)
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
	return all
}

// ForPackage returns the exceptions that may be about a package under one of the names, or nil if there are none.
func (x *Index) ForPackage(p registry.Package, called []string) *Set {
	if all := x.about(p, called); len(all) > 0 {
		return setOf(all)
	}
	return nil
}

// ForFinding returns the exceptions that may be about a finding, or nil if it is open whatever
// image has it: an exception has to hold for each of its claims.
func (x *Index) ForFinding(v finding.Finding) *Set {
	var all []heldException
	for _, called := range v.Claims {
		some := x.about(v.Package.Package, called)
		if len(some) == 0 {
			return nil
		}
		all = append(all, some...)
	}
	return setOf(all)
}

// setOf returns the set of exceptions, some of which may be given more than once.
func setOf(all []heldException) *Set {
	x := &Set{named: map[resource.UID]map[string][]heldException{}, rest: map[resource.UID][]heldException{}}
	seen := map[resource.UID]bool{}
	for _, e := range all {
		if !seen[e.UID] {
			seen[e.UID] = true
			x.add(e)
		}
	}
	return x
}

// SelectsImages reports whether some of the exceptions are about single images of a repo.
func (x *Set) SelectsImages(repo resource.UID) bool {
	isNarrow := func(e heldException) bool { return e.TagPattern != "" || e.Digest != "" }
	for _, of := range x.named[repo] {
		if slices.ContainsFunc(of, isNarrow) {
			return true
		}
	}
	return slices.ContainsFunc(x.rest[repo], isNarrow)
}
