package store

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

var pulls = listing[resource.Pull]{
	kind:    "pulls",
	columns: "t.uid, t.push, t.digest, t.tag, t.identity, t.remote, t.agent, t.create_ms",
	orders:  map[string]string{"uid": "uid", "create_time": "create_ms"},
	scan: func(row scanner) (p resource.Pull, err error) {
		var at int64
		err = row.Scan(&p.UID, &p.Push, &p.Digest, &p.Tag, &p.Identity, &p.Remote, &p.Agent, &at)
		p.Time = fromMS(at)
		return p, err
	},
	cursor: func(p resource.Pull, col string) page.Cursor { return cursorAt(col, p.UID, "", p.Time, p.Time) },
}

// Pulls returns one page of who fetched and pushed what.
func (s *Store) Pulls(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.Pull], error) {
	return list(ctx, s, &pulls, r, f, p)
}

// InsertPulls records what was fetched and pushed, all in one go. What happened
// to a repo that is gone meanwhile is gone with it.
func (s *Store) InsertPulls(ctx context.Context, all []resource.Pull) error {
	return s.write(ctx, func(t *tx) error {
		added := map[resource.UID]int{}
		for _, p := range all {
			repo := p.Repo()
			if n, ok := added[repo]; ok && n < 0 {
				continue
			} else if !ok {
				var one int
				err := missing(t.row(ctx, `SELECT 1 FROM repos AS t WHERE t.uid = $1`+s.engine.hold, []any{string(repo)}, &one), "repo", repo)
				if errors.Is(err, fault.NotFound) {
					added[repo] = -1
					continue
				}
				if err != nil {
					return err
				}
			}
			if err := t.insertPull(ctx, p); err != nil {
				return err
			}
			added[repo]++
		}
		for repo, n := range added {
			if n <= 0 {
				continue
			}
			if err := t.count(ctx, "pulls", repo.NewChild(), n); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *tx) insertPull(ctx context.Context, p resource.Pull) error {
	if err := t.later(ctx, `
		INSERT INTO pulls (seg, uid, parent, a1, a2, a3, push, digest, tag, identity, remote, agent, create_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		append(place(p.UID), p.Push, p.Digest, p.Tag, string(p.Identity), p.Remote, p.Agent, ms(p.Time))...); err != nil {
		return err
	}
	if p.Push { // its event went with the manifest
		return nil
	}
	return t.emit(ctx, resource.RegistryPull, p.Repo(), p.Repo().Parent(), nil, p)
}

// PrunePulls removes up to n records older than before, and reports how many.
func (s *Store) PrunePulls(ctx context.Context, before time.Time, n int) (gone int, _ error) {
	err := s.write(ctx, func(t *tx) error {
		gone = 0
		removed := map[resource.UID]int{}
		err := t.rows(ctx, `DELETE FROM pulls WHERE seg IN (SELECT seg FROM pulls WHERE create_ms / 86400000 <= $1 AND create_ms < $2 LIMIT $3) RETURNING uid`,
			[]any{ms(before) / 86_400_000, ms(before), n}, func(row scanner) error {
				var uid resource.UID
				err := row.Scan(&uid)
				removed[uid.Parent()]++
				gone++
				return err
			})
		if err != nil {
			return err
		}
		for repo, n := range removed {
			if err := t.count(ctx, "pulls", repo.NewChild(), -n); err != nil {
				return err
			}
		}
		return nil
	})
	return gone, err
}
