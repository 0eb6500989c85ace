package registrydb

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Deleted content moves to separate tables, so that code that reads the registry need not exclude it. Blobs stay in
// their repo until the collector or DeleteBlob removes them from it. If the trash needs such a blob, it moves to the
// table trash_blobs, which only a restore reads. In every state of the database, a blob that the trash needs is in
// its repo or in trash_blobs, so that its bytes stay stored.

var trash = store.Kind[registry.TrashEntry]{
	Table: store.TrashCounter, Label: "trash entry", ParentTables: "repos trash_repos",
	Unique: "parent, kind, name, digest", Deleted: resource.TrashDeleted,
	Columns: func(e *registry.TrashEntry) []store.Column {
		return []store.Column{
			store.JSON("detail", e), // fields that have a column are read from the column
			store.Key(&e.UID),
			store.Number("kind", &e.Kind),
			store.Text("name", &e.Tag),
			store.Text("digest", &e.Digest),
			store.Flag("together", &e.Together),
			store.Number("size", &e.Size),
			store.Time("create_ms", &e.CreateTime).Order("create_time").Fixed(),
			store.Time("expire_ms", &e.ExpireTime),
		}
	},
}

// TrashEntry returns an entry of the trash, or fault.NotFound.
func (s *Store) TrashEntry(ctx context.Context, uid resource.UID) (registry.TrashEntry, error) {
	return store.Get(ctx, s.DB, &trash, uid)
}

// Trash returns one page of the entries of the trash.
func (s *Store) Trash(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[registry.TrashEntry], error) {
	return store.List(ctx, s.DB, &trash, r, f, p)
}

// A Deletion says how something is deleted from a repo.
type Deletion struct {
	Life     time.Duration     // how long the content can be restored; it cannot be unless this is positive
	Together bool              // tags are deleted because their manifest is deleted
	Time     time.Time         // time of all deletions; if it is zero, each deletion has its own time
	Frozen   func(string) bool // reports whether the settings make a tag immutable
	Follows  bool              // the repo follows another, so only a sync may change its tags

	name string // name of the repo
}

func (d Deletion) kept() bool { return d.Life > 0 }

// DeletionFrom returns the options for deleting content from a repo, according to the settings of its group. It holds
// the repo until the commit. It returns fault.NotFound if there is no such repo.
func (s *Store) DeletionFrom(ctx context.Context, t Tx, repo resource.UID) (d Deletion, _ error) {
	err := t.Row(ctx, `SELECT t.name, `+isFollower+` FROM repos AS t WHERE t.uid = $1`+s.Engine.ForShare,
		[]any{string(repo)}, &d.name, &d.Follows)
	if err != nil {
		return d, store.Missing(err, "repo", repo)
	}
	set, err := s.settingsAbove(ctx, repo.Parent(), t.Row)
	if err != nil {
		return d, err
	}
	d.Life, d.Frozen = set.TrashLife(s.KeepTrash), set.Frozen
	return d, nil
}

// notIn replaces fault.NotFound about a repo by fault.NotFound about the resource in the repo that the caller asked
// for.
func notIn(err error, kind, name string) error {
	if errors.Is(err, fault.NotFound) {
		return fault.Missing(kind, name)
	}
	return err
}

// addTrash adds an entry to the trash. It replaces an earlier entry about the same resource.
func (t Tx) addTrash(ctx context.Context, e registry.TrashEntry, d Deletion) error {
	n, err := t.Exec(ctx, `DELETE FROM trash WHERE parent = $1 AND kind = $2 AND name = $3 AND digest = $4`,
		store.Segment(e.Repo()), int(e.Kind), e.Tag, e.Digest)
	if err != nil {
		return err
	}
	e.CreateTime, e.RepoName, e.By = d.Time, d.name, resource.ActorFrom(ctx).Subject
	if d.Time.IsZero() {
		e.CreateTime = t.DB.Time()
	}
	e.ExpireTime = e.CreateTime.Add(d.Life)
	if err := store.InsertRow(ctx, t.Tx, &trash, e); err != nil {
		return err
	}
	return t.Count(ctx, store.TrashCounter, e.UID, 1-int(n))
}

