// Package exception finds the exception that holds for a finding in an image.
package exception

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A Case is what an exception may be about: a finding in an image of a repo.
type Case struct {
	Repo    resource.UID
	Tags    []string // all that stand for the image, directly or through an index
	Digest  string   // of the image
	Claims  [][]string
	Package registry.Package
}

// CaseOf returns the case of a finding in an image.
func CaseOf(v finding.Finding, repo resource.UID, digest string, tags []string) Case {
	return Case{Repo: repo, Tags: tags, Digest: digest, Claims: v.Claims, Package: v.Package.Package}
}

// A purl is a package URL, parsed.
type purl struct{ ecosystem, name, version string }

// has reports whether a package, or the source it was built from, is the one of the URL.
func (p purl) has(k registry.Package) bool {
	is := func(name, number string) bool {
		return name != "" && p.name == name && (p.version == "" || p.version == number)
	}
	return version.SameEcosystem(p.ecosystem, k.Ecosystem) &&
		(is(k.Name, k.Version) || is(k.SourceName, k.SourceVersion))
}

// A heldException is an exception with its package URL parsed.
type heldException struct {
	vuln.Exception
	purl *purl
}

// An Set finds exceptions.
type Set struct {
	named map[resource.UID]map[string][]heldException // by target, and by the name of the finding
	rest  map[resource.UID][]heldException            // by target, those of packages alone
	byTag bool                                        // there are some with a pattern for tags
}

// NewSet returns the set of exceptions.
func NewSet(all []vuln.Exception) *Set {
	x := &Set{named: map[resource.UID]map[string][]heldException{}, rest: map[resource.UID][]heldException{}}
	for _, e := range all {
		held := heldException{Exception: e}
		if e.PURL != "" {
			ecosystem, name, number, err := version.ParsePURL(e.PURL)
			if err != nil {
				continue // it was checked when it was made
			}
			held.purl = &purl{ecosystem, name, number}
		}
		x.add(held)
	}
	return x
}

// add adds an exception to the set.
func (x *Set) add(e heldException) {
	x.byTag = x.byTag || e.TagPattern != ""
	if e.Advisory == "" {
		x.rest[e.Target] = append(x.rest[e.Target], e)
		return
	}
	if x.named[e.Target] == nil {
		x.named[e.Target] = map[string][]heldException{}
	}
	x.named[e.Target][e.Advisory] = append(x.named[e.Target][e.Advisory], e)
}

// NextStart returns when the first exception begins that does not hold yet, or zero. One that
// was just made may not hold yet for a replica whose clock is behind.
func (x *Set) NextStart(at time.Time) (first time.Time) {
	note := func(all []heldException) {
		for _, e := range all {
			if e.ApproveTime.After(at) && (first.IsZero() || e.ApproveTime.Before(first)) {
				first = e.ApproveTime
			}
		}
	}
	for _, byName := range x.named {
		for _, all := range byName {
			note(all)
		}
	}
	for _, all := range x.rest {
		note(all)
	}
	return first
}

// UsesTags reports whether an exception has a pattern for tags.
func (x *Set) UsesTags() bool { return x.byTag }

// Read reads the exceptions about images of the repos that held at some time from
// one to another.
func Read(
	ctx context.Context, s *findingdb.Store, repos []resource.UID, from, to time.Time,
) (*Set, error) {
	var targets []resource.UID
	for _, r := range repos {
		targets = append(append(targets, r), r.Ancestors()...)
	}
	slices.Sort(targets)
	all, err := s.ExceptionsOn(ctx, slices.Compact(targets), from, to)
	return NewSet(all), err
}

// Holding returns the exception that holds for a case at a time, if there is one. Of
// several it is the one that ends last. If the finding has several claims, an exception has
// to hold for each, and the one that ends first is returned. Only those count for which
// counts, unless it is nil, returns true.
func (x *Set) Holding(c Case, at time.Time, counts func(vuln.Exception) bool) (
	first vuln.Exception, ok bool,
) {
	for i, called := range c.Claims {
		last, ok := x.last(c, called, at, counts)
		if !ok {
			return vuln.Exception{}, false
		}
		if i == 0 || EndsBefore(last, first) {
			first = last
		}
	}
	return first, len(c.Claims) > 0
}

// last returns the exception that holds for a case under one of the names and ends last.
func (x *Set) last(
	c Case, called []string, at time.Time, counts func(vuln.Exception) bool,
) (found vuln.Exception, ok bool) {
	look := func(all []heldException) {
		for _, e := range all {
			if e.ActiveAt(at) && e.MatchesDigest(c.Digest) && e.MatchesTags(c.Tags) && (e.purl == nil || e.purl.has(c.Package)) &&
				(counts == nil || counts(e.Exception)) && (!ok || EndsBefore(found, e.Exception)) {
				found, ok = e.Exception, true
			}
		}
	}
	for _, target := range append(c.Repo.Ancestors(), c.Repo) {
		look(x.rest[target])
		for _, name := range called {
			look(x.named[target][name])
		}
	}
	return found, ok
}

// EndsBefore reports whether an exception ends before another, or has the lower uid.
func EndsBefore(a, b vuln.Exception) bool {
	if a.ExpireTime.Equal(b.ExpireTime) {
		return a.UID < b.UID
	}
	return b.ExpireTime.IsZero() || !a.ExpireTime.IsZero() && a.ExpireTime.Before(b.ExpireTime)
}
