package registrydb

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var pulls = store.Kind[registry.Pull]{
	Table: "pulls", Label: "pull", ParentTables: "repos",
	Columns: func(p *registry.Pull) []store.Column {
		return []store.Column{
			store.Key(&p.UID),
			store.Flag("push", &p.Push),
			store.Text("digest", &p.Digest),
			store.Text("tag", &p.Tag),
			store.Text("identity", &p.Identity),
			store.Text("remote", &p.Remote),
			store.Text("agent", &p.Agent),
			store.Time("create_ms", &p.Time).Order("create_time"),
			store.Number("more", &p.More),
		}
	},
}

// Pulls returns one page of the records of pulls and pushes.
func (s *Store) Pulls(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[registry.Pull], error) {
	return store.List(ctx, s.DB, &pulls, r, f, p)
}

// InsertPulls adds records of pulls and pushes in one transaction. Records of repos that do not exist are dropped.
func (s *Store) InsertPulls(ctx context.Context, records []registry.Pull) error {
	return s.write(ctx, func(t Tx) error { return t.insertPulls(ctx, records) })
}

func (t Tx) insertPulls(ctx context.Context, records []registry.Pull) error {
	added, exists := traffic{}, map[resource.UID]bool{}
	var rows []registry.Pull
	var events [][]any
	for _, p := range records {
		repo := p.Repo()
		if _, known := exists[repo]; !known {
			held, err := t.holdRepo(ctx, repo)
			if err != nil {
				return err
			}
			exists[repo] = held
		}
		if !exists[repo] {
			continue
		}
		added.note(repo, p.Push)
		rows = append(rows, p)
		if p.Push { // the transaction of the push has already added its event
			continue
		}
		event, err := t.Event(ctx, resource.RegistryPull, repo, repo.Parent(), nil, p)
		if err != nil {
			return err
		}
		events = append(events, event)
	}
	if err := store.InsertRows(ctx, t.Tx, &pulls, rows); err != nil {
		return err
	}
	if err := t.EmitAll(ctx, events); err != nil {
		return err
	}
	return t.countPulls(ctx, added, 1)
}

// holdRepo holds a repo until the commit. It reports false if there is no such repo.
func (t Tx) holdRepo(ctx context.Context, repo resource.UID) (bool, error) {
	err := t.Require(ctx, "repos", "repo", repo)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// traffic is a number of records, by repo and by whether they are pushes.
type traffic map[resource.UID]map[bool]int

func (f traffic) note(repo resource.UID, push bool) {
	if f[repo] == nil {
		f[repo] = map[bool]int{}
	}
	f[repo][push]++
}

// countPulls adds traffic to the counters, or subtracts it if by is -1.
func (t Tx) countPulls(ctx context.Context, f traffic, by int) error {
	for _, repo := range slices.Sorted(maps.Keys(f)) {
		for push, n := range f[repo] {
			if err := t.Count(ctx, store.PullCounter(push), repo.NewChild(), by*n); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropPulls removes the records that a condition selects, subtracts them from the counters, and returns their number.
func (t Tx) dropPulls(ctx context.Context, where string, args ...any) (n int, _ error) {
	gone := traffic{}
	err := t.Rows(ctx, `DELETE FROM pulls WHERE `+where+` RETURNING uid, push`, args,
		func(row store.Scanner) (bool, error) {
			var uid resource.UID
			var push bool
			err := row.Scan(&uid, &push)
			gone.note(uid.Parent(), push)
			n++
			return false, err
		})
	if err != nil {
		return 0, err
	}
	return n, t.countPulls(ctx, gone, -1)
}

// PrunePulls removes up to n records that are older than before, and returns the number of records that it removed.
func (s *Store) PrunePulls(ctx context.Context, before time.Time, n int) (gone int, err error) {
	err = s.write(ctx, func(t Tx) (err error) {
		gone, err = t.dropPulls(ctx,
			`seg IN (SELECT seg FROM pulls WHERE create_ms / 86400000 <= $1 AND create_ms < $2 LIMIT $3)`,
			store.MS(before)/86_400_000, store.MS(before), n)
		return err
	})
	return gone, err
}
