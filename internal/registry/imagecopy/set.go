// Package imagecopy reads the manifests that a copy of images from one repo to another needs.
package imagecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// Limits on a Set, in addition to registry.MaxCopied.
const (
	maxNeeds = 5000     // blobs and manifests to which the manifests refer
	maxBytes = 16 << 20 // total size of the manifests in bytes; they are all in memory

	referrersPerQuery = 8 // small, because each referrer can have oci.MaxManifest bytes
	tagsPerQuery      = 1000
)

// Codes of the preconditions of a copy.
const (
	pullRefused      = "PULL_REFUSED"
	tooManyManifests = "TOO_MANY_MANIFESTS"
	tooManyBlobs     = "TOO_MANY_BLOBS"
)

// A Copier reads the manifests of a copy. It applies the rules for pulls.
type Copier struct {
	Store  *registrydb.Store
	Sparse bool // whether the blobs and children of a manifest may be missing

	// CountPull returns an error if there were too many pulls from a repo. It may be nil. public is true if the caller
	// may pull only because the repo is public.
	CountPull func(ctx context.Context, repo resource.UID, public bool) error

	Gate Gate // checks each manifest; nil refuses nothing
}

// A Gate enforces the rules for pulls.
type Gate interface {
	// Check returns the reason why a rule refuses the pull of a manifest to the caller, or "". public is true if the
	// caller may pull only because the repo is public.
	Check(ctx context.Context, repo resource.UID, m registry.Manifest, public bool) (why string, err error)
}

// A Set is the content of one copy. In Manifests, each manifest comes after the manifests to which it refers.
type Set struct {
	Manifests []registry.Manifest
	Images    []registry.CopiedImage // images that were requested
	Attached  []registry.CopiedImage // tags of the artifacts that are attached to the images

	copier    *Copier
	from      resource.UID
	public    bool
	referrers bool            // whether to copy referrers, too
	seen      map[string]bool // digests of the manifests in the set
	needs     int             // number of blobs and manifests to which Manifests refer
	bytes     int             // total size of Manifests
}

// NewSet returns an empty set for a copy from a repo. public is true if the caller may pull only because the repo is
// public. If referrers is true, the set includes the artifacts that are attached to images.
func (c *Copier) NewSet(from resource.UID, public, referrers bool) *Set {
	return &Set{copier: c, from: from, public: public, referrers: referrers, seen: map[string]bool{}}
}

// AddRequested adds the images of a request. It returns fault.NotFound if an image does not exist or no tag matches,
// and fault.FailedPrecondition if a rule refuses to pull an image or the set exceeds a limit.
func (s *Set) AddRequested(ctx context.Context, c registry.CopyRequest) error {
	references := c.References
	if c.TagPattern != "" {
		var err error
		if references, err = s.matchingTags(ctx, c); err != nil {
			return err
		}
	}
	for _, reference := range references {
		image := registry.CopiedImage{Tag: c.Tag}
		if oci.TagOf(reference) != "" {
			image.FromTag = reference
			if image.Tag == "" {
				image.Tag = reference
			}
		}
		digest, err := s.add(ctx, reference)
		if err != nil {
			return err
		}
		image.Digest = digest
		s.Images = append(s.Images, image)
		if err := s.copier.CountPullFrom(ctx, s.from, s.public); err != nil {
			return err
		}
	}
	return nil
}

// CountPullFrom counts a pull from a repo. It returns fault.ResourceExhausted if there were too many pulls.
func (c *Copier) CountPullFrom(ctx context.Context, repo resource.UID, public bool) error {
	if c.CountPull == nil {
		return nil
	}
	return c.CountPull(ctx, repo, public)
}

// matchingTags returns the tags that match the pattern of a request, without the tags of attached artifacts.
func (s *Set) matchingTags(ctx context.Context, c registry.CopyRequest) (tags []string, _ error) {
	for last := ""; ; {
		names, err := s.copier.Store.TagNames(ctx, s.from, last, tagsPerQuery)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			last = name
			if resource.ClassOf(name) != resource.ReferrerTag && c.Matches(name) {
				tags = append(tags, name)
			}
		}
		if len(tags) > registry.MaxCopied {
			return nil, fault.Unmet(tooManyManifests, "%s", registry.TooManyCopied())
		}
		if len(names) < tagsPerQuery {
			break
		}
	}
	if len(tags) == 0 {
		return nil, fault.Missing("tag", c.TagPattern)
	}
	return tags, nil
}

