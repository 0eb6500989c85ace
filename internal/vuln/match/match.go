// Package match compares packages with advisories and writes the events about
// findings that open and close.
package match

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	matchLease = "matches"
	matchLife  = 10 * time.Second
	matchEvery = time.Second            // for changes by other replicas, which wake nobody here
	gatherFor  = 100 * time.Millisecond // pause after this process is woken

	// These limits bound the work of one turn, because other organizations wait for their turns. Anybody can push very
	// many versions of a package, and import very many advisories about it.
	packagesAtOnce = 200
	changesAtOnce  = 500
	pairsAtOnce    = 20_000
	longTurn       = 250 * time.Millisecond
)

// A Matcher stores which advisories affect which packages. It compares a package with
// all advisories when the package first appears, and an advisory with all packages when
// the advisory changes. It reads no images. One replica at a time does the work.
//
// A package and an advisory can appear at the same time. Each is committed before the
// other side is read, so one of the two comparisons sees both.
type Matcher struct {
	packages    *findingdb.Store
	advisories  *advisorydb.Store
	log         *slog.Logger
	Holder      string // name of the lease holder; random by default
	converted   bool   // whether all stored advisories are converted; see convert
	conversion  conversion
	last        int64 // key of the organization whose changes were compared last
	nextChanged int64 // image number at which the next announcement starts
	Pairs       int   // approximate number of comparisons of a package with an advisory per turn
	progress    map[int64]progress

	Single int // maximum number of events about single findings or images; more are bundled; 0 means 20
}

// New returns a Matcher over a database.
func New(packages *findingdb.Store, advisories *advisorydb.Store, log *slog.Logger) *Matcher {
	return &Matcher{packages: packages, advisories: advisories, log: cmp.Or(log, slog.Default()), Holder: rand.Text(),
		Pairs: pairsAtOnce, progress: map[int64]progress{}}
}

// Run compares packages with advisories until ctx ends.
func (m *Matcher) Run(ctx context.Context) error {
	defer func() {
		if m.packages.Replicated() {
			// An error is ignored, because the lease expires anyway.
			_ = lease.Release(context.WithoutCancel(ctx), m.packages.DB, matchLease, m.Holder)
		}
	}()
	var renewed time.Time
	filled := false // whether the names of Maven packages are complete
	var woken <-chan struct{}
	for ; ctx.Err() == nil; m.wait(ctx, woken) {
		woken = m.packages.Woken(store.MatchQueue)
		if m.packages.Replicated() && time.Since(renewed) > matchLife/4 {
			has, err := lease.Acquire(ctx, m.packages.DB, matchLease, m.Holder, matchLife)
			if err != nil || !has {
				m.converted = false // the replica with the lease may run the previous version
				sleep(ctx, matchLife/10)
				continue
			}
			renewed = time.Now()
		}
		var err error
		if !filled {
			err = m.advisories.FillMavenNames(ctx)
			filled = err == nil
		}
		if err = cmp.Or(err, m.matchAll(ctx, renewed)); err != nil && ctx.Err() == nil {
			renewed = time.Time{}
			if !errors.Is(err, fault.Aborted) {
				m.log.WarnContext(ctx, "packages are not compared with advisories", "err", err)
				sleep(ctx, time.Second)
			}
		}
	}
	return nil
}

// wait waits until this process has added packages, changed images or changed an advisory, or until another process may
// have done so. While many images are pushed, one pass serves all images of gatherFor.
func (m *Matcher) wait(ctx context.Context, woken <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-m.advisories.Written:
	case <-woken:
		sleep(ctx, gatherFor)
	case <-time.After(matchEvery):
	}
}

// matchAll calls Match until there is nothing left to do, or until the lease must be renewed.
func (m *Matcher) matchAll(ctx context.Context, renewed time.Time) error {
	for !m.packages.Replicated() || time.Since(renewed) < matchLife/2 {
		did, err := m.Match(ctx)
		if err != nil || !did {
			return err
		}
	}
	return nil
}

// Match compares a batch of packages and a batch of advisories, and writes the events about a batch of changed images.
// It reports whether it found anything to do.
func (m *Matcher) Match(ctx context.Context) (bool, error) {
	if !m.converted {
		did, err := m.convert(ctx)
		if err != nil || did {
			return did, err
		}
		m.converted = true
	}
	packages, err := m.matchPackages(ctx)
	if err != nil {
		return false, err
	}
	advisories, err := m.matchAdvisories(ctx)
	if err != nil {
		return false, err
	}
	news, err := m.announce(ctx)
	return packages || advisories || news, err
}

