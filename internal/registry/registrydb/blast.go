package registrydb

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
)

// dense is from how many images of a chunk on all of it is read.
const dense = bitmap.Size / 4

// RepoImages returns how many of the images with these numbers each repo has. The numbers
// are in order.
func (s *Store) RepoImages(ctx context.Context, numbers []int64) (map[resource.UID]int, error) {
	all := map[resource.UID]int{}
	err := s.Snapshot(ctx, func(read store.Reader) error {
		byRepo, err := s.countByRepo(ctx, read, numbers)
		if err != nil {
			return err
		}
		q := store.Query{Engine: s.Engine}
		return read(ctx, fmt.Sprintf(`SELECT r.seg, r.uid FROM %s AS s CROSS JOIN repos AS r WHERE r.seg = s.v`,
			s.Engine.Unnest(&q, slices.Collect(maps.Keys(byRepo)))), q.Args, func(row store.Scanner) (bool, error) {
			var repo int64
			var uid resource.UID
			err := row.Scan(&repo, &uid)
			all[uid] = byRepo[repo]
			return false, err
		})
	})
	return all, err
}

// countByRepo is RepoImages by the segments of repos.
func (s *Store) countByRepo(ctx context.Context, read store.Reader, numbers []int64) (map[int64]int, error) {
	all := map[int64]int{}
	var sparse []int64
	for _, of := range byChunk(numbers) {
		if len(of) < dense {
			sparse = append(sparse, of...)
			continue
		}
		next := 0
		err := read(ctx, `SELECT number, repo FROM images WHERE number >= $1 AND number <= $2 ORDER BY number`,
			[]any{of[0], of[len(of)-1]}, func(row store.Scanner) (bool, error) {
				var number, repo int64
				if err := row.Scan(&number, &repo); err != nil {
					return false, err
				}
				for next < len(of) && of[next] < number {
					next++
				}
				if next < len(of) && of[next] == number {
					all[repo]++
				}
				return false, nil
			})
		if err != nil {
			return nil, err
		}
	}
	q := store.Query{Engine: s.Engine}
	return all, read(ctx, fmt.Sprintf(`SELECT i.repo FROM %s AS s CROSS JOIN images AS i WHERE i.number = s.v`,
		s.Engine.Unnest(&q, sparse)), q.Args, func(row store.Scanner) (bool, error) {
		var repo int64
		err := row.Scan(&repo)
		all[repo]++
		return false, err
	})
}

// byChunk divides numbers, which are in order.
func byChunk(numbers []int64) (all [][]int64) {
	for start := 0; start < len(numbers); {
		chunk, _ := bitmap.At(numbers[start])
		end := start
		for end < len(numbers) && numbers[end] < (chunk+1)*bitmap.Size {
			end++
		}
		all = append(all, numbers[start:end])
		start = end
	}
	return all
}

// UnknownImages returns how many images in groups, or repos, wait to be inspected, and how
// many are not understood.
func (s *Store) UnknownImages(ctx context.Context, reach []resource.UID) (waiting, unclear int, _ error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT i.uid, i.state, count(*) FROM %s AS s CROSS JOIN images AS i
		WHERE i.root = s.v AND (i.state = 0 OR i.state = 2) GROUP BY i.uid, i.state`, s.Engine.Unnest(&q, rootsOf(reach)))
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var repo resource.UID
		var state registry.ImageState
		var n int
		if err := row.Scan(&repo, &state, &n); err != nil {
			return false, err
		}
		switch {
		case !store.Covered(reach, repo):
		case state == registry.ImageWaiting:
			waiting += n
		default:
			unclear += n
		}
		return false, nil
	})
	return waiting, unclear, err
}

func rootsOf(reach []resource.UID) (all []int64) {
	for _, g := range reach {
		all = append(all, store.Segment(g.Root()))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// An ImageTag is a tag that stands for an image, or for an index that lists it.
type ImageTag struct {
	Repo   resource.UID
	Name   string
	Digest string // that the tag stands for
}

// ImageTags returns the tags that stand for images, by their numbers, each once. Only a tag
// of an index can stand for several of them.
func (s *Store) ImageTags(ctx context.Context, numbers []int64) ([]ImageTag, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT i.uid, t.name, t.digest FROM %s AS s CROSS JOIN images AS i CROSS JOIN tags AS t
		WHERE i.number = s.v AND t.digest = i.digest AND t.parent = i.repo
		UNION ALL SELECT DISTINCT i.uid, t.name, t.digest FROM %s AS s CROSS JOIN images AS i CROSS JOIN manifest_refs AS r
		CROSS JOIN tags AS t WHERE i.number = s.v AND r.repo = i.repo AND r.child = i.digest AND t.digest = r.digest
		AND t.parent = r.repo`, s.Engine.Unnest(&q, numbers), s.Engine.Unnest(&q, numbers))
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (t ImageTag, err error) {
		err = row.Scan(&t.Repo, &t.Name, &t.Digest)
		return t, err
	}, text, q.Args...)
}

