// Package trust judges the tokens of other issuers: it reads what a token
// claims, finds the keys of who it claims to be from, and tells whether they
// signed it.
//
// Reading and judging are two steps, because nobody is asked for keys on the
// word of a stranger: whoever calls decides in between whether the issuer that a
// token names matters to anybody.
package trust

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxToken = 16 << 10

// A Token is what somebody says of themselves, until it is verified.
type Token struct {
	Issuer    string
	Subject   string
	Audience  []string
	Expiry    time.Time
	Issued    time.Time // zero if the token does not say
	NotBefore time.Time // zero if the token does not say

	claims    object
	algorithm string
	keyID     string
	input     []byte // what is signed
	signature []byte
}

// A Malformed says why a text is no token. It names a claim where one is to
// blame, and says nothing of what the text holds.
type Malformed struct{ Claim, Reason string }

func (m *Malformed) Error() string { return m.Reason }

func malformed(claim, reason string) error { return &Malformed{claim, reason} }

// Parse reads a token without judging it. Its error is a *Malformed.
//
// It is written here, because the library reads a token several times over,
// which would cost more than to verify it.
func Parse(raw string) (*Token, error) {
	if len(raw) > maxToken {
		return nil, malformed("", "the token is too long")
	}
	if strings.Count(raw, ".") != 2 {
		return nil, malformed("", "this is not a signed token")
	}
	signed := strings.LastIndexByte(raw, '.')
	header, payload, _ := strings.Cut(raw[:signed], ".")
	t := &Token{input: []byte(raw[:signed])}
	h, ok := decodeObject(header)
	var err error
	if t.signature, err = encoding.DecodeString(raw[signed+1:]); err != nil || !ok {
		return nil, malformed("", "the token cannot be read")
	}
	if err := t.readHeader(h); err != nil {
		return nil, err
	}
	if t.claims, ok = decodeObject(payload); !ok {
		return nil, malformed("", "the claims of the token are not one JSON object in UTF-8, each name once")
	}
	return t, t.readClaims()
}

// encoding is that of all parts of a token; each has one way to be written.
var encoding = base64.RawURLEncoding.Strict()

func decodeObject(part string) (object, bool) {
	b, err := encoding.DecodeString(part)
	if err != nil {
		return nil, false
	}
	return readObject(b)
}

var refusedHeaders = []Malformed{
	{"jwk", "the token brings its own key"}, {"x5c", "the token brings its own key"},
	{"jku", "the token points to its own key"}, {"x5u", "the token points to its own key"},
	{"crit", "the token asks for what is not known here"}, {"b64", "the token asks for what is not known here"},
}

// types are those of tokens that say who somebody is, in lower case and without
// application/. An issuer signs other things with the same key and the same
// claims: that somebody has signed out, say.
var types = []string{"jwt", "jose", "at+jwt"}

// isTokenType tells whether a header is the type of an identity or access token. One
// that is missing is, too: many issuers leave it out.
func isTokenType(header string) bool {
	if header == "" {
		return true
	}
	typ, ok := unquote(header)
	return ok && slices.Contains(types, strings.TrimPrefix(strings.ToLower(typ), "application/"))
}

// readHeader refuses a token that is of another type, that brings or points to a
// key of its own, that wraps another, that is to be understood in a way of its
// own, or that is signed with what a public key could be mistaken for a secret
// of.
func (t *Token) readHeader(h object) error {
	for _, refused := range refusedHeaders {
		if h.get(refused.Claim) != "" {
			return &refused
		}
	}
	if !isTokenType(h.get("typ")) {
		return malformed("typ", "the token is not of the type of an identity or access token")
	}
	if cty, ok := unquote(h.get("cty")); h.get("cty") != "" && (!ok || strings.EqualFold(cty, "JWT")) {
		return malformed("cty", "the token wraps another token")
	}
	var ok bool
	if t.algorithm, ok = unquote(h.get("alg")); !ok || !slices.Contains(algorithms, t.algorithm) {
		return malformed("alg", "the token is not signed with a public key algorithm that is accepted here")
	}
	if t.keyID, ok = unquote(h.get("kid")); !ok && h.get("kid") != "" {
		return malformed("kid", "the header kid must be text")
	}
	return nil
}

func (t *Token) readClaims() error {
	if strings.HasPrefix(t.claims.get("events"), "{") { // RFC 8417
		return malformed("events", "the token tells of an event, as that somebody has signed out, and not who somebody is")
	}
	var err error
	if t.Issuer, err = t.textClaim("iss"); err != nil {
		return err
	}
	if t.Issuer == "accounts.google.com" { // the one issuer that leaves the scheme of its address out
		t.Issuer = "https://" + t.Issuer
	}
	if t.Subject, err = t.textClaim("sub"); err != nil {
		return err
	}
	if t.Audience, err = t.audience(); err != nil {
		return err
	}
	if t.Expiry, err = t.timeClaim("exp", true); err != nil {
		return err
	}
	if t.Issued, err = t.timeClaim("iat", false); err != nil {
		return err
	}
	t.NotBefore, err = t.timeClaim("nbf", false)
	return err
}

func (t *Token) textClaim(claim string) (string, error) {
	s, ok := unquote(t.claims.get(claim))
	if !ok || s == "" {
		return "", malformed(claim, "the claim "+claim+" must be text")
	}
	return s, nil
}

func (t *Token) audience() ([]string, error) {
	v := t.claims.get("aud")
	if v == "" {
		return nil, malformed("aud", "the claim aud is missing")
	}
	if s, ok := unquote(v); ok {
		return []string{s}, nil
	}
	var several []any
	if v[0] != '[' || json.Unmarshal([]byte(v), &several) != nil {
		return nil, malformed("aud", "the claim aud must be text, or a list of texts")
	}
	all := make([]string, 0, len(several))
	for _, one := range several {
		s, ok := one.(string)
		if !ok {
			return nil, malformed("aud", "the claim aud must be text, or a list of texts")
		}
		all = append(all, s)
	}
	return all, nil
}

// timeClaim reads a time in seconds, whole or not. One that a clock cannot show is
// no time.
func (t *Token) timeClaim(claim string, required bool) (time.Time, error) {
	v := t.claims.get(claim)
	if v == "" && !required {
		return time.Time{}, nil
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !isNumber(v) || math.IsNaN(f) || f < 0 || f > 1<<40 {
		return time.Time{}, malformed(claim, "the claim "+claim+" must be a time in seconds")
	}
	return time.Unix(int64(f), 0).UTC(), nil
}

// Claim returns a claim as text, and whether the token has it as something that
// can be compared: text, a whole number, or true or false. Lists and objects
// cannot.
func (t *Token) Claim(name string) (string, bool) {
	v := t.claims.get(name)
	if s, ok := unquote(v); ok {
		return s, true
	}
	if v == "true" || v == "false" {
		return v, true
	}
	if _, err := strconv.ParseInt(v, 10, 64); err == nil && isNumber(v) {
		return v, true
	}
	return "", false
}

// KeyID is the id of the key that the token says it is signed with, or "".
func (t *Token) KeyID() string { return t.keyID }

// Algorithm is what the token says it is signed with.
func (t *Token) Algorithm() string { return t.algorithm }