// write runs a transaction that fails if another replica has the lease.
func (m *Matcher) write(ctx context.Context, f func(*store.Tx) error) error {
	return m.packages.Write(ctx, func(t *store.Tx) error {
		if m.packages.Replicated() {
			if err := lease.Require(ctx, t, matchLease, m.Holder); err != nil {
				return err
			}
		}
		return f(t)
	})
}

// matchPackages compares new packages with the advisories. It alternates between the oldest and the newest packages, so
// that a large push does not delay later pushes.
func (m *Matcher) matchPackages(ctx context.Context) (bool, error) {
	fresh, err := m.packages.Unmatched(ctx, packagesAtOnce)
	if err != nil || len(fresh) == 0 {
		return false, err
	}
	want := findingdb.NewMatches()
	named := map[string][]vuln.Advisory{}
	pairs, begin := 0, time.Now()
	maven := m.mavenNames("")
	for i, p := range fresh {
		s, err := maven.candidate(ctx, p)
		if err != nil {
			return false, err
		}
		var about []vuln.Advisory
		for _, name := range s.named() {
			if _, ok := named[name]; !ok {
				if named[name], err = m.advisories.AdvisoriesNaming(ctx, name, ""); err != nil {
					return false, err
				}
			}
			about = append(about, named[name]...)
		}
		for _, a := range about {
			s.match(a, want)
		}
		if pairs += len(about); pairs >= m.Pairs || time.Since(begin) > longTurn {
			fresh = fresh[:i+1]
			break
		}
	}
	return true, m.write(ctx, func(t *store.Tx) error {
		return findingdb.In(t).MatchPackages(ctx, fresh, want, func(c findingdb.Change) error {
			return m.writeEvents(ctx, t,
				c)
		})
	})
}

// matchAdvisories compares changed advisories of one organization with the packages, as many as the organization's turn
// allows.
func (m *Matcher) matchAdvisories(ctx context.Context) (bool, error) {
	c, err := m.advisories.NextChanges(ctx, m.last, changesAtOnce)
	if err != nil || len(c.Advisories) == 0 {
		return false, err
	}
	m.last = c.Root
	turn := m.progressOf(c)
	c = c.First(turn.batch)
	want, jars, done, err := m.compare(ctx, c.Advisories, turn)
	if err != nil || want == nil {
		return true, err
	}
	if err := m.matchJars(ctx, jars, c); err != nil {
		return true, err
	}
	err = m.write(ctx, func(t *store.Tx) error {
		announce := func(change findingdb.Change) error { return m.writeEvents(ctx, t, change) }
		if err := findingdb.In(t).MatchAdvisories(ctx, c.Advisories, *want, c.Sources, announce); err != nil || !done {
			return err
		}
		return advisorydb.DeleteChanges(ctx, t, c)
	})
	if err == nil {
		m.finishTurn(c.Root, turn, *want, done)
	}
	return true, err
}

// A subject is a package under the name that advisories use. For a distribution's package, this is the name of the
// source package.
type subject struct {
	id              int64
	ecosystem, name string
	query           version.Query
	known           bool // whether the version can be compared
}

// A candidate is a package that can be compared with advisories.
type candidate interface {
	named() []string                               // names under which advisories may be about the package
	match(a vuln.Advisory, into findingdb.Matches) // adds a match if the advisory affects the package
}

func (s subject) named() []string { return []string{s.name} }

func subjectOf(p findingdb.StoredPackage) subject {
	s := subject{id: p.ID, ecosystem: p.Ecosystem, name: cmp.Or(p.SourceName, p.Name)}
	v := p.Version
	if p.SourceName != "" {
		v = cmp.Or(p.SourceVersion, v)
	}
	query, err := version.NewPackageQuery(p.Ecosystem, p.PURL, v)
	s.query, s.known = query, err == nil
	return s
}

// match adds a match to matches if an advisory affects the package. An advisory that describes no vulnerability affects
// no package.
func (s subject) match(a vuln.Advisory, matches findingdb.Matches) {
	if !s.known || vuln.IsBugFix(a.ID) || !s.query.Affects(a, s.name) {
		return
	}
	key := store.Segment(a.UID)
	matches.Ratings[findingdb.Match{Package: s.id, Root: store.Segment(a.UID.Root()), Advisory: key}] = findingdb.Rating{
		Score: int64(math.Round(finding.Score(a, s.name) * 10)), Fixed: version.Fixed(a, s.ecosystem, s.name),
		Vendor: vuln.RatingOf(a.VendorWord(
			func(ecosystem string) bool { return version.SameEcosystem(s.ecosystem, ecosystem) }, s.name)),
	}
	matches.Advisories[key] = findingdb.NamedAdvisory{UID: a.UID, Names: a.OwnNames(), Fixes: a.Fixes}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
