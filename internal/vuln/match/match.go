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
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	matchLease = "matches"
	matchLife  = 10 * time.Second
	matchEvery = 100 * time.Millisecond

	// What one turn does is bounded, because others wait for theirs: anybody can push very
	// many versions of a package, and import very many advisories about it.
	packagesAtOnce = 200
	changesAtOnce  = 500
	pairsAtOnce    = 20_000
	longTurn       = 250 * time.Millisecond

	// The version before this one changes advisories and does not note it, as long as an
	// upgrade takes. So everything is compared once more later.
	catchUpAfter = time.Hour
	caughtUp     = "findings.caught_up" // the setting that says that this was done
)

// A Matcher keeps which advisories affect which packages. It compares a package with all
// advisories when the package first appears, and an advisory with all packages when the
// advisory changes; no image is read. Of several replicas one does it at a time.
//
// Whichever comes first, a package or an advisory: each is committed before the other
// side is read, so one of the two comparisons sees both.
type Matcher struct {
	packages   *findingdb.Store
	advisories *advisorydb.Store
	log        *slog.Logger
	Holder     string // of the lease; random, unless it is set
	last       int64  // the organization whose changes were served last
	nextNews   int64  // the number from which on images are announced next
	Pairs      int    // of a package and an advisory that one turn compares, about
	shares     map[int64]progress

	adopted bool      // what the version before has stored is in alias sets
	asked   bool      // whether it has caught up
	catchUp time.Time // when it has to; zero if it need not

	Single int // how many events tell of one thing each before they are bundled; 0 means 20
}

// New returns a Matcher over a database.
func New(packages *findingdb.Store, advisories *advisorydb.Store, log *slog.Logger) *Matcher {
	return &Matcher{packages: packages, advisories: advisories, log: cmp.Or(log, slog.Default()), Holder: rand.Text(),
		Pairs: pairsAtOnce, shares: map[int64]progress{}}
}

// Run matches until ctx ends.
func (m *Matcher) Run(ctx context.Context) error {
	defer func() {
		if m.packages.Replicated() {
			_ = m.packages.ReleaseLease(context.WithoutCancel(ctx), matchLease, m.Holder) // it ends by itself
		}
	}()
	var renewed time.Time
	for ; ctx.Err() == nil; m.wait(ctx) {
		if m.packages.Replicated() && time.Since(renewed) > matchLife/4 {
			has, err := m.packages.AcquireLease(ctx, matchLease, m.Holder, matchLife)
			if err != nil || !has {
				m.adopted = false // whoever has it may be of the version before
				sleep(ctx, matchLife/10)
				continue
			}
			renewed = time.Now()
		}
		err := m.catchUpInTime(ctx)
		if err == nil {
			err = m.matchAll(ctx, renewed)
		}
		if err != nil && ctx.Err() == nil {
			renewed = time.Time{}
			if !errors.Is(err, fault.Aborted) {
				m.log.WarnContext(ctx, "packages are not compared with advisories", "err", err)
				sleep(ctx, time.Second)
			}
		}
	}
	return nil
}

// wait waits until this process has changed an advisory, or another one may have, or there
// may be new packages.
func (m *Matcher) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-m.advisories.Written:
	case <-time.After(matchEvery):
	}
}

// catchUpInTime adopts what the version before has compared, lists the ecosystems of
// advisories that were there before this version, and catches up an hour later. It does
// the last two once in the life of a database.
func (m *Matcher) catchUpInTime(ctx context.Context) error {
	if !m.adopted {
		if err := m.adopt(ctx); err != nil {
			return err
		}
		m.adopted = true
	}
	if !m.asked {
		_, err := m.packages.Setting(ctx, caughtUp)
		if errors.Is(err, fault.NotFound) {
			err = m.advisories.RecordEcosystems(ctx)
			m.catchUp = time.Now().Add(catchUpAfter)
		}
		if err != nil {
			return err
		}
		m.asked = true
	}
	if m.catchUp.IsZero() || time.Now().Before(m.catchUp) {
		return nil
	}
	if err := m.CatchUp(ctx); err != nil {
		return err
	}
	m.catchUp = time.Time{}
	return m.packages.SetSetting(ctx, caughtUp, []byte("1"))
}

// adopt puts advisories that the version before has compared into alias sets.
func (m *Matcher) adopt(ctx context.Context) error {
	for {
		did := 0
		err := m.write(ctx, func(t *store.Tx) (err error) {
			did, err = findingdb.In(t).AdoptAdvisories(ctx, changesAtOnce)
			return err
		})
		if err != nil || did == 0 {
			return err
		}
	}
}

