package pulldb

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// countedPulls is the largest number of records that CountPulls reads for a manifest.
const countedPulls = 100

// CountPulls returns how often a manifest of a repo was pulled since a time, and the time of the last pull. It
// reads at most countedPulls records.
func (s *Store) CountPulls(
	ctx context.Context, repo resource.UID, digest string, since time.Time,
) (n int64, last time.Time, _ error) {
	var ms int64
	err := s.Row(ctx, `SELECT coalesce(sum(1 + more), 0), coalesce(max(create_ms), 0) FROM (
			SELECT more, create_ms FROM `+registrydb.PullRows+` AS pulls WHERE parent = $1 AND digest = $2 AND create_ms >= $3
			AND NOT push
			ORDER BY create_ms DESC LIMIT $4) AS x`,
		[]any{store.Segment(repo), digest, store.MS(since), countedPulls}, &n, &ms)
	if ms > 0 {
		last = store.FromMS(ms)
	}
	return n, last, err
}

// A PullSum is the number of times that an identity has pulled a manifest from a repo.
type PullSum struct {
	Repo     resource.UID
	Digest   string
	Identity resource.UID
	Count    int64
	Last     time.Time
}

// PullSums returns up to n sums of the pulls since a time from a repo, or from all repos below a group. It leaves out
// records without a digest.
func (s *Store) PullSums(ctx context.Context, target resource.UID, since time.Time, n int) ([]PullSum, error) {
	q := store.Query{Engine: s.Engine}
	var where string
	if d := target.Depth(); d <= 3 {
		where = fmt.Sprintf(`a%d = %s`, d, q.Arg(store.Segment(target)))
	} else { // '0' is the byte after '/'
		where = fmt.Sprintf(`uid > %s AND uid < %s`, q.Arg(string(target)+"/"), q.Arg(string(target)+"0"))
	}
	text := fmt.Sprintf(`SELECT min(uid), digest, identity, CAST(count(*) + sum(more) AS BIGINT), max(create_ms)
		FROM `+registrydb.PullRows+` AS pulls WHERE %s AND create_ms >= %s AND NOT push AND digest <> ''
		GROUP BY parent, digest, identity LIMIT %s`, where, q.Arg(store.MS(since)), q.Arg(n))
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (p PullSum, err error) {
		var uid resource.UID
		var last int64
		err = row.Scan(&uid, &p.Digest, &p.Identity, &p.Count, &last)
		p.Repo, p.Last = uid.Parent(), store.FromMS(last)
		return p, err
	}, text, q.Args...)
}

// A PulledRepo is a repo from which an identity has pulled.
type PulledRepo struct {
	Repo  resource.UID
	Count int64
	Last  time.Time
}

// PulledBy returns the repos of an organization from which an identity has pulled since a time, the most recently
// pulled first. It reads the newest n records; complete is false if there are more records.
func (s *Store) PulledBy(
	ctx context.Context, org, identity resource.UID, since time.Time, n int,
) (repos []PulledRepo, complete bool, _ error) {
	indexes, rows := map[resource.UID]int{}, 0 // index in repos by UID, and the number of rows so far
	err := s.Rows(ctx, `SELECT uid, more, create_ms FROM `+registrydb.PullRows+` AS pulls
			WHERE a1 = $1 AND identity = $2 AND create_ms >= $3 AND NOT push ORDER BY create_ms DESC LIMIT $4`,
		[]any{store.Segment(org), string(identity), store.MS(since), n + 1},
		func(row store.Scanner) (bool, error) {
			var uid resource.UID
			var repeats, ms int64
			if err := row.Scan(&uid, &repeats, &ms); err != nil {
				return false, err
			}
			if rows++; rows > n {
				return true, nil
			}
			i, ok := indexes[uid.Parent()]
			if !ok {
				i = len(repos)
				indexes[uid.Parent()] = i
				repos = append(repos, PulledRepo{Repo: uid.Parent(), Last: store.FromMS(ms)})
			}
			repos[i].Count += repeats + 1
			return false, nil
		})
	return repos, rows <= n, err
}
