package issuers

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha256" // registers the hash functions
	_ "crypto/sha512"
	"encoding/json"
	"errors"
	"math/big"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxKeys    = 100  // greatest number of keys in one set
	minRSABits = 2048 // shorter keys can be broken
	maxRSABits = 8192 // longer keys only cost time
	maxTried   = 8    // greatest number of keys tried for a token without a key id
)

// algorithms are the accepted signature algorithms. None is symmetric, so a
// public key cannot be misused as a shared secret.
var algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// A KeySet holds the public keys of an issuer.
type KeySet struct{ keys []publicKey }

// A publicKey verifies signatures made with one of its algorithms.
type publicKey struct {
	id         string
	algorithms []string
	key        crypto.PublicKey
}

// A Key describes a key in a list.
type Key struct{ ID, Algorithm string }

// ParseKeys parses a JSON Web Key Set. It skips keys that cannot verify a
// signature here. It returns an error if no key is left.
func ParseKeys(document []byte) (KeySet, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return KeySet{}, errors.New("the key set is not valid JSON, or its fields have the wrong type")
	}
	if len(set.Keys) > maxKeys {
		return KeySet{}, errors.New("the key set has more than 100 keys")
	}
	var s KeySet
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) == nil && usable(k) {
			s.keys = append(s.keys, publicKey{k.KeyID, algorithmsFor(k), k.Key})
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
		if bits := rsaKey.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return false
		}
	}
	return len(algorithmsFor(k)) > 0
}

// algorithmsFor returns the algorithms that a key can verify. They follow from
// the key and not from the token. Otherwise a token could choose an algorithm
// that misinterprets the key.
func algorithmsFor(k jose.JSONWebKey) []string {
	var fitting []string
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		fitting = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case ed25519.PublicKey:
		fitting = []string{"EdDSA"}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			fitting = []string{"ES256"}
		case elliptic.P384():
			fitting = []string{"ES384"}
		case elliptic.P521():
			fitting = []string{"ES512"}
		}
	}
	if k.Algorithm == "" {
		return fitting
	}
	return slices.DeleteFunc(fitting, func(a string) bool { return a != k.Algorithm })
}

// List returns the id and the first algorithm of each key.
func (s KeySet) List() []Key {
	var keys []Key
	for _, k := range s.keys {
		keys = append(keys, Key{k.id, k.algorithms[0]})
	}
	return keys
}

// The errors that KeySet.Verify returns.
var (
	ErrUnknownKey = errors.New("the issuer has no key with the id that the token names")
	ErrSignature  = errors.New("the signature of the token is wrong")
)

// Verify returns nil if one of the keys has signed t. It returns ErrUnknownKey if
// no key has the id and algorithm of t, and ErrSignature if such a key has not
// signed t.
func (s KeySet) Verify(t *Token) error {
	tried := 0
	for _, k := range s.keys {
		if t.keyID != "" && k.id != t.keyID || !slices.Contains(k.algorithms, t.algorithm) {
			continue
		}
		if k.signed(t) {
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

// hashes maps the last three digits of an algorithm to its hash function.
var hashes = map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}

// signed reports whether the key has signed t. The algorithm of t must be one of
// the key's algorithms.
func (k publicKey) signed(t *Token) bool {
	if key, ok := k.key.(ed25519.PublicKey); ok {
		return ed25519.Verify(key, t.input, t.signature)
	}
	hash := hashes[t.algorithm[2:]]
	h := hash.New()
	h.Write(t.input)
	sum := h.Sum(nil)
	switch key := k.key.(type) {
	case *rsa.PublicKey:
		if t.algorithm[0] == 'P' {
			return rsa.VerifyPSS(key, hash, sum, t.signature, nil) == nil
		}
		return rsa.VerifyPKCS1v15(key, hash, sum, t.signature) == nil
	case *ecdsa.PublicKey:
		size := (key.Curve.Params().BitSize + 7) / 8
		if len(t.signature) != 2*size {
			return false
		}
		r, s := new(big.Int).SetBytes(t.signature[:size]), new(big.Int).SetBytes(t.signature[size:])
		return ecdsa.Verify(key, sum, r, s)
	}
	return false
}
