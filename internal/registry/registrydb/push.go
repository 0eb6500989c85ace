package registrydb

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A Push is the content of the event for a push.
type Push struct {
	Repo      resource.UID `json:"repo"`
	Digest    string       `json:"digest"`
	MediaType string       `json:"mediaType"`
	Tags      []string     `json:"tags,omitempty"`
}

// PutManifest stores m in the repo and points every tag at it, in one transaction. It returns the repo, which it may
// have created.
//
// It returns a *MissingError if the repo lacks a blob or manifest that m needs, and fault.NotFound if there is
// no such repo or group. It returns fault.FailedPrecondition if a tag that the settings of the group make
// immutable would move, or if there are tags and the repo follows another.
func (s *Store) PutManifest(
	ctx context.Context, ref RepoRef, m registry.Manifest, tags []string,
) (repo resource.UID, _ error) {
	push := func(how func(Tx, context.Context, pushing) error) error {
		return s.write(ctx, func(t Tx) (err error) {
			ensure := t.ensureRepo
			if len(tags) > 0 {
				ensure = t.ensureUnfollowing
			}
			if repo, err = ensure(ctx, ref); err != nil {
				return err
			}
			p := pushing{repo: repo, manifest: m, frozen: s.frozenIn(ctx, t, ref.Group)}
			for _, name := range tags {
				p.tags = append(p.tags, registry.Tag{UID: repo.NewChild(), Name: name, Digest: m.Digest})
			}
			if err := how(t, ctx, p); err != nil {
				return err
			}
			return t.Emit(ctx, resource.RegistryPush, repo, repo.Parent(), nil,
				Push{Repo: repo, Digest: m.Digest, MediaType: m.MediaType, Tags: tags})
		})
	}
	optional := func(n registry.Need) bool { return n.Optional }
	if s.Engine.Postgres && !slices.ContainsFunc(m.Needs, optional) {
		if err := push(Tx.pushQuickly); !s.Dangling(err) && !errors.Is(err, errDeleted) {
			return repo, err
		}
	}
	err := push(Tx.pushCarefully)
	return repo, err
}

// A pushing is a push to a repo that the transaction already holds.
type pushing struct {
	repo     resource.UID
	manifest registry.Manifest
	tags     []registry.Tag
	frozen   frozenTags
}

// pushCarefully stores a push. It looks up the blobs and manifests that the manifest needs before it writes
// references to them.
func (t Tx) pushCarefully(ctx context.Context, p pushing) error {
	if err := t.addManifest(ctx, p.repo, p.manifest); err != nil {
		return err
	}
	for _, g := range p.tags {
		if _, err := t.setTag(ctx, g, p.frozen); err != nil {
			return err
		}
	}
	return nil
}

// errDeleted means that a row was deleted between two statements of a push.
var errDeleted = errors.New("deleted during the push")

// pushQuickly is pushCarefully with fewer round trips, for PostgreSQL. It inserts the manifest and the tags together,
// because most are new. It does not look up the blobs and manifests that the manifest needs, because clients almost
// always push them first. If one is missing, a foreign key refuses the reference. That error does not name everything
// that is missing, so the caller then calls pushCarefully.
func (t Tx) pushQuickly(ctx context.Context, p pushing) error {
	added, fresh, err := t.insertPushed(ctx, p)
	if err != nil {
		return err
	}
	if added {
		err = t.noteManifest(ctx, p.repo, p.manifest)
		var refs [][]any
		for _, n := range p.manifest.Needs {
			refs = append(refs, refTo(p.repo, p.manifest.Digest, n))
		}
		err = errors.Join(err, t.insertRefs(ctx, refs))
	} else {
		err = orDeleted(t.holdManifest(ctx, p.repo, p.manifest.Digest))
	}
	for i, g := range p.tags {
		switch {
		case err != nil:
			return err
		case fresh[i]:
			err = t.noteTag(ctx, g)
		default:
			err = t.retag(ctx, g, p.frozen)
		}
	}
	return err
}

// insertPushed inserts a manifest and its tags in one round trip. It reports which of them are new.
func (t Tx) insertPushed(ctx context.Context, p pushing) (added bool, fresh []bool, _ error) {
	statements := []engine.Statement{t.manifestInsertion(ctx, p.repo, p.manifest)}
	for i := range p.tags {
		g := &p.tags[i]
		g.UpdateTime = t.DB.Time()
		g.CreateTime = g.UpdateTime
		d, err := store.Insertion(t.Tx, &tags, *g)
		if err != nil {
			return false, nil, err
		}
		statements = append(statements, d)
	}
	n, err := t.ExecAll(ctx, statements)
	if err != nil {
		return false, nil, err
	}
	for _, touched := range n[1:] {
		fresh = append(fresh, touched == 1)
	}
	return n[0] == 1, fresh, nil
}

// retag moves a tag that already existed when insertPushed ran.
func (t Tx) retag(ctx context.Context, g registry.Tag, frozen frozenTags) error {
	before, err := t.tagNamed(ctx, g)
	if err != nil {
		return orDeleted(err)
	}
	_, err = t.changeTag(ctx, before, g, frozen)
	return err
}

// orDeleted replaces fault.NotFound by errDeleted, because an earlier statement of the push has found the row.
func orDeleted(err error) error {
	if errors.Is(err, fault.NotFound) {
		return errDeleted
	}
	return err
}
