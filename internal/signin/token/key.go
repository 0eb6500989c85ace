package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
)

// The algorithms of token signatures. ES256 is fast and its signatures are small.
// Some verifiers accept only RS256, for example the federation of Azure.
const (
	ES256 = "ES256"
	RS256 = "RS256"
)

// algorithms are the algorithms that our tokens may have.
var algorithms = []jose.SignatureAlgorithm{jose.ES256, jose.RS256}

const rsaBits = 2048

// keys is an immutable snapshot of the signing keys of an installation.
type keys struct {
	signers  []signer // ES256 keys, newest first; at least one
	paired   []signer // RS256 keys, newest first; empty until the first is created
	public   map[string]crypto.PublicKey
	document []byte // the JSON Web Key Set
}

// A signer signs with one key.
type signer struct {
	id         string
	algorithm  string
	createTime time.Time
	private    crypto.Signer
	header     string // encoded header of its tokens
}

// newSigner returns a signer with a P-256 or an RSA key in PKCS#8. Its id is the
// RFC 7638 thumbprint of the key.
func newSigner(plain []byte, createTime time.Time) (s signer, _ error) {
	parsed, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		return s, err
	}
	s.createTime = createTime
	switch k := parsed.(type) {
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() {
			s.algorithm, s.private = ES256, k
		}
	case *rsa.PrivateKey:
		if k.N.BitLen() >= rsaBits {
			s.algorithm, s.private = RS256, k
		}
	}
	if s.private == nil {
		return s, errors.New("it is neither a P-256 key nor an RSA key of 2048 bits or more")
	}
	sum, err := (&jose.JSONWebKey{Key: s.private.Public()}).Thumbprint(crypto.SHA256)
	if err != nil {
		return s, fmt.Errorf("take its thumbprint: %w", err)
	}
	s.id = base64.RawURLEncoding.EncodeToString(sum)
	header, err := json.Marshal(map[string]string{"alg": s.algorithm, "kid": s.id, "typ": "JWT"})
	s.header = base64.RawURLEncoding.EncodeToString(header)
	return s, err
}

// sign returns a token with that body. It does not use the JOSE library, because the
// library encodes the header again for each token, which takes half as long as an
// ES256 signature.
func (s signer) sign(body []byte) (string, error) {
	b := make([]byte, 0, 2048)
	b = append(append(b, s.header...), '.')
	b = base64.RawURLEncoding.AppendEncode(b, body)
	sum := sha256.Sum256(b)
	signature, err := s.signDigest(sum[:])
	if err != nil {
		return "", err
	}
	return string(base64.RawURLEncoding.AppendEncode(append(b, '.'), signature)), nil
}

