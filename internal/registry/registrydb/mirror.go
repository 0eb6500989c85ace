package registrydb

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A mirrored repo stores a manifest before the blobs and manifests that it needs, because the server fetches these
// only when a client asks for them. Until then, they are listed in the table awaited. Every transaction that adds to
// a mirrored repo locks it first, so that a manifest and a blob that arrive at the same time do not miss each other.

// MirrorManifest stores a manifest from an upstream. Unless tag is "", it points the tag at the manifest and
// records the time at which the tag was seen. It returns the repo, which it may have created, and
// fault.FailedPrecondition if the tag would move and frozen forbids it.
func (s *Store) MirrorManifest(
	ctx context.Context, ref RepoRef, m registry.Manifest, tag string, frozen func(string) bool,
) (repo resource.UID, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		if repo, err = t.lockMirror(ctx, ref); err != nil {
			return err
		}
		added, err := t.addMirrored(ctx, repo, m)
		if err != nil {
			return err
		}
		moved, tags := false, []string(nil)
		if tag != "" {
			tags = []string{tag}
			if moved, err = t.moveTag(ctx, repo, tag, m.Digest, frozen); err != nil {
				return err
			}
			if err := t.seeTag(ctx, repo, tag); err != nil {
				return err
			}
		}
		if !added && !moved {
			return nil
		}
		return t.Emit(ctx, resource.RegistryPush, repo, repo.Parent(), nil,
			Push{Repo: repo, Digest: m.Digest, MediaType: m.MediaType, Tags: tags})
	})
	return repo, err
}

// moveTag points a tag at a manifest. It reports whether the tag is new or has moved.
func (t Tx) moveTag(
	ctx context.Context, repo resource.UID, tag, digest string, frozen func(string) bool,
) (moved bool, _ error) {
	before, err := t.tagNamed(ctx, registry.Tag{UID: repo.NewChild(), Name: tag})
	if err == nil && before.Digest == digest {
		return false, nil
	}
	_, err = t.setTag(ctx, registry.Tag{UID: repo.NewChild(), Name: tag, Digest: digest}, known(frozen))
	return err == nil, err
}

// lockMirror locks and returns the repo that ref names. It creates the repo if it is missing and ref.Create is set.
func (t Tx) lockMirror(ctx context.Context, ref RepoRef) (resource.UID, error) {
	repo, err := t.ensureRepo(ctx, ref)
	if err != nil {
		return "", err
	}
	return repo, t.LockRepo(ctx, repo)
}

// LockRepo locks a repo for a change until the commit. It returns fault.NotFound if there is no such repo.
func (t Tx) LockRepo(ctx context.Context, repo resource.UID) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM repos AS t WHERE t.seg = $1`+t.DB.Engine.ForUpdate, []any{store.Segment(repo)}, &one)
	return store.Missing(err, "repo", repo)
}

// addMirrored stores a manifest unless the repo has it, and records in awaited which blobs and manifests it needs
// that the repo lacks. An image is inspected when the repo has all of its layers.
func (t Tx) addMirrored(ctx context.Context, repo resource.UID, m registry.Manifest) (added bool, _ error) {
	added, err := t.insertManifest(ctx, repo, m)
	if err != nil || !added {
		return false, err
	}
	if err := t.CountBytes(ctx, repo, int64(len(m.Body))); err != nil {
		return false, err
	}
	absent, err := t.addRefs(ctx, repo, m)
	if err != nil {
		return false, err
	}
	if err := t.queueImage(ctx, repo, m); err != nil {
		return false, err
	}
	if err := t.queueSBOMs(ctx, repo, append(m.About, m.Subject)...); err != nil {
		return false, err
	}
	var rows [][]any
	for _, n := range absent {
		rows = append(rows, []any{store.Segment(repo), n.Digest, m.Digest, n.Manifest})
	}
	if err := t.InsertRows(ctx, `INSERT INTO awaited (repo, need, digest, manifest)`, rows, ""); err != nil {
		return false, err
	}
	if len(rows) > 0 { // MaxInt32 as the version of the extractors keeps SweepImages from queueing the image
		const reason = "its layers have not been pulled from the upstream yet"
		if err := t.Later(ctx, `UPDATE images SET due_ms = NULL, reason = $3, extractors = $4
			WHERE repo = $1 AND digest = $2`, store.Segment(repo), m.Digest, reason, math.MaxInt32); err != nil {
			return false, err
		}
	}
	return true, t.arrived(ctx, repo, m.Digest, true)
}

// arrived is called when a repo gets a blob or manifest. It replaces the rows of awaited for it by references, and
// queues the images whose blobs are now complete.
func (t Tx) arrived(ctx context.Context, repo resource.UID, digest string, manifest bool) error {
	waiting, err := store.ReadColumn[string](ctx, t.Rows,
		`DELETE FROM awaited WHERE repo = $1 AND need = $2 AND manifest = $3 RETURNING digest`,
		store.Segment(repo), digest, manifest)
	if err != nil {
		return err
	}
	var refs [][]any
	for _, m := range waiting {
		refs = append(refs, refTo(repo, m, registry.Need{Digest: digest, Manifest: manifest}))
	}
	if err := t.insertRefs(ctx, refs); err != nil || manifest {
		return err
	}
	for _, m := range waiting {
		if err := t.Later(ctx, `UPDATE images SET due_ms = `+t.DB.Engine.Clock+`, reason = ''
			WHERE repo = $1 AND digest = $2 AND due_ms IS NULL
			AND NOT EXISTS (SELECT 1 FROM awaited AS a WHERE a.repo = $1 AND a.digest = $2)`,
			store.Segment(repo), m); err != nil {
			return err
		}
	}
	return nil
}

// MirrorBlob adds a blob from an upstream to a repo. It reports whether b.Path is used, as AddBlob does.
func (s *Store) MirrorBlob(ctx context.Context, ref RepoRef, b registry.Blob) (used bool, _ error) {
	err := s.retryCollected(ctx, func(t Tx) error {
		repo, err := t.lockMirror(ctx, ref)
		if err != nil {
			return err
		}
		if used, err = t.addBlob(ctx, repo, b); err != nil {
			return err
		}
		return t.arrived(ctx, repo, b.Digest, false)
	})
	return used, err
}

// SeeTag records that a tag points to the same digest at the upstream and in the repo now. It returns fault.NotFound
// if there is no such repo.
func (s *Store) SeeTag(ctx context.Context, repo resource.UID, tag string) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.Require(ctx, "repos", "repo", repo); err != nil {
			return err
		}
		return t.seeTag(ctx, repo, tag)
	})
}

func (t Tx) seeTag(ctx context.Context, repo resource.UID, tag string) error {
	return t.Later(ctx, `INSERT INTO upstream_tags (repo, name, seen_ms) VALUES ($1, $2, $3)
		ON CONFLICT (repo, name) DO UPDATE SET seen_ms = excluded.seen_ms`,
		store.Segment(repo), tag, store.MS(t.DB.Time()))
}

// TagSeen returns the time at which a tag was last seen at the upstream, or the zero time.
func (s *Store) TagSeen(ctx context.Context, repo resource.UID, tag string) (time.Time, error) {
	var ms int64
	err := s.Row(ctx, `SELECT seen_ms FROM upstream_tags WHERE repo = $1 AND name = $2`,
		[]any{store.Segment(repo), tag}, &ms)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return store.FromMS(ms), err
}
