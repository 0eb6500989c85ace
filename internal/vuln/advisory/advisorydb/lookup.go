package advisorydb

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// advisoriesCached is how many advisories are cached for queries by package. One
// takes about 3 kB.
const advisoriesCached = 32_768

// MatchingAdvisories returns the advisories in reach that name a package and whose
// affected packages, as their latest event leaves them, pass match, in no
// particular order.
func (s *Store) MatchingAdvisories(
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

// Called returns the keys of the advisories in reach that have a name, as their ID or one
// of their aliases, or that share a name with one of these.
func (s *Store) KeysByName(ctx context.Context, r store.Reach, name string) ([]int64, error) {
	sc := store.Visible(false, r, resource.UIDFilter{})
	if sc.Empty() {
		return nil, nil
	}
	parts, err := s.partitions(ctx, sc)
	if err != nil {
		return nil, err
	}
	in, err := s.generations(ctx, sc)
	if err != nil {
		return nil, err
	}
	keys, err := s.called(ctx, groupsOf(parts), in, []string{name})
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	all, err := s.AdvisoriesByKey(ctx, keys)
	if err != nil {
		return nil, err
	}
	names := []string{name}
	for _, a := range all {
		names = append(append(names, a.ID), a.Aliases...)
	}
	slices.Sort(names)
	return s.called(ctx, groupsOf(parts), in, slices.Compact(names))
}

func (s *Store) called(
	ctx context.Context, groups []resource.UID, in []groupGenerations, names []string,
) ([]int64, error) {
	l := advisoryList{s: s, groups: groups, generations: in, f: vuln.AdvisoryFilter{IDs: names}}
	all, err := l.withIDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range []field{alias, legacyID} {
		more, err := l.withValue(ctx, keyedFilter{f, names})
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// WithKeys returns advisories by their keys, as their latest event leaves them. One that
// is gone is left out.
func (s *Store) AdvisoriesByKey(ctx context.Context, keys []int64) ([]vuln.Advisory, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM advisories AS t WHERE t.seg IN (SELECT v FROM %s AS s)`, fullColumns,
		s.Engine.Unnest(&q, keys))
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (vuln.Advisory, error) {
		a, err := scanAdvisory(row, true)
		return a.Current(), err
	}, text, q.Args...)
}

// Naming returns the advisories of all organizations that name a package.
func (s *Store) AdvisoriesNaming(ctx context.Context, name string) (all []vuln.Advisory, _ error) {
	type pair struct {
		group resource.UID
		in    generation
	}
	pairs, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (p pair, err error) {
		err = row.Scan(&p.group, &p.in)
		return p, err
	}, `SELECT grp, era FROM advisory_eras`)
	if err != nil {
		return nil, err
	}
	keys := make([]int64, len(pairs))
	for i, p := range pairs {
		keys[i] = p.in.key(keyOf(p.group, artifactName, name))
	}
	found, err := s.withKeys(ctx, keys)
	for _, v := range found {
		all = append(all, v.Advisory)
	}
	return all, err
}
