package advisorydb

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// advisoriesCached is how many advisories are cached for queries by package. One
// takes about 3 kB.
const advisoriesCached = 32_768

// AdvisoriesOf returns the advisories in reach that name a package and whose
// affected packages, as their latest event leaves them, pass match, in no
// particular order.
func (s *Store) AdvisoriesOf(
	ctx context.Context, r store.Reach, place resource.UIDFilter, name string,
	match func([]vuln.Affected) (bool, error),
) (found []vuln.Advisory, _ error) {
	sc := store.Visible(false, r, place)
	if sc.Empty() {
		return nil, nil
	}
	holdings, err := s.generations(ctx, sc)
	if err != nil {
		return nil, err
	}
	var keys []int64
	for _, h := range holdings {
		keys = append(keys, h.keys(artifactName, name)...)
	}
	all, err := s.withKeys(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		hit, err := match(v.Affected)
		if err != nil {
			return nil, err
		}
		if hit {
			found = append(found, v.Advisory)
		}
	}
	return found, nil
}

// A cachedAdvisory is an advisory in the cache, as its latest event leaves it.
type cachedAdvisory struct {
	history int64 // of the database
	updated int64
	vuln.Advisory
}

// withKeys returns the advisories that have one of the keys, from the cache if they
// have not changed: to decode one costs more than to find it.
func (s *Store) withKeys(ctx context.Context, keys []int64) (all []*cachedAdvisory, _ error) {
	var uncached []int64
	history := s.History()
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT n.seg, n.update_ms FROM %s AS s CROSS JOIN advisory_names AS n WHERE n.key = s.v`,
		s.Engine.Unnest(&q, keys))
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var seg, updated int64
		err := row.Scan(&seg, &updated)
		v, ok := s.advisories.Get(seg)
		ok = ok && v.history == history && v.updated == updated
		s.Lookups.Count(ok)
		if ok {
			all = append(all, v)
		} else {
			uncached = append(uncached, seg)
		}
		return false, err
	})
	if err != nil || len(uncached) == 0 {
		return all, err
	}
	q = store.Query{Engine: s.Engine}
	text = fmt.Sprintf(`SELECT %s FROM advisories AS t WHERE t.seg IN (SELECT v FROM %s AS s)`, fullColumns,
		s.Engine.Unnest(&q, uncached))
	err = s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		a, err := scanAdvisory(row, true)
		if err != nil {
			return false, err
		}
		v := &cachedAdvisory{history, store.MS(a.UpdateTime), a.Current()}
		s.advisories.Add(store.Segment(a.UID), v)
		all = append(all, v)
		return false, nil
	})
	return all, err
}
