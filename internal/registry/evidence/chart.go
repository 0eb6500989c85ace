package evidence

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The media types of a Helm chart in a registry.
const (
	ChartConfig  = "application/vnd.cncf.helm.config.v1+json"
	ChartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

const (
	// MaxChart is the largest archive of a chart, in bytes.
	MaxChart = 16 << 20

	maxChartBytes = 64 << 20 // largest size of the unpacked archive, in bytes
	maxChartFile  = 1 << 20  // largest file that is returned, in bytes

	// maxChartImages is the longest YAML, in bytes, from which the images of a chart are read. The time to parse YAML
	// grows with the square of the number of keys: 4 MiB of keys take more than ten minutes.
	maxChartImages = 32 << 10
)

// A Chart is the metadata of a Helm chart.
type Chart struct {
	Name, Version, AppVersion, Description string

	Dependencies []ChartDependency
	Annotations  map[string]string
	Images       []ChartImage `json:"-"` // images that the annotations list
}

// A ChartDependency is a chart that a chart needs.
type ChartDependency struct{ Name, Version, Repository string }

// A ChartImage is an image that a chart runs.
type ChartImage struct {
	Name  string `yaml:"name"`
	Image string `yaml:"image"`
}

// Repo returns the name of the image's repo: the last part of its reference.
func (i ChartImage) Repo() string {
	name, _, _ := strings.Cut(i.Image, "@")
	name = name[strings.LastIndexByte(name, '/')+1:]
	name, _, _ = strings.Cut(name, ":")
	return name
}

// A ChartFile is the name of a file in the root directory of a chart.
type ChartFile string

// The files that ReadChartFiles returns.
const (
	ChartYAML  ChartFile = "Chart.yaml"
	ValuesYAML ChartFile = "values.yaml"
	Changelog  ChartFile = "CHANGELOG.md"
)

// ReadChart parses the configuration of a chart.
func ReadChart(config []byte) (Chart, error) {
	var c Chart
	if err := json.Unmarshal(config, &c); err != nil {
		return Chart{}, fmt.Errorf("chart: %w", err)
	}
	if c.Name == "" || c.Version == "" {
		return Chart{}, errors.New("chart: it has no name or no version")
	}
	for _, key := range []string{"images", "artifacthub.io/images"} {
		var images []ChartImage
		if len(c.Annotations[key]) > maxChartImages {
			continue
		}
		// The annotation may contain something else, such as a list of another kind.
		if yaml.Unmarshal([]byte(c.Annotations[key]), &images) == nil && len(images) > 0 {
			c.Images = images
			break
		}
	}
	return c, nil
}

// ReadChartFiles reads the files that ChartFile names from the archive of a chart. It ignores the files of charts
// inside the chart.
func ReadChartFiles(archive io.Reader) (map[ChartFile]string, error) {
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	limited := &io.LimitedReader{R: unzipped, N: maxChartBytes}
	files := map[ChartFile]string{}
	for entries := tar.NewReader(limited); ; {
		h, err := entries.Next()
		if err == io.EOF {
			return files, nil
		}
		if limited.N <= 0 {
			return nil, fmt.Errorf("chart: more than %d bytes unpacked", maxChartBytes)
		}
		if err != nil {
			return nil, fmt.Errorf("chart: %w", err)
		}
		_, name, inside := strings.Cut(strings.TrimPrefix(h.Name, "./"), "/")
		f := ChartFile(name)
		_, read := files[f]
		if !inside || read || h.Typeflag != tar.TypeReg || f != ChartYAML && f != ValuesYAML && f != Changelog {
			continue
		}
		if h.Size > maxChartFile {
			return nil, fmt.Errorf("chart: %s has more than %d bytes", f, maxChartFile)
		}
		body, err := io.ReadAll(entries)
		if err != nil {
			return nil, fmt.Errorf("chart: %w", err)
		}
		files[f] = strings.ToValidUTF8(string(body), "\uFFFD")
	}
}
