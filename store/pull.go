package store

import (
	"context"
	"errors"
	"maps"
	"slices"
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

// pushCounter is the kind of counter that counts the pushes among the pulls: a
// list may ask for them alone.
const pushCounter = "pulls.push"

// pullCounter is the kind of counter that counts what went a way.
func pullCounter(push bool) string {
	if push {
		return pushCounter
	}
	return pulls.kind
}

// pullCounters are those that make up the total of a direction.
func pullCounters(way resource.Direction) []string {
	switch way {
	case resource.Pulled:
		return []string{pullCounter(false)}
	case resource.Pushed:
		return []string{pullCounter(true)}
	}
	return []string{pullCounter(false), pullCounter(true)}
}

// Pulls returns one page of who fetched and pushed what.
func (s *Store) Pulls(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.Pull], error) {
	return list(ctx, s, &pulls, r, f, p)
}

// InsertPulls records what was fetched and pushed, all in one go. What happened
// to a repo that is gone meanwhile is gone with it.
func (s *Store) InsertPulls(ctx context.Context, all []resource.Pull) error {
	return s.write(ctx, func(t *tx) error {
		added, there := traffic{}, map[resource.UID]bool{}
		for _, p := range all {
			repo := p.Repo()
			if _, known := there[repo]; !known {
				var one int
				err := missing(t.row(ctx, `SELECT 1 FROM repos AS t WHERE t.uid = $1`+s.engine.hold, []any{string(repo)}, &one), "repo", repo)
				if err != nil && !errors.Is(err, fault.NotFound) {
					return err
				}
				there[repo] = err == nil
			}
			if !there[repo] {
				continue
			}
			if err := t.insertPull(ctx, p); err != nil {
				return err
			}
			added.note(repo, p.Push)
		}
		return t.countPulls(ctx, added, 1)
	})
}

// traffic is how many records a repo has of each direction.
type traffic map[resource.UID]map[bool]int

func (f traffic) note(repo resource.UID, push bool) {
	if f[repo] == nil {
		f[repo] = map[bool]int{}
	}
	f[repo][push]++
}

// countPulls adds traffic to the counters, or takes it away if by is -1.
func (t *tx) countPulls(ctx context.Context, f traffic, by int) error {
	for _, repo := range slices.Sorted(maps.Keys(f)) {
		for push, n := range f[repo] {
			if err := t.count(ctx, pullCounter(push), repo.NewChild(), by*n); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropPulls removes records, takes them out of the counters, and returns how many
// there were.
func (t *tx) dropPulls(ctx context.Context, where string, args ...any) (n int, _ error) {
	gone := traffic{}
	err := t.rows(ctx, `DELETE FROM pulls WHERE `+where+` RETURNING uid, push`, args, func(row scanner) error {
		var uid resource.UID
		var push bool
		err := row.Scan(&uid, &push)
		gone.note(uid.Parent(), push)
		n++
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, t.countPulls(ctx, gone, -1)
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
func (s *Store) PrunePulls(ctx context.Context, before time.Time, n int) (gone int, err error) {
	err = s.write(ctx, func(t *tx) (err error) {
		gone, err = t.dropPulls(ctx, `seg IN (SELECT seg FROM pulls WHERE create_ms / 86400000 <= $1 AND create_ms < $2 LIMIT $3)`,
			ms(before)/86_400_000, ms(before), n)
		return err
	})
	return gone, err
}
