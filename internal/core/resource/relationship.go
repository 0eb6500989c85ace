package resource

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
)

const (
	maxClaims     = 32
	maxStaticKeys = 16
	maxKeySet     = 64 << 10
)

var awsAccount = regexp.MustCompile(`^[0-9]{12}$`)

// Validate reports every field that a caller must fix. Static keys must expire after now.
func (i Identity) Validate(now time.Time) error {
	p := i.profile()
	r := i.Relationship
	switch r.Type() {
	case RelationshipClaimMatch:
		r.ClaimMatch.validate(&p)
	case RelationshipStaticKeys:
		r.StaticKeys.validate(&p, now)
	case RelationshipAWS:
		r.AWS.validate(&p)
	case RelationshipServicePrincipal:
		last := int32(len(servicePrincipals) - 1)
		Within(&p, "service_principal", r.ServicePrincipal, 0, last, "is not a service principal")
	default:
		p.Add("relationship", "one of claim_match, static_keys, aws_identity, service_principal is required")
	}
	return p.Err()
}

// ValidateProfile is Validate without the relationship. It is for updates that do not change the
// relationship, because its keys may have expired.
func (i Identity) ValidateProfile() error { return i.profile().Err() }

func (i Identity) profile() (p Problems) {
	p.Name(i.Name)
	p.displayName(i.DisplayName)
	p.Description(i.Description)
	p.Text("company", i.Company)
	return p
}

// ValidateMetadata reports every field that a person must fix in their metadata.
func (i Identity) ValidateMetadata() error {
	var p Problems
	p.Text("company", i.Company)
	for _, k := range slices.Sorted(maps.Keys(i.Metadata)) {
		if s, ok := i.Metadata[k].(string); ok {
			p.Text(k, s)
		}
	}
	return p.Err()
}

func (c ClaimMatch) validate(p *Problems) {
	p.Either("claim_match.issuer", c.Issuer, c.IssuerPattern, true)
	p.Either("claim_match.subject", c.Subject, c.SubjectPattern, true)
	p.Either("claim_match.audience", c.Audience, c.AudiencePattern, false)
	if c.Issuer != "" {
		p.Issuer("claim_match.issuer", c.Issuer)
	}
	if c.SubjectPattern != "" && matchesAnything(c.SubjectPattern, anySubject...) {
		p.Add("claim_match.subject_pattern", "matches every subject; say which subjects are meant")
	}
	if c.IssuerPattern != "" && matchesAnything(c.IssuerPattern, anyIssuer...) {
		p.Add("claim_match.issuer_pattern", "matches every issuer; say which issuers are meant")
	}
	// With such a pattern, anybody who receives a token could present it here.
	if c.AudiencePattern != "" && matchesAnything(c.AudiencePattern, slices.Concat(anySubject, anyIssuer)...) {
		p.Add("claim_match.audience_pattern", "matches every audience; say whom tokens are made for")
	}
	c.validateSizes(p)
	if len(c.Claims)+len(c.ClaimPatterns) > maxClaims {
		p.Add("claim_match.claims", "at most 32 claims can be matched")
	}
	for _, k := range slices.Sorted(maps.Keys(c.Claims)) {
		p.claim("claim_match.claims", k, c.Claims[k])
	}
	for _, k := range slices.Sorted(maps.Keys(c.ClaimPatterns)) {
		p.claim("claim_match.claim_patterns", k, c.ClaimPatterns[k])
		p.pattern("claim_match.claim_patterns", c.ClaimPatterns[k])
	}
}

// validateSizes reports an issuer pattern that is too large, and patterns that are too large
// together.
func (c ClaimMatch) validateSizes(p *Problems) {
	switch {
	case larger(maxProgram, math.MaxInt, c.patterns()...): // this is already reported for the pattern's field
	case larger(maxIssuerProgram, maxIssuerProgram, c.IssuerPattern):
		p.Add("claim_match.issuer_pattern",
			"is too large for an issuer, which is compared before the signature is: shorten it or repeat less")
	case larger(maxProgram, maxPrograms, c.patterns()...):
		p.Add("claim_match", "the patterns are too large together: shorten them or repeat less")
	}
}

func (k StaticKeys) validate(p *Problems, now time.Time) {
	p.Issuer("static_keys.issuer", k.Issuer)
	p.Text("static_keys.subject", k.Subject)
	p.Required("static_keys.subject", k.Subject)
	if text := badKeySet(k.IssuerKeys); text != "" {
		p.Add("static_keys.issuer_keys", text)
	}
	switch {
	case k.ExpirationTime.Before(now):
		p.Add("static_keys.expiration_time", "is in the past")
	case k.ExpirationTime.After(now.Add(staticKeyLife + time.Minute)): // one minute more, because clocks differ
		p.Add("static_keys.expiration_time", "is more than 365 days away")
	}
	if len(k.Audiences) > 1 {
		p.Add("static_keys.audiences", "at most one audience is supported")
	}
	for _, a := range k.Audiences {
		if a == "" {
			p.Add("static_keys.audiences", "must not be empty")
		}
		p.Text("static_keys.audiences", a)
	}
}

