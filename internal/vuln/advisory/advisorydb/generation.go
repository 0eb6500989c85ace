package advisorydb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A generation is the advisories of a group that were written at about the same
// time. Their keys are next to each other in every index, so that an import changes
// few pages, however much there is already; in return, whoever looks for a key has
// to look in every generation. The schema calls a generation an era, and its table
// is advisory_eras.
type generation int64

// generationSize is about how many advisories a generation has. An index of their
// keys takes some megabytes, which the writer has in memory.
const generationSize = 131_072

// key returns the key of a value in a generation. Its first ten bits are those of
// the generation. If there are more generations than that, some share pages of the
// index, and nothing else.
func (e generation) key(of int64) int64 {
	if e < 0 { // from before there were any
		return of
	}
	return int64(uint64(e)<<54 | uint64(of)>>10)
}

// groupGenerations are the generations of the advisories of a group.
type groupGenerations struct {
	group       resource.UID
	generations []generation
}

// keys returns the keys of a value of a field in each generation.
func (h groupGenerations) keys(f field, value string) []int64 {
	of := keyOf(h.group, f, value)
	keys := make([]int64, len(h.generations))
	for i, e := range h.generations {
		keys[i] = e.key(of)
	}
	return keys
}

// generations returns the groups of a scope that have advisories, in order.
func (s *Store) generations(ctx context.Context, sc store.Scope) (all []groupGenerations, _ error) {
	byGroup := map[resource.UID][]generation{}
	for _, at := range groupConditions(sc) {
		err := s.Rows(ctx, `SELECT grp, era FROM advisory_eras WHERE `+at.text, at.args,
			func(row store.Scanner) (bool, error) {
				var g resource.UID
				var e generation
				err := row.Scan(&g, &e)
				byGroup[g] = append(byGroup[g], e)
				return false, err
			})
		if err != nil {
			return nil, err
		}
	}
	for g, of := range byGroup {
		slices.Sort(of)
		all = append(all, groupGenerations{g, slices.Compact(of)})
	}
	slices.SortFunc(all, func(a, b groupGenerations) int { return cmp.Compare(a.group, b.group) })
	return all, nil
}

// generation returns the one in which n new advisories of a group are written. If
// they are few, they are not counted, so that writers do not wait for each other.
func (t Tx) generation(ctx context.Context, group resource.UID, n int) (generation, error) {
	var last generation
	var size int64
	err := t.Row(ctx, `SELECT era, n FROM advisory_eras WHERE grp = $1 ORDER BY era DESC LIMIT 1`, []any{string(group)},
		&last, &size)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	begins := err != nil
	if last < 0 || size >= t.generationSize {
		last, begins = last+1, true
	}
	if !begins && int64(n) < t.generationSize/256 {
		return last, nil
	}
	return last, t.Later(ctx, `INSERT INTO advisory_eras (grp, era, n) VALUES ($1, $2, $3)
		ON CONFLICT (grp, era) DO UPDATE SET n = advisory_eras.n + excluded.n`, string(group), int64(last), n)
}
