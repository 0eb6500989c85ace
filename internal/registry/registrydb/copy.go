package registrydb

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Copying describes a copy of images from one repo to another, or within one repo.
type Copying struct {
	From      resource.UID
	To        RepoRef
	Manifests []registry.Manifest    // manifests to copy; each comes after the manifests that it needs
	Images    []registry.CopiedImage // the requested manifests, with their tags
	Attached  []registry.CopiedImage // tags that attach artifacts to the images
	Promote   bool
	Reason    string
	Frozen    func(string) bool // reports whether a tag of the target repo must not be moved

	By    resource.UID // the identity that copies
	Agent string       // user agent in the records of the pulls and pushes; "" means "copy"
}

// CopyImages adds manifests of one repo to another, with their blobs, and tags them, in one transaction. It copies no
// bytes. The copy is recorded as a pull from the source and a push to the target.
//
// It returns fault.NotFound if a repo, a group or a manifest does not exist, and fault.Aborted if a tag of the
// source has moved since the caller read it. It returns a *MissingError or fault.FailedPrecondition as
// PutManifest does; but if the target follows another repo, it returns fault.FailedPrecondition even without
// tags.
func (s *Store) CopyImages(ctx context.Context, c Copying) (registry.ImageCopy, error) {
	c.By = resource.ActorFrom(ctx).Subject
	return s.CopyInto(ctx, c, func(t Tx) (resource.UID, error) {
		if err := t.Require(ctx, "repos", "repo", c.From); err != nil {
			return "", err
		}
		repo, err := t.ensureUnfollowing(ctx, c.To)
		if err == nil && repo.Parent() != c.To.Group {
			err = fault.Missing("group", string(c.To.Group))
		}
		return repo, err
	})
}

// CopyInto is CopyImages into the repo that hold returns, instead of into c.To. hold runs at the start of each
// attempt of the transaction and must hold both repos until the commit.
func (s *Store) CopyInto(
	ctx context.Context, c Copying, hold func(Tx) (resource.UID, error),
) (done registry.ImageCopy, _ error) {
	err := s.retryCollected(ctx, func(t Tx) (err error) {
		done = registry.ImageCopy{From: c.From, Promoted: c.Promote, Reason: c.Reason, By: c.By}
		if done.Repo, err = hold(t); err != nil {
			return err
		}
		if err := t.holdCopied(ctx, c); err != nil {
			return err
		}
		if err := t.copyContent(ctx, c, &done); err != nil {
			return err
		}
		if err := t.tagCopies(ctx, c, &done); err != nil {
			return err
		}
		return t.recordCopy(ctx, c, done)
	})
	return done, err
}

// holdCopied holds the copied manifests and tags of the source until the commit.
func (t Tx) holdCopied(ctx context.Context, c Copying) error {
	for _, m := range c.Manifests {
		if err := t.holdManifest(ctx, c.From, m.Digest); err != nil {
			return err
		}
	}
	for _, i := range slices.Concat(c.Images, c.Attached) {
		if i.FromTag == "" {
			continue
		}
		var digest string
		err := t.Row(ctx, `SELECT t.digest FROM tags AS t WHERE t.parent = $1 AND t.name = $2`+t.DB.Engine.ForShare,
			[]any{store.Segment(c.From), i.FromTag}, &digest)
		if err != nil {
			return store.Missing(err, "tag", resource.UID(i.FromTag))
		}
		if digest != i.Digest {
			return fault.New(fault.Aborted, "Aborted: tag %s was moved by another request; try again", i.FromTag)
		}
	}
	return nil
}

