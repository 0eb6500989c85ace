package resource

import (
	"net/url"
	"strings"
)

// redactedQuery stands for the query of an address.
const redactedQuery = "redacted"

// redact returns an address without what may be a secret in it: the user, the
// password and the query. Paths of this machine have none of these.
func redact(address string) string {
	if !strings.Contains(address, "://") {
		return address
	}
	u, err := url.Parse(address)
	if err != nil {
		return redactedQuery
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if u.RawQuery != "" {
		u.RawQuery = redactedQuery
	}
	return u.String()
}

// Redacted returns the feed as everybody may see it: its address may hold a
// secret in its query, as signed addresses of object stores do.
func (f AdvisoryFeed) Redacted() AdvisoryFeed {
	f.Address = redact(f.Address)
	return f
}

// Redacted returns the subscription as everybody may see it: its sink may hold a
// secret in its query.
func (s Subscription) Redacted() Subscription {
	s.Sink = redact(s.Sink)
	return s
}
