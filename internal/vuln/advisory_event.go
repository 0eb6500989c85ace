package vuln

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An AdvisoryEvent is an event in the history of an advisory. Type determines which of the fields after it are used.
type AdvisoryEvent struct {
	UID         resource.UID    `json:"uid,omitempty"`
	CreateTime  time.Time       `json:"createTime"`
	Author      string          `json:"author,omitempty"`
	Reviewer    string          `json:"reviewer,omitempty"`
	ReviewState ReviewState     `json:"reviewState"`
	Issue       *string         `json:"issue,omitempty"`
	Findings    json.RawMessage `json:"findings,omitempty"`

	Type          AdvisoryEventType `json:"type"`
	Note          string            `json:"note,omitempty"` // empty for a detection
	Detection     *Detection        `json:"detection,omitempty"`
	Fixed         *Fix              `json:"fixed,omitempty"`
	FalsePositive FalsePositiveType `json:"falsePositive,omitempty"`
	Patched       []string          `json:"patched,omitempty"` // versions with a patch
}

// An AdvisoryEventType is the type of an event. Its values are equal to the values in the API's filter.
type AdvisoryEventType int32

// The types of events.
const (
	EventUnspecified AdvisoryEventType = iota
	EventDetection
	EventTruePositive
	EventFixed
	EventFalsePositive
	EventAnalysisNotPlanned
	EventFixNotPlanned
	EventPendingUpstreamFix
	EventPatched
)

// A ReviewState is the review state of an event. Its values are equal to the values in the API. Approved and rejected
// are final.
type ReviewState int32

// The states of a review.
const (
	ReviewUnspecified ReviewState = iota
	ReviewPending
	ReviewApproved
	ReviewRequestChanges
	ReviewRejected
)

// Final reports whether the state cannot change.
func (s ReviewState) Final() bool { return s == ReviewApproved || s == ReviewRejected }

// A Detection describes how a vulnerability was found. At most one field is set.
type Detection struct {
	NVD    *NVDDetection  `json:"nvd,omitempty"`
	Manual bool           `json:"manual,omitempty"`
	Scan   *ScanDetection `json:"scan,omitempty"`
}

// An NVDDetection is a match in the National Vulnerability Database.
type NVDDetection struct {
	CPESearched string `json:"cpeSearched,omitempty"`
	CPEFound    string `json:"cpeFound,omitempty"`
}

// A ScanDetection is a finding of a scanner.
type ScanDetection struct {
	Scanner           string `json:"scanner,omitempty"`
	Subpackage        string `json:"subpackage,omitempty"`
	ComponentID       string `json:"componentId,omitempty"`
	Component         string `json:"component,omitempty"`
	ComponentVersion  string `json:"componentVersion,omitempty"`
	ComponentType     string `json:"componentType,omitempty"`
	ComponentLocation string `json:"componentLocation,omitempty"`
	ArtifactVersion   string `json:"artifactVersion,omitempty"`
	ScannerDB
}

// A ScannerDB is the version and the database of a scanner.
type ScannerDB struct {
	ScannerVersion string `json:"scannerVersion,omitempty"`
	DBBuilt        string `json:"dbBuilt,omitempty"`
	DBChecksum     string `json:"dbChecksum,omitempty"`
}

// A Fix is the first version without the vulnerability.
type Fix struct {
	Version string `json:"version,omitempty"`
	ScannerDB
}

// A FalsePositiveType is the reason for a false positive. Its values are equal to the values in the API.
type FalsePositiveType int32

// The reasons for false positives.
const (
	FalsePositiveUnspecified FalsePositiveType = iota
	AnalysisContested
	ComponentMismatch
	CodeVersionNotUsed
	CodeNotIncluded
	CodeNotInExecutionPath
	CodeNotControllable
	InlineMitigations
)

const maxNote = 16 << 10

