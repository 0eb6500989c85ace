package vuln

import (
	"strconv"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An AdvisoryFilter selects advisories. Every field that is set must match, by at least one of its values.
type AdvisoryFilter struct {
	UIDs                  resource.UIDFilter  `json:"place,omitzero"`
	IDs                   []string            `json:"ids,omitempty"`
	LegacyIDs             []string            `json:"legacyIds,omitempty"`
	ArtifactNames         []string            `json:"artifactNames,omitempty"` // or names of affected packages
	ArtifactTypes         []string            `json:"artifactTypes,omitempty"`
	ArtifactArchitectures []string            `json:"artifactArchitectures,omitempty"`
	ComponentNames        []string            `json:"componentNames,omitempty"`
	ComponentTypes        []string            `json:"componentTypes,omitempty"`
	ComponentLocations    []string            `json:"componentLocations,omitempty"`
	Aliases               []string            `json:"aliases,omitempty"`
	ReviewStates          []ReviewState       `json:"reviewStates,omitempty"`    // states of at least one event
	EventAuthors          []string            `json:"eventAuthors,omitempty"`    // authors of at least one event
	EventReviewers        []string            `json:"eventReviewers,omitempty"`  // reviewers of at least one event
	EventTypes            []AdvisoryEventType `json:"eventTypes,omitempty"`      // types of at least one event
	NotEventAuthors       []string            `json:"notEventAuthors,omitempty"` // no event may have such an author
	LatestEventType       AdvisoryEventType   `json:"latestEventType,omitempty"` // type of the newest approved event
	Query                 string              `json:"query,omitempty"`           // part of a name, alias or ID, any case
}

const (
	maxFilterValues = 200
	maxQuery        = 256
)

// Validate returns an error that names every invalid field.
func (f AdvisoryFilter) Validate() error {
	if err := f.UIDs.Validate(); err != nil {
		return err
	}
	var p problems
	for _, v := range []struct {
		field  string
		values []string
	}{
		{"advisory_ids", f.IDs}, {"legacy_advisory_ids", f.LegacyIDs}, {"artifact_names", f.ArtifactNames},
		{"artifact_types", f.ArtifactTypes}, {"artifact_architectures", f.ArtifactArchitectures},
		{"component_names", f.ComponentNames}, {"component_types", f.ComponentTypes},
		{"component_locations", f.ComponentLocations}, {"aliases", f.Aliases}, {"event_authors", f.EventAuthors},
		{"event_reviewers", f.EventReviewers}, {"exclude_event_authors", f.NotEventAuthors},
	} {
		p.AtMost(v.field, len(v.values), maxFilterValues, "entries")
		limit := resource.MaxText
		if v.field == "component_locations" {
			limit = maxLocation
		}
		for _, s := range v.values {
			p.LongText(v.field, s, limit)
		}
	}
	p.AtMost("event_review_states", len(f.ReviewStates), maxFilterValues, "entries")
	for _, s := range f.ReviewStates {
		resource.Within(&p.Problems, "event_review_states", s, ReviewPending, ReviewRejected, "is not a review state")
	}
	p.AtMost("event_types", len(f.EventTypes), maxFilterValues, "entries")
	for _, t := range f.EventTypes {
		resource.Within(&p.Problems, "event_types", t, EventDetection, EventPatched, "is not a type of event")
	}
	resource.Within(&p.Problems, "latest_event_type", f.LatestEventType, EventUnspecified, EventPatched,
		"is not a type of event")
	if !plainText(f.Query) || len(f.Query) > maxQuery {
		p.Add("query", "must be text of at most "+strconv.Itoa(maxQuery)+" bytes")
	}
	return p.Err()
}