// CatchUp has all packages compared with all advisories again.
func (m *Matcher) CatchUp(ctx context.Context) error {
	if err := m.advisories.RecordEcosystems(ctx); err != nil {
		return err
	}
	return m.packages.MatchAgain(ctx)
}

// matchAll matches until there is nothing left, or the lease must be renewed.
func (m *Matcher) matchAll(ctx context.Context, renewed time.Time) error {
	for !m.packages.Replicated() || time.Since(renewed) < matchLife/2 {
		did, err := m.Match(ctx)
		if err != nil || !did {
			return err
		}
	}
	return nil
}

// Match compares some packages and some advisories, and writes the events about some images
// that are new. It reports whether there were any.
func (m *Matcher) Match(ctx context.Context) (bool, error) {
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
			if err := t.RequireLease(ctx, matchLease, m.Holder); err != nil {
				return err
			}
		}
		return f(t)
	})
}

// matchPackages compares packages that are new, the oldest and the newest in turn, so that
// nobody waits for all that another has pushed.
func (m *Matcher) matchPackages(ctx context.Context) (bool, error) {
	fresh, err := m.packages.Unmatched(ctx, packagesAtOnce)
	if err != nil || len(fresh) == 0 {
		return false, err
	}
	want := findingdb.NewMatches()
	named := map[string][]vuln.Advisory{}
	pairs, begin := 0, time.Now()
	for i, p := range fresh {
		s := subjectOf(p)
		all, ok := named[s.name]
		if !ok {
			if all, err = m.advisories.AdvisoriesNaming(ctx, s.name); err != nil {
				return false, err
			}
			named[s.name] = all
		}
		for _, a := range all {
			s.match(a, want)
		}
		if pairs += len(all); pairs >= m.Pairs || time.Since(begin) > longTurn {
			fresh = fresh[:i+1]
			break
		}
	}
	return true, m.write(ctx, func(t *store.Tx) error {
		return findingdb.In(t).MatchPackages(ctx, fresh, want, func(c findingdb.Change) error { return m.writeEvents(ctx, t, c) })
	})
}

// matchAdvisories compares advisories that have changed: as many of an organization as its
// turn allows.
func (m *Matcher) matchAdvisories(ctx context.Context) (bool, error) {
	c, err := m.advisories.NextChanges(ctx, m.last, changesAtOnce)
	if err != nil || len(c.Advisories) == 0 {
		return false, err
	}
	m.last = c.Root
	share := m.progressOf(c)
	c = c.First(share.atOnce)
	want, done, err := m.compare(ctx, c.Advisories, share)
	if err != nil || want == nil {
		return true, err
	}
	err = m.write(ctx, func(t *store.Tx) error {
		tell := func(change findingdb.Change) error { return m.writeEvents(ctx, t, change) }
		if err := findingdb.In(t).MatchAdvisories(ctx, c.Advisories, *want, c.Sources, tell); err != nil || !done {
			return err
		}
		return advisorydb.DeleteChanges(ctx, t, c)
	})
	if err == nil {
		m.end(c.Root, share, *want, done)
	}
	return true, err
}

// A subject is a package as advisories speak of it: distributions speak of the source that
// it was built from.
type subject struct {
	id              int64
	ecosystem, name string
	query           version.Query
	known           bool // its version can be compared
}

func subjectOf(p findingdb.Known) subject {
	s := subject{id: p.ID, ecosystem: p.Ecosystem, name: cmp.Or(p.SourceName, p.Name)}
	v := p.Version
	if p.SourceName != "" {
		v = cmp.Or(p.SourceVersion, v)
	}
	query, err := version.NewQuery(p.Ecosystem, v)
	s.query, s.known = query, err == nil
	return s
}

// match adds a match to all if an advisory affects the package.
func (s subject) match(a vuln.Advisory, all findingdb.Matches) {
	if !s.known || !s.query.Affects(a, s.name) {
		return
	}
	key := store.Segment(a.UID)
	all.Ratings[findingdb.Match{Package: s.id, Root: store.Segment(a.UID.Root()), Advisory: key}] = findingdb.Rating{
		Score: int64(math.Round(finding.Score(a, s.name) * 10)), Fixed: version.Fixed(a, s.ecosystem, s.name),
	}
	all.Advisories[key] = findingdb.NamedAdvisory{UID: a.UID, Names: finding.AdvisoryNames(a)}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
