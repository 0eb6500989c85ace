// Package trust judges the tokens of other issuers: it reads what a token
// claims, finds the keys of who it claims to be from, and tells whether they
// signed it.
//
// Reading and judging are two steps, because nobody is asked for keys on the
// word of a stranger: whoever calls decides in between whether the issuer that a
// token names matters to anybody.
package trust

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

const maxToken = 16 << 10

// algorithms are those a token may be signed with: none that a public key could
// be mistaken for a secret of.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// A Token is what somebody says of themselves, until it is verified.
type Token struct {
	Issuer   string
	Subject  string
	Audience []string
	Expiry   time.Time
	Issued   time.Time // zero if the token does not say
	NotUntil time.Time // zero if the token does not say

	claims map[string]any
	signed *jose.JSONWebSignature
	header jose.Header
}

// A Malformed says why a text is no token. It names a claim where one is to
// blame, and says nothing of what the text holds.
type Malformed struct{ Claim, Reason string }

func (m *Malformed) Error() string { return m.Reason }

func malformed(claim, reason string) error { return &Malformed{claim, reason} }

// Parse reads a token without judging it. Its error is a *Malformed.
func Parse(raw string) (*Token, error) {
	if len(raw) > maxToken {
		return nil, malformed("", "the token is too long")
	}
	if strings.Count(raw, ".") != 2 {
		return nil, malformed("", "this is not a signed token")
	}
	signed, err := jose.ParseSignedCompact(raw, algorithms)
	if _, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return nil, malformed("alg", "the token is not signed with a public key algorithm that is accepted here")
	}
	if err != nil || len(signed.Signatures) != 1 {
		return nil, malformed("", "the token cannot be read")
	}
	t := &Token{signed: signed, header: signed.Signatures[0].Protected}
	if err := checkHeader(t.header); err != nil {
		return nil, err
	}
	if err := t.readClaims(signed.UnsafePayloadWithoutVerification()); err != nil {
		return nil, err
	}
	return t, nil
}

// checkHeader refuses a token that brings or points to a key of its own, or that
// wraps another.
func checkHeader(h jose.Header) error {
	if h.JSONWebKey != nil {
		return malformed("jwk", "the token brings its own key")
	}
	for _, name := range []string{"jku", "x5u", "x5c"} {
		if _, given := h.ExtraHeaders[jose.HeaderKey(name)]; given {
			return malformed(name, "the token points to its own key")
		}
	}
	if cty, given := h.ExtraHeaders[jose.HeaderContentType]; given {
		if s, ok := cty.(string); !ok || strings.EqualFold(s, "JWT") {
			return malformed("cty", "the token wraps another token")
		}
	}
	return nil
}

func (t *Token) readClaims(payload []byte) error {
	if !utf8.Valid(payload) {
		return malformed("", "the claims of the token are not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(payload)) // go-jose's refuses a name that is given twice
	dec.SetNumberType(json.UnmarshalJSONNumber)
	if err := dec.Decode(&t.claims); err != nil || t.claims == nil {
		return malformed("", "the claims of the token are not one JSON object, each name once")
	}
	if _, err := dec.Token(); err != io.EOF {
		return malformed("", "the claims of the token are not one JSON object, each name once")
	}
	var err error
	if t.Issuer, err = t.text("iss"); err != nil {
		return err
	}
	if t.Subject, err = t.text("sub"); err != nil {
		return err
	}
	if t.Audience, err = t.audience(); err != nil {
		return err
	}
	if t.Expiry, err = t.instant("exp", true); err != nil {
		return err
	}
	if t.Issued, err = t.instant("iat", false); err != nil {
		return err
	}
	t.NotUntil, err = t.instant("nbf", false)
	return err
}

func (t *Token) text(claim string) (string, error) {
	s, ok := t.claims[claim].(string)
	if !ok || s == "" {
		return "", malformed(claim, "the claim "+claim+" must be text")
	}
	return s, nil
}

func (t *Token) audience() ([]string, error) {
	switch v := t.claims["aud"].(type) {
	case string:
		return []string{v}, nil
	case []any:
		all := make([]string, 0, len(v))
		for _, one := range v {
			s, ok := one.(string)
			if !ok {
				return nil, malformed("aud", "the claim aud must be text, or a list of texts")
			}
			all = append(all, s)
		}
		return all, nil
	case nil:
		return nil, malformed("aud", "the claim aud is missing")
	}
	return nil, malformed("aud", "the claim aud must be text, or a list of texts")
}

// instant reads a time in seconds, whole or not. One that a clock cannot show is
// no time.
func (t *Token) instant(claim string, required bool) (time.Time, error) {
	v, given := t.claims[claim]
	if !given && !required {
		return time.Time{}, nil
	}
	n, ok := v.(json.Number)
	if !ok {
		return time.Time{}, malformed(claim, "the claim "+claim+" must be a time in seconds")
	}
	f, err := strconv.ParseFloat(n.String(), 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > 1<<40 {
		return time.Time{}, malformed(claim, "the claim "+claim+" must be a time in seconds")
	}
	return time.Unix(int64(f), 0).UTC(), nil
}

// Claim returns a claim as text, and whether the token has it as something that
// can be compared: text, a whole number, or true or false. Lists and objects
// cannot.
func (t *Token) Claim(name string) (string, bool) {
	switch v := t.claims[name].(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return v.String(), true
		}
	}
	return "", false
}

// KeyID is the id of the key that the token says it is signed with, or "".
func (t *Token) KeyID() string { return t.header.KeyID }

// Algorithm is what the token says it is signed with.
func (t *Token) Algorithm() string { return t.header.Algorithm }
