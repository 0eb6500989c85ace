package resource

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Credential is a credential with which a caller wants to assume an identity. Its claims
// are not trusted before its signature is verified.
type Credential struct {
	Issuer   string
	Subject  string
	Audience []string
	Claim    func(name string) (string, bool) // returns the value of any other claim, as text
}

// A Check is the comparison of one claim of a credential with a relationship.
type Check struct {
	Claim    string `json:"claim"`
	Expected string `json:"expected"` // the expected value; a pattern is written between slashes
	Received string `json:"received"`
	OK       bool   `json:"ok"`
	Cause    string `json:"cause,omitempty"` // the probable reason for a mismatch
}

// A Matcher compares credentials with one relationship.
type Matcher struct {
	wants []want
	size  int // sum of the sizes of its patterns
}

// A want is what a relationship requires of one claim.
type want struct {
	claim   string
	exact   []string // accepted values
	pattern *regexp.Regexp
	text    string                // text of the pattern
	size    int                   // size of the pattern
	fold    func() *regexp.Regexp // the pattern with case ignored; compiled when it is first needed
}

// NewMatcher returns the matcher for a relationship with a claim match, static keys or an
// AWS identity. audiences are accepted if the relationship does not restrict the audience.
// NewMatcher returns an error if a pattern is invalid or too large, or if the relationship
// accepts no credentials.
func NewMatcher(r Relationship, audiences []string) (*Matcher, error) {
	if r.PatternsTooLarge() {
		return nil, errTooLarge
	}
	m := &Matcher{}
	switch r.Type() {
	case RelationshipClaimMatch:
		return m, m.claimMatch(*r.ClaimMatch, audiences)
	case RelationshipStaticKeys:
		k := r.StaticKeys
		if len(k.Audiences) > 0 {
			audiences = k.Audiences
		}
		m.wants = []want{
			{claim: "iss", exact: []string{k.Issuer}}, {claim: "sub", exact: []string{k.Subject}},
			{claim: "aud", exact: audiences},
		}
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
	if exact != "" {
		m.wants = append(m.wants, want{claim: claim, exact: []string{exact}})
		return nil
	}
	w, err := newPattern(claim, pattern)
	if err != nil {
		return err
	}
	m.size += w.size
	m.wants = append(m.wants, w)
	return nil
}

func newPattern(claim, pattern string) (want, error) {
	re, size, err := compile(pattern)
	if err != nil {
		return want{}, err
	}
	fold := sync.OnceValue(func() *regexp.Regexp {
		re, err := regexp.Compile(`(?i)` + re.String())
		if err != nil {
			return nil
		}
		return re
	})
	return want{claim: claim, text: pattern, pattern: re, size: size, fold: fold}, nil
}

// longest returns the length of the longest value that the pattern may be compared with.
func (w want) longest() int {
	if w.claim == "iss" {
		return maxMatchedIssuer
	}
	return MaxMatched
}

func (w want) accepts(value string) bool {
	if w.pattern != nil {
		return len(value) <= w.longest() && w.pattern.MatchString(value)
	}
	return slices.Contains(w.exact, value)
}

func (w want) expected() string {
	if w.pattern != nil {
		return "/" + w.text + "/"
	}
	return w.exact[0]
}

// fits reports whether c has the required claim. Every audience in the token must be
// expected, because each audience receives the token and could present it here.
func (w want) fits(c Credential) bool {
	if w.claim == "aud" {
		tooLong := w.pattern != nil && len(strings.Join(c.Audience, "")) > w.longest()
		return len(c.Audience) > 0 && !tooLong &&
			!slices.ContainsFunc(c.Audience, func(a string) bool { return !w.accepts(a) })
	}
	value, given := w.claimOf(c)
	return given && w.accepts(value)
}

// claimOf returns the claim, and whether c has it. It is not for the audience, which may have
// several values.
func (w want) claimOf(c Credential) (string, bool) {
	switch {
	case w.claim == "iss":
		return c.Issuer, true
	case w.claim == "sub":
		return c.Subject, true
	case c.Claim == nil:
		return "", false
	}
	return c.Claim(w.claim)
}

// received returns the claim as text.
func (w want) received(c Credential) string {
	if w.claim == "aud" {
		return strings.Join(c.Audience, audienceSeparator)
	}
	value, _ := w.claimOf(c)
	return value
}

const audienceSeparator = ", "

// AcceptsIssuer reports whether credentials of an issuer can match. If not, its keys are not needed.
func (m *Matcher) AcceptsIssuer(issuer string) bool {
	return len(m.wants) > 0 && m.wants[0].claim == "iss" && m.wants[0].accepts(issuer)
}

// NamesIssuer reports whether the relationship names the issuer exactly and not by a pattern.
func (m *Matcher) NamesIssuer() bool {
	return len(m.wants) > 0 && m.wants[0].claim == "iss" && m.wants[0].pattern == nil
}

// Size returns the size of all patterns, in instructions of their programs.
func (m *Matcher) Size() int { return m.size }

// Steps returns an upper bound on the cost of comparing c: for each pattern, the number of
// instructions times the number of bytes.
func (m *Matcher) Steps(c Credential) (n int) {
	for _, w := range m.wants {
		n += w.size * (min(len(w.received(c)), w.longest()) + 1)
	}
	return n
}

// Mismatch returns the first claim that does not match, or "" if all do.
func (m *Matcher) Mismatch(c Credential) string {
	for _, w := range m.wants {
		if !w.fits(c) {
			return w.claim
		}
	}
	return ""
}

// Compare returns the checks of all claims, without causes. Mismatches come first. If the
// signature is not verified, it leaves out the claims that are compared with a pattern, except
// the issuer, so that strangers cannot choose the input of patterns.
func (m *Matcher) Compare(c Credential, signed bool) []Check {
	var bad, good []Check
	for _, w := range m.wants {
		k := Check{Claim: w.claim, Expected: w.expected(), Received: w.received(c)}
		switch {
		case !signed && w.pattern != nil && w.claim != "iss":
		case w.fits(c):
			k.OK = true
			good = append(good, k)
		default:
			bad = append(bad, k)
		}
	}
	return append(bad, good...)
}

// Cause returns the probable mistake in a claim that does not match, or "" if it cannot tell.
func (m *Matcher) Cause(k Check) string {
	for _, w := range m.wants {
		if !k.OK && w.claim == k.Claim && w.expected() == k.Expected {
			return w.cause(k.Received)
		}
	}
	return ""
}

// StaticKeysExpired reports whether the static keys of a relationship have expired.
func (r Relationship) StaticKeysExpired(now time.Time) bool {
	return r.StaticKeys != nil && !now.Before(r.StaticKeys.ExpirationTime)
}
