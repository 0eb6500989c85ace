package trust

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	stdjson "encoding/json"
	"errors"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxKeys    = 100  // of one set
	minRSABits = 2048 // what is shorter can be broken
	maxRSABits = 8192 // what is longer only costs us time
	maxTried   = 8    // keys for a token that names none
)

// A KeySet is the public keys of an issuer.
type KeySet struct{ keys []jose.JSONWebKey }

// A Key is how a key is listed.
type Key struct{ ID, Algorithm string }

// ParseKeys reads a JSON Web Key Set. Keys that cannot verify a signature here
// are left out; it fails if none is left.
func ParseKeys(document []byte) (KeySet, error) {
	var set struct {
		Keys []stdjson.RawMessage `json:"keys"`
	}
	if err := stdjson.Unmarshal(document, &set); err != nil {
		return KeySet{}, errors.New("the key set is not JSON of the right form")
	}
	if len(set.Keys) > maxKeys {
		return KeySet{}, errors.New("the key set has more than 100 keys")
	}
	var s KeySet
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) == nil && usable(k) {
			s.keys = append(s.keys, k)
		}
	}
	if len(s.keys) == 0 {
		return KeySet{}, errors.New("the key set has no key that can verify a signature here")
	}
	return s, nil
}

func usable(k jose.JSONWebKey) bool {
	if k.Use != "" && k.Use != "sig" || !k.IsPublic() || !k.Valid() {
		return false
	}
	if rsaKey, ok := k.Key.(*rsa.PublicKey); ok {
		bits := rsaKey.N.BitLen()
		return bits >= minRSABits && bits <= maxRSABits
	}
	return len(fits(k)) > 0
}

// fits returns the algorithms that a key can verify. The algorithm follows from
// the key, never from the token alone: otherwise a token could choose how its
// key is misread.
func fits(k jose.JSONWebKey) []jose.SignatureAlgorithm {
	var all []jose.SignatureAlgorithm
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		all = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
	case ed25519.PublicKey:
		all = []jose.SignatureAlgorithm{jose.EdDSA}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			all = []jose.SignatureAlgorithm{jose.ES256}
		case elliptic.P384():
			all = []jose.SignatureAlgorithm{jose.ES384}
		case elliptic.P521():
			all = []jose.SignatureAlgorithm{jose.ES512}
		}
	}
	if k.Algorithm == "" {
		return all
	}
	return slices.DeleteFunc(all, func(a jose.SignatureAlgorithm) bool { return string(a) != k.Algorithm })
}

// List returns the keys as they are listed.
func (s KeySet) List() []Key {
	var all []Key
	for _, k := range s.keys {
		algorithm := k.Algorithm
		if can := fits(k); algorithm == "" && len(can) > 0 {
			algorithm = string(can[0])
		}
		all = append(all, Key{k.KeyID, algorithm})
	}
	return all
}

// Errors of a signature.
var (
	ErrUnknownKey = errors.New("the issuer has no key of the id that the token names")
	ErrSignature  = errors.New("the signature of the token is wrong")
)

// Verify returns nil if one of the keys has signed t. It returns ErrUnknownKey if
// none of them could have, and ErrSignature if one could and has not.
func (s KeySet) Verify(t *Token) error {
	tried := 0
	for _, k := range s.keys {
		if t.header.KeyID != "" && k.KeyID != t.header.KeyID ||
			!slices.Contains(fits(k), jose.SignatureAlgorithm(t.header.Algorithm)) {
			continue
		}
		if _, err := t.signed.Verify(k.Key); err == nil {
			return nil
		}
		if tried++; tried == maxTried {
			break
		}
	}
	if tried == 0 {
		return ErrUnknownKey
	}
	return ErrSignature
}
