package registrydb

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// maxRestored is the largest number of entries that one transaction restores. It is limited because on SQLite all
// other writes wait for the transaction.
const maxRestored = 1000

// A Restoration has the options for restoring an entry.
type Restoration struct {
	Replace     bool              // whether to move tags that point to another manifest now
	WithoutTags bool              // whether to restore a manifest without the tags that were deleted with it
	Frozen      func(string) bool // reports whether a tag must not be moved; may be nil
}

// Restore restores an entry of the trash, and returns all entries that it restored, this one first.
//
// A tag is restored with its manifest. A manifest is restored with the tags that were deleted with it, the
// manifests that it lists, and the manifests about it that were deleted with it or later. A repo is restored
// with everything that was in it when it was deleted.
//
// It returns fault.NotFound if there is no such entry, and fault.AlreadyExists if there is another repo of that
// name. It returns fault.FailedPrecondition if a tag points to another manifest now, if the repo is in the
// trash or follows another, if some of the content is gone, or if there are more than maxRestored entries.
func (s *Store) Restore(ctx context.Context, uid resource.UID, how Restoration) (all []registry.TrashEntry, _ error) {
	err := s.write(ctx, func(t Tx) error {
		r := &restorer{Tx: t, Restoration: how}
		err := r.restore(ctx, uid)
		all = r.restored
		if i := slices.IndexFunc(all, func(e registry.TrashEntry) bool { return e.UID == uid }); i > 0 {
			requested := all[i]
			copy(all[1:i+1], all[:i])
			all[0] = requested
		}
		return err
	})
	return all, err
}

// A restorer restores one entry, and everything that belongs to it, in one transaction.
type restorer struct {
	Tx
	Restoration
	restored []registry.TrashEntry
}

// restore restores an entry. It locks in the same order as a deletion: first the group or repo of the entry, then the
// entry.
func (r *restorer) restore(ctx context.Context, uid resource.UID) error {
	e, err := store.One(ctx, r.Rows, &trash, uid, ` WHERE t.uid = $1`, string(uid))
	if err != nil {
		return err
	}
	if e.Kind == registry.TrashRepo {
		err = r.RequireGroup(ctx, e.Repo().Parent())
	} else {
		err = r.Require(ctx, "repos", "repo", e.Repo())
	}
	if errors.Is(err, fault.NotFound) && e.Kind != registry.TrashRepo {
		err = fault.Unmet("REPO_IN_TRASH", "the repo %s is in the trash, too: restore it first", e.RepoName)
	}
	if err != nil {
		return err
	}
	if e, err = store.Lock(ctx, r.Tx.Tx, &trash, uid, r.DB.Engine.ForDelete); err != nil {
		return err
	}
	switch e.Kind {
	case registry.TrashRepo:
		return r.repo(ctx, e)
	case registry.TrashManifest:
		return r.manifestWithTags(ctx, e)
	}
	if err := r.manifest(ctx, e.Repo(), e.Digest); err != nil {
		return err
	}
	return r.tag(ctx, e)
}

// done removes an entry whose content was restored.
func (r *restorer) done(ctx context.Context, e registry.TrashEntry) error {
	if len(r.restored) == maxRestored {
		return fault.Unmet("TOO_MANY_ENTRIES",
			"more than %d entries would be restored at once; restore some of them separately first", maxRestored)
	}
	r.restored = append(r.restored, e)
	return r.dropTrash(ctx, e, resource.TrashRestored)
}