func (a AWSIdentity) validate(p *Problems) {
	p.Matches("aws_identity.aws_account", a.Account, awsAccount)
	p.Either("aws_identity.arn", a.ARN, a.ARNPattern, false)
	p.Either("aws_identity.user_id", a.UserID, a.UserIDPattern, false)
	if a.ARN+a.ARNPattern+a.UserID+a.UserIDPattern == "" {
		p.Add("aws_identity.arn", "an account alone is not enough: match the ARN, the user id, or both")
	}
	open := func(exact, pattern string, words []string) bool {
		return exact == "" && (pattern == "" || matchesAnything(pattern, words))
	}
	if a.ARNPattern+a.UserIDPattern != "" && open(a.ARN, a.ARNPattern, anyARN(a.Account)) &&
		open(a.UserID, a.UserIDPattern, anyUserID) {
		p.Add("aws_identity.arn_pattern", "matches every caller of the account; say who is meant")
	}
}

// badKeySet returns a description of the mistake in a JSON Web Key Set, or "".
func badKeySet(text string) string {
	if len(text) > maxKeySet {
		return "must be at most 64 KiB"
	}
	var set struct{ Keys []map[string]any }
	if err := json.Unmarshal([]byte(text), &set); err != nil || len(set.Keys) == 0 {
		return "must be a JSON Web Key Set with at least one key"
	}
	if len(set.Keys) > maxStaticKeys {
		return "must have at most 16 keys"
	}
	for _, key := range set.Keys {
		if text := badKey(key); text != "" {
			return text
		}
	}
	return ""
}

// publicParts contains the required members of a public key, by key type. No public key has a
// member in privateParts.
var (
	publicParts  = map[string][]string{"RSA": {"n", "e"}, "EC": {"crv", "x", "y"}, "OKP": {"crv", "x"}}
	privateParts = []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"}
)

func badKey(key map[string]any) string {
	kty, _ := key["kty"].(string)
	parts, known := publicParts[kty]
	if !known {
		return "keys must be of type RSA, EC or OKP"
	}
	if slices.ContainsFunc(privateParts, func(part string) bool { return key[part] != nil }) {
		return "holds a private key; send public keys only"
	}
	if slices.ContainsFunc(parts, func(part string) bool { s, _ := key[part].(string); return s == "" }) {
		return "a key of type " + kty + " needs " + strings.Join(parts, ", ")
	}
	return ""
}

// Either checks a field that may have an exact value or a pattern, but not both.
func (p *Problems) Either(field, exact, pattern string, required bool) {
	switch {
	case exact != "" && pattern != "":
		p.Add(field, "is given both exactly and as a pattern")
	case exact == "" && pattern == "" && required:
		p.Add(field, "is required, exactly or as a pattern")
	}
	p.Text(field, exact)
	p.pattern(field+"_pattern", pattern)
}

func (p *Problems) pattern(field, pattern string) {
	if len(pattern) > maxPattern || !Storable(pattern) {
		p.Add(field, "must be valid UTF-8 without NUL, of at most 1024 bytes")
		return
	}
	switch _, err := Anchored(pattern); {
	case errors.Is(err, errTooLarge):
		p.Add(field, "is too large: shorten it or repeat less")
	case err != nil:
		p.Add(field, "is not a regular expression (RE2): "+reason(err))
	}
}

// reason returns the mistake in a pattern, without the anchors that we add.
func reason(err error) string {
	if e, ok := err.(*syntax.Error); ok {
		return e.Code.String()
	}
	return "cannot be read"
}

// Issuer checks the address of a token issuer.
func (p *Problems) Issuer(field, s string) {
	p.Text(field, s)
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		p.Add(field, "must be a web address, as https://accounts.example.com, without query or fragment")
	}
}

func (p *Problems) claim(field, key, value string) {
	if key == "" || value == "" || slices.Contains([]string{"iss", "sub", "aud"}, key) {
		p.Add(field, "claims must have a name other than iss, sub and aud, and a value")
	}
	p.Text(field, key)
	p.Text(field, value)
}

// matchesAnything reports whether a pattern matches all words in one of the families. The words
// in a family have only their length or their form in common, so no specific pattern matches
// all of them.
func matchesAnything(pattern string, families ...[]string) bool {
	re, err := Anchored(pattern)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(families, func(words []string) bool {
		return !slices.ContainsFunc(words, func(s string) bool { return !re.MatchString(s) })
	})
}

// These are families of subjects (short, of usual length, and long), and of issuers (with and
// without a path).
var (
	anySubject = [][]string{
		{"a", "Z9", "x/y", "p:q", "7@8", "u|v"},
		{
			"https://example.com", "repo:org/name:ref:refs/heads/main", "system:serviceaccount:ns:name",
			"01234567890123", "x|y@z.example",
		},
		{strings.Repeat("q-", 40), strings.Repeat("Z/y@z:", 14), strings.Repeat("7", 80),
			"https://" + strings.Repeat("a|", 40)},
	}
	anyIssuer = [][]string{
		{"https://a.example", "https://token.b-9.test", "https://accounts.c.invalid"},
		{"https://a.example/x", "https://oidc.b-9.test/realms/y", "https://c.invalid/id/0A_z"},
		{"http://a.example", "http://token.b-9.test", "http://accounts.c.invalid"},
	}
)

// anyARN and anyUserID return examples for a user and a role in an AWS account.
func anyARN(account string) []string {
	return []string{"arn:aws:iam::" + account + ":user/a", "arn:aws:sts::" + account + ":assumed-role/b/c-9"}
}

var anyUserID = []string{"AIDA0123456789EXAMPLE", "AROA9876543210EXAMPLE:session"}
