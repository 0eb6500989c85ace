package protocol

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
	pullsTime    = 30 * 24 * time.Hour // in which pulls are counted
)

// A Summary says in short what an image is like.
type Summary struct {
	Digest    string
	Platforms []string
	Size      int64 // of an index, of the image that Service.Size chooses, or else of the first

	Pulls    int64 // in pullsTime; above a hundred, there may be more
	LastPull time.Time

	Signers []string // who have signed it, by name
}

// Summarize returns what images of a repo are like, without those that are not there. The
// caller needs repo.list and manifest.metadata.list on the repo.
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
	if _, err := s.store.Repo(ctx, repo); err != nil { // under its whole uid
		return nil, err
	}
	signers, err := s.signers.SignersOver(ctx, repo.Parent())
	if err != nil {
		return nil, err
	}
	var all []Summary
	for _, d := range digests {
		one, err := s.summary(ctx, repo, d, signers)
		if errors.Is(err, fault.NotFound) { // it was deleted a moment ago
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
	out, err := s.images.outline(ctx, repo, digest)
	if err != nil {
		return out, err
	}
	if len(signers) > 0 {
		signed, err := s.images.signatures(ctx, repo, digest, signers, false)
		if err != nil {
			return out, err
		}
		out.Signers = names(signed)
	}
	out.Pulls, out.LastPull, err = s.pullRecords.CountPulls(ctx, repo, digest, s.now().Add(-pullsTime))
	return out, err
}

// outline returns the platforms and the size of an image. Of an index it reads one image
// besides, and no configuration, because the index has the platforms.
func (r *Registry) outline(ctx context.Context, repo resource.UID, digest string) (out Summary, _ error) {
	m, doc, err := r.document(ctx, repo, digest)
	if err != nil {
		return out, err
	}
	out.Digest = digest
	if doc.Manifests == nil {
		v, err := r.variant(ctx, repo, digest, doc, nil)
		if out.Size = v.Size; m.IsImage() && v.Platform() != "" {
			out.Platforms = []string{v.Platform()}
		}
		return out, err
	}
	chosen := ""
	for _, d := range doc.Manifests {
		if d.Platform == nil || d.Platform.OS == "unknown" || len(out.Platforms) == maxVariants {
			continue
		}
		v := registry.Variant{OS: d.Platform.OS, Architecture: d.Platform.Architecture, Variant: d.Platform.Variant}
		out.Platforms = append(out.Platforms, v.Platform())
		if chosen == "" || v.Architecture == defaultArchitecture {
			chosen = d.Digest.String()
		}
	}
	if chosen == "" {
		return out, nil
	}
	if _, doc, err = r.document(ctx, repo, chosen); err != nil {
		if errors.Is(err, fault.NotFound) { // the index is sparse
			err = nil
		}
		return out, err
	}
	out.Size = doc.size()
	return out, nil
}