// copyContent adds the manifests and their blobs to the target. It adds to done only the content that the target did
// not have.
func (t Tx) copyContent(ctx context.Context, c Copying, done *registry.ImageCopy) error {
	var blobs []string
	for _, m := range c.Manifests {
		for _, n := range m.Needs {
			if !n.Manifest {
				blobs = append(blobs, n.Digest)
			}
		}
	}
	slices.Sort(blobs) // every transaction locks blobs in this order, which prevents deadlocks
	blobs = slices.Compact(blobs)
	held, err := heldDigests(ctx, t.Rows, "repo_blobs", c.From, blobs, t.DB.Engine.ForShare)
	if err != nil {
		return err
	}
	present, err := heldDigests(ctx, t.Rows, "repo_blobs", done.Repo, blobs, ``)
	if err != nil {
		return err
	}
	for _, digest := range blobs {
		if !held[digest] {
			continue // addManifest decides whether the blob may be missing
		}
		if err := t.link(ctx, done.Repo, digest); err != nil {
			return err
		}
		if present[digest] {
			continue
		}
		var size int64
		if err := t.Row(ctx, `SELECT size FROM blobs WHERE digest = $1`, []any{digest}, &size); err != nil {
			return err
		}
		done.Bytes += size
	}
	return t.copyManifests(ctx, c, done)
}

func (t Tx) copyManifests(ctx context.Context, c Copying, done *registry.ImageCopy) error {
	var digests []string
	for _, m := range c.Manifests {
		digests = append(digests, m.Digest)
	}
	present, err := heldDigests(ctx, t.Rows, "manifests", done.Repo, digests, ``)
	if err != nil {
		return err
	}
	for _, m := range c.Manifests {
		if err := t.addManifest(ctx, done.Repo, m); err != nil {
			return err
		}
		if !present[m.Digest] {
			done.Manifests++
			done.Bytes += int64(len(m.Body))
		}
	}
	for _, i := range c.Images {
		i.Present = present[i.Digest]
		done.Images = append(done.Images, i)
	}
	return nil
}

// tagCopies sets the tags of the target.
func (t Tx) tagCopies(ctx context.Context, c Copying, done *registry.ImageCopy) error {
	tag := func(i *registry.CopiedImage) error {
		if i.Tag == "" {
			return nil
		}
		g := registry.Tag{UID: done.Repo.NewChild(), Name: i.Tag, Digest: i.Digest}
		before, err := t.tagNamed(ctx, g)
		if err == nil && before.Digest != i.Digest {
			i.Replaced = before.Digest
		}
		_, err = t.setTag(ctx, g, known(c.Frozen))
		return err
	}
	for n := range done.Images {
		if err := tag(&done.Images[n]); err != nil {
			return err
		}
	}
	for _, i := range c.Attached {
		if err := tag(&i); err != nil {
			return err
		}
	}
	return nil
}

// recordCopy records a copy as pulls and pushes, and adds its events.
func (t Tx) recordCopy(ctx context.Context, c Copying, done registry.ImageCopy) error {
	types := map[string]string{}
	for _, m := range c.Manifests {
		types[m.Digest] = m.MediaType
	}
	actor, time := resource.ActorFrom(ctx), t.DB.Time()
	var records []registry.Pull
	used := map[int64]bool{} // segments in use; all records have the same time, so two random segments may collide
	newChild := func(repo resource.UID) resource.UID {
		uid := repo.NewRisingChild(time)
		for used[store.Segment(uid)] {
			uid = repo.NewRisingChild(time)
		}
		used[store.Segment(uid)] = true
		return uid
	}
	for _, i := range done.Images {
		p := registry.Pull{
			Digest: i.Digest, Identity: actor.Subject, Remote: actor.Remote, Agent: cmp.Or(c.Agent, "copy"), Time: time,
		}
		p.UID, p.Tag = newChild(done.From), i.FromTag
		records = append(records, p)
		p.UID, p.Tag, p.Push = newChild(done.Repo), i.Tag, true
		records = append(records, p)
		var tags []string
		if i.Tag != "" {
			tags = []string{i.Tag}
		}
		if err := t.Emit(ctx, resource.RegistryPush, done.Repo, done.Repo.Parent(), nil,
			Push{Repo: done.Repo, Digest: i.Digest, MediaType: types[i.Digest], Tags: tags}); err != nil {
			return err
		}
	}
	if err := t.insertPulls(ctx, records); err != nil {
		return err
	}
	event := resource.ImageCopied
	if done.Promoted {
		event = resource.ImagePromoted
	}
	return t.Emit(ctx, event, done.Repo, done.Repo.Parent(), nil, done)
}