// tag restores a tag whose manifest is in the repo.
func (r *restorer) tag(ctx context.Context, e registry.TrashEntry) error {
	if err := r.requireUnfollowing(ctx, e.Repo()); err != nil {
		return err
	}
	g := *e.WasTag
	g.UpdateTime = r.DB.Time()
	before, err := r.tagNamed(ctx, g)
	if errors.Is(err, fault.NotFound) {
		added, err := r.insertTag(ctx, g)
		if err != nil {
			return err
		}
		if added {
			return r.done(ctx, e)
		}
		before, err = r.tagNamed(ctx, g) // a concurrent push created the tag
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if before.Digest != g.Digest {
		if !r.Replace {
			return fault.Unmet("TAG_TAKEN",
				"tag %s of repo %s points to %s now; to replace it, restore again with replace set",
				g.Name, e.RepoName, before.Digest)
		}
		if r.Frozen != nil && r.Frozen(g.Name) {
			return immutable(g.Name)
		}
		after := before
		after.Digest = g.Digest
		if err := r.updateTag(ctx, before, &after); err != nil {
			return err
		}
	}
	return r.done(ctx, e)
}

// manifestWithTags restores a manifest with the tags that were deleted with it.
func (r *restorer) manifestWithTags(ctx context.Context, e registry.TrashEntry) error {
	if err := r.manifest(ctx, e.Repo(), e.Digest); err != nil {
		return err
	}
	if r.WithoutTags {
		return nil
	}
	tags, err := trash.All(ctx, r.Rows, ` WHERE t.parent = $1 AND t.kind = $2 AND t.digest = $3 AND t.together
		ORDER BY t.create_ms DESC, t.uid LIMIT $4`+r.DB.Engine.ForDelete, store.Segment(e.Repo()), int(registry.TrashTag),
		e.Digest, maxRestored)
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if err := r.tag(ctx, tag); err != nil {
			return err
		}
	}
	return nil
}

// manifest restores a manifest unless the repo has it. It first restores the manifests that it lists, and
// afterwards the manifests about it.
func (r *restorer) manifest(ctx context.Context, repo resource.UID, digest string) error {
	m := registry.Manifest{Digest: digest}
	err := r.Row(ctx, `SELECT t.media_type, t.artifact_type, t.subject FROM trash_manifests AS t
		WHERE t.repo = $1 AND t.digest = $2`+r.DB.Engine.ForDelete, []any{store.Segment(repo), digest},
		&m.MediaType, &m.ArtifactType, &m.Subject)
	if errors.Is(err, sql.ErrNoRows) {
		if err := r.holdManifest(ctx, repo, digest); !errors.Is(err, fault.NotFound) {
			return err
		}
		return contentGone(digest)
	}
	if err != nil {
		return err
	}
	e, err := store.One(ctx, r.Rows, &trash, resource.UID(digest),
		` WHERE t.parent = $1 AND t.kind = $2 AND t.name = '' AND t.digest = $3`+r.DB.Engine.ForDelete,
		store.Segment(repo), int(registry.TrashManifest), digest)
	if err != nil {
		return err
	}
	if err := r.needs(ctx, repo, digest); err != nil {
		return err
	}
	if err := r.putBack(ctx, repo, m); err != nil {
		return err
	}
	if err := r.done(ctx, e); err != nil {
		return err
	}
	about, err := store.ReadColumn[string](ctx, r.Rows, `SELECT m.digest FROM trash_manifests AS m
		JOIN trash AS t ON t.seg = m.entry WHERE m.repo = $1 AND m.subject = $2 AND m.subject <> '' AND t.create_ms >= $3
		ORDER BY m.digest LIMIT $4`, store.Segment(repo), digest, store.MS(e.CreateTime), maxRestored)
	if err != nil {
		return err
	}
	for _, a := range about {
		if err := r.manifest(ctx, repo, a); err != nil {
			return err
		}
	}
	return nil
}

func contentGone(digest string) error {
	return fault.Unmet("CONTENT_GONE", "it cannot be restored, because %s is gone", digest)
}

// needs restores the blobs and manifests that a manifest in the trash needs, and holds them until the commit.
func (r *restorer) needs(ctx context.Context, repo resource.UID, digest string) error {
	children, err := store.ReadColumn[string](ctx, r.Rows, `SELECT DISTINCT child FROM trash_refs
		WHERE repo = $1 AND digest = $2 AND child IS NOT NULL ORDER BY child`, store.Segment(repo), digest)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := r.manifest(ctx, repo, child); err != nil {
			return err
		}
	}
	blobs, err := store.ReadColumn[string](ctx, r.Rows, `SELECT DISTINCT blob FROM trash_refs
		WHERE repo = $1 AND digest = $2 AND blob IS NOT NULL ORDER BY blob`, store.Segment(repo), digest)
	if err != nil {
		return err
	}
	held, err := heldDigests(ctx, r.Rows, "repo_blobs", repo, blobs, r.DB.Engine.ForShare)
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		if !held[blob] {
			if err := r.blob(ctx, repo, blob); err != nil {
				return err
			}
		}
	}
	return nil
}

