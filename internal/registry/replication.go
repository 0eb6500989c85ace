package registry

import (
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Trigger says when a replication copies. Its values are the numbers of the enum in the API.
type Trigger int32

// The triggers of a replication.
const (
	OnPush     Trigger = 1 // soon after a change of a tag
	OnSchedule Trigger = 2 // at intervals
	OnDemand   Trigger = 3 // only on request
)

// A Replication copies tags of the repos below a group to another registry, the target.
type Replication struct {
	UID     resource.UID `json:"uid"`
	Name    string       `json:"name"`
	Address string       `json:"address"`         // https:// and a host, and nothing else
	Path    string       `json:"path,omitempty"`  // prefix of the names of repos at the target; may be ""
	Realm   string       `json:"realm,omitempty"` // as in Upstream

	Repos []string `json:"repos,omitempty"` // patterns for the paths of repos below the group; see Selects
	Tags  []string `json:"tags,omitempty"`  // patterns for the names of tags; see Selects

	SignedOnly      bool          `json:"signedOnly,omitempty"` // whether to copy only signed images
	Trigger         Trigger       `json:"trigger"`
	Interval        time.Duration `json:"interval,omitempty"` // time between two runs if Trigger is OnSchedule
	FollowDeletions bool          `json:"followDeletions,omitempty"`
	Paused          bool          `json:"paused,omitempty"`

	// SetBy is the identity that last created or changed the replication. Copies act with its permissions.
	SetBy resource.UID `json:"setBy,omitempty"`

	// Identity is the UID of an identity at the target, if the target is a Holdfast server that trusts tokens of this
	// server. If it is set, Credentials are empty.
	Identity string `json:"identity,omitempty"`

	Credentials resource.Secret `json:"credentials,omitzero"` // user and password, separated by a colon
	CreateTime  time.Time       `json:"createTime"`
	UpdateTime  time.Time       `json:"updateTime"`
}

// The limits of Replication.Interval.
const (
	MinReplicationInterval = 5 * time.Minute
	MaxReplicationInterval = 31 * 24 * time.Hour

	maxReplicationPatterns = 100
	maxReplicationPath     = 128
)

// remoteName is a name of a repo that every registry accepts.
var remoteName = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

// maxRemoteName is the length of the longest name of a repo that every registry accepts.
const maxRemoteName = 255

// Group returns the group of the replication.
func (r Replication) Group() resource.UID { return r.UID.Parent() }

// TargetRepo returns the name at the target of the repo with a path below the group. It returns false if other
// registries do not accept the name.
func (r Replication) TargetRepo(below string) (name string, ok bool) {
	name = strings.TrimPrefix(r.Path+"/"+below, "/")
	return name, len(name) <= maxRemoteName && remoteName.MatchString(name)
}

// SelectsRepo reports whether the replication copies tags of the repo with a path below the group. Patterns have the
// meaning of Upstream.Names.
func (r Replication) SelectsRepo(below string) bool { return matchesNames(r.Repos, below, matchName) }

// SelectsTag reports whether the replication copies tags with a name. Tags by which clients attach artifacts to images
// are not selected, because they are copied with their images.
func (r Replication) SelectsTag(name string) bool {
	return resource.ClassOf(name) != resource.ReferrerTag && matchesNames(r.Tags, name, func(pattern, name string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// SameTarget reports whether both replications copy to the same place.
func (r Replication) SameTarget(o Replication) bool {
	return r.Address == o.Address && r.Path == o.Path && r.Realm == o.Realm
}

// AsUpstream returns the part of the replication that it has in common with an upstream: how to sign in to another
// registry.
func (r Replication) AsUpstream() Upstream {
	return Upstream{
		UID: r.UID, Address: r.Address, Realm: r.Realm, Identity: r.Identity, Credentials: r.Credentials,
		UpdateTime: r.UpdateTime,
	}
}

// Validate reports every field a caller must fix.
func (r Replication) Validate() error {
	var p problems
	p.Name(r.Name)
	p.origin("address", r.Address)
	if r.Path != "" && (len(r.Path) > maxReplicationPath || !remoteName.MatchString(r.Path)) {
		p.Add("path", "must be lower case names with slashes between, such as acme/copies, or empty")
	}
	if r.Realm != "" {
		p.address("realm", r.Realm, "https", "http")
	}
	p.AtMost("repos", len(r.Repos), maxReplicationPatterns, "patterns")
	for _, pattern := range r.Repos[:min(len(r.Repos), maxReplicationPatterns)] {
		p.namesPattern("repos", pattern)
	}
	p.AtMost("tags", len(r.Tags), maxReplicationPatterns, "patterns")
	for _, pattern := range r.Tags[:min(len(r.Tags), maxReplicationPatterns)] {
		text := strings.TrimPrefix(pattern, "!")
		_, err := path.Match(text, "")
		if err != nil || text == "" || strings.Contains(text, "/") || len(text) > resource.MaxText ||
			!resource.Storable(text) {
			p.Add("tags", "must be patterns such as v* or !*-dev")
		}
	}
	switch {
	case r.Trigger < OnPush || r.Trigger > OnDemand:
		p.Add("trigger", "must be push, schedule or manual")
	case r.Trigger == OnSchedule && (r.Interval < MinReplicationInterval || r.Interval > MaxReplicationInterval):
		p.Add("interval", "must be from 5 minutes to 31 days")
	case r.Trigger != OnSchedule && r.Interval != 0:
		p.Add("interval", "can only be given with the trigger schedule")
	}
	p.credentials(r.AsUpstream())
	return p.Err()
}

// A ReplicationState is the state of a replication. Its values are the numbers of the enum in the API.
type ReplicationState int32

// The states of a replication.
const (
	ReplicationIdle    ReplicationState = 1 // nothing is pending
	ReplicationPending ReplicationState = 2 // tags are pending
	ReplicationFailing ReplicationState = 3 // the last attempt failed for all tags or for some
	ReplicationPaused  ReplicationState = 4
)

// A ReplicationStatus says how far a replication is.
type ReplicationStatus struct {
	State       ReplicationState
	Pending     int64     // number of pending tags; counted up to MaxPendingCount
	Failed      int64     // number of pending tags whose last attempt failed; counted up to MaxPendingCount
	OldestTime  time.Time // time since which the oldest pending tag is queued; zero if none is
	Error       string    // reason why the last attempt failed for all tags; "" if it did not
	ErrorTime   time.Time
	SuccessTime time.Time // last time at which nothing was left to copy; zero if it never was
	DueTime     time.Time // time of the next attempt; zero if there is none
}

// MaxPendingCount is the number up to which pending tags are counted.
const MaxPendingCount = 10_000

// A ReplicatedTag is a tag of a replication.
type ReplicatedTag struct {
	Repo      resource.UID
	Name      string
	Digest    string // digest that was last copied; "" if none was
	QueueTime time.Time
	DueTime   time.Time
	Error     string // reason why the last attempt failed; "" if it did not
}

// A ReplicationPreview has the tags that a run would copy.
type ReplicationPreview struct {
	Tags     []ReplicatedTag
	Complete bool // whether all selected tags were examined
	Examined int64
}
