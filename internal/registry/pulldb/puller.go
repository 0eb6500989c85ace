package pulldb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Pullers returns the identities that have pulled one of the images with these numbers since a time, with the time of
// the last pull of each. The key for anonymous pulls is "".
func (s *Store) Pullers(ctx context.Context, numbers []int64, since time.Time) (map[resource.UID]time.Time, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT p.identity, max(p.create_ms) FROM %s AS s CROSS JOIN `+imagedb.ImageRows+` AS i
		CROSS JOIN `+registrydb.PullRows+` AS p
		WHERE i.number = s.v AND p.digest = i.digest AND p.uid >= i.uid || '/' AND p.uid < i.uid || '0' AND NOT p.push
		AND p.create_ms >= %s GROUP BY p.identity`, s.Engine.Unnest(&q, numbers), q.Arg(store.MS(since)))
	last := map[resource.UID]time.Time{}
	return last, s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var identity resource.UID
		var ms int64
		err := row.Scan(&identity, &ms)
		last[identity] = store.FromMS(ms)
		return false, err
	})
}

// A PullerSearch finds the identities that have pulled, from an organization, one of the images that Has selects. It
// is used if there are too many images for Pullers, which looks up each image. The search reads the pulls of each
// identity, the newest first, until it finds a selected image.
type PullerSearch struct {
	Root  resource.UID
	Since time.Time
	Has   func(number int64) bool
	Most  int // largest number of records to read
}

// SearchPullers returns the identities that f finds, with the time of the last pull of each. The second result is
// false if the search stopped after f.Most records.
func (s *Store) SearchPullers(
	ctx context.Context, f PullerSearch,
) (found map[resource.UID]time.Time, done bool, _ error) {
	found = map[resource.UID]time.Time{}
	identities, err := s.pullersFrom(ctx, f)
	if err != nil {
		return nil, false, err
	}
	left := f.Most
	for chunk := range slices.Chunk(identities, 500) {
		missing, err := s.lastPulls(ctx, f, chunk, found, &left)
		if err != nil {
			return nil, false, err
		}
		for _, identity := range missing {
			if err := s.allPulls(ctx, f, identity, found, &left); err != nil {
				return nil, false, err
			}
		}
		if left <= 0 {
			return found, false, nil
		}
	}
	return found, true, nil
}

// pullersFrom returns the identities that have ever pulled from an organization. It takes one index lookup for each
// identity.
func (s *Store) pullersFrom(ctx context.Context, f PullerSearch) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `WITH RECURSIVE who (identity) AS (
			SELECT min(identity) FROM `+registrydb.PullRows+` AS pulls WHERE a1 = $1
			UNION ALL SELECT (SELECT min(p.identity) FROM `+registrydb.PullRows+` AS p WHERE p.a1 = $1
			AND p.identity > w.identity)
			FROM who AS w WHERE w.identity IS NOT NULL)
		SELECT identity FROM who WHERE identity IS NOT NULL LIMIT $2`, store.Segment(f.Root), f.Most)
}

// newest is the number of pulls of each identity that lastPulls reads.
const newest = 16

const pullsOfIdentity = ` FROM ` + registrydb.PullRows + ` AS p JOIN ` + imagedb.ImageRows + ` AS i
	ON i.repo = p.parent AND i.digest = p.digest
	WHERE p.a1 = $1 AND p.create_ms >= $2 AND NOT p.push AND p.identity = `

// lastPulls searches the newest pulls of each identity, and adds the pulls of selected images to found. It returns
// the identities for which it found none and that may have more pulls.
func (s *Store) lastPulls(
	ctx context.Context, f PullerSearch, identities []string, found map[resource.UID]time.Time, left *int,
) (missing []string, _ error) {
	seen := map[string]int{}
	look := func(row store.Scanner) (bool, error) {
		var identity string
		var ms int64
		var number *int64
		if err := row.Scan(&identity, &ms, &number); err != nil {
			return false, err
		}
		seen[identity]++
		*left--
		if number == nil || !f.Has(*number) {
			return false, nil
		}
		if last, ok := found[resource.UID(identity)]; !ok || last.Before(store.FromMS(ms)) {
			found[resource.UID(identity)] = store.FromMS(ms)
		}
		return false, nil
	}
	if s.Engine.Postgres {
		q := store.Query{Engine: s.Engine, Args: []any{store.Segment(f.Root), store.MS(f.Since)}}
		text := fmt.Sprintf(`SELECT s.v, l.create_ms, l.number FROM %s AS s
			CROSS JOIN LATERAL (SELECT p.create_ms, i.number%ss.v ORDER BY p.create_ms DESC LIMIT %d) AS l`,
			s.Engine.Unnest(&q, identities), pullsOfIdentity, newest)
		if err := s.Rows(ctx, text, q.Args, look); err != nil {
			return nil, err
		}
	} else {
		text := `SELECT p.identity, p.create_ms, i.number` + pullsOfIdentity + `$3 ORDER BY p.create_ms DESC LIMIT $4`
		for _, identity := range identities {
			err := s.Rows(ctx, text, []any{store.Segment(f.Root), store.MS(f.Since), identity, newest}, look)
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

// allPulls searches all pulls of an identity, the newest first, until it finds a selected image.
func (s *Store) allPulls(
	ctx context.Context, f PullerSearch, identity string, found map[resource.UID]time.Time, left *int,
) error {
	return s.Rows(ctx, `SELECT p.create_ms, i.number`+pullsOfIdentity+`$3 ORDER BY p.create_ms DESC`,
		[]any{store.Segment(f.Root), store.MS(f.Since), identity}, func(row store.Scanner) (bool, error) {
			var ms int64
			var number *int64
			if err := row.Scan(&ms, &number); err != nil {
				return false, err
			}
			*left--
			if number == nil || !f.Has(*number) {
				return *left <= 0, nil
			}
			found[resource.UID(identity)] = store.FromMS(ms)
			return true, nil
		})
}

// MixedPulls returns how many of the repos have a record since a time that combines pulls of several images. Such a
// record does not say which images were pulled.
func (s *Store) MixedPulls(ctx context.Context, repos []resource.UID, since time.Time) (n int, _ error) {
	q := store.Query{Engine: s.Engine}
	err := s.Row(ctx, fmt.Sprintf(`SELECT count(*) FROM %s AS s WHERE EXISTS (SELECT 1 FROM `+registrydb.PullRows+` AS p
		WHERE p.digest = '' AND p.uid >= s.v || '/' AND p.uid < s.v || '0' AND NOT p.push AND p.create_ms >= %s)`,
		s.Engine.Unnest(&q, repos), q.Arg(store.MS(since))), q.Args, &n)
	return n, err
}
