package resource

import (
	"net/url"
	"strings"
	"time"
)

// A Subscription delivers the events of a group, and of everything below it, to an address.
type Subscription struct {
	UID        UID       `json:"uid"`
	Sink       string    `json:"sink"`
	CreateTime time.Time `json:"createTime"`
	Failing    Failing   `json:"failing,omitzero"`
}

// Failing is the state of a subscription whose sink does not accept events. The zero value means that the last event
// was accepted.
type Failing struct {
	Since time.Time `json:"since"` // time of the first failure since the last success
	Error string    `json:"error"` // the latest error
}

// Failing reports whether the sink does not accept events.
func (f Failing) Failing() bool { return !f.Since.IsZero() }

// Group returns the UID of the group whose events are delivered.
func (s Subscription) Group() UID { return s.UID.Parent() }

// Wants reports whether an event is delivered: it belongs to the group or to a resource
// below it, and is not internal.
func (s Subscription) Wants(e *Event) bool {
	g := s.Group()
	return !e.Type.Internal() && (g.Covers(e.Group) || g.Covers(e.Subject))
}

// Validate reports every field that a caller must fix. It does not check whether the operator
// allows the address.
func (s Subscription) Validate() error {
	var p Problems
	switch u, err := url.Parse(s.Sink); {
	case s.Sink == "":
		p.Add("sink", "is required")
	case len(s.Sink) > MaxText || strings.ContainsFunc(s.Sink, func(r rune) bool { return r <= ' ' || r > '~' }):
		p.Add("sink", "must be at most 2048 printable ASCII characters")
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		p.Add("sink", "must be an https:// address")
	case u.User != nil:
		p.Add("sink", "must not hold a user or a password: deliveries are signed")
	case strings.Contains(s.Sink, "#"):
		p.Add("sink", "must not have a fragment")
	}
	return p.Err()
}

// A Delivery is an event whose delivery was abandoned, because the subscriber did not
// accept it in time. It is stored until it is replayed, or until there are too many newer
// deliveries.
type Delivery struct {
	UID        UID       `json:"uid"` // UID below the subscription
	Event      Event     `json:"event"`
	Attempts   int       `json:"attempts"`
	Error      string    `json:"error"`      // error of the last attempt
	CreateTime time.Time `json:"createTime"` // when the delivery was abandoned
	UpdateTime time.Time `json:"updateTime"` // time of the last attempt
	Replaying  bool      `json:"replaying"`  // a replay was requested and is not finished
}
