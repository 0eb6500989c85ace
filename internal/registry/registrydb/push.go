package registrydb

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Push is what the event of one tells.
type Push struct {
	Repo      resource.UID `json:"repo"`
	Digest    string       `json:"digest"`
	MediaType string       `json:"mediaType"`
	Tags      []string     `json:"tags,omitempty"`
}

// PutManifest stores m in the repo and points every tag at it: all of it or
// nothing. It returns the repo, which it may have made, a *MissingError if the
// repo lacks what m needs, fault.FailedPrecondition if a tag would move that is
// immutable by the settings of the group, or if there are tags and the repo follows
// another, and fault.NotFound if there is no such repo or group.
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

// pushing is a push to a repo that is held until the commit.
type pushing struct {
	repo     resource.UID
	manifest registry.Manifest
	tags     []registry.Tag
	frozen   frozenTags
}

// pushCarefully looks what there is before it writes what refers to it.
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

// errDeleted says that something was deleted between two statements of a push.
var errDeleted = errors.New("deleted meanwhile")

// pushQuickly is pushCarefully with as few round trips as PostgreSQL lets it have: it adds the manifest and the tags at once,
// because most are new, and has the database refuse what the repo lacks, because who pushes an image has almost always
// pushed what it needs. If the database refuses something, nobody knows all that is missing, and it must be pushed carefully.
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

// insertPushed adds a manifest and tags in one round trip. It reports which of them were not there.
func (t Tx) insertPushed(ctx context.Context, p pushing) (added bool, fresh []bool, _ error) {
	all := []store.Statement{t.manifestInsertion(ctx, p.repo, p.manifest)}
	for i := range p.tags {
		g := &p.tags[i]
		g.UpdateTime = t.DB.Time()
		g.CreateTime = g.UpdateTime
		d, err := store.Insertion(t.Tx, &tags, *g)
		if err != nil {
			return false, nil, err
		}
		all = append(all, d)
	}
	n, err := t.ExecAll(ctx, all)
	if err != nil {
		return false, nil, err
	}
	for _, touched := range n[1:] {
		fresh = append(fresh, touched == 1)
	}
	return n[0] == 1, fresh, nil
}

// retag changes a tag that is there.
func (t Tx) retag(ctx context.Context, g registry.Tag, frozen frozenTags) error {
	before, err := t.tagNamed(ctx, g)
	if err != nil {
		return orDeleted(err)
	}
	_, err = t.changeTag(ctx, before, g, frozen)
	return err
}

// orDeleted turns the absence of what was there a moment ago into errDeleted.
func orDeleted(err error) error {
	if errors.Is(err, fault.NotFound) {
		return errDeleted
	}
	return err
}
