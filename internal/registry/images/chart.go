package images

import (
	"bytes"
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

// Chart returns the description and the files of a Helm chart. It returns fault.FailedPrecondition if the manifest is
// not a chart or its description cannot be read. It does not authorize the caller.
func (r *Reader) Chart(
	ctx context.Context, repo resource.UID, digest string,
) (chart evidence.Chart, files map[evidence.ChartFile]string, _ error) {
	_, doc, err := r.document(ctx, repo, digest)
	if err != nil {
		return chart, nil, err
	}
	if doc.Config == nil || doc.Config.MediaType != evidence.ChartConfig {
		return chart, nil, fault.Unmet("NOT_A_CHART", "%s is not a Helm chart", digest)
	}
	config, err := r.readBlob(ctx, repo, doc.Config.Digest.String(), maxConfig)
	if err != nil {
		return chart, nil, err
	}
	if chart, err = evidence.ReadChart(config); err != nil {
		return chart, nil, fault.Unmet("NOT_A_CHART", "the configuration of %s cannot be read as a chart's", digest)
	}
	files, err = r.chartFiles(ctx, repo, doc)
	return chart, files, err
}

// chartFiles returns the files of a chart, or nil if they cannot be read.
func (r *Reader) chartFiles(
	ctx context.Context, repo resource.UID, doc oci.Document,
) (map[evidence.ChartFile]string, error) {
	for _, layer := range doc.Layers {
		if layer.MediaType != evidence.ChartContent {
			continue
		}
		archive, err := r.readBlob(ctx, repo, layer.Digest.String(), evidence.MaxChart)
		if err != nil || archive == nil {
			return nil, err
		}
		files, _ := evidence.ReadChartFiles(bytes.NewReader(archive)) // fails if the archive is not a chart
		return files, nil
	}
	return nil, nil
}
