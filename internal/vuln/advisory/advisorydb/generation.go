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

// A generation is a number that identifies the advisories of a group that were written at about the same time. Their
// keys are adjacent in every index, so that an import changes few pages, however many advisories exist. In return, a
// lookup of a value must look in every generation. Generations are rows of the table advisory_generations.
type generation int64

// generationSize is the approximate number of advisories in a generation. The index of their keys takes a few
// megabytes, which fit into the writer's memory.
const generationSize = 131_072

// key returns the index key of a value in a generation, from the value's hash (see keyOf). The first ten bits of the
// key are the low bits of the generation. With more than 1,024 generations, some of them share pages of the index,
// which is harmless.
func (g generation) key(hash int64) int64 {
	if g < 0 { // the advisories were written before generations existed
		return hash
	}
	return int64(uint64(g)<<54 | uint64(hash)>>10)
}

// groupGenerations are the generations of a group's advisories.
type groupGenerations struct {
	group       resource.UID
	generations []generation
}

// keys returns the index keys of a field's value, one for each generation.
func (gg groupGenerations) keys(f field, value string) []int64 {
	hash := keyOf(gg.group, f, value)
	keys := make([]int64, len(gg.generations))
	for i, g := range gg.generations {
		keys[i] = g.key(hash)
	}
	return keys
}

// generations returns the generations of all groups in a scope that have advisories, ordered by group.
func (s *Store) generations(ctx context.Context, sc store.Scope) (groups []groupGenerations, _ error) {
	byGroup := map[resource.UID][]generation{}
	for _, c := range groupConditions(sc) {
		err := s.Rows(ctx, `SELECT grp, generation FROM advisory_generations WHERE `+c.text, c.args,
			func(row store.Scanner) (bool, error) {
				var group resource.UID
				var g generation
				err := row.Scan(&group, &g)
				byGroup[group] = append(byGroup[group], g)
				return false, err
			})
		if err != nil {
			return nil, err
		}
	}
	for group, generations := range byGroup {
		slices.Sort(generations)
		groups = append(groups, groupGenerations{group, slices.Compact(generations)})
	}
	slices.SortFunc(groups, func(a, b groupGenerations) int { return cmp.Compare(a.group, b.group) })
	return groups, nil
}

// generation returns the generation in which n new advisories of a group are written. If n is small, it does not add n
// to the size of the generation, so that small writes do not wait for each other.
func (t Tx) generation(ctx context.Context, group resource.UID, n int) (generation, error) {
	var last generation
	var size int64
	err := t.Row(ctx, `SELECT generation, n FROM advisory_generations WHERE grp = $1
		ORDER BY generation DESC LIMIT 1`, []any{string(group)},
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
	return last, t.Later(ctx, `INSERT INTO advisory_generations (grp, generation, n) VALUES ($1, $2, $3)
		ON CONFLICT (grp, generation) DO UPDATE SET n = advisory_generations.n + excluded.n`, string(group), int64(last), n)
}
