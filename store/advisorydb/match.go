package advisorydb

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// advisoriesCached is how many advisories are cached for queries by package. One
// takes about 3 kB.
const advisoriesCached = 32_768

// AdvisoriesOf returns the advisories in reach that name a package and whose
// affected packages pass match, in no particular order.
func (s *Store) AdvisoriesOf(
	ctx context.Context, r store.Reach, place resource.UIDFilter, name string,
	match func([]resource.Affected) (bool, error),
) (found []resource.Advisory, _ error) {
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
		hit, err := match(v.affected)
		if err != nil {
			return nil, err
		}
		if !hit {
			continue
		}
		a, err := v.advisory()
		if err != nil {
			return nil, err
		}
		found = append(found, a)
	}
	return found, nil
}

// A cachedAdvisory is an advisory in the cache. Its affected packages are decoded
// already; the rest is decoded when it is needed.
type cachedAdvisory struct {
	history  int64 // of the database
	updated  int64
	affected []resource.Affected

	once sync.Once
	row  advisoryRow // until it is decoded
	a    resource.Advisory
	err  error
}

func (v *cachedAdvisory) advisory() (resource.Advisory, error) {
	v.once.Do(func() {
		v.a, v.err = v.row.advisory()
		v.a.Affected, v.row = v.affected, advisoryRow{}
	})
	return v.a, v.err
}

// withKeys returns the advisories that have one of the keys, from the cache if they
// have not changed: to decode one costs more than to find it.
func (s *Store) withKeys(ctx context.Context, keys []int64) (all []*cachedAdvisory, _ error) {
	var uncached []int64
	history := s.History()
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT n.seg, n.update_ms FROM %s AS s CROSS JOIN advisory_names AS n WHERE n.key = s.v`,
		s.Engine.Each(&q, keys))
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
		s.Engine.Each(&q, uncached))
	err = s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var r advisoryRow
		if err := r.scan(row, true); err != nil {
			return false, err
		}
		affected, err := r.packages()
		v := &cachedAdvisory{history: history, updated: r.updated, affected: affected, row: r}
		v.row.affected = ""
		s.advisories.Add(store.Segment(r.uid), v)
		all = append(all, v)
		return false, err
	})
	return all, err
}
