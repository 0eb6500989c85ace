package metadata

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
)

// A Chart is a Helm chart in a repo.
type Chart struct {
	evidence.Chart
	Files   map[evidence.ChartFile]string
	Address string // oci:// address of the chart's repo
}

// Chart returns a Helm chart. The caller needs repo.list and manifest.list on the repo. It returns
// fault.FailedPrecondition if the manifest is not a chart or the chart cannot be read.
func (s *Service) Chart(ctx context.Context, repo resource.UID, digest string) (Chart, error) {
	return s.chart(ctx, repo, digest, resource.ManifestList)
}

// TaggedChart is like Chart, but the caller needs repo.list and tag.list.
func (s *Service) TaggedChart(ctx context.Context, repo resource.UID, digest string) (Chart, error) {
	return s.chart(ctx, repo, digest, resource.TagList)
}

func (s *Service) chart(
	ctx context.Context, repo resource.UID, digest string, want resource.Capability,
) (c Chart, _ error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, want); err != nil {
		return Chart{}, err
	}
	err := images.CheckDigest(digest)
	if err != nil {
		return Chart{}, err
	}
	if c.Chart, c.Files, err = s.images.Chart(ctx, repo, digest); err != nil {
		return Chart{}, err
	}
	path, err := s.store.RepoPath(ctx, repo)
	c.Address = "oci://" + s.cfg.Host + "/" + path
	return c, err
}
