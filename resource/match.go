package resource

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Credential is what somebody presents to be taken for an identity. Its claims
// count only once the signature does.
type Credential struct {
	Issuer   string
	Subject  string
	Audience []string
	Claim    func(name string) (string, bool) // any other claim, as text
}

// A Check is how one claim of a credential fared with a relationship.
type Check struct {
	Claim    string `json:"claim"`
	Expected string `json:"expected"` // a pattern stands between slashes
	Received string `json:"received"`
	OK       bool   `json:"ok"`
	Cause    string `json:"cause,omitempty"` // what is probably wrong
}

// A Matcher holds credentials against one relationship, again and again.
type Matcher struct {
	wants []want
}

// A want is one claim a relationship asks for.
type want struct {
	claim   string
	exact   []string // any of these
	pattern *regexp.Regexp
	text    string // of the pattern
}

// NewMatcher returns the matcher of a claim match, of static keys or of an AWS
// identity. audiences are what a credential may be for whose relationship does
// not say. It fails if a pattern of the relationship is none, and for a
// relationship that no credential stands for.
func NewMatcher(r Relationship, audiences []string) (*Matcher, error) {
	m := &Matcher{}
	switch r.Type() {
	case RelationshipClaimMatch:
		return m, m.claimMatch(*r.ClaimMatch, audiences)
	case RelationshipStaticKeys:
		k := r.StaticKeys
		if len(k.Audiences) > 0 {
			audiences = k.Audiences
		}
		m.wants = []want{{claim: "iss", exact: []string{k.Issuer}}, {claim: "sub", exact: []string{k.Subject}}, {claim: "aud", exact: audiences}}
		return m, nil
	case RelationshipAWS:
		return m, m.aws(*r.AWS)
	}
	return nil, errNoCredential
}

func (m *Matcher) claimMatch(c ClaimMatch, audiences []string) error {
	if err := m.add("iss", c.Issuer, c.IssuerPattern); err != nil {
		return err
	}
	if err := m.add("sub", c.Subject, c.SubjectPattern); err != nil {
		return err
	}
	if c.Audience == "" && c.AudiencePattern == "" {
		m.wants = append(m.wants, want{claim: "aud", exact: audiences})
	} else if err := m.add("aud", c.Audience, c.AudiencePattern); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Claims)) {
		m.wants = append(m.wants, want{claim: name, exact: []string{c.Claims[name]}})
	}
	for _, name := range slices.Sorted(maps.Keys(c.ClaimPatterns)) {
		if err := m.add(name, "", c.ClaimPatterns[name]); err != nil {
			return err
		}
	}
	return nil
}

func (m *Matcher) aws(a AWSIdentity) error {
	m.wants = []want{{claim: "account", exact: []string{a.Account}}}
	if a.ARN+a.ARNPattern != "" {
		if err := m.add("arn", a.ARN, a.ARNPattern); err != nil {
			return err
		}
	}
	if a.UserID+a.UserIDPattern != "" {
		return m.add("user_id", a.UserID, a.UserIDPattern)
	}
	return nil
}

func (m *Matcher) add(claim, exact, pattern string) error {
	w := want{claim: claim, text: pattern}
	if exact != "" {
		w.exact = []string{exact}
	} else {
		re, err := Anchored(pattern)
		if err != nil {
			return err
		}
		w.pattern = re
	}
	m.wants = append(m.wants, w)
	return nil
}

func (w want) accepts(value string) bool {
	if w.pattern != nil {
		return w.pattern.MatchString(value)
	}
	return slices.Contains(w.exact, value)
}

func (w want) expected() string {
	if w.pattern != nil {
		return "/" + w.text + "/"
	}
	return w.exact[0]
}

// check holds c against one want. Of several audiences every one must be
// expected: whoever else a token is for could present it here.
func (w want) check(c Credential) (received string, ok bool) {
	switch w.claim {
	case "iss":
		return c.Issuer, w.accepts(c.Issuer)
	case "sub":
		return c.Subject, w.accepts(c.Subject)
	case "aud":
		ok := len(c.Audience) > 0 && !slices.ContainsFunc(c.Audience, func(a string) bool { return !w.accepts(a) })
		return strings.Join(c.Audience, ", "), ok
	}
	if c.Claim == nil {
		return "", false
	}
	received, given := c.Claim(w.claim)
	return received, given && w.accepts(received)
}

// AcceptsIssuer tells whether credentials of an issuer can match at all. Nobody
// need be asked for their keys if not.
func (m *Matcher) AcceptsIssuer(issuer string) bool {
	return len(m.wants) > 0 && m.wants[0].claim == "iss" && m.wants[0].accepts(issuer)
}

// Mismatch returns the first claim that does not fit, or "" if all do.
func (m *Matcher) Mismatch(c Credential) string {
	for _, w := range m.wants {
		if _, ok := w.check(c); !ok {
			return w.claim
		}
	}
	return ""
}

// Judge returns how every claim fared, and why probably, those that do not fit
// first.
func (m *Matcher) Judge(c Credential) []Check {
	var all []Check
	for _, w := range m.wants {
		received, ok := w.check(c)
		k := Check{Claim: w.claim, Expected: w.expected(), Received: received, OK: ok}
		if !ok {
			k.Cause = w.cause(c, received)
		}
		all = append(all, k)
	}
	slices.SortStableFunc(all, func(a, b Check) int { return cmp.Compare(order(a.OK), order(b.OK)) })
	return all
}

func order(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

// StaticKeysExpired tells whether the keys of a relationship are past their
// time.
func (r Relationship) StaticKeysExpired(now time.Time) bool {
	return r.StaticKeys != nil && !now.Before(r.StaticKeys.ExpirationTime)
}
