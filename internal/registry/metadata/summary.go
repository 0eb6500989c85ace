package metadata

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

const (
	maxSummaries = 50
	pullsTime    = 30 * 24 * time.Hour // period in which pulls are counted
)

// A Summary is a short description of an image.
type Summary struct {
	Digest    string
	Platforms []string
	Size      int64 // size in bytes; for an index, the size of the image that Service.Size chooses, or of the first

	Pulls    int64 // number of pulls within pullsTime; a value above a hundred is a lower bound
	LastPull time.Time

	Signers []string // names of the trusted signers that signed the image
}

// Summarize returns summaries of the images of a repo. It leaves out images that do not exist.
// The caller needs repo.list and manifest.metadata.list on the repo.
func (s *Service) Summarize(ctx context.Context, repo resource.UID, digests []string) ([]Summary, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ManifestMetadataList); err != nil {
		return nil, err
	}
	if len(digests) == 0 || len(digests) > maxSummaries {
		return nil, fault.Field("digests", "must be between 1 and 50")
	}
	for _, d := range digests {
		if !resource.ValidDigest(d) {
			return nil, fault.Field("digests", "must be digests")
		}
	}
	if _, err := s.store.Repo(ctx, repo); err != nil { // checks the whole UID, not only its last segment
		return nil, err
	}
	signers, err := s.signers.SignersOver(ctx, repo.Parent())
	if err != nil {
		return nil, err
	}
	var all []Summary
	for _, d := range digests {
		one, err := s.summary(ctx, repo, d, signers)
		if errors.Is(err, fault.NotFound) { // the image was deleted a moment ago
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func (s *Service) summary(
	ctx context.Context, repo resource.UID, digest string, signers []registry.Signer,
) (Summary, error) {
	out := Summary{Digest: digest}
	var err error
	if out.Platforms, out.Size, err = s.images.Outline(ctx, repo, digest); err != nil {
		return out, err
	}
	if len(signers) > 0 {
		signed, err := s.images.Signatures(ctx, repo, digest, signers, false)
		if err != nil {
			return out, err
		}
		out.Signers = names(signed)
	}
	out.Pulls, out.LastPull, err = s.pullRecords.CountPulls(ctx, repo, digest, s.now().Add(-pullsTime))
	return out, err
}