// Validate returns an error that names every invalid field.
func (e AdvisoryEvent) Validate() error {
	var p problems
	e.validate(&p, "")
	return p.Err()
}

// validate adds the problems of the event to p. The name of every field starts with prefix.
func (e AdvisoryEvent) validate(p *problems, prefix string) {
	resource.Within(&p.Problems, prefix+"type", e.Type, EventDetection, EventPatched, "is required")
	resource.Within(&p.Problems, prefix+"review_state", e.ReviewState, ReviewPending, ReviewRejected, "is required")
	resource.Within(&p.Problems, prefix+"false_positive_determination.type", e.FalsePositive,
		FalsePositiveUnspecified, InlineMitigations, "is not a reason for a false positive")
	p.Text(prefix+"author", e.Author)
	p.Text(prefix+"reviewer", e.Reviewer)
	if e.Issue != nil {
		p.Text(prefix+"issue", *e.Issue)
	}
	p.AtMost(prefix+"note", len(e.Note), maxNote, "bytes")
	if !plainText(e.Note) {
		p.Add(prefix+"note", "must be valid UTF-8 without control characters")
	}
	p.AtMost(prefix+"findings", len(e.Findings), maxDetails, "bytes")
	if len(e.Findings) > 0 && !json.Valid(e.Findings) {
		p.Add(prefix+"findings", "must be JSON")
	}
	for _, v := range e.texts() {
		limit := resource.MaxText
		if v.field == scanLocation {
			limit = maxLocation
		}
		p.LongText(prefix+v.field, v.text, limit)
	}
	p.texts(prefix+"patched.patched_versions", e.Patched, maxRangeEvents)
}

// A fieldText is a text and the name of its field in the API.
type fieldText struct{ field, text string }

// scanLocation is the name of the field for the location at which a scanner found a component.
const scanLocation = "detection.scanv1.component_location"

// texts returns the texts in the detection and the fix of an event.
func (e AdvisoryEvent) texts() []fieldText {
	var texts []fieldText
	if d := e.Detection; d != nil && d.NVD != nil {
		texts = append(texts, fieldText{"detection.nvdapi.cpe_searched", d.NVD.CPESearched},
			fieldText{"detection.nvdapi.cpe_found", d.NVD.CPEFound})
	}
	if d := e.Detection; d != nil && d.Scan != nil {
		s := d.Scan
		texts = append(texts, fieldText{"detection.scanv1.scanner", s.Scanner},
			fieldText{"detection.scanv1.subpackage", s.Subpackage},
			fieldText{"detection.scanv1.component_id", s.ComponentID},
			fieldText{"detection.scanv1.component", s.Component},
			fieldText{"detection.scanv1.component_version", s.ComponentVersion},
			fieldText{"detection.scanv1.component_type", s.ComponentType},
			fieldText{scanLocation, s.ComponentLocation},
			fieldText{"detection.scanv1.artifact_version", s.ArtifactVersion})
		texts = append(texts, s.ScannerDB.texts("detection.scanv1.")...)
	}
	if f := e.Fixed; f != nil {
		texts = append(texts, fieldText{"fixed.fixed_version", f.Version})
		texts = append(texts, f.ScannerDB.texts("fixed.")...)
	}
	return texts
}

func (d ScannerDB) texts(prefix string) []fieldText {
	return []fieldText{{prefix + "scanner_version", d.ScannerVersion}, {prefix + "grype_db_built", d.DBBuilt},
		{prefix + "grype_db_checksum", d.DBChecksum}}
}

// equalContent reports whether two events are equal except for their times, authors and reviews.
func (e AdvisoryEvent) equalContent(o AdvisoryEvent) bool {
	return e.Type == o.Type && e.Note == o.Note && e.FalsePositive == o.FalsePositive &&
		slices.Equal(e.Patched, o.Patched) && slices.Equal(e.texts(), o.texts()) && bytes.Equal(e.Findings, o.Findings)
}
