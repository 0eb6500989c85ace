package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/resource"
)

// advisoriesAsked is how many advisories are remembered for questions about
// packages.
const advisoriesAsked = 16_384

// AdvisoriesOf returns the advisories in reach that name a package and whose
// affected packages pass match, whole, in no particular order.
func (s *Store) AdvisoriesOf(ctx context.Context, r Reach, place resource.PlaceFilter, name string, match func([]resource.Affected) (bool, error)) (found []resource.Advisory, _ error) {
	sc := visible(false, r, place)
	if sc.empty() {
		return nil, nil
	}
	groups, err := s.holders(ctx, sc)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		all, err := s.naming(ctx, keyOf(g, artifactName, name))
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			hit, err := match(a.Affected)
			if err != nil {
				return nil, err
			}
			if hit {
				found = append(found, a)
			}
		}
	}
	return found, nil
}

// naming returns the advisories that have a name. Those that were read lately and
// have not changed are not read again: to decode one costs more than to find it.
func (s *Store) naming(ctx context.Context, key int64) (all []resource.Advisory, _ error) {
	var unknown []entry
	err := s.rows(ctx, `SELECT n.seg, n.update_ms FROM advisory_names AS n WHERE n.key = $1`, []any{key}, func(row scanner) (bool, error) {
		var e entry
		err := row.Scan(&e.seg, &e.updated)
		if a, ok := s.asked.Get(e.seg); ok && ms(a.UpdateTime) == e.updated {
			all = append(all, a)
		} else {
			unknown = append(unknown, e)
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	more, err := s.fetchAdvisories(ctx, unknown, true)
	for _, a := range more {
		s.asked.Add(segment(a.UID), a)
	}
	return append(all, more...), err
}

// holders returns the groups of a scope that have advisories.
func (s *Store) holders(ctx context.Context, sc scope) ([]resource.UID, error) {
	shelves, err := s.shelves(ctx, sc)
	return holders(shelves), err
}
