package token

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

const (
	maxToken           = 16 << 10         // largest token in bytes
	leeway             = 30 * time.Second // tolerance for differing clocks; does not apply to expiry
	minRefreshInterval = time.Second      // shortest time between two reads of the store because of unknown key ids
)

// A digest identifies a token and the audience for which it was verified.
type digest [sha256.Size]byte

// Verify returns the caller of a token. The token must be issued by this issuer, for the audience, and be valid now.
// Otherwise Verify returns fault.Unauthenticated with the reason, which contains no part of the token.
//
// A valid token is cached until it expires, because checking a signature takes many times as long as the rest of a
// small request. The result shares memory with the cache and must not be modified.
func (i *Issuer) Verify(ctx context.Context, raw, audience string) (authz.Caller, error) {
	switch {
	case raw == "":
		return authz.Caller{}, refused("a token is required")
	case len(raw) > maxToken:
		return authz.Caller{}, refused("the token is too long")
	}
	if _, err := i.current(ctx); err != nil {
		return authz.Caller{}, err
	}
	id := digestOf(raw, audience)
	c, ok := i.verified.Get(id)
	i.lookups.Count(ok)
	if ok {
		if i.now().Before(c.Expires) {
			return c, nil
		}
		i.verified.Remove(id)
		return authz.Caller{}, refused("the token has expired")
	}
	p, err := i.verifySignature(ctx, raw)
	if err != nil {
		return authz.Caller{}, err
	}
	if err := i.check(p, audience); err != nil {
		return authz.Caller{}, err
	}
	c = p.caller()
	i.verified.Add(id, c)
	return c, nil
}

// Authenticate returns the caller of a token, as Verify does, unless the token was revoked. It returns
// fault.Unavailable if the checker cannot determine whether the token was revoked.
func (i *Issuer) Authenticate(
	ctx context.Context, raw, audience string, checker *authz.Checker,
) (_ authz.Caller, err error) {
	ctx, span := trace.Start(ctx, "authenticate")
	defer func() { span.End(err) }()
	c, err := i.Verify(ctx, raw, audience)
	if err != nil {
		return authz.Caller{}, err
	}
	return checker.Admit(ctx, c)
}

// Bearer returns the token in the values of an Authorization header. If needScheme is
// false, the value may be the token alone.
func Bearer(values []string, needScheme bool) (string, error) {
	switch len(values) {
	case 0:
		return "", refused("a bearer token is required")
	case 1:
	default:
		return "", refused("more than one Authorization header")
	}
	text := strings.TrimSpace(values[0])
	scheme, rest, _ := strings.Cut(text, " ")
	switch {
	case strings.EqualFold(scheme, "bearer"):
		text = strings.TrimSpace(rest)
	case needScheme:
		return "", refused("the Authorization header must be Bearer and a token")
	}
	if text == "" {
		return "", refused("a bearer token is required")
	}
	return text, nil
}

func refused(why string) error { return fault.New(fault.Unauthenticated, "Unauthenticated: %s", why) }

func digestOf(raw, audience string) digest {
	b := make([]byte, 0, 2048) // does not escape to the heap for tokens of usual size
	b = append(b, raw...)
	b = append(b, 0) // a separator that is never part of a valid token
	return sha256.Sum256(append(b, audience...))
}

// verifySignature returns the payload of a token that one of our keys has signed.
func (i *Issuer) verifySignature(ctx context.Context, raw string) (payload, error) {
	signed, err := jose.ParseSignedCompact(raw, algorithms)
	if _, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return payload{}, refused("the token is signed with neither " + ES256 + " nor " + RS256)
	}
	if err != nil || len(signed.Signatures) != 1 {
		return payload{}, refused("the token cannot be read")
	}
	key, err := i.key(ctx, signed.Signatures[0].Protected.KeyID)
	if err != nil {
		return payload{}, err
	}
	if key == nil {
		return payload{}, refused("the token is not signed by this service")
	}
	body, err := signed.Verify(key)
	if err != nil {
		return payload{}, refused("the signature of the token is wrong")
	}
	return decode(body)
}

// decode reads the claims of one of our tokens. It refuses a token with a claim that
// is misspelled, repeated or unknown to this version, because such a claim could
// narrow the token.
func decode(body []byte) (p payload, _ error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if !hasOnlyKnownClaims(body) || dec.Decode(&p) != nil {
		return payload{}, refused("the claims of the token cannot be read")
	}
	return p, nil
}

// claimNames are the names of all claims of our tokens.
var claimNames = []string{
	"iss", "sub", "aud", "iat", "nbf", "exp", "jti", "email", "email_verified",
	"act", "sid", "idp", "cap", "scopes", "access", "webhook",
}

// hasOnlyKnownClaims reports whether a JSON object contains only claims of our
// tokens, each at most once.
func hasOnlyKnownClaims(body []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(body))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return false
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		if err != nil || !ok || seen[name] || !slices.Contains(claimNames, name) {
			return false
		}
		seen[name] = true
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return false
		}
	}
	_, err := dec.Token()
	return err == nil && !dec.More()
}

// key returns the public key with that id, or nil if there is none. It reads the store
// for an unknown id, at most once per minRefreshInterval, because another replica may
// have created the key.
func (i *Issuer) key(ctx context.Context, id string) (crypto.PublicKey, error) {
	if key := i.keys.Load().public[id]; key != nil {
		return key, nil
	}
	k, err := i.refresh(ctx, minRefreshInterval)
	if err != nil {
		return nil, err
	}
	return k.public[id], nil
}

func (i *Issuer) check(p payload, audience string) error {
	asOf := i.now()
	_, malformed := resource.ParseUID("sub", p.Subject)
	switch {
	case p.Issuer != i.issuer:
		return refused("the token is from another issuer")
	case !slices.Contains(p.Audience, audience):
		return refused("the token is for another audience")
	case !asOf.Before(time.Unix(p.Expiry, 0)):
		return refused("the token has expired")
	case asOf.Add(leeway).Before(time.Unix(p.NotBefore, 0)), asOf.Add(leeway).Before(time.Unix(p.IssuedAt, 0)):
		return refused("the token is not valid yet")
	case malformed != nil:
		return refused("the subject of the token is not an identity")
	}
	return nil
}

func (p payload) caller() authz.Caller {
	c := authz.Caller{
		Identity: resource.UID(p.Subject), Act: p.Act, Email: p.Email, EmailVerified: p.EmailVerified,
		Session: p.Session, Voucher: p.Voucher, Audience: p.Audience, Caps: (*resource.Capabilities)(p.Caps),
		Issued: time.Unix(p.IssuedAt, 0).UTC(), Expires: time.Unix(p.Expiry, 0).UTC(),
	}
	if p.Scopes != nil {
		c.Scopes = *p.Scopes
	}
	if p.Registry != nil {
		c.Registry = *p.Registry
	}
	return c
}