// blob moves a blob from the trash to its repo.
func (r *restorer) blob(ctx context.Context, repo resource.UID, digest string) error {
	n, err := r.Exec(ctx, `DELETE FROM trash_blobs WHERE repo = $1 AND digest = $2`, store.Segment(repo), digest)
	if err != nil {
		return err
	}
	var size int64
	err = r.Row(ctx, `SELECT t.size FROM blobs AS t WHERE t.digest = $1`+r.DB.Engine.ForShare, []any{digest}, &size)
	if n == 0 || errors.Is(err, sql.ErrNoRows) {
		return contentGone(digest)
	}
	if err != nil {
		return err
	}
	if err := r.CountBytes(ctx, repo, -size); err != nil {
		return err
	}
	return r.link(ctx, repo, digest)
}

// putBack moves a manifest from the trash to its repo, which has everything that the manifest needs.
func (r *restorer) putBack(ctx context.Context, repo resource.UID, m registry.Manifest) error {
	args := []any{store.Segment(repo), m.Digest}
	n, err := r.Exec(ctx, `INSERT INTO manifests (`+manifestColumns+`) SELECT `+manifestColumns+` FROM trash_manifests
		WHERE repo = $1 AND digest = $2 ON CONFLICT (repo, digest) DO NOTHING`, args...)
	if err != nil {
		return err
	}
	if n == 0 { // the manifest was pushed again after its deletion
		return errors.Join(r.holdManifest(ctx, repo, m.Digest), r.forgetTrashed(ctx, repo, m.Digest))
	}
	for _, text := range []string{
		`INSERT INTO manifest_refs (repo, digest, blob, child) SELECT repo, digest, blob, child FROM trash_refs
			WHERE repo = $1 AND digest = $2`,
		`DELETE FROM trash_refs WHERE repo = $1 AND digest = $2`,
		`DELETE FROM trash_manifests WHERE repo = $1 AND digest = $2`,
	} {
		if _, err := r.Exec(ctx, text, args...); err != nil {
			return err
		}
	}
	if err := r.queueImage(ctx, repo, m); err != nil {
		return err
	}
	return r.queueBereft(ctx, repo, m.Digest) // also correct for documents that are added
}

const manifestColumns = `repo, digest, media_type, size, subject, artifact_type, annotations, push_ms, body, actor`

// repo restores a repo.
func (r *restorer) repo(ctx context.Context, e registry.TrashEntry) error {
	was := *e.WasRepo
	was.UpdateTime = r.DB.TimeAfter(was.UpdateTime)
	if err := store.Insert(ctx, r.Tx.Tx, &repos, was); err != nil {
		return err
	}
	r.PathsChanged()
	if err := r.repoContent(ctx, e); err != nil {
		return err
	}
	gone, err := store.ReadMap[resource.TagClass, int](ctx, r.Rows,
		`SELECT class, count(*) FROM tags WHERE parent = $1 GROUP BY class`, store.Segment(was.UID))
	if err != nil {
		return err
	}
	for class, n := range gone {
		if err := r.Count(ctx, store.TagCounter(class), was.UID.NewChild(), n); err != nil {
			return err
		}
	}
	quoted := func(types []string) string { return `'` + strings.Join(types, `', '`) + `'` }
	r.Wakes(store.InspectionQueue)
	if _, err := r.Exec(ctx, `INSERT INTO images
			(repo, digest, root, uid, state, reason, extractors, tries, rank, due_ms, update_ms)
		SELECT m.repo, m.digest, CAST($2 AS BIGINT), CAST($3 AS TEXT), CAST($4 AS BIGINT), '', 0, 0, CAST($5 AS BIGINT),
		`+r.DB.Engine.Clock+`, CAST($6 AS BIGINT) FROM manifests AS m WHERE m.repo = $1
		AND m.subject = '' AND m.media_type IN (`+quoted(registry.ImageManifests)+`)
		AND m.artifact_type IN (`+quoted(registry.ImageConfigs)+`) ON CONFLICT (repo, digest) DO NOTHING`,
		store.Segment(was.UID), store.Segment(was.UID.Root()), string(was.UID), int(registry.ImageWaiting), RankPushed,
		store.MS(r.DB.Time())); err != nil {
		return err
	}
	return r.done(ctx, e)
}