// Pullers returns who has pulled the images with these numbers since a time, and when each
// did last. The identity of those who need none is "".
func (s *Store) Pullers(ctx context.Context, numbers []int64, since time.Time) (map[resource.UID]time.Time, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT p.identity, max(p.create_ms) FROM %s AS s CROSS JOIN images AS i CROSS JOIN pulls AS p
		WHERE i.number = s.v AND p.digest = i.digest AND p.uid >= i.uid || '/' AND p.uid < i.uid || '0' AND NOT p.push
		AND p.create_ms >= %s GROUP BY p.identity`, s.Engine.Unnest(&q, numbers), q.Arg(store.MS(since)))
	all := map[resource.UID]time.Time{}
	return all, s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var identity resource.UID
		var at int64
		err := row.Scan(&identity, &at)
		all[identity] = store.FromMS(at)
		return false, err
	})
}

// A PullerSearch asks who of an organization has pulled one of many images, of which the
// caller has too many to look for the pulls of each. It looks at each identity's pulls
// from the last one back, until it finds one.
type PullerSearch struct {
	Root  resource.UID
	Since time.Time
	Has   func(number int64) bool
	Most  int // records to look at
}

// SearchPullers is like Pullers. It reports false if it has looked at too many records
// before it was done.
func (s *Store) SearchPullers(ctx context.Context, f PullerSearch) (all map[resource.UID]time.Time, done bool, _ error) {
	all = map[resource.UID]time.Time{}
	identities, err := s.pullersFrom(ctx, f)
	if err != nil {
		return nil, false, err
	}
	left := f.Most
	for some := range slices.Chunk(identities, 500) {
		missing, err := s.lastPulls(ctx, f, some, all, &left)
		if err != nil {
			return nil, false, err
		}
		for _, identity := range missing {
			if err := s.allPulls(ctx, f, identity, all, &left); err != nil {
				return nil, false, err
			}
		}
		if left <= 0 {
			return all, false, nil
		}
	}
	return all, true, nil
}

// pullersFrom returns the identities that have ever pulled from an organization, by one
// step in an index each.
func (s *Store) pullersFrom(ctx context.Context, f PullerSearch) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `WITH RECURSIVE who (identity) AS (
			SELECT min(identity) FROM pulls WHERE a1 = $1
			UNION ALL SELECT (SELECT min(p.identity) FROM pulls AS p WHERE p.a1 = $1 AND p.identity > w.identity)
			FROM who AS w WHERE w.identity IS NOT NULL)
		SELECT identity FROM who WHERE identity IS NOT NULL LIMIT $2`, store.Segment(f.Root), f.Most)
}

// newest is how many pulls of each identity are looked at together.
const newest = 16

const pullsOfIdentity = ` FROM pulls AS p JOIN images AS i ON i.repo = p.parent AND i.digest = p.digest
	WHERE p.a1 = $1 AND p.create_ms >= $2 AND NOT p.push AND p.identity = `

// lastPulls looks at the newest pulls of identities. It returns those who have more, none
// of which was found.
func (s *Store) lastPulls(
	ctx context.Context, f PullerSearch, identities []string, found map[resource.UID]time.Time, left *int,
) (missing []string, _ error) {
	seen := map[string]int{}
	look := func(row store.Scanner) (bool, error) {
		var identity string
		var at int64
		var number *int64
		if err := row.Scan(&identity, &at, &number); err != nil {
			return false, err
		}
		seen[identity]++
		*left--
		if last, ok := found[resource.UID(identity)]; number != nil && f.Has(*number) && (!ok || last.Before(store.FromMS(at))) {
			found[resource.UID(identity)] = store.FromMS(at)
		}
		return false, nil
	}
	if s.Engine.Postgres {
		q := store.Query{Engine: s.Engine, Args: []any{store.Segment(f.Root), store.MS(f.Since)}}
		text := fmt.Sprintf(`SELECT s.v, l.create_ms, l.number FROM %s AS s CROSS JOIN LATERAL (SELECT p.create_ms, i.number%ss.v
			ORDER BY p.create_ms DESC LIMIT %d) AS l`, s.Engine.Unnest(&q, identities), pullsOfIdentity, newest)
		if err := s.Rows(ctx, text, q.Args, look); err != nil {
			return nil, err
		}
	} else {
		for _, identity := range identities {
			err := s.Rows(ctx, `SELECT p.identity, p.create_ms, i.number`+pullsOfIdentity+`$3 ORDER BY p.create_ms DESC LIMIT $4`,
				[]any{store.Segment(f.Root), store.MS(f.Since), identity, newest}, look)
			if err != nil {
				return nil, err
			}
		}
	}
	for _, identity := range identities {
		if _, ok := found[resource.UID(identity)]; !ok && seen[identity] == newest {
			missing = append(missing, identity)
		}
	}
	return missing, nil
}

// allPulls looks at the pulls of an identity until it finds one.
func (s *Store) allPulls(
	ctx context.Context, f PullerSearch, identity string, found map[resource.UID]time.Time, left *int,
) error {
	return s.Rows(ctx, `SELECT p.create_ms, i.number`+pullsOfIdentity+`$3 ORDER BY p.create_ms DESC`,
		[]any{store.Segment(f.Root), store.MS(f.Since), identity}, func(row store.Scanner) (bool, error) {
			var at int64
			var number *int64
			if err := row.Scan(&at, &number); err != nil {
				return false, err
			}
			*left--
			if number == nil || !f.Has(*number) {
				return *left <= 0, nil
			}
			found[resource.UID(identity)] = store.FromMS(at)
			return true, nil
		})
}

// MixedPulls returns from how many of the repos several images were pulled since a time by
// clients that are recorded together, so that nobody knows which.
func (s *Store) MixedPulls(ctx context.Context, repos []resource.UID, since time.Time) (n int, _ error) {
	q := store.Query{Engine: s.Engine}
	err := s.Row(ctx, fmt.Sprintf(`SELECT count(*) FROM %s AS s WHERE EXISTS (SELECT 1 FROM pulls AS p WHERE p.digest = ''
		AND p.uid >= s.v || '/' AND p.uid < s.v || '0' AND NOT p.push AND p.create_ms >= %s)`, s.Engine.Unnest(&q, repos),
		q.Arg(store.MS(since))), q.Args, &n)
	return n, err
}

// NoteLostPulls records that records of pulls were lost.
func (s *Store) NoteLostPulls(ctx context.Context, n int64) error {
	_, err := s.Exec(ctx, `INSERT INTO pull_losses (n, at_ms) VALUES ($1, $2)`, n, store.MS(s.Time()))
	return err
}

// PullsLost reports whether records of pulls were lost since a time, and when they last
// were.
func (s *Store) PullsLost(ctx context.Context, since time.Time) (last time.Time, lost bool, _ error) {
	var at *int64
	err := s.Row(ctx, `SELECT max(at_ms) FROM pull_losses WHERE at_ms >= $1`, []any{store.MS(since)}, &at)
	if err != nil || at == nil {
		return last, false, err
	}
	return store.FromMS(*at), true, nil
}

// Deployments returns how the images of repos are deployed, of those of which that is
// noted.
func (s *Store) Deployments(ctx context.Context, repos []resource.UID) (all []registry.Deployment, _ error) {
	q := store.Query{Engine: s.Engine}
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (d registry.Deployment, err error) {
		var uid resource.UID
		var detail string
		if err = row.Scan(&uid, &detail); err == nil {
			err = json.Unmarshal([]byte(detail), &d)
		}
		d.UID = uid
		return d, err
	}, fmt.Sprintf(`SELECT d.uid, d.detail FROM %s AS s CROSS JOIN deployments AS d WHERE d.uid = s.v`,
		s.Engine.Unnest(&q, repos)), q.Args...)
}
