package resource

import (
	"net/url"
	"strings"
)

// redactedQuery replaces the query of an address.
const redactedQuery = "redacted"

// Redact returns an address without what may be a secret: the user, the password and the
// query. It returns paths of this machine unchanged.
func Redact(address string) string {
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

// Redacted returns the subscription without the query of its sink, which may be a secret.
func (s Subscription) Redacted() Subscription {
	s.Sink = Redact(s.Sink)
	return s
}
