package vuln

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An AdvisoryFeed is a source from which the advisories of a group are updated.
type AdvisoryFeed struct {
	UID        resource.UID  `json:"uid"`
	Name       string        `json:"name"`
	Address    string        `json:"address"`          // https://…, or a directory or file on the server
	Format     ExploitFormat `json:"format,omitempty"` // "" detects the format from the content
	Interval   time.Duration `json:"interval"`         // time between two reads
	Paused     bool          `json:"paused,omitempty"`
	CreateTime time.Time     `json:"createTime"`
	UpdateTime time.Time     `json:"updateTime"`
	Last       FeedResult    `json:"last,omitzero"`
	State      []byte        `json:"-"` // the fetcher's state after the last read
}

// A FeedResult is the result of reading a feed.
type FeedResult struct {
	Time      time.Time     `json:"time,omitzero"` // when the read ended
	Took      time.Duration `json:"took,omitempty"`
	Error     string        `json:"error,omitempty"`     // reason why not every record was imported, or ""
	Unchanged bool          `json:"unchanged,omitempty"` // whether the feed is unchanged since the last read
	Import    ImportResult  `json:"import,omitzero"`
	Revision  string        `json:"revision,omitempty"` // the server's name for the version that was last imported
	Current   time.Time     `json:"current,omitzero"`   // when the feed was last read without an error
}

// An ImportResult counts the records of an import by their result.
type ImportResult struct {
	Created   int64 `json:"created,omitempty"`
	Updated   int64 `json:"updated,omitempty"`
	Unchanged int64 `json:"unchanged,omitempty"`
	Withdrawn int64 `json:"withdrawn,omitempty"` // also counted as created or updated
	Failed    int64 `json:"failed,omitempty"`
	Removed   int64 `json:"removed,omitempty"` // entries that the new version of an exploit list no longer contains
	Older     int64 `json:"older,omitempty"`   // records that were skipped, because the stored ones are newer
}

// Add adds o to r.
func (r *ImportResult) Add(o ImportResult) {
	r.Created += o.Created
	r.Updated += o.Updated
	r.Unchanged += o.Unchanged
	r.Withdrawn += o.Withdrawn
	r.Failed += o.Failed
	r.Removed += o.Removed
	r.Older += o.Older
}

// Records returns the number of records that were read, including failed ones.
func (r ImportResult) Records() int64 {
	return r.Created + r.Updated + r.Unchanged + r.Failed + r.Older
}

// The limits and the default of a feed's interval.
const (
	MinFeedInterval     = time.Minute
	MaxFeedInterval     = 31 * 24 * time.Hour
	DefaultFeedInterval = time.Hour
)

// Validate returns an error that names every invalid field.
func (f AdvisoryFeed) Validate() error {
	var p problems
	p.Name(f.Name)
	p.Text("address", f.Address)
	p.Required("address", f.Address)
	if f.Format != "" && !f.Format.Valid() {
		p.Add("format", "must be kev or epss, or empty to detect the format from the content")
	}
	if f.Interval < MinFeedInterval || f.Interval > MaxFeedInterval {
		p.Add("interval", "must be from 1 minute to 31 days")
	}
	return p.Err()
}

// Redacted returns the feed without the query of its address. The query may contain a secret, for example in a signed
// address of an object store.
func (f AdvisoryFeed) Redacted() AdvisoryFeed {
	f.Address = resource.Redact(f.Address)
	return f
}
