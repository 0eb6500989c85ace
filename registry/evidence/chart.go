package evidence

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"
)

// The media types of a Helm chart in a registry.
const (
	ChartConfig  = "application/vnd.cncf.helm.config.v1+json"
	ChartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

const (
	// MaxChart is how large the archive of a chart may be.
	MaxChart = 16 << 20

	maxChartBytes = 64 << 20 // of it unpacked
	maxChartFile  = 1 << 20  // of a file that is told

	// maxChartImages is how many bytes of YAML may list the images of a chart. The
	// time to read YAML grows with the square of its keys: 4 MiB of them take more
	// than ten minutes.
	maxChartImages = 32 << 10
)

// A Chart is what a Helm chart says of itself.
type Chart struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	AppVersion   string            `json:"appVersion"`
	Description  string            `json:"description"`
	Dependencies []ChartDependency `json:"dependencies"`
	Annotations  map[string]string `json:"annotations"`
	Images       []ChartImage      `json:"-"` // out of the annotations
}

// A ChartDependency is a chart that another one needs.
type ChartDependency struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	Repository string `json:"repository"`
}

// A ChartImage is an image that a chart runs.
type ChartImage struct {
	Name  string `yaml:"name"`
	Image string `yaml:"image"`
}

// Repo is the name of the image's repo: the last part of its reference.
func (i ChartImage) Repo() string {
	name, _, _ := strings.Cut(i.Image, "@")
	name = name[strings.LastIndexByte(name, '/')+1:]
	name, _, _ = strings.Cut(name, ":")
	return name
}

// A ChartFile is the name of a file in the folder of a chart.
type ChartFile string

// The files that are told.
const (
	ChartYAML  ChartFile = "Chart.yaml"
	ValuesYAML ChartFile = "values.yaml"
	Changelog  ChartFile = "CHANGELOG.md"
)

// ReadChart reads the configuration of a chart.
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
		if yaml.Unmarshal([]byte(c.Annotations[key]), &images) == nil && len(images) > 0 { // else it is some other list
			c.Images = images
			break
		}
	}
	return c, nil
}

// ReadChartFiles reads the files of a chart that are told out of its archive:
// those of the chart itself, not of those it contains.
func ReadChartFiles(archive io.Reader) (map[ChartFile]string, error) {
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	limited := &io.LimitedReader{R: unzipped, N: maxChartBytes}
	files := map[ChartFile]string{}
	for all := tar.NewReader(limited); ; {
		h, err := all.Next()
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
		if _, seen := files[f]; !inside || seen || h.Typeflag != tar.TypeReg || f != ChartYAML && f != ValuesYAML && f != Changelog {
			continue
		}
		if h.Size > maxChartFile {
			return nil, fmt.Errorf("chart: %s has more than %d bytes", f, maxChartFile)
		}
		body, err := io.ReadAll(all)
		if err != nil {
			return nil, fmt.Errorf("chart: %w", err)
		}
		files[f] = strings.ToValidUTF8(string(body), "\uFFFD")
	}
}
