package protocol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// Limits on all that is copied at once, beside resource.MaxCopied.
const (
	maxCopiedNeeds = 5000     // blobs and manifests that it refers to
	maxCopiedBytes = 16 << 20 // of manifests, which are in memory
)

// CopyImages copies images from one repo to another, without their bytes, in one transaction. The caller needs
// manifest.create and tag.create on the repo that they go to, or on its group, and repo.create on the group if there is no
// such repo; and on the one that they come from what a pull needs, unless it is public. A rule that refuses to pull an image
// refuses to copy it.
func (s *Service) CopyImages(ctx context.Context, c registry.CopyRequest) (registry.ImageCopy, error) {
	to, err := s.copyTo(ctx, c)
	if err != nil {
		return registry.ImageCopy{}, err
	}
	if err := c.Validate(); err != nil {
		return registry.ImageCopy{}, err
	}
	if err := s.requireUnmirrored(ctx, c.Group); err != nil {
		return registry.ImageCopy{}, err
	}
	public, err := s.copyFrom(ctx, c)
	if err != nil {
		return registry.ImageCopy{}, err
	}
	if to, err = s.mayCreate(ctx, to); err != nil {
		return registry.ImageCopy{}, err
	}
	rules, err := s.store.RegistrySettings(ctx, c.Group)
	if err != nil {
		return registry.ImageCopy{}, err
	}
	if err := s.images.acquireReader(ctx); err != nil {
		return registry.ImageCopy{}, err
	}
	g := &gatherer{Service: s, from: c.From, public: public, referrers: c.WithReferrers, seen: map[string]bool{}}
	if err := g.gather(ctx, c); err != nil {
		return registry.ImageCopy{}, err
	}
	done, err := s.store.CopyImages(ctx, registrydb.Copying{
		From: c.From, To: to, Manifests: g.manifests, Images: g.images, Attached: g.attached, Promote: c.Promote, Reason: c.Reason,
		Frozen: rules.Frozen,
	})
	if missing, ok := errors.AsType[*registrydb.MissingError](err); ok {
		return done, fault.Unmet("CONTENT_GONE", "it cannot be copied, because %s is not in the repo", missing.Needs[0].Digest)
	}
	return done, err
}

// copyTo authorizes the caller for the repo that images go to. Who may push to the repo alone need not be allowed to push
// to its group.
func (s *Service) copyTo(ctx context.Context, c registry.CopyRequest) (registrydb.RepoRef, error) {
	ref := registrydb.RepoRef{Group: c.Group, Name: c.Repo}
	want := []resource.Capability{resource.ManifestCreate, resource.TagCreate}
	err := s.requireEach(ctx, c.Group, want)
	if !registry.ValidRepoName(c.Repo) {
		return ref, cmp.Or(err, c.Validate())
	}
	repo, none := s.store.RepoIn(ctx, c.Group, c.Repo)
	if none != nil && !errors.Is(none, fault.NotFound) {
		return ref, none
	}
	ref.Create = none != nil
	if err != nil && none == nil && s.requireEach(ctx, repo, want) == nil {
		err = nil
	}
	if err == nil { // what is in a group is found by its last segment, which could be that of another
		_, err = s.iam.Group(ctx, c.Group)
	}
	return ref, err
}

// mayCreate returns an error if the repo of a copy is to be created, and the caller or the group does not allow it.
func (s *Service) mayCreate(ctx context.Context, to registrydb.RepoRef) (registrydb.RepoRef, error) {
	if !to.Create {
		return to, nil
	}
	if err := s.authz.Require(ctx, resource.RepoCreate, to.Group); err != nil {
		return to, err
	}
	set, err := s.store.RegistrySettings(ctx, to.Group)
	if err == nil && set.NoCreateOnPush {
		err = fault.Unmet("REPO_NOT_CREATED", "there is no repo %s, and this group does not create one: create it first", to.Name)
	}
	return to, err
}

// copyFrom authorizes the caller for the repo that images come from. It reports whether everybody may pull from it, and
// the caller may for no other reason.
func (s *Service) copyFrom(ctx context.Context, c registry.CopyRequest) (public bool, _ error) {
	want := slices.Concat(pull, pullBlob)
	if c.TagPattern != "" {
		want = append(want, resource.TagList)
	}
	if c.WithReferrers {
		want = append(want, resource.ReferrersList)
	}
	denied := s.requireEach(ctx, c.From, want)
	if denied != nil {
		set, err := s.store.RegistrySettings(ctx, c.From.Parent())
		if err != nil {
			return false, err
		}
		if !set.Public {
			return false, denied
		}
	}
	_, err := s.store.Repo(ctx, c.From)
	if denied != nil && err != nil { // the settings say nothing about a repo that is not there
		err = denied
	}
	return denied != nil, err
}

// A gatherer reads what is copied from a repo, what others need first.
type gatherer struct {
	*Service
	from      resource.UID
	public    bool
	referrers bool

	seen      map[string]bool
	needs     int
	bytes     int
	manifests []registry.Manifest
	images    []registry.CopiedImage
	attached  []registry.CopiedImage
}

// gather reads the images that were asked for.
func (g *gatherer) gather(ctx context.Context, c registry.CopyRequest) error {
	references := c.References
	if c.TagPattern != "" {
		var err error
		if references, err = g.matching(ctx, c); err != nil {
			return err
		}
	}
	for _, reference := range references {
		i := registry.CopiedImage{Tag: c.Tag}
		if !strings.Contains(reference, ":") {
			i.FromTag = reference
			if i.Tag == "" {
				i.Tag = reference
			}
		}
		digest, err := g.add(ctx, reference)
		if err != nil {
			return err
		}
		i.Digest = digest
		g.images = append(g.images, i)
		if count := g.cfg.CountPull; count != nil {
			if err := count(ctx, g.from, g.public); err != nil {
				return err
			}
		}
	}
	return nil
}

