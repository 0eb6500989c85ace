package token

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

const (
	maxToken           = 16 << 10
	leeway             = 30 * time.Second // for clocks that differ; none when a token ends
	minRefreshInterval = time.Second      // how often unknown keys make us look in the store
)

// A digest stands for a token and the audience it was verified for.
type digest [sha256.Size]byte

// Verify returns the caller a token stands for. The token must be made by this
// issuer, for the audience, and valid now. Otherwise the error is
// fault.Unauthenticated and says what is wrong, but nothing of the token.
//
// A good token is remembered until it ends, because a signature costs many
// times as much as the rest of a small request. What the result points to is
// shared: it must not be changed.
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
	if c, ok := i.verified.Get(id); ok {
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
	c := p.caller()
	i.verified.Add(id, c)
	return c, nil
}

func refused(why string) error { return fault.New(fault.Unauthenticated, "Unauthenticated: %s", why) }

func digestOf(raw, audience string) digest {
	b := make([]byte, 0, 2048) // stays off the heap for tokens of usual size
	b = append(b, raw...)
	b = append(b, 0) // never in a token that verifies
	return sha256.Sum256(append(b, audience...))
}

// verifySignature returns what a token says, if one of our keys has signed it.
func (i *Issuer) verifySignature(ctx context.Context, raw string) (payload, error) {
	signed, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{algorithm})
	if _, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return payload{}, refused("the token is not signed with " + string(algorithm))
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

// decode reads the claims of one of our tokens. A name that is spelled in other
// letters, given twice or unknown to this version is refused: what it means is
// not guessed, because it could narrow the token.
func decode(body []byte) (p payload, _ error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if !hasOnlyKnownClaims(body) || dec.Decode(&p) != nil {
		return payload{}, refused("the claims of the token cannot be read")
	}
	return p, nil
}

// claimNames are the names that our tokens have claims of.
var claimNames = []string{
	"iss", "sub", "aud", "iat", "nbf", "exp", "jti", "email", "email_verified", "act", "sid", "idp", "cap", "scopes", "webhook",
}

// hasOnlyKnownClaims reports whether an object has claims of our tokens only, each once.
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

// key returns the public key of that id, or nil if there is none. Another
// replica may have made it, so an unknown id is looked up, but no more often
// than strangers who invent ids may cost us.
func (i *Issuer) key(ctx context.Context, id string) (*ecdsa.PublicKey, error) {
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
	now := i.now()
	_, malformed := resource.ParseUID("sub", p.Subject)
	switch {
	case p.Issuer != i.issuer:
		return refused("the token is from another issuer")
	case !slices.Contains(p.Audience, audience):
		return refused("the token is for another audience")
	case !now.Before(time.Unix(p.Expiry, 0)):
		return refused("the token has expired")
	case now.Add(leeway).Before(time.Unix(p.NotBefore, 0)), now.Add(leeway).Before(time.Unix(p.IssuedAt, 0)):
		return refused("the token is not valid yet")
	case malformed != nil:
		return refused("the subject of the token is not an identity")
	}
	return nil
}

func (p payload) caller() authz.Caller {
	c := authz.Caller{
		Identity: resource.UID(p.Subject), Act: p.Act, Email: p.Email, EmailVerified: p.EmailVerified, Session: p.Session, Voucher: p.Voucher,
		Issued: time.Unix(p.IssuedAt, 0).UTC(), Expires: time.Unix(p.Expiry, 0).UTC(), Audience: p.Audience, Caps: (*resource.Capabilities)(p.Caps),
	}
	if p.Scopes != nil {
		c.Scopes = *p.Scopes
	}
	return c
}
