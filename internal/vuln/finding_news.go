package vuln

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// A FindingNews is the event of findings that were opened, or closed: one finding of one
// image, one of many images, many of one image, or many of many. It has the first of many.
type FindingNews struct {
	Findings     []NewFinding   `json:"findings"`
	FindingCount int            `json:"findingCount"`
	Images       []NewsImage    `json:"images"`
	ImageCount   int            `json:"imageCount"`
	Pairs        int            `json:"pairs"`            // of a finding and an image that has it
	Group        resource.UID   `json:"group"`            // which all of the images are in
	AdvisoryGroup   resource.UID   `json:"advisoryOf"`       // the group of the advisories
	Owners       []resource.UID `json:"owners,omitempty"` // of the group, or of the one above it that has some
	Source       string         `json:"source,omitempty"` // what changed the advisory
}

// A NewFinding is a finding as events tell of it.
type NewFinding struct {
	ID       string        `json:"id"`
	Aliases  []string      `json:"aliases,omitempty"`
	Score    int64         `json:"score,omitempty"` // of CVSS, in tenths
	Packages []NewsPackage `json:"packages,omitempty"`
}

// A NewsPackage is a package that is affected, and the smallest version that fixes it.
type NewsPackage struct {
	Ecosystem string `json:"ecosystem"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	PURL      string `json:"purl,omitempty"`
	Fixed     string `json:"fixed,omitempty"`
}

// A NewsImage is an image of a repo.
type NewsImage struct {
	Repo   resource.UID `json:"repo"`
	Digest string       `json:"digest"`
}
