package resource

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
)

// An AdvisoryEvent is a step in what is known of a vulnerability. Which of the
// members below Type have a meaning depends on it.
type AdvisoryEvent struct {
	UID         UID             `json:"uid,omitempty"`
	CreateTime  time.Time       `json:"createTime"`
	Author      string          `json:"author,omitempty"`
	Reviewer    string          `json:"reviewer,omitempty"`
	ReviewState ReviewState     `json:"reviewState"`
	Issue       *string         `json:"issue,omitempty"`
	Findings    json.RawMessage `json:"findings,omitempty"`

	Type          AdvisoryEventType `json:"type"`
	Note          string            `json:"note,omitempty"` // of all but a detection
	Detection     *Detection        `json:"detection,omitempty"`
	Fixed         *Fix              `json:"fixed,omitempty"`
	FalsePositive FalsePositiveType `json:"falsePositive,omitempty"`
	Patched       []string          `json:"patched,omitempty"` // the versions
}

// An AdvisoryEventType says what an event tells. Its numbers are those of the
// wire's filter.
type AdvisoryEventType int32

// The types there are.
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

// A ReviewState is how far the review of an event is. Its numbers are the
// wire's. Approved and rejected events stay so.
type ReviewState int32

// The states there are.
const (
	ReviewUnspecified ReviewState = iota
	ReviewPending
	ReviewApproved
	ReviewRequestChanges
	ReviewRejected
)

// Final tells whether no other state follows.
func (s ReviewState) Final() bool { return s == ReviewApproved || s == ReviewRejected }

// A Detection says how a vulnerability was found. At most one member is set.
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

// A ScannerDB is what a scanner ran with.
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

// A FalsePositiveType says why a vulnerability is none. Its numbers are the
// wire's.
type FalsePositiveType int32

// The types there are.
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

// Validate reports every field a caller must fix.
func (e AdvisoryEvent) Validate() error {
	var p problems
	e.validate(&p, "")
	return p.err()
}

func (e AdvisoryEvent) validate(p *problems, at string) {
	if e.Type <= EventUnspecified || e.Type > EventPatched {
		p.add(at+"type", "is required")
	}
	if e.ReviewState <= ReviewUnspecified || e.ReviewState > ReviewRejected {
		p.add(at+"review_state", "is required")
	}
	if e.FalsePositive < FalsePositiveUnspecified || e.FalsePositive > InlineMitigations {
		p.add(at+"false_positive_determination.type", "is not a reason")
	}
	p.text(at+"author", e.Author)
	p.text(at+"reviewer", e.Reviewer)
	if e.Issue != nil {
		p.text(at+"issue", *e.Issue)
	}
	if !plainText(e.Note) || len(e.Note) > maxNote {
		p.add(at+"note", "must be text of at most 16 KiB")
	}
	if len(e.Findings) > maxDetails || !jsonObject(e.Findings) {
		p.add(at+"findings", "must be JSON of at most 256 KiB")
	}
	for _, s := range e.words() {
		p.text(at+"type", s)
	}
	p.texts(at+"patched.patched_versions", e.Patched, maxRangeEvents)
}

// words are the texts of an event's details.
func (e AdvisoryEvent) words() []string {
	var all []string
	if d := e.Detection; d != nil && d.NVD != nil {
		all = append(all, d.NVD.CPESearched, d.NVD.CPEFound)
	}
	if d := e.Detection; d != nil && d.Scan != nil {
		s := d.Scan
		all = append(all, s.Scanner, s.Subpackage, s.ComponentID, s.Component, s.ComponentVersion, s.ComponentType,
			s.ComponentLocation, s.ArtifactVersion, s.ScannerVersion, s.DBBuilt, s.DBChecksum)
	}
	if f := e.Fixed; f != nil {
		all = append(all, f.Version, f.ScannerVersion, f.DBBuilt, f.DBChecksum)
	}
	return all
}

// same tells whether two events tell the same thing, whenever they do.
func (e AdvisoryEvent) same(o AdvisoryEvent) bool {
	return e.Type == o.Type && e.Note == o.Note && e.FalsePositive == o.FalsePositive &&
		slices.Equal(e.Patched, o.Patched) && slices.Equal(e.words(), o.words()) && bytes.Equal(e.Findings, o.Findings)
}
