package resource

import (
	"net/url"
	"strings"
	"time"
)

// A Subscription has every event of a group, and of everything below it, sent to
// an address.
type Subscription struct {
	UID        UID       `json:"uid"`
	Sink       string    `json:"sink"`
	CreateTime time.Time `json:"createTime"`
}

// Group is the UID of the group whose events are sent.
func (s Subscription) Group() UID { return s.UID.Parent() }

// Wants tells whether an event is sent: those of the group and of everything
// below it are, but for those that are nobody's business but the service's.
func (s Subscription) Wants(e *Event) bool {
	g := s.Group()
	return !e.Type.Internal() && (g.Covers(e.Group) || g.Covers(e.Subject))
}

// Validate reports every field a caller must fix. What the address may be beyond
// its form is not a matter of form.
func (s Subscription) Validate() error {
	var p problems
	switch u, err := url.Parse(s.Sink); {
	case s.Sink == "":
		p.add("sink", "is required")
	case len(s.Sink) > maxText || !printable(s.Sink):
		p.add("sink", "must be at most 2048 printable ASCII characters")
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		p.add("sink", "must be an https:// address")
	case u.User != nil:
		p.add("sink", "must not hold a user or a password: deliveries are signed")
	case strings.Contains(s.Sink, "#"):
		p.add("sink", "must not have a fragment")
	}
	return p.err()
}

// printable tells whether s is ASCII that can be seen.
func printable(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// A Delivery is an event that a sink has not taken in time. It stays until it is
// replayed, or too many others have followed.
type Delivery struct {
	UID        UID       `json:"uid"` // under the subscription
	Event      Event     `json:"event"`
	Attempts   int       `json:"attempts"`
	Error      string    `json:"error"`      // how the last attempt failed
	CreateTime time.Time `json:"createTime"` // when it was given up
	UpdateTime time.Time `json:"updateTime"` // when it was last tried
	Replaying  bool      `json:"replaying"`  // it was asked for again, and is under way
}

// Subscription is the UID of the subscription it belongs to.
func (d Delivery) Subscription() UID { return d.UID.Parent() }
