// Package issuers verifies the tokens of other issuers: it parses a token, fetches the keys of the issuer that the
// token names, and checks that one of these keys signed the token.
//
// Parsing and verifying are separate, because keys must not be fetched at the request of a stranger. Between the two
// steps, the caller checks whether anybody trusts the issuer that the token names.
package issuers

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxToken = 16 << 10 // largest token in bytes

// A Token is a parsed token. Its claims are unproven until it is verified.
type Token struct {
	Issuer    string
	Subject   string
	Audience  []string
	Expiry    time.Time
	Issued    time.Time // zero if the token has no iat
	NotBefore time.Time // zero if the token has no nbf

	claims    object
	algorithm string
	keyID     string
	input     []byte // signed part of the token
	signature []byte
}

// A Malformed is the error for a text that is not an acceptable token. Claim is the claim or header that is wrong, or
// "". Reason contains no part of the text.
type Malformed struct{ Claim, Reason string }

func (m *Malformed) Error() string { return m.Reason }

func malformed(claim, reason string) error { return &Malformed{claim, reason} }

// Parse parses a token without verifying it. Its error is a *Malformed.
//
// It does not use the JOSE library, which parses a token several times and so
// takes longer than verifying the signature.
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

// encoding is the base64 encoding of each part of a token. It accepts exactly one
// encoding of each value.
var encoding = base64.RawURLEncoding.Strict()

func decodeObject(part string) (object, bool) {
	b, err := encoding.DecodeString(part)
	if err != nil {
		return nil, false
	}
	return readObject(b)
}

var refusedHeaders = []Malformed{
	{"jwk", "the token contains its own key"}, {"x5c", "the token contains its own key"},
	{"jku", "the token points to its own key"}, {"x5u", "the token points to its own key"},
	{"crit", "the token requires an extension that is not supported here"},
	{"b64", "the token requires an extension that is not supported here"},
}

// types are the accepted values of the typ header, in lower case and without
// application/. Other types are refused, because an issuer may sign other
// documents with the same key and the same claims, for example logout tokens.
var types = []string{"jwt", "jose", "at+jwt"}

// isTokenType reports whether a typ header names an identity or access token. A
// missing header is accepted, because many issuers omit it.
func isTokenType(header string) bool {
	if header == "" {
		return true
	}
	typ, ok := unquote(header)
	return ok && slices.Contains(types, strings.TrimPrefix(strings.ToLower(typ), "application/"))
}

// readHeader refuses a token that has another type, contains or refers to its own
// key, wraps another token, requires extensions, or is not signed with an
// accepted algorithm.
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
	if strings.HasPrefix(t.claims.get("events"), "{") { // a security event token (RFC 8417)
		return malformed("events",
			"the token reports an event, for example a sign-out; it does not identify anybody")
	}
	var err error
	if t.Issuer, err = t.textClaim("iss"); err != nil {
		return err
	}
	if t.Issuer == "accounts.google.com" { // the only issuer that leaves out the scheme
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
	audience := make([]string, 0, len(several))
	for _, one := range several {
		s, ok := one.(string)
		if !ok {
			return nil, malformed("aud", "the claim aud must be text, or a list of texts")
		}
		audience = append(audience, s)
	}
	return audience, nil
}

// timeClaim reads a time in seconds, with or without a fraction.
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

// Claim returns a claim as text. It returns false if the token does not have the
// claim, or if its value cannot be compared. Texts, integers and booleans can be
// compared; lists and objects cannot.
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

// KeyID returns the key id (kid) of the token, or "".
func (t *Token) KeyID() string { return t.keyID }

// Algorithm returns the signature algorithm (alg) of the token.
func (t *Token) Algorithm() string { return t.algorithm }