// dropTrash removes an entry and adds an event about it.
func (t Tx) dropTrash(ctx context.Context, e registry.TrashEntry, event resource.EventType) error {
	n, err := t.Exec(ctx, `DELETE FROM trash WHERE uid = $1`, string(e.UID))
	if err != nil || n == 0 {
		return err
	}
	before, after := &e, (*registry.TrashEntry)(nil)
	if event == resource.TrashRestored {
		before, after = nil, &e
	}
	if err := t.emitTrash(ctx, event, e, before, after); err != nil {
		return err
	}
	return t.Count(ctx, store.TrashCounter, e.UID, -1)
}

func (t Tx) emitTrash(ctx context.Context, event resource.EventType, e registry.TrashEntry, before, after any) error {
	return t.Emit(ctx, event, e.UID, e.Repo().Parent(), before, after)
}

// trashTag adds a deleted tag to the trash, if d.Life is positive.
func (t Tx) trashTag(ctx context.Context, g registry.Tag, d Deletion) error {
	if !d.kept() {
		return nil
	}
	return t.addTrash(ctx, registry.TrashEntry{
		UID: g.UID.Parent().NewChild(), Kind: registry.TrashTag, Tag: g.Name, Digest: g.Digest, Together: d.Together,
		WasTag: &g,
	}, d)
}

// trashManifest copies a locked manifest and its references to the trash. If the trash has an earlier copy,
// because the manifest was deleted and pushed again, that copy is removed and no longer counted.
func (t Tx) trashManifest(ctx context.Context, repo resource.UID, digest string, d Deletion) error {
	e := registry.TrashEntry{UID: repo.NewChild(), Kind: registry.TrashManifest, Digest: digest}
	if err := t.Row(ctx, `SELECT m.media_type, m.size + CAST(coalesce((SELECT sum(b.size) FROM manifest_refs AS r
		JOIN blobs AS b ON b.digest = r.blob WHERE r.repo = m.repo AND r.digest = m.digest), 0) AS BIGINT)
		FROM manifests AS m WHERE m.repo = $1 AND m.digest = $2`, []any{store.Segment(repo), digest},
		&e.MediaType, &e.Size); err != nil {
		return err
	}
	if err := t.forgetTrashed(ctx, repo, digest); err != nil {
		return err
	}
	if err := t.addTrash(ctx, e, d); err != nil {
		return err
	}
	return t.copyTrashed(ctx, e, digest)
}

// copyTrashed copies a manifest of a repo to the trash, for an entry. If digest is "", it copies all manifests.
func (t Tx) copyTrashed(ctx context.Context, e registry.TrashEntry, digest string) error {
	which, args := ``, []any{store.Segment(e.Repo()), store.Segment(e.UID)}
	if digest != "" {
		which, args = ` AND digest = $3`, append(args, digest)
	}
	if _, err := t.Exec(ctx, `INSERT INTO trash_manifests (entry, `+manifestColumns+`)
		SELECT CAST($2 AS BIGINT), `+manifestColumns+` FROM manifests WHERE repo = $1`+which, args...); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `INSERT INTO trash_refs (repo, digest, blob, child) SELECT r.repo, r.digest, r.blob, r.child
		FROM manifest_refs AS r JOIN trash_manifests AS m ON m.repo = r.repo AND m.digest = r.digest
		WHERE r.repo = $1 AND m.entry = $2`, args[:2]...)
	return err
}

// forgetTrashed removes the copy of a manifest from the trash, but not its entry. If digest is "", it removes
// the copies of all manifests that are in the repo, too.
func (t Tx) forgetTrashed(ctx context.Context, repo resource.UID, digest string) error {
	where, args := ` AND digest = $2`, []any{store.Segment(repo), digest}
	if digest == "" {
		where, args = ` AND digest IN (SELECT m.digest FROM manifests AS m WHERE m.repo = $1)`, args[:1]
	}
	if _, err := t.Exec(ctx, `DELETE FROM trash_refs WHERE repo = $1`+where, args...); err != nil {
		return err
	}
	sizes, err := store.ReadColumn[int64](ctx, t.Rows,
		`DELETE FROM trash_manifests WHERE repo = $1`+where+` RETURNING size`, args...)
	if err != nil {
		return err
	}
	var gone int64
	for _, size := range sizes {
		gone += size
	}
	return t.CountBytes(ctx, repo, -gone)
}

