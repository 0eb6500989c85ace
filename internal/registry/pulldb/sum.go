package pulldb

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// countedPulls is how many records of pulls of a manifest are counted at most.
const countedPulls = 100

// CountPulls returns how often a manifest of a repo was pulled since a time, and when last. It
// stops counting at countedPulls records.
func (s *Store) CountPulls(
	ctx context.Context, repo resource.UID, digest string, since time.Time,
) (n int64, last time.Time, _ error) {
	var at int64
	err := s.Row(ctx, `SELECT coalesce(sum(1 + more), 0), coalesce(max(create_ms), 0) FROM (
			SELECT more, create_ms FROM pulls WHERE parent = $1 AND digest = $2 AND create_ms >= $3 AND NOT push
			ORDER BY create_ms DESC LIMIT $4) AS x`,
		[]any{store.Segment(repo), digest, store.MS(since), countedPulls}, &n, &at)
	if at > 0 {
		last = store.FromMS(at)
	}
	return n, last, err
}

// A PullSum is how often an identity has pulled a manifest of a repo.
type PullSum struct {
	Repo     resource.UID
	Digest   string
	Identity resource.UID
	Count    int64
	Last     time.Time
}

// PullSums returns who has pulled what from a repo, or from the repos of a group and below
// it, since a time. At most n are returned. Pulls that were recorded without a digest are
// left out.
func (s *Store) PullSums(ctx context.Context, target resource.UID, since time.Time, n int) ([]PullSum, error) {
	q := store.Query{Engine: s.Engine}
	var where string
	if d := target.Depth(); d <= 3 {
		where = fmt.Sprintf(`a%d = %s`, d, q.Arg(store.Segment(target)))
	} else { // '0' is the byte after '/'
		where = fmt.Sprintf(`uid > %s AND uid < %s`, q.Arg(string(target)+"/"), q.Arg(string(target)+"0"))
	}
	text := fmt.Sprintf(`SELECT min(uid), digest, identity, CAST(count(*) + sum(more) AS BIGINT), max(create_ms)
		FROM pulls WHERE %s AND create_ms >= %s AND NOT push AND digest <> ''
		GROUP BY parent, digest, identity LIMIT %s`, where, q.Arg(store.MS(since)), q.Arg(n))
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (p PullSum, err error) {
		var uid resource.UID
		var last int64
		err = row.Scan(&uid, &p.Digest, &p.Identity, &p.Count, &last)
		p.Repo, p.Last = uid.Parent(), store.FromMS(last)
		return p, err
	}, text, q.Args...)
}

// A PulledRepo is a repo that an identity has pulled from.
type PulledRepo struct {
	Repo  resource.UID
	Count int64
	Last  time.Time
}

// PulledBy returns the repos of an organization that an identity has pulled from since a time, the last one first, by its
// newest n pulls. all is false if there are more.
func (s *Store) PulledBy(
	ctx context.Context, org, identity resource.UID, since time.Time, n int,
) (repos []PulledRepo, all bool, _ error) {
	place, rows := map[resource.UID]int{}, 0
	err := s.Rows(ctx, `SELECT uid, more, create_ms FROM pulls WHERE a1 = $1 AND identity = $2 AND create_ms >= $3 AND NOT push
			ORDER BY create_ms DESC LIMIT $4`, []any{store.Segment(org), string(identity), store.MS(since), n + 1},
		func(row store.Scanner) (bool, error) {
			var uid resource.UID
			var more, at int64
			if err := row.Scan(&uid, &more, &at); err != nil {
				return false, err
			}
			if rows++; rows > n {
				return true, nil
			}
			i, ok := place[uid.Parent()]
			if !ok {
				i = len(repos)
				place[uid.Parent()] = i
				repos = append(repos, PulledRepo{Repo: uid.Parent(), Last: store.FromMS(at)})
			}
			repos[i].Count += more + 1
			return false, nil
		})
	return repos, rows <= n, err
}
