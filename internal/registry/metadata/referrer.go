package metadata

import (
	"context"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Referrer is an artifact that is attached to an image.
type Referrer struct {
	Digest, MediaType, ArtifactType string
	Size                            int64
	Annotations                     map[string]string
}

// Referrers returns up to 200 artifacts that are attached to an image, ordered by digest, starting after the digest
// after, or with the first artifact if after is "". more is true if there are further artifacts. The caller needs
// repo.list and referrers.list on the repo. It returns fault.NotFound if there is no such repo, and no artifacts if
// there is no such image.
func (s *Service) Referrers(
	ctx context.Context, repo resource.UID, subject, after string,
) (all []Referrer, more bool, _ error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ReferrersList); err != nil {
		return nil, false, err
	}
	if !resource.ValidDigest(subject) {
		return nil, false, fault.Field("digest", "is not a digest")
	}
	if after != "" && !resource.ValidDigest(after) {
		return nil, false, fault.Field("after", "is not a digest")
	}
	if _, err := s.store.Repo(ctx, repo); err != nil {
		return nil, false, err
	}
	found, err := s.images.Referrers(ctx, repo, digest.Digest(subject), "", after)
	for _, d := range found.List {
		all = append(all, Referrer{d.Digest.String(), d.MediaType, d.ArtifactType, d.Size, d.Annotations})
	}
	return all, found.More, err
}
