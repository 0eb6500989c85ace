package resource

import (
	"net/url"
	"strings"
)

// redactedQuery replaces the query in an address.
const redactedQuery = "redacted"

// Redact returns an address without the parts that may be secret: the user, the password
// and the query. It returns file paths unchanged.
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

// Redacted returns the subscription without the query in its sink's address, which may be a secret.
func (s Subscription) Redacted() Subscription {
	s.Sink = Redact(s.Sink)
	return s
}
