package sourcedb

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/tablecache"
)

var upstreams = store.Kind[registry.Upstream]{
	Table: "registry_upstreams", Label: "upstream", Unique: "parent",
	Created: resource.UpstreamCreated, Updated: resource.UpstreamUpdated, Deleted: resource.UpstreamDeleted,
	Columns: func(u *registry.Upstream) []store.Column {
		return []store.Column{
			store.JSON("detail", u), // fields that have a column are read from the column
			store.Key(&u.UID),
			store.Text("name", &u.Name).Order("name"),
			store.Bytes("secret", &u.Credentials.Sealed),
			store.Time("create_ms", &u.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &u.UpdateTime),
		}
	},
}

// UpstreamList is the list of upstreams, with its default order.
var UpstreamList = upstreams.List(page.Order{Field: "uid"})

// InsertUpstream adds an upstream to a group. It returns fault.NotFound if there is no such group, and
// fault.AlreadyExists if the group has an upstream. It returns fault.FailedPrecondition if there are repos in or
// below the group, because images that were pushed to them could be mistaken for images of the upstream.
func (s *Store) InsertUpstream(ctx context.Context, u registry.Upstream) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, u.Group()); err != nil {
			return err
		}
		var have string
		var repos int
		err := t.Row(ctx, `SELECT coalesce((SELECT name FROM registry_upstreams WHERE parent = $1), ''),
			(SELECT count(*) FROM (SELECT 1 FROM `+registrydb.RepoRows+` AS repos WHERE uid > $2 AND uid < $3 LIMIT 1) AS r)`,
			[]any{store.Segment(u.Group()), string(u.Group()) + "/", string(u.Group()) + "0"}, &have, &repos)
		if err != nil {
			return err
		}
		if have != "" {
			exists := fault.Exists("upstream", have)
			exists.Message = "Already exists: the group already has the upstream " + have
			return exists
		}
		if repos > 0 {
			return fault.Unmet("GROUP_HAS_REPOS", "an upstream needs a group without repos in it or below it")
		}
		if err := t.upstreamsChanged(ctx); err != nil {
			return err
		}
		return store.Insert(ctx, t.Tx, &upstreams, u)
	})
}

// upstreamsChanged makes every replica read the upstreams again.
func (t Tx) upstreamsChanged(ctx context.Context) error {
	return t.TableChanged(ctx, store.RevisionUpstreams)
}

// Upstream returns an upstream, or fault.NotFound.
func (s *Store) Upstream(ctx context.Context, uid resource.UID) (registry.Upstream, error) {
	return store.Get(ctx, s.DB, &upstreams, uid)
}

// Upstreams returns one page of upstreams.
func (s *Store) Upstreams(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[registry.Upstream], error) {
	return store.List(ctx, s.DB, &upstreams, r, f, p)
}

// UpdateUpstream replaces before by after. It returns store.ErrStale if the upstream has changed since before was
// read. If the address changes, it deletes the times at which tags were last compared with the upstream.
func (s *Store) UpdateUpstream(
	ctx context.Context, before, after registry.Upstream,
) (registry.Upstream, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.upstreamsChanged(ctx); err != nil {
			return err
		}
		if before.Address != after.Address {
			group := string(after.Group())
			if err := t.Later(ctx, `DELETE FROM upstream_tags
				WHERE repo IN (SELECT seg FROM `+registrydb.RepoRows+` AS repos WHERE uid > $1
				AND uid < $2)`, group+"/", group+"0"); err != nil {
				return err
			}
		}
		return store.Update(ctx, t.Tx, &upstreams, before, &after)
	})
	return after, err
}

// DeleteUpstream removes an upstream. The images that were fetched from it stay. It returns fault.NotFound if
// there is no such upstream.
func (s *Store) DeleteUpstream(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		u, err := store.Lock(ctx, t.Tx, &upstreams, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		if err := t.upstreamsChanged(ctx); err != nil {
			return err
		}
		return store.Remove(ctx, t.Tx, &upstreams, u)
	})
}

// UpstreamSecrets returns the sealed credentials of all upstreams.
func (s *Store) UpstreamSecrets(ctx context.Context) ([][]byte, error) {
	return store.ReadColumn[[]byte](ctx, s.Rows,
		`SELECT secret FROM registry_upstreams WHERE length(secret) > 0 ORDER BY seg`)
}

// ForgetUpstreamSecrets removes all credentials for which opens reports false, and returns the upstreams that lost
// their credentials.
func (t Tx) ForgetUpstreamSecrets(
	ctx context.Context, opens func(sealed []byte) bool,
) ([]registry.Upstream, error) {
	lost, err := forgetSecrets(ctx, t, &upstreams, opens,
		func(u *registry.Upstream) *resource.Secret { return &u.Credentials })
	if err != nil || len(lost) == 0 {
		return lost, err
	}
	return lost, t.upstreamsChanged(ctx)
}

// An UpstreamSet is an immutable copy of all upstreams.
type UpstreamSet struct {
	byGroup map[resource.UID]registry.Upstream
}

// Over returns the upstream of a group or, if it has none, of the nearest group above that has one.
func (s *UpstreamSet) Over(group resource.UID) (u registry.Upstream, ok bool) {
	if len(s.byGroup) == 0 {
		return u, false
	}
	for g := group; g != ""; g = g.Parent() {
		if u, ok = s.byGroup[g]; ok {
			return u, true
		}
	}
	return u, false
}

// NewUpstreamCache returns a cache of all upstreams. It exists because every pull must find out whether its group has
// an upstream.
func NewUpstreamCache(s *Store) *tablecache.Cache[UpstreamSet] {
	return tablecache.New(s.DB, store.RevisionUpstreams, func(ctx context.Context) (*UpstreamSet, error) {
		rows, err := upstreams.All(ctx, s.Rows, ``)
		if err != nil {
			return nil, fmt.Errorf("read upstreams: %w", err)
		}
		set := &UpstreamSet{byGroup: map[resource.UID]registry.Upstream{}}
		for _, u := range rows {
			set.byGroup[u.Group()] = u
		}
		return set, nil
	})
}