// trashRepo copies a locked repo to the trash.
func (t Tx) trashRepo(ctx context.Context, r registry.Repo, d Deletion) error {
	if err := t.forgetTrashed(ctx, r.UID, ""); err != nil {
		return err
	}
	n, err := t.Exec(ctx, `DELETE FROM trash WHERE parent = $1 AND kind = $2
		AND digest IN (SELECT m.digest FROM manifests AS m WHERE m.repo = $1)`,
		store.Segment(r.UID), int(registry.TrashManifest))
	if err != nil {
		return err
	}
	if err := t.Count(ctx, store.TrashCounter, r.UID.NewChild(), -int(n)); err != nil {
		return err
	}
	e := registry.TrashEntry{UID: r.UID.NewChild(), Kind: registry.TrashRepo, WasRepo: &r}
	if e.Size, err = t.repoSize(ctx, r.UID); err != nil {
		return err
	}
	if err := t.addTrash(ctx, e, d); err != nil {
		return err
	}
	if err := t.copyTrashed(ctx, e, ""); err != nil {
		return err
	}
	for _, text := range []string{
		`INSERT INTO trash_repos (seg, uid, parent, readme, deployment, deployment_create_ms, deployment_update_ms)
			SELECT r.seg, r.uid, r.parent, r.readme, d.detail, d.create_ms, d.update_ms
			FROM repos AS r LEFT JOIN deployments AS d ON d.repo = r.seg WHERE r.seg = $1`,
		`INSERT INTO trash_tags (` + tagColumns + `) SELECT ` + tagColumns + ` FROM tags WHERE parent = $1`,
		`INSERT INTO trash_tag_history (seq, repo, name, digest, actor, at_ms)
			SELECT seq, repo, name, digest, actor, at_ms FROM tag_history WHERE repo = $1`,
	} {
		if _, err := t.Exec(ctx, text, store.Segment(r.UID)); err != nil {
			return err
		}
	}
	return nil
}

const tagColumns = `seg, uid, parent, a1, a2, a3, name, digest, class, deprecated, bundles, create_ms, update_ms`

// repoSize returns the sum of the sizes of all manifests and blobs of a repo, in bytes.
func (t Tx) repoSize(ctx context.Context, repo resource.UID) (n int64, _ error) {
	err := t.Row(ctx, `SELECT CAST(coalesce((SELECT sum(m.size) FROM manifests AS m WHERE m.repo = $1), 0)
		+ coalesce((SELECT sum(b.size) FROM repo_blobs AS l JOIN blobs AS b ON b.digest = l.digest WHERE l.repo = $1), 0)
		AS BIGINT)`, []any{store.Segment(repo)}, &n)
	return n, err
}

// TrashBlob moves a blob that was removed from its repo to the trash. If nothing in the trash needs the blob,
// TrashBlob subtracts its bytes from the counters instead.
//
// The caller must first have run the statement that checks that no manifest of the repo needs the blob. A manifest
// that was deleted before that statement is then already in the trash, where TrashBlob finds it.
func (t Tx) TrashBlob(ctx context.Context, repo resource.UID, digest string, size int64) error {
	n, err := t.Exec(ctx, `INSERT INTO trash_blobs (repo, digest, uid)
		SELECT CAST($1 AS BIGINT), CAST($2 AS TEXT), CAST($3 AS TEXT)
		WHERE EXISTS (SELECT 1 FROM trash_refs AS r WHERE r.repo = $1 AND r.blob = $2)
		ON CONFLICT (repo, digest) DO NOTHING`,
		store.Segment(repo), digest, string(repo))
	if err != nil || n == 1 {
		return err
	}
	return t.CountBytes(ctx, repo, -size)
}

// trashBlobs is TrashBlob for the blobs of a repo that is being deleted. It deletes from the map the blobs that
// it moved to the trash, and leaves the counters to the caller.
func (t Tx) trashBlobs(ctx context.Context, repo resource.UID, blobs map[string]int64) error {
	needed, err := store.ReadColumn[string](ctx, t.Rows,
		`SELECT DISTINCT blob FROM trash_refs WHERE repo = $1 AND blob IS NOT NULL`, store.Segment(repo))
	if err != nil {
		return err
	}
	have, err := store.ReadColumn[string](ctx, t.Rows, `SELECT digest FROM trash_blobs WHERE repo = $1`,
		store.Segment(repo))
	if err != nil {
		return err
	}
	present := map[string]bool{}
	for _, digest := range have {
		present[digest] = true
	}
	var rows [][]any
	for _, digest := range needed {
		if _, ok := blobs[digest]; ok && !present[digest] {
			rows = append(rows, []any{store.Segment(repo), digest, string(repo)})
			delete(blobs, digest)
		}
	}
	return t.InsertRows(ctx, `INSERT INTO trash_blobs (repo, digest, uid)`, rows, ``)
}
