package advisorydb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// advisoriesCached is the number of advisories that are cached for queries by package. Each takes about 3 kB.
const advisoriesCached = 32_768

// MatchingAdvisories returns the advisories in reach that name a package and whose current affected packages (see
// vuln.Advisory.Current) pass match, in no particular order.
func (s *Store) MatchingAdvisories(
	ctx context.Context, r store.Reach, place resource.UIDFilter, name string,
	match func([]vuln.Affected) (bool, error),
) (found []vuln.Advisory, _ error) {
	sc := store.Visible(false, r, place)
	if sc.Empty() {
		return nil, nil
	}
	groups, err := s.generations(ctx, sc)
	if err != nil {
		return nil, err
	}
	var keys []int64
	for _, g := range groups {
		keys = append(keys, g.keys(artifactName, name)...)
	}
	named, err := s.advisoriesWithNameKeys(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, v := range named {
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

// A cachedAdvisory is the current form of an advisory (see vuln.Advisory.Current) in the cache.
type cachedAdvisory struct {
	history int64 // result of store.DB.History when the advisory was read
	updated int64 // update time of the advisory in milliseconds
	vuln.Advisory
}

// advisoriesWithNameKeys returns the current form of the advisories with one of the keys in advisory_names. It takes
// unchanged advisories from the cache, because decoding an advisory costs more than finding it.
func (s *Store) advisoriesWithNameKeys(ctx context.Context, keys []int64) (found []*cachedAdvisory, _ error) {
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
			found = append(found, v)
		} else {
			uncached = append(uncached, seg)
		}
		return false, err
	})
	if err != nil || len(uncached) == 0 {
		return found, err
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
		found = append(found, v)
		return false, nil
	})
	return found, err
}

// KeysByName returns the keys of the advisories in reach whose ID, alias or legacy ID is name. It adds the keys of all
// advisories that share an ID or alias with one of these.
func (s *Store) KeysByName(ctx context.Context, r store.Reach, name string) ([]int64, error) {
	sc := store.Visible(false, r, resource.UIDFilter{})
	if sc.Empty() {
		return nil, nil
	}
	parts, err := s.partitions(ctx, sc)
	if err != nil {
		return nil, err
	}
	generations, err := s.generations(ctx, sc)
	if err != nil {
		return nil, err
	}
	keys, err := s.keysWithNames(ctx, groupsOf(parts), generations, []string{name})
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	named, err := s.AdvisoriesByKey(ctx, keys)
	if err != nil {
		return nil, err
	}
	names := []string{name}
	for _, a := range named {
		names = append(append(names, a.ID), a.Aliases...)
	}
	slices.Sort(names)
	return s.keysWithNames(ctx, groupsOf(parts), generations, slices.Compact(names))
}

// HasAdvisories reports whether one of the groups has an advisory. Groups below them are not considered.
func (s *Store) HasAdvisories(ctx context.Context, groups []resource.UID) (bool, error) {
	keys := make([]int64, len(groups))
	for i, g := range groups {
		keys[i] = store.Segment(g)
	}
	q := store.Query{Engine: s.Engine}
	var n int
	err := s.Row(ctx, fmt.Sprintf(`SELECT count(*) FROM %s AS s WHERE EXISTS (SELECT 1 FROM advisories AS t
		WHERE t.parent = s.v)`, s.Engine.Unnest(&q, keys)), q.Args, &n)
	return n > 0, err
}

// recordBatch is the number of names that Records looks up with one statement.
const recordBatch = 500

