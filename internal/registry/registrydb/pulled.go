package registrydb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

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
