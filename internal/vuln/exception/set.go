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

// A Case is a finding in an image of a repo, for which an exception may hold.
type Case struct {
	Repo    resource.UID
	Tags    []string // tags of the image, and tags of the indexes that list the image
	Digest  string   // digest of the image
	Claims  [][]string
	Package registry.Package
}

// CaseOf returns the case of finding v in an image.
func CaseOf(v finding.Finding, repo resource.UID, digest string, tags []string) Case {
	return Case{Repo: repo, Tags: tags, Digest: digest, Claims: v.Claims, Package: v.Package.Package}
}

// A purl is a parsed package URL.
type purl struct{ ecosystem, name, version string }

// has reports whether the URL names package k, or the source package from which k was built.
func (p purl) has(k registry.Package) bool {
	is := func(name, number string) bool {
		return name != "" && p.name == name && (p.version == "" || p.version == number)
	}
	return version.SameEcosystem(p.ecosystem, k.Ecosystem) &&
		(is(k.Name, k.Version) || is(k.SourceName, k.SourceVersion))
}

// A parsedException is an exception with its parsed package URL.
type parsedException struct {
	vuln.Exception
	purl *purl
}

// A Set finds exceptions. It is safe for concurrent reading.
type Set struct {
	named map[resource.UID]map[string][]parsedException // exceptions by target and by the name of the finding
	rest  map[resource.UID][]parsedException            // exceptions without the name of a finding, by target
	byTag bool                                          // whether one of the exceptions has a tag pattern
}

// NewSet returns a set of exceptions.
func NewSet(exceptions []vuln.Exception) *Set {
	x := &Set{named: map[resource.UID]map[string][]parsedException{}, rest: map[resource.UID][]parsedException{}}
	for _, e := range exceptions {
		held := parsedException{Exception: e}
		if e.PURL != "" {
			ecosystem, name, number, err := version.ParsePURL(e.PURL)
			if err != nil {
				continue // cannot happen, because the URL was checked when the exception was created
			}
			held.purl = &purl{ecosystem, name, number}
		}
		x.add(held)
	}
	return x
}

func (x *Set) add(e parsedException) {
	x.byTag = x.byTag || e.TagPattern != ""
	if e.Advisory == "" {
		x.rest[e.Target] = append(x.rest[e.Target], e)
		return
	}
	if x.named[e.Target] == nil {
		x.named[e.Target] = map[string][]parsedException{}
	}
	x.named[e.Target][e.Advisory] = append(x.named[e.Target][e.Advisory], e)
}

// NextStart returns the earliest start of an exception after asOf, or the zero time if there is none. A new exception
// may start after asOf if the clock of this replica is slow.
func (x *Set) NextStart(asOf time.Time) (first time.Time) {
	note := func(exceptions []parsedException) {
		for _, e := range exceptions {
			if e.ApproveTime.After(asOf) && (first.IsZero() || e.ApproveTime.Before(first)) {
				first = e.ApproveTime
			}
		}
	}
	for _, byName := range x.named {
		for _, exceptions := range byName {
			note(exceptions)
		}
	}
	for _, matching := range x.rest {
		note(matching)
	}
	return first
}

// UsesTags reports whether one of the exceptions has a tag pattern.
func (x *Set) UsesTags() bool { return x.byTag }

// Read reads the exceptions that apply to images of the repos and that were in effect at any time between from and to.
func Read(
	ctx context.Context, s *findingdb.Store, repos []resource.UID, from, to time.Time,
) (*Set, error) {
	var targets []resource.UID
	for _, r := range repos {
		targets = append(append(targets, r), r.Ancestors()...)
	}
	slices.Sort(targets)
	exceptions, err := s.ExceptionsOn(ctx, slices.Compact(targets), from, to)
	return NewSet(exceptions), err
}

// Holding returns the exception that holds for a case at a time. If several hold, it returns the exception that ends
// last. If the finding has several claims, an exception must hold for each claim, and Holding returns the exception
// that ends first. If counts is not nil, only exceptions for which it returns true are considered.
func (x *Set) Holding(c Case, asOf time.Time, counts func(vuln.Exception) bool) (
	first vuln.Exception, ok bool,
) {
	for i, called := range c.Claims {
		last, ok := x.last(c, called, asOf, counts)
		if !ok {
			return vuln.Exception{}, false
		}
		if i == 0 || EndsBefore(last, first) {
			first = last
		}
	}
	return first, len(c.Claims) > 0
}

// last returns the exception that holds for a case whose advisory has one of the names called. If several hold, it
// returns the exception that ends last.
func (x *Set) last(
	c Case, called []string, asOf time.Time, counts func(vuln.Exception) bool,
) (found vuln.Exception, ok bool) {
	look := func(exceptions []parsedException) {
		for _, e := range exceptions {
			if e.ActiveAt(asOf) && e.MatchesDigest(c.Digest) && e.MatchesTags(c.Tags) &&
				(e.purl == nil || e.purl.has(c.Package)) &&
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

// EndsBefore reports whether a ends before b. If both end at the same time, it reports whether a has the lower UID.
func EndsBefore(a, b vuln.Exception) bool {
	if a.ExpireTime.Equal(b.ExpireTime) {
		return a.UID < b.UID
	}
	return b.ExpireTime.IsZero() || !a.ExpireTime.IsZero() && a.ExpireTime.Before(b.ExpireTime)
}
