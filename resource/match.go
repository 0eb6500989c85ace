package resource

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
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
	size  int // of its patterns together
}

// A want is one claim a relationship asks for.
type want struct {
	claim   string
	exact   []string // any of these
	pattern *regexp.Regexp
	text    string                // of the pattern
	size    int                   // of the pattern
	fold    func() *regexp.Regexp // the pattern with case ignored; compiled when it is first needed
}

// NewMatcher returns the matcher of a claim match, of static keys or of an AWS
// identity. audiences are what a credential may be for whose relationship does
// not say. It fails if a pattern of the relationship is none or is too large, and
// for a relationship that no credential stands for.
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

// longest is the length of a value beyond which the pattern does not match.
func (w want) longest() int {
	if w.claim == "iss" {
		return maxMatchedIssuer
	}
	return maxMatched
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

// fits tells whether c is what the want asks for. Of several audiences every one
// must be expected: whoever else a token is for could present it here.
func (w want) fits(c Credential) bool {
	switch w.claim {
	case "iss":
		return w.accepts(c.Issuer)
	case "sub":
		return w.accepts(c.Subject)
	case "aud":
		return len(c.Audience) > 0 && !w.tooMany(c.Audience) && !slices.ContainsFunc(c.Audience, func(a string) bool { return !w.accepts(a) })
	}
	if c.Claim == nil {
		return false
	}
	value, given := c.Claim(w.claim)
	return given && w.accepts(value)
}

// tooMany tells whether audiences are together longer than what a pattern is
// matched with.
func (w want) tooMany(audience []string) bool {
	length := 0
	for _, a := range audience {
		length += len(a)
	}
	return w.pattern != nil && length > w.longest()
}

// received returns the claim as it is shown.
func (w want) received(c Credential) string {
	switch w.claim {
	case "iss":
		return c.Issuer
	case "sub":
		return c.Subject
	case "aud":
		return strings.Join(c.Audience, audienceSeparator)
	}
	if c.Claim == nil {
		return ""
	}
	value, _ := c.Claim(w.claim)
	return value
}

const audienceSeparator = ", "

// AcceptsIssuer tells whether credentials of an issuer can match at all. Nobody
// need be asked for their keys if not.
func (m *Matcher) AcceptsIssuer(issuer string) bool {
	return len(m.wants) > 0 && m.wants[0].claim == "iss" && m.wants[0].accepts(issuer)
}

// NamesIssuer tells whether the issuer is given exactly, not as a pattern.
func (m *Matcher) NamesIssuer() bool {
	return len(m.wants) > 0 && m.wants[0].claim == "iss" && m.wants[0].pattern == nil
}

// Size is that of all patterns together, in instructions of their programs.
func (m *Matcher) Size() int { return m.size }

// Steps bounds what it costs to compare c, in instructions of a program for one
// byte each.
func (m *Matcher) Steps(c Credential) (n int) {
	for _, w := range m.wants {
		n += w.size * (min(len(w.received(c)), w.longest()) + 1)
	}
	return n
}

// Mismatch returns the first claim that does not fit, or "" if all do.
func (m *Matcher) Mismatch(c Credential) string {
	for _, w := range m.wants {
		if !w.fits(c) {
			return w.claim
		}
	}
	return ""
}

// Compare returns how every claim fared, those that do not fit first, and does
// not look for causes. Of a credential whose signature is not known to be good,
// what a pattern is for is left out, but for the issuer: nobody unknown chooses
// what the patterns are run on.
func (m *Matcher) Compare(c Credential, signed bool) []Check {
	var all []Check
	for _, w := range m.wants {
		if signed || w.pattern == nil || w.claim == "iss" {
			all = append(all, Check{Claim: w.claim, Expected: w.expected(), Received: w.received(c), OK: w.fits(c)})
		}
	}
	slices.SortStableFunc(all, func(a, b Check) int { return cmp.Compare(order(a.OK), order(b.OK)) })
	return all
}

// Judge is Compare of all claims, with what is probably wrong with those that do
// not fit.
func (m *Matcher) Judge(c Credential) []Check {
	all := m.Compare(c, true)
	for i := range all {
		all[i].Cause = m.Cause(all[i])
	}
	return all
}

// Cause returns what is probably wrong with a claim that does not fit, or "" if
// that is not known.
func (m *Matcher) Cause(k Check) string {
	for _, w := range m.wants {
		if !k.OK && w.claim == k.Claim && w.expected() == k.Expected {
			return w.cause(k.Received)
		}
	}
	return ""
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
