package advisorydb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// An era is a stretch of the time in which a group's advisories were written.
// The keys of one are neighbours in every index, so that an import changes few
// pages, however much there is already; the price is a look into each era for
// what has a key.
type generation int64

// eraSize is how many advisories an era has, about: an index of their keys is
// some megabytes, which the writer has in memory.
const generationSize = 131_072

// key is that of a value in an era. Ten bits are the era's; there may be as many
// again, which share pages and nothing else.
func (e generation) key(of int64) int64 {
	if e < 0 { // from before there were any
		return of
	}
	return int64(uint64(e)<<54 | uint64(of)>>10)
}

// A holding is a group that has advisories, and the eras they are of.
type groupGenerations struct {
	group       resource.UID
	generations []generation
}

// keys are those of a value of a field in each era.
func (h groupGenerations) keys(f field, value string) []int64 {
	of := keyOf(h.group, f, value)
	keys := make([]int64, len(h.generations))
	for i, e := range h.generations {
		keys[i] = e.key(of)
	}
	return keys
}

// holdings returns the groups of a scope that have advisories, in order.
func (s *Store) generations(ctx context.Context, sc store.Scope) (all []groupGenerations, _ error) {
	eras := map[resource.UID][]generation{}
	for _, at := range groupConditions(sc) {
		err := s.Rows(ctx, `SELECT grp, era FROM advisory_eras WHERE `+at.text, at.args, func(row store.Scanner) (bool, error) {
			var g resource.UID
			var e generation
			err := row.Scan(&g, &e)
			eras[g] = append(eras[g], e)
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	for g, of := range eras {
		slices.Sort(of)
		all = append(all, groupGenerations{g, slices.Compact(of)})
	}
	slices.SortFunc(all, func(a, b groupGenerations) int { return cmp.Compare(a.group, b.group) })
	return all, nil
}

// era returns the one in which n new advisories of a group are written. A few are
// not counted, so that their writers need not wait for each other.
func (t Tx) generation(ctx context.Context, group resource.UID, n int) (generation, error) {
	var last generation
	var size int64
	err := t.Row(ctx, `SELECT era, n FROM advisory_eras WHERE grp = $1 ORDER BY era DESC LIMIT 1`, []any{string(group)}, &last, &size)
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