// matching returns the tags that match the pattern of a request. Those by which something is attached are not among them.
func (g *gatherer) matching(ctx context.Context, c registry.CopyRequest) (all []string, _ error) {
	const batch = 1000
	for last := ""; ; {
		names, err := g.store.TagNames(ctx, g.from, last, batch)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			last = name
			if resource.ClassOf(name) != resource.ReferrerTag && c.Matches(name) {
				all = append(all, name)
			}
		}
		if len(all) > registry.MaxCopied {
			return nil, fault.Unmet(tooManyManifests, "%s", registry.TooManyCopied())
		}
		if len(names) < batch {
			break
		}
	}
	if len(all) == 0 {
		return nil, fault.Missing("tag", c.TagPattern)
	}
	return all, nil
}

// add reads a manifest, after those that it lists and before those about it, unless it is read already. It returns its
// digest.
func (g *gatherer) add(ctx context.Context, reference string) (string, error) {
	if g.seen[reference] {
		return reference, nil
	}
	stored, err := g.store.Manifest(ctx, g.from, reference)
	if err != nil || g.seen[stored.Digest] {
		return stored.Digest, err
	}
	g.seen[stored.Digest] = true
	if len(g.seen) > registry.MaxCopied {
		return "", fault.Unmet(tooManyManifests, "%s", registry.TooManyCopied())
	}
	m, err := parseManifest(stored.MediaType, stored.Body, g.cfg.Sparse)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", stored.Digest, err)
	}
	m.Digest = stored.Digest
	if err := g.pass(ctx, m); err != nil {
		delete(g.seen, stored.Digest)
		return "", err
	}
	g.needs, g.bytes = g.needs+len(m.Needs), g.bytes+len(m.Body)
	if g.needs > maxCopiedNeeds || g.bytes > maxCopiedBytes {
		return "", fault.Unmet(tooManyBlobs, "manifests of more than %d bytes, or with more than %d blobs, would be copied at once: "+
			"copy some of them first", maxCopiedBytes, maxCopiedNeeds)
	}
	for _, n := range m.Needs {
		if !n.Manifest {
			continue
		}
		if _, err := g.add(ctx, n.Digest); err != nil && !(n.Optional && errors.Is(err, fault.NotFound)) {
			return "", err
		}
	}
	g.manifests = append(g.manifests, m)
	if g.referrers {
		err = g.addReferrers(ctx, m.Digest)
	}
	return m.Digest, err
}

// try is add that leaves nothing of a manifest if it fails.
func (g *gatherer) try(ctx context.Context, reference string) (string, error) {
	manifests, attached, needs, bytes := len(g.manifests), len(g.attached), g.needs, g.bytes
	digest, err := g.add(ctx, reference)
	if err == nil {
		return digest, nil
	}
	g.manifests, g.attached, g.needs, g.bytes = g.manifests[:manifests], g.attached[:attached], needs, bytes
	clear(g.seen)
	for _, m := range g.manifests {
		g.seen[m.Digest] = true
	}
	return "", err
}

// pass returns an error if a rule refuses to pull a manifest.
func (g *gatherer) pass(ctx context.Context, m registry.Manifest) error {
	if g.cfg.Gate == nil {
		return nil
	}
	why, err := g.cfg.Gate(ctx, g.from, m, g.public)
	if err == nil && why != "" {
		err = fault.Unmet(pullRefused, "pulls of %s are refused: %s", m.Digest, why)
	}
	return err
}

// Violations of what can be copied.
const (
	pullRefused      = "PULL_REFUSED"
	tooManyManifests = "TOO_MANY_MANIFESTS"
	tooManyBlobs     = "TOO_MANY_BLOBS"
)

// isRefused reports whether a rule has refused to pull something.
func isRefused(err error) bool { return violates(err, pullRefused) }

// violates reports whether err is that one of some preconditions does not hold.
func violates(err error, kinds ...string) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && len(f.Unmet) > 0 && slices.Contains(kinds, f.Unmet[0].Subject)
}

// addReferrers reads what is attached to a manifest, by its subject or by a tag. What a rule refuses is left out: whoever may
// attach something must not keep others from copying the image.
func (g *gatherer) addReferrers(ctx context.Context, digest string) error {
	for last := ""; ; {
		some, err := g.store.Referrers(ctx, g.from, digest, "", last, referrersPerQuery)
		if err != nil {
			return err
		}
		for _, m := range some {
			last = m.Digest
			if _, err := g.add(ctx, m.Digest); err != nil && !isRefused(err) {
				return err
			}
		}
		if len(some) < referrersPerQuery {
			break
		}
	}
	prefix := strings.Replace(digest, ":", "-", 1)
	names, err := g.store.TagNames(ctx, g.from, prefix[:len(prefix)-1], registry.MaxCopied)
	if err != nil {
		return err
	}
	for _, name := range names {
		if subject, _, ok := registry.AttachedTag(name); !ok || subject != digest {
			continue
		}
		attached, err := g.add(ctx, name)
		if isRefused(err) {
			continue
		}
		if err != nil {
			return err
		}
		g.attached = append(g.attached, registry.CopiedImage{Digest: attached, Tag: name, FromTag: name})
	}
	return nil
}
