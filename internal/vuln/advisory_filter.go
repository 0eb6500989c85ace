package vuln

import (
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An AdvisoryFilter selects the advisories that match one value of every field that is set.
type AdvisoryFilter struct {
	UIDs      resource.UIDFilter `json:"place,omitzero"`
	IDs       []string           `json:"ids,omitempty"`
	LegacyIDs []string           `json:"legacyIds,omitempty"`
	// of the artifact, or any affected package
	ArtifactNames         []string            `json:"artifactNames,omitempty"`
	ArtifactTypes         []string            `json:"artifactTypes,omitempty"`
	ArtifactArchitectures []string            `json:"artifactArchitectures,omitempty"`
	ComponentNames        []string            `json:"componentNames,omitempty"`
	ComponentTypes        []string            `json:"componentTypes,omitempty"`
	ComponentLocations    []string            `json:"componentLocations,omitempty"`
	Aliases               []string            `json:"aliases,omitempty"`
	ReviewStates          []ReviewState       `json:"reviewStates,omitempty"` // of an event, like the next three
	EventAuthors          []string            `json:"eventAuthors,omitempty"`
	EventReviewers        []string            `json:"eventReviewers,omitempty"`
	EventTypes            []AdvisoryEventType `json:"eventTypes,omitempty"`
	NotEventAuthors       []string            `json:"notEventAuthors,omitempty"` // of no event
	LatestEventType       AdvisoryEventType   `json:"latestEventType,omitempty"` // of the newest approved event
	// in the names, aliases or ID, ignoring case
	Query string `json:"query,omitempty"`
}

const (
	maxFilterValues = 200
	maxQuery        = 256
)

// Validate reports every member a caller must fix.
func (f AdvisoryFilter) Validate() error {
	if err := f.UIDs.Validate(); err != nil {
		return err
	}
	var p problems
	for _, v := range []struct {
		field string
		all   []string
	}{
		{"advisory_ids", f.IDs}, {"legacy_advisory_ids", f.LegacyIDs}, {"artifact_names", f.ArtifactNames},
		{"artifact_types", f.ArtifactTypes}, {"artifact_architectures", f.ArtifactArchitectures},
		{"component_names", f.ComponentNames}, {"component_types", f.ComponentTypes},
		{"component_locations", f.ComponentLocations}, {"aliases", f.Aliases}, {"event_authors", f.EventAuthors},
		{"event_reviewers", f.EventReviewers}, {"exclude_event_authors", f.NotEventAuthors},
	} {
		p.AtMost(v.field, len(v.all), maxFilterValues, "entries")
		most := resource.MaxText
		if v.field == "component_locations" {
			most = maxLocation
		}
		for _, s := range v.all {
			p.LongText(v.field, s, most)
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
	resource.Within(&p.Problems, "latest_event_type", f.LatestEventType, EventUnspecified, EventPatched, "is not a type of event")
	if !plainText(f.Query) || len(f.Query) > maxQuery {
		p.Add("query", "must be text of at most "+strconv.Itoa(maxQuery)+" bytes")
	}
	return p.Err()
}

// An AdvisoryFeed is a source from which the advisories of a group are updated.
type AdvisoryFeed struct {
	UID        resource.UID  `json:"uid"`
	Name       string        `json:"name"`
	Address    string        `json:"address"`          // https://…, or a directory or file on the server
	Format     ExploitFormat `json:"format,omitempty"` // "" means whatever is found there
	Interval   time.Duration `json:"interval"`         // between two reads
	Paused     bool          `json:"paused,omitempty"`
	CreateTime time.Time     `json:"createTime"`
	UpdateTime time.Time     `json:"updateTime"`
	Last       FeedResult    `json:"last,omitzero"`
	State      []byte        `json:"-"` // of the fetcher
}

// A FeedResult is the result of reading a feed.
type FeedResult struct {
	Time      time.Time     `json:"time,omitzero"` // of its end
	Took      time.Duration `json:"took,omitempty"`
	Error     string        `json:"error,omitempty"`     // why not everything was read
	Unchanged bool          `json:"unchanged,omitempty"` // since the last time
	Import    ImportResult  `json:"import,omitzero"`
}

// An ImportResult counts the records of an import by their result.
type ImportResult struct {
	Created   int64 `json:"created,omitempty"`
	Updated   int64 `json:"updated,omitempty"`
	Unchanged int64 `json:"unchanged,omitempty"`
	Withdrawn int64 `json:"withdrawn,omitempty"` // of those created or updated
	Failed    int64 `json:"failed,omitempty"`
	Removed   int64 `json:"removed,omitempty"` // entries of a list before that are not in its new version
}

// Add adds o to r.
func (r *ImportResult) Add(o ImportResult) {
	r.Created += o.Created
	r.Updated += o.Updated
	r.Unchanged += o.Unchanged
	r.Withdrawn += o.Withdrawn
	r.Failed += o.Failed
	r.Removed += o.Removed
}

// Records returns the number of all records.
func (r ImportResult) Records() int64 { return r.Created + r.Updated + r.Unchanged + r.Failed }

// The limits and the default of a feed's interval.
const (
	MinFeedInterval     = time.Minute
	MaxFeedInterval     = 31 * 24 * time.Hour
	DefaultFeedInterval = time.Hour
)

// Validate reports every field a caller must fix.
func (f AdvisoryFeed) Validate() error {
	var p problems
	p.Name(f.Name)
	p.Text("address", f.Address)
	p.Required("address", f.Address)
	if f.Format != "" && !f.Format.Valid() {
		p.Add("format", "must be kev, epss, or empty for what is detected from the content")
	}
	if f.Interval < MinFeedInterval || f.Interval > MaxFeedInterval {
		p.Add("interval", "must be from 1 minute to 31 days")
	}
	return p.Err()
}

// Redacted returns the feed without the query of its address, which may be a secret, as in
// signed addresses of object stores.
func (f AdvisoryFeed) Redacted() AdvisoryFeed {
	f.Address = resource.Redact(f.Address)
	return f
}