// add adds a manifest after its children and before its referrers, unless the set already has it. It returns the
// digest of the manifest.
func (s *Set) add(ctx context.Context, reference string) (digest string, _ error) {
	if s.seen[reference] {
		return reference, nil
	}
	stored, err := s.copier.Store.Manifest(ctx, s.from, reference)
	if err != nil || s.seen[stored.Digest] {
		return stored.Digest, err
	}
	s.seen[stored.Digest] = true
	if len(s.seen) > registry.MaxCopied {
		return "", fault.Unmet(tooManyManifests, "%s", registry.TooManyCopied())
	}
	m, err := oci.ParseManifest(stored.MediaType, stored.Body, s.copier.Sparse)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", stored.Digest, err)
	}
	m.Digest = stored.Digest
	if err := s.checkGate(ctx, m); err != nil {
		delete(s.seen, stored.Digest)
		return "", err
	}
	s.needs, s.bytes = s.needs+len(m.Needs), s.bytes+len(m.Body)
	if s.needs > maxNeeds || s.bytes > maxBytes {
		return "", fault.Unmet(tooManyBlobs, "manifests of more than %d bytes, or with more than %d blobs, would be "+
			"copied at once: copy some of them first", maxBytes, maxNeeds)
	}
	for _, n := range m.Needs {
		if !n.Manifest {
			continue
		}
		if _, err := s.add(ctx, n.Digest); err != nil && !(n.Optional && errors.Is(err, fault.NotFound)) {
			return "", err
		}
	}
	s.Manifests = append(s.Manifests, m)
	if s.referrers {
		err = s.addReferrers(ctx, m.Digest)
	}
	return m.Digest, err
}

// TryAdd adds the manifest that a reference names, with its children and its referrers, and returns the digest of the
// manifest. If TryAdd fails, it leaves the set unchanged.
func (s *Set) TryAdd(ctx context.Context, reference string) (digest string, _ error) {
	manifests, attached, needs, bytes := len(s.Manifests), len(s.Attached), s.needs, s.bytes
	digest, err := s.add(ctx, reference)
	if err == nil {
		return digest, nil
	}
	s.Manifests, s.Attached, s.needs, s.bytes = s.Manifests[:manifests], s.Attached[:attached], needs, bytes
	clear(s.seen)
	for _, m := range s.Manifests {
		s.seen[m.Digest] = true
	}
	return "", err
}

// TryAddAlone is TryAdd without the referrers.
func (s *Set) TryAddAlone(ctx context.Context, reference string) (digest string, _ error) {
	referrers := s.referrers
	s.referrers = false
	digest, err := s.TryAdd(ctx, reference)
	s.referrers = referrers
	return digest, err
}

// checkGate returns fault.FailedPrecondition if a rule refuses to pull a manifest.
func (s *Set) checkGate(ctx context.Context, m registry.Manifest) error {
	if s.copier.Gate == nil {
		return nil
	}
	why, err := s.copier.Gate.Check(ctx, s.from, m, s.public)
	if err == nil && why != "" {
		err = fault.Unmet(pullRefused, "pulls of %s are refused: %s", m.Digest, why)
	}
	return err
}

// IsRefused reports whether err means that a rule refuses to pull a manifest.
func IsRefused(err error) bool { return IsUnmet(err, pullRefused) }

// IsTooLarge reports whether err means that a set exceeds a limit.
func IsTooLarge(err error) bool { return IsUnmet(err, tooManyManifests, tooManyBlobs) }

// IsUnmet reports whether err means that a precondition with one of these codes is violated.
func IsUnmet(err error, codes ...string) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && len(f.Unmet) > 0 && slices.Contains(codes, f.Unmet[0].Subject)
}

// addReferrers adds the artifacts that are attached to a manifest, by their subject or by a tag. It leaves out
// artifacts that a rule refuses. Otherwise anyone who can attach an artifact could prevent copies of the image.
func (s *Set) addReferrers(ctx context.Context, digest string) error {
	for last := ""; ; {
		batch, err := s.copier.Store.Referrers(ctx, s.from, digest, "", last, referrersPerQuery)
		if err != nil {
			return err
		}
		for _, m := range batch {
			last = m.Digest
			if _, err := s.add(ctx, m.Digest); err != nil && !IsRefused(err) {
				return err
			}
		}
		if len(batch) < referrersPerQuery {
			break
		}
	}
	prefix := strings.Replace(digest, ":", "-", 1)
	names, err := s.copier.Store.TagNames(ctx, s.from, prefix[:len(prefix)-1], registry.MaxCopied)
	if err != nil {
		return err
	}
	for _, name := range names {
		if subject, _, ok := registry.AttachedTag(name); !ok || subject != digest {
			continue
		}
		attached, err := s.add(ctx, name)
		if IsRefused(err) {
			continue
		}
		if err != nil {
			return err
		}
		s.Attached = append(s.Attached, registry.CopiedImage{Digest: attached, Tag: name, FromTag: name})
	}
	return nil
}
