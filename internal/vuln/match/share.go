package match

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A progress is how far a Matcher is with the changed advisories of an organization. It is
// forgotten when the process ends; then the advisory that was begun is compared from the
// start.
type progress struct {
	atOnce int   // advisories
	change int64 // the first of the changes
	after  int64 // the package that it was last compared with; 0 if it was not begun
}

// progress returns the share of an organization with these changes. Usually all of them are
// compared with all packages at once. What another replica has done meanwhile is not begun
// here.
func (m *Matcher) progressOf(c advisorydb.Changes) progress {
	t, ok := m.shares[c.Root]
	if !ok {
		t.atOnce = changesAtOnce
	}
	if t.change != c.Number() {
		t.change, t.after = c.Number(), 0
	}
	if t.after > 0 { // those that came meanwhile are not begun
		t.atOnce = 1
	}
	return t
}

// end says where the next share begins.
func (m *Matcher) end(root int64, t progress, want findingdb.Matches, done bool) {
	t.after = want.Last
	if done {
		t = progress{atOnce: 2 * t.atOnce}
	}
	if m.shares[root] = t; t.atOnce >= changesAtOnce && t.after == 0 {
		delete(m.shares, root)
	}
}

// compare returns what matches advisories have, and reports whether those are all. It
// returns nil if there is too much to do for so many advisories: then the next share of the
// organization has fewer. One alone is compared with some of the packages at a time.
func (m *Matcher) compare(ctx context.Context, advisories []int64, t progress) (_ *findingdb.Matches, done bool, _ error) {
	all, err := m.advisories.AdvisoriesByKey(ctx, advisories)
	if err != nil {
		return nil, false, err
	}
	byName := map[string][]vuln.Advisory{}
	for _, a := range all {
		for _, name := range a.Names() {
			byName[name] = append(byName[name], a)
		}
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	last, err := m.packages.LastMatched(ctx, advisories, t.after, m.Pairs)
	if err != nil {
		return nil, false, err
	}
	subjects, err := m.packages.Subjects(ctx, names, t.after, m.Pairs+1)
	if err != nil {
		return nil, false, err
	}
	pairs := 0
	for _, p := range subjects {
		pairs += len(byName[subjectOf(p).name])
	}
	if heavy := last > 0 || pairs > m.Pairs; heavy && len(advisories) > 1 {
		m.shares[m.last] = progress{atOnce: max(1, min(t.atOnce, len(advisories))/8)}
		return nil, false, nil
	}
	if len(subjects) > m.Pairs && (last == 0 || subjects[m.Pairs-1].ID < last) {
		last = subjects[m.Pairs-1].ID
	}
	want := findingdb.NewMatches()
	want.After, want.Last = t.after, last
	for _, p := range subjects {
		if last > 0 && p.ID > last {
			break
		}
		s := subjectOf(p)
		for _, a := range byName[s.name] {
			s.match(a, want)
		}
	}
	return &want, last == 0, nil
}
