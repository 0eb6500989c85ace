package resource

import (
	"net/url"
	"slices"
	"time"
)

// A Deployment lists the charts with which the images of a repo are deployed.
type Deployment struct {
	UID        UID         `json:"uid"` // the repo's
	Charts     []HelmChart `json:"charts,omitempty"`
	CreateTime time.Time   `json:"createTime"`
	UpdateTime time.Time   `json:"updateTime"`
}

// A HelmChart is the origin of a chart.
type HelmChart struct {
	Source *string `json:"source,omitempty"` // the address of its source code
	Repo   string  `json:"repo"`             // the address of the chart repository
	Chart  *string `json:"chart,omitempty"`  // the name in that repository
}

const maxCharts = 100

// Validate reports every field a caller must fix.
func (d Deployment) Validate() error {
	var p problems
	p.atMost("charts", len(d.Charts), maxCharts, "entries")
	for _, c := range d.Charts {
		p.address("charts.repo", c.Repo, "https", "oci")
		if c.Source != nil && *c.Source != "" {
			p.address("charts.source", *c.Source, "https")
		}
		if c.Chart != nil {
			p.text("charts.chart", *c.Chart)
		}
	}
	return p.err()
}

// address checks an absolute address with one of the schemes.
func (p *problems) address(field, text string, schemes ...string) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || !slices.Contains(schemes, u.Scheme) ||
		len(text) > maxText || !storable(text) {
		p.add(field, "must be an address such as "+schemes[0]+"://charts.example.com, without a password")
	}
}
