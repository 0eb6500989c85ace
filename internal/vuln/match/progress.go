package match

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A progress records which changed advisories of an organization a Matcher has compared. It is only in memory. If the
// process ends, an advisory that was partly compared is compared from the start.
type progress struct {
	batch  int   // maximum number of advisories per turn
	change int64 // sequence number of the organization's first change
	after  int64 // last package with which the first advisory was compared; 0 if there is none
}

// progressOf returns the progress of an organization that has the changes c. Usually all changes are compared with all
// packages in one turn. If another replica has completed the change for which progress was recorded, this progress is
// dropped.
func (m *Matcher) progressOf(c advisorydb.Changes) progress {
	t, ok := m.progress[c.Root]
	if !ok {
		t.batch = changesAtOnce
	}
	if t.change != c.Number() {
		t.change, t.after = c.Number(), 0
	}
	if t.after > 0 { // only the first advisory is compared, and the other changes wait
		t.batch = 1
	}
	return t
}

// finishTurn stores where the next turn of the organization begins.
func (m *Matcher) finishTurn(root int64, t progress, want findingdb.Matches, done bool) {
	t.after = want.Last
	if done {
		t = progress{batch: 2 * t.batch}
	}
	if m.progress[root] = t; t.batch >= changesAtOnce && t.after == 0 {
		delete(m.progress, root)
	}
}

// compare returns the matches of advisories, and reports whether these are all matches. If the comparison is too much
// work for one turn, it returns nil, and the next turn of the organization has fewer advisories. A single advisory is
// compared with some of the packages in each turn. jars are the Java archives whose Maven package may have changed.
func (m *Matcher) compare(
	ctx context.Context, advisories []int64, t progress,
) (_ *findingdb.Matches, jars []jar, done bool, _ error) {
	changed, err := m.advisories.AdvisoriesByKey(ctx, advisories)
	if err != nil {
		return nil, nil, false, err
	}
	maven := m.mavenNames(rootOf(changed))
	byName := map[string][]vuln.Advisory{}
	for _, a := range changed {
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
		return nil, nil, false, err
	}
	subjects, err := m.packages.Subjects(ctx, append(names, artifacts(names)...), t.after, m.Pairs+1)
	if err != nil {
		return nil, nil, false, err
	}
	candidates := make([]candidate, len(subjects))
	pairs := 0
	for i, p := range subjects {
		if candidates[i], err = maven.candidate(ctx, p); err != nil {
			return nil, nil, false, err
		}
		for _, name := range candidates[i].named() {
			pairs += len(byName[name])
		}
	}
	if heavy := last > 0 || pairs > m.Pairs; heavy && len(advisories) > 1 {
		m.progress[m.last] = progress{batch: max(1, min(t.batch, len(advisories))/8)}
		return nil, nil, false, nil
	}
	if len(subjects) > m.Pairs && (last == 0 || subjects[m.Pairs-1].ID < last) {
		last = subjects[m.Pairs-1].ID
	}
	want := findingdb.NewMatches()
	want.After, want.Last = t.after, last
	for i, p := range subjects {
		if last > 0 && p.ID > last {
			break
		}
		if j, ok := candidates[i].(jar); ok { // a further Maven package with its name may change what the archive is
			jars = append(jars, j)
		}
		for _, name := range candidates[i].named() {
			for _, a := range byName[name] {
				candidates[i].match(a, want)
			}
		}
	}
	return &want, jars, last == 0, nil
}
