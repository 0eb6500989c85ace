package vuln

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// A FindingNews is the body of an event about findings that were opened or closed: one or many findings, in one or many
// images. If there are many, Findings and Images contain only the first ones.
type FindingNews struct {
	Findings      []NewFinding   `json:"findings"`
	FindingCount  int            `json:"findingCount"`
	Images        []NewsImage    `json:"images"`
	ImageCount    int            `json:"imageCount"`
	Pairs         int            `json:"pairs"`            // number of pairs of a finding and an image with it
	Group         resource.UID   `json:"group"`            // the group that contains all images
	AdvisoryGroup resource.UID   `json:"advisoryOf"`       // the group that contains the advisories
	Owners        []resource.UID `json:"owners,omitempty"` // owners of Group, or of its nearest ancestor with owners
	Source        string         `json:"source,omitempty"` // source of the change, such as a feed
}

// A NewFinding is a finding in an event.
type NewFinding struct {
	ID       string        `json:"id"`
	Aliases  []string      `json:"aliases,omitempty"`
	Score    int64         `json:"score,omitempty"`          // CVSS score in tenths
	Severity int64         `json:"severity,omitempty"`       // from 1 (low) to 4 (critical); 0 if only the score is known
	Source   string        `json:"severitySource,omitempty"` // source of Severity, such as AlmaLinux
	Packages []NewsPackage `json:"packages,omitempty"`
}

// A NewsPackage is an affected package and the lowest fixed version.
type NewsPackage struct {
	Ecosystem string `json:"ecosystem"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	PURL      string `json:"purl,omitempty"`
	Fixed     string `json:"fixed,omitempty"`
}

// A NewsImage is an image in a repo.
type NewsImage struct {
	Repo   resource.UID `json:"repo"`
	Digest string       `json:"digest"`
}