func (s signer) signDigest(sum []byte) ([]byte, error) {
	private, ok := s.private.(*ecdsa.PrivateKey)
	if !ok {
		return s.private.Sign(rand.Reader, sum, crypto.SHA256) // RSA with PKCS #1 v1.5
	}
	r, q, err := ecdsa.Sign(rand.Reader, private, sum)
	if err != nil {
		return nil, err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	q.FillBytes(signature[32:])
	return signature, nil
}

// signer returns the newest ES256 key that was published at least keyPublishDelay
// before now, so that every verifier has read it.
func (k *keys) signer(now time.Time) signer {
	for _, s := range k.signers {
		if now.Sub(s.createTime) >= keyPublishDelay {
			return s
		}
	}
	return k.signers[len(k.signers)-1] // the first key is used immediately
}

// signerFor returns the key that signs tokens with an algorithm. Until an RS256 key can be used, it returns an ES256
// key for both algorithms.
//
// The first RSA key signs immediately, unless the installation published ES256 keys more than keyPublishDelay earlier.
// In that case, verifiers may have cached the key set without the RSA key.
func (k *keys) signerFor(algorithm string, now time.Time) signer {
	if algorithm != RS256 || len(k.paired) == 0 {
		return k.signer(now)
	}
	first, oldest := k.paired[len(k.paired)-1], k.signers[len(k.signers)-1]
	for _, s := range k.paired {
		if now.Sub(s.createTime) >= keyPublishDelay {
			return s
		}
	}
	if first.createTime.Sub(oldest.createTime) > keyPublishDelay {
		return k.signer(now)
	}
	return first
}

// newPrivateKey returns a new key for an algorithm in PKCS#8. An RS256 key takes a
// few tenths of a second.
func newPrivateKey(algorithm string) ([]byte, error) {
	var private any
	var err error
	if algorithm == RS256 {
		private, err = rsa.GenerateKey(rand.Reader, rsaBits)
	} else {
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return x509.MarshalPKCS8PrivateKey(private)
}

// newKey creates a key for an algorithm, ready to be stored.
func newKey(algorithm string, master secret.Key, now time.Time) (k tokendb.SigningKey, _ error) {
	plain, err := newPrivateKey(algorithm)
	if err != nil {
		return k, err
	}
	s, err := newSigner(plain, now)
	return tokendb.SigningKey{
		ID: s.id, Algorithm: s.algorithm, Sealed: master.Seal(secret.ForSigningKeys, plain), CreateTime: now,
	}, err
}

// openKey decrypts a stored key, which must be for that algorithm.
func openKey(k tokendb.SigningKey, algorithm string, master secret.Key) (s signer, _ error) {
	plain, err := master.Open(secret.ForSigningKeys, k.Sealed)
	if err != nil {
		return s, fmt.Errorf("signing key %s cannot be opened; "+
			"start with the encryption key this database was set up with, "+
			"or if that is lost, see holdfastd keys reset: %w", k.ID, err)
	}
	s, err = newSigner(plain, k.CreateTime)
	if err == nil && (s.id != k.ID || s.algorithm != algorithm || k.Algorithm != algorithm) {
		err = fmt.Errorf("it is for %s, which this version does not sign with", k.Algorithm)
	}
	if err != nil {
		return s, fmt.Errorf("signing key %s: %w", k.ID, err)
	}
	return s, nil
}

// openKeys decrypts the stored keys, which are sorted newest first. There is at least
// one.
func openKeys(stored []tokendb.SigningKey, master secret.Key) (*keys, error) {
	var signers, paired []signer
	for _, k := range stored {
		s, err := openKey(k, ES256, master)
		if err != nil {
			return nil, err
		}
		signers = append(signers, s)
		if k.Pair == nil {
			continue
		}
		if s, err = openKey(*k.Pair, RS256, master); err != nil {
			return nil, err
		}
		paired = append(paired, s)
	}
	return newKeys(signers, paired)
}

// newKeys returns the snapshot of signers that are sorted newest first.
func newKeys(signers, paired []signer) (*keys, error) {
	k := &keys{signers: signers, paired: paired, public: map[string]crypto.PublicKey{}}
	var set jose.JSONWebKeySet
	for _, s := range slices.Concat(signers, paired) {
		k.public[s.id] = s.private.Public()
		set.Keys = append(set.Keys, jose.JSONWebKey{
			Key: s.private.Public(), KeyID: s.id, Algorithm: s.algorithm, Use: "sig",
		})
	}
	var err error
	if k.document, err = json.Marshal(set); err != nil {
		return nil, fmt.Errorf("encode the key set: %w", err)
	}
	return k, nil
}

// load reads the keys, and creates the first key if there is none. If several
// replicas do so at the same time, they all use the key that was stored first.
func (i *Issuer) load(ctx context.Context) error {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	if len(stored) == 0 {
		first, err := newKey(ES256, i.master, i.now())
		if err != nil {
			return err
		}
		if err := i.store.InsertFirstSigningKey(ctx, first); err != nil {
			return err
		}
		if stored, err = i.store.SigningKeys(ctx); err != nil {
			return err
		}
	}
	return i.setKeys(stored)
}

func (i *Issuer) setKeys(stored []tokendb.SigningKey) error {
	if len(stored) == 0 {
		return errors.New("there is no signing key")
	}
	k, err := openKeys(stored, i.master)
	if err != nil {
		return err
	}
	removed := func(s signer) bool { return k.public[s.id] == nil }
	if old := i.keys.Swap(k); old != nil && slices.ContainsFunc(slices.Concat(old.signers, old.paired), removed) {
		i.verified.Purge() // tokens signed with a removed key are void, even if they are cached
	}
	return nil
}

// Invalidate causes the keys to be read again before they are next used.
func (i *Issuer) Invalidate() { i.stale.Store(true) }

// current returns the keys, and reads them first if they are stale.
func (i *Issuer) current(ctx context.Context) (*keys, error) {
	if i.stale.Load() {
		return i.refresh(ctx, 0)
	}
	return i.keys.Load(), nil
}

// refresh reads the keys, unless they were read less than age ago. It returns the
// current keys even if it returns an error.
func (i *Issuer) refresh(ctx context.Context, age time.Duration) (*keys, error) {
	i.refreshMu.Lock()
	defer i.refreshMu.Unlock()
	if i.now().Sub(i.refreshedAt) < age {
		return i.keys.Load(), nil
	}
	i.stale.Store(false) // reset before the read, because a change during the read must set it again
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		i.stale.Store(true)
	}
	if ctx.Err() == nil {
		i.refreshedAt = i.now() // set after an answer or an outage, but not if the caller has gone
	}
	if err == nil {
		err = i.setKeys(stored)
	}
	return i.keys.Load(), err
}