// repoContent moves the content of a repo from the trash to the repo. It restores the blobs first, and returns
// fault.FailedPrecondition if one is gone.
func (r *restorer) repoContent(ctx context.Context, e registry.TrashEntry) error {
	repo, entry := store.Segment(e.Repo()), store.Segment(e.UID)
	const ofEntry = `SELECT m.digest FROM trash_manifests AS m WHERE m.repo = $1 AND m.entry = $2`
	if _, err := r.Exec(ctx, `INSERT INTO repo_blobs (repo, digest, create_ms)
		SELECT t.repo, t.digest, CAST($3 AS BIGINT) FROM trash_blobs AS t WHERE t.repo = $1
		AND EXISTS (SELECT 1 FROM blobs AS b WHERE b.digest = t.digest)
		AND t.digest IN (SELECT f.blob FROM trash_refs AS f WHERE f.repo = $1 AND f.digest IN (`+ofEntry+`))`,
		repo, entry, store.MS(r.DB.Time())); err != nil {
		return err
	}
	lost, err := store.ReadColumn[string](ctx, r.Rows, `SELECT f.blob FROM trash_refs AS f WHERE f.repo = $1
		AND f.digest IN (`+ofEntry+`) AND f.blob IS NOT NULL AND NOT EXISTS (SELECT 1 FROM repo_blobs AS b
		WHERE b.repo = $1 AND b.digest = f.blob) LIMIT 1`, repo, entry)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		return contentGone(lost[0])
	}
	for _, text := range []string{
		`INSERT INTO manifests (` + manifestColumns + `) SELECT ` + manifestColumns + ` FROM trash_manifests
			WHERE repo = $1 AND entry = $2`,
		`INSERT INTO manifest_refs (repo, digest, blob, child) SELECT repo, digest, blob, child FROM trash_refs
			WHERE repo = $1 AND digest IN (` + ofEntry + `)`,
		`DELETE FROM trash_refs WHERE repo = $1 AND digest IN (` + ofEntry + `)`,
		`DELETE FROM trash_manifests WHERE repo = $1 AND entry = $2`,
	} {
		if _, err := r.Exec(ctx, text, repo, entry); err != nil {
			return err
		}
	}
	for _, text := range []string{
		`DELETE FROM trash_blobs WHERE repo = $1 AND digest IN (SELECT b.digest FROM repo_blobs AS b WHERE b.repo = $1)`,
		`UPDATE repos SET readme = (SELECT t.readme FROM trash_repos AS t WHERE t.seg = $1) WHERE seg = $1`,
		`INSERT INTO deployments (repo, uid, detail, create_ms, update_ms)
			SELECT seg, uid, deployment, deployment_create_ms, deployment_update_ms FROM trash_repos
			WHERE seg = $1 AND deployment IS NOT NULL`,
		`INSERT INTO tags (` + tagColumns + `) SELECT ` + tagColumns + ` FROM trash_tags WHERE parent = $1`,
		`INSERT INTO tag_history (repo, name, digest, actor, at_ms) SELECT repo, name, digest, actor, at_ms
			FROM trash_tag_history WHERE repo = $1 ORDER BY seq`,
		`DELETE FROM trash_tags WHERE parent = $1`,
		`DELETE FROM trash_tag_history WHERE repo = $1`,
		`DELETE FROM trash_repos WHERE seg = $1`,
	} {
		if _, err := r.Exec(ctx, text, repo); err != nil {
			return err
		}
	}
	return nil
}