// Records returns the records in reach that describe one of the named vulnerabilities, and not only fix it. Names are
// the ID, an alias or the legacy ID of a record. Withdrawn records are left out.
func (s *Store) Records(ctx context.Context, r store.Reach, names []string) (records []vuln.Advisory, _ error) {
	sc := store.Visible(false, r, resource.UIDFilter{})
	if sc.Empty() || len(names) == 0 {
		return nil, nil
	}
	parts, err := s.partitions(ctx, sc)
	if err != nil {
		return nil, err
	}
	generations, err := s.generations(ctx, sc)
	if err != nil {
		return nil, err
	}
	for batch := range slices.Chunk(names, recordBatch) {
		keys, err := s.keysWithNames(ctx, groupsOf(parts), generations, batch)
		if err != nil {
			return nil, err
		}
		found, err := s.AdvisoriesByKey(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, a := range found {
			if len(a.Fixes) == 0 && a.DeleteTime.IsZero() && !vuln.IsBugFix(a.ID) {
				records = append(records, a)
			}
		}
	}
	return records, nil
}

// keysWithNames returns the keys of the advisories whose ID, alias or legacy ID is one of names, each once, in order.
func (s *Store) keysWithNames(
	ctx context.Context, groups []resource.UID, generations []groupGenerations, names []string,
) ([]int64, error) {
	l := advisoryList{s: s, groups: groups, generations: generations, f: vuln.AdvisoryFilter{IDs: names}}
	keys, err := l.withIDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range []field{alias, legacyID} {
		aliased, err := l.withValue(ctx, keyedFilter{f, names})
		if err != nil {
			return nil, err
		}
		keys = append(keys, aliased...)
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// AdvisoriesByKey returns the current form (see vuln.Advisory.Current) of the advisories with these keys. It omits
// advisories that no longer exist.
func (s *Store) AdvisoriesByKey(ctx context.Context, keys []int64) ([]vuln.Advisory, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM advisories AS t WHERE t.seg IN (SELECT v FROM %s AS s)`, fullColumns,
		s.Engine.Unnest(&q, keys))
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (vuln.Advisory, error) {
		a, err := scanAdvisory(row, true)
		return a.Current(), err
	}, text, q.Args...)
}

// Authors returns the authors of the advisories with these keys, by key. It omits advisories that no longer exist.
func (s *Store) Authors(ctx context.Context, keys []int64) (map[int64]string, error) {
	return authors(ctx, s.Rows, s.Engine, keys)
}

// AuthorsIn is like Store.Authors, in a transaction.
func AuthorsIn(ctx context.Context, t *store.Tx, keys []int64) (map[int64]string, error) {
	return authors(ctx, t.Rows, t.DB.Engine, keys)
}

// authorBatch is the number of advisories whose authors are read with one statement.
const authorBatch = 500

func authors(ctx context.Context, read store.Reader, e engine.Engine, keys []int64) (map[int64]string, error) {
	byKey := map[int64]string{}
	for batch := range slices.Chunk(keys, authorBatch) {
		q := store.Query{Engine: e}
		err := read(ctx, fmt.Sprintf(`SELECT t.seg, t.body FROM advisories AS t WHERE t.seg IN (SELECT v FROM %s AS s)`,
			e.Unnest(&q, batch)), q.Args, func(row store.Scanner) (bool, error) {
			var key int64
			var body []byte
			if err := row.Scan(&key, &body); err != nil {
				return false, err
			}
			var a struct {
				Author string `json:"author"`
			}
			err := json.Unmarshal(body, &a)
			byKey[key] = a.Author
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	return byKey, nil
}

// AdvisoriesNaming returns the advisories of an organization that name a package. If root is empty, it
// considers all organizations.
func (s *Store) AdvisoriesNaming(
	ctx context.Context, name string, root resource.UID,
) (advisories []vuln.Advisory, _ error) {
	type pair struct {
		group      resource.UID
		generation generation
	}
	text, args := `SELECT grp, generation FROM advisory_generations`, []any(nil)
	if root != "" {
		text, args = text+` WHERE grp >= $1 AND grp < $2`, []any{string(root), string(root) + "0"}
	}
	pairs, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (p pair, err error) {
		err = row.Scan(&p.group, &p.generation)
		return p, err
	}, text, args...)
	if err != nil {
		return nil, err
	}
	keys := make([]int64, len(pairs))
	for i, p := range pairs {
		keys[i] = p.generation.key(keyOf(p.group, artifactName, name))
	}
	found, err := s.advisoriesWithNameKeys(ctx, keys)
	for _, v := range found {
		advisories = append(advisories, v.Advisory)
	}
	return advisories, err
}
