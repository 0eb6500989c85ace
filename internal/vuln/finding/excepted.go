package finding

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A State says whether something has to be done about a finding. Its values are those of
// the API.
type State int

// The states.
const (
	StateUnspecified State = iota
	StateOpen
	StateExcepted
	StateClosed
)

// A Case is what an exception may be about: a finding in an image of a repo.
type Case struct {
	Repo    resource.UID
	Tags    []string // all that stand for the image, directly or through an index
	Digest  string   // of the image
	Claims  [][]string
	Package registry.Package
}

// caseOf returns the case of a finding in an image.
func caseOf(v Finding, repo resource.UID, digest string, tags []string) Case {
	return Case{Repo: repo, Tags: tags, Digest: digest, Claims: v.claims, Package: v.Package.Package}
}

// claims returns, for each advisory of a finding, the names by which an exception may mean
// it: its own, and those of advisories that share a name with it, as far as they are in its
// group or above it. Otherwise whoever may write advisories in a folder could have an
// exception mean one of the organization, by an advisory that names both. The same names
// are returned once.
func claims(hits []findingdb.Hit, advisories map[int64]vuln.Advisory) (all [][]string) {
	var groups []resource.UID
	for _, h := range hits {
		groups = append(groups, advisories[h.Advisory].UID.Parent())
	}
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		above := slices.DeleteFunc(slices.Clone(hits), func(h findingdb.Hit) bool {
			return !advisories[h.Advisory].UID.Parent().Covers(g)
		})
		for _, same := range together(above, advisories) {
			var called []string
			own := false
			for _, h := range same {
				a := advisories[h.Advisory]
				called = append(called, names(a)...)
				own = own || a.UID.Parent() == g
			}
			if own {
				slices.Sort(called)
				all = append(all, slices.Compact(called))
			}
		}
	}
	return all
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

// An exceptionSet finds exceptions.
type exceptionSet struct {
	named map[resource.UID]map[string][]heldException // by target, and by the name of the finding
	rest  map[resource.UID][]heldException            // by target, those of packages alone
	byTag bool                                        // there are some with a pattern for tags
}

// newExceptionSet returns the set of exceptions.
func newExceptionSet(all []vuln.Exception) *exceptionSet {
	x := &exceptionSet{named: map[resource.UID]map[string][]heldException{}, rest: map[resource.UID][]heldException{}}
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
func (x *exceptionSet) add(e heldException) {
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

// begins returns when the first exception begins that does not hold yet, or zero. One that
// was just made may not hold yet for a replica whose clock is behind.
func (x *exceptionSet) begins(at time.Time) (first time.Time) {
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

// exceptionsOn reads the exceptions about images of the repos that held at some time from
// one to another.
func exceptionsOn(
	ctx context.Context, s *findingdb.Store, repos []resource.UID, from, to time.Time,
) (*exceptionSet, error) {
	var targets []resource.UID
	for _, r := range repos {
		targets = append(append(targets, r), r.Ancestors()...)
	}
	slices.Sort(targets)
	all, err := s.ExceptionsOn(ctx, slices.Compact(targets), from, to)
	return newExceptionSet(all), err
}

// holding returns the exception that holds for a case at a time, if there is one. Of
// several it is the one that ends last. If the finding has several claims, an exception has
// to hold for each, and the one that ends first is returned. Only those count for which
// counts, unless it is nil, returns true.
func (x *exceptionSet) holding(c Case, at time.Time, counts func(vuln.Exception) bool) (
	first vuln.Exception, ok bool,
) {
	for i, called := range c.Claims {
		last, ok := x.last(c, called, at, counts)
		if !ok {
			return vuln.Exception{}, false
		}
		if i == 0 || endsBefore(last, first) {
			first = last
		}
	}
	return first, len(c.Claims) > 0
}

// last returns the exception that holds for a case under one of the names and ends last.
func (x *exceptionSet) last(
	c Case, called []string, at time.Time, counts func(vuln.Exception) bool,
) (found vuln.Exception, ok bool) {
	look := func(all []heldException) {
		for _, e := range all {
			if e.ActiveAt(at) && e.MatchesDigest(c.Digest) && e.MatchesTags(c.Tags) && (e.purl == nil || e.purl.has(c.Package)) &&
				(counts == nil || counts(e.Exception)) && (!ok || endsBefore(found, e.Exception)) {
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

// endsBefore reports whether an exception ends before another, or has the lower uid.
func endsBefore(a, b vuln.Exception) bool {
	if a.ExpireTime.Equal(b.ExpireTime) {
		return a.UID < b.UID
	}
	return b.ExpireTime.IsZero() || !a.ExpireTime.IsZero() && a.ExpireTime.Before(b.ExpireTime)
}

// Excepted returns for each case the exception that holds for it at a time, or the zero
// value. It reads all exceptions at once, whatever the number of cases is. At a time in the
// past these are the exceptions that held then, also if they were deleted since.
func (s *Service) Excepted(ctx context.Context, cases []Case, at time.Time) ([]vuln.Exception, error) {
	var repos []resource.UID
	for _, c := range cases {
		repos = append(repos, c.Repo)
	}
	slices.Sort(repos)
	x, err := exceptionsOn(ctx, s.packages, slices.Compact(repos), at, at)
	if err != nil {
		return nil, err
	}
	all := make([]vuln.Exception, len(cases))
	for i, c := range cases {
		all[i], _ = x.holding(c, at, nil)
	}
	return all, nil
}

// judge sets the states of findings of one image, as they are at a time.
func (s *Service) judge(ctx context.Context, repo resource.UID, digest string, all []Finding, at time.Time) error {
	return s.judgeAt(ctx, repo, digest, all, time.Time{}, at)
}

// judgeAt is judge at a time in the past, unless that is zero, with the tags of that time.
func (s *Service) judgeAt(
	ctx context.Context, repo resource.UID, digest string, all []Finding, past, now time.Time,
) error {
	at := now
	if !past.IsZero() {
		at = past
	}
	x, err := exceptionsOn(ctx, s.packages, []resource.UID{repo}, at, at)
	if err != nil {
		return err
	}
	var tags []string
	if x.byTag {
		if tags, err = s.tagsOf(ctx, repo, digest, past); err != nil {
			return err
		}
	}
	for i := range all {
		all[i].State = StateOpen
		if e, ok := x.holding(caseOf(all[i], repo, digest, tags), at, nil); ok {
			all[i].State, all[i].Exception, all[i].ExceptionExpires = StateExcepted, e.UID, e.ExpireTime
		}
	}
	return nil
}

// in reports whether a state is one of those wanted: open and excepted, if none is named.
func (v State) in(wanted []State) bool {
	if len(wanted) == 0 {
		return v != StateClosed
	}
	return slices.Contains(wanted, cmp.Or(v, StateOpen))
}
