package protocol

import (
	"bytes"
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
)

// A Chart is a Helm chart that was pushed.
type Chart struct {
	evidence.Chart
	Files   map[evidence.ChartFile]string
	Address string // the oci:// address of its repo
}

// Chart returns a Helm chart. The caller needs repo.list and manifest.list on the repo. It returns
// fault.FailedPrecondition if the manifest is not a chart, or one that cannot be read.
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
	if err := validDigest(digest); err != nil {
		return Chart{}, err
	}
	_, doc, err := s.images.document(ctx, repo, digest)
	if err != nil {
		return Chart{}, err
	}
	if doc.Config == nil || doc.Config.MediaType != evidence.ChartConfig {
		return Chart{}, fault.Unmet("NOT_A_CHART", "%s is not a Helm chart", digest)
	}
	config, err := s.images.readBlob(ctx, repo, doc.Config.Digest.String(), maxConfig)
	if err != nil {
		return Chart{}, err
	}
	if c.Chart, err = evidence.ReadChart(config); err != nil {
		return Chart{}, fault.Unmet("NOT_A_CHART", "the configuration of %s cannot be read as a chart's", digest)
	}
	if c.Files, err = s.images.chartFiles(ctx, repo, doc); err != nil {
		return Chart{}, err
	}
	path, err := s.store.RepoPath(ctx, repo)
	c.Address = "oci://" + s.cfg.Host + "/" + path
	return c, err
}

// chartFiles returns the files of a chart, or none if they cannot be read.
func (r *Registry) chartFiles(
	ctx context.Context, repo resource.UID, doc document,
) (map[evidence.ChartFile]string, error) {
	for _, layer := range doc.Layers {
		if layer.MediaType != evidence.ChartContent {
			continue
		}
		archive, err := r.readBlob(ctx, repo, layer.Digest.String(), evidence.MaxChart)
		if err != nil || archive == nil {
			return nil, err
		}
		files, _ := evidence.ReadChartFiles(bytes.NewReader(archive)) // a client can push anything
		return files, nil
	}
	return nil, nil
}
