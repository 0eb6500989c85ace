package registry

import (
	"net/url"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Deployment lists the charts with which the images of a repo are deployed.
type Deployment struct {
	UID        resource.UID `json:"uid"` // UID of the repo
	Charts     []HelmChart  `json:"charts,omitempty"`
	CreateTime time.Time    `json:"createTime"`
	UpdateTime time.Time    `json:"updateTime"`
}

// A HelmChart says where a Helm chart comes from.
type HelmChart struct {
	Source *string `json:"source,omitempty"` // address of the chart's source code
	Repo   string  `json:"repo"`             // address of the chart repository
	Chart  *string `json:"chart,omitempty"`  // name of the chart in that repository
}

const maxCharts = 100

// Validate reports every field a caller must fix.
func (d Deployment) Validate() error {
	var p problems
	p.AtMost("charts", len(d.Charts), maxCharts, "entries")
	for _, c := range d.Charts {
		p.address("charts.repo", c.Repo, "https", "oci")
		if c.Source != nil && *c.Source != "" {
			p.address("charts.source", *c.Source, "https")
		}
		if c.Chart != nil {
			p.Text("charts.chart", *c.Chart)
		}
	}
	return p.Err()
}

// address checks an absolute address with one of the schemes.
func (p *problems) address(field, text string, schemes ...string) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || !slices.Contains(schemes, u.Scheme) ||
		len(text) > resource.MaxText || !resource.Storable(text) {
		p.Add(field, "must be an address such as "+schemes[0]+"://charts.example.com, without a password")
	}
}
