package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-dev/holdfast/seal"
	"github.com/holdfast-dev/holdfast/store/iamdb"
)

const (
	algorithm = jose.ES256
)

// keys are the signing keys of an installation at some time.
type keys struct {
	signers  []signer // newest first; at least one
	public   map[string]*ecdsa.PublicKey
	document []byte // the JSON Web Key Set
}

// A signer signs with one key.
type signer struct {
	id         string
	createTime time.Time
	private    *ecdsa.PrivateKey
	header     string // encoded header of its tokens
}

// newSigner returns a signer with a P-256 key in PKCS#8. Its id is the RFC 7638
// thumbprint of the key.
func newSigner(plain []byte, createTime time.Time) (s signer, _ error) {
	parsed, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		return s, err
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return s, errors.New("it is not a P-256 key")
	}
	sum, err := (&jose.JSONWebKey{Key: &private.PublicKey}).Thumbprint(crypto.SHA256)
	if err != nil {
		return s, fmt.Errorf("take its thumbprint: %w", err)
	}
	id := base64.RawURLEncoding.EncodeToString(sum)
	header, err := json.Marshal(map[string]string{"alg": string(algorithm), "kid": id, "typ": "JWT"})
	return signer{id, createTime, private, base64.RawURLEncoding.EncodeToString(header)}, err
}

// sign returns a token with that body. It does not use the library, whose
// signer encodes the header again for each token, which costs half as much as
// the signature.
func (s signer) sign(body []byte) (string, error) {
	b := make([]byte, 0, 2048)
	b = append(append(b, s.header...), '.')
	b = base64.RawURLEncoding.AppendEncode(b, body)
	sum := sha256.Sum256(b)
	r, q, err := ecdsa.Sign(rand.Reader, s.private, sum[:])
	if err != nil {
		return "", err
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	q.FillBytes(signature[32:])
	return string(base64.RawURLEncoding.AppendEncode(append(b, '.'), signature[:])), nil
}

// signer returns the newest key that has been published long enough for every
// verifier to have read it.
func (k *keys) signer(now time.Time) signer {
	for _, s := range k.signers {
		if now.Sub(s.createTime) >= keyPublishDelay {
			return s
		}
	}
	return k.signers[len(k.signers)-1] // the first key is used immediately
}

// newPrivateKey returns a new P-256 key in PKCS#8.
func newPrivateKey() ([]byte, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return x509.MarshalPKCS8PrivateKey(private)
}

// newKey creates a signing key, ready to be stored.
func newKey(master seal.Key, now time.Time) (k iamdb.SigningKey, _ error) {
	plain, err := newPrivateKey()
	if err != nil {
		return k, err
	}
	s, err := newSigner(plain, now)
	return iamdb.SigningKey{
		ID: s.id, Algorithm: string(algorithm), Sealed: master.Seal(seal.ForSigningKeys, plain), CreateTime: now,
	}, err
}

// openKeys decrypts the stored keys, of which there is at least one, sorted
// newest first.
func openKeys(stored []iamdb.SigningKey, master seal.Key) (*keys, error) {
	var all []signer
	for _, k := range stored {
		plain, err := master.Open(seal.ForSigningKeys, k.Sealed)
		if err != nil {
			return nil, fmt.Errorf("signing key %s cannot be opened; "+
				"start with the encryption key this database was set up with, "+
				"or if that is lost, see holdfastd keys reset: %w", k.ID, err)
		}
		s, err := newSigner(plain, k.CreateTime)
		if err == nil && (s.id != k.ID || k.Algorithm != string(algorithm)) {
			err = fmt.Errorf("it is for %s, which this version does not sign with", k.Algorithm)
		}
		if err != nil {
			return nil, fmt.Errorf("signing key %s: %w", k.ID, err)
		}
		all = append(all, s)
	}
	return newKeys(all)
}

// newKeys returns the keys of signers that are sorted newest first.
func newKeys(signers []signer) (*keys, error) {
	k := &keys{signers: signers, public: map[string]*ecdsa.PublicKey{}}
	var set jose.JSONWebKeySet
	for _, s := range signers {
		k.public[s.id] = &s.private.PublicKey
		set.Keys = append(set.Keys, jose.JSONWebKey{
			Key: &s.private.PublicKey, KeyID: s.id, Algorithm: string(algorithm), Use: "sig",
		})
	}
	var err error
	if k.document, err = json.Marshal(set); err != nil {
		return nil, fmt.Errorf("encode the key set: %w", err)
	}
	return k, nil
}

// load reads the keys, and creates the first if there is none. Of several
// replicas that do so at the same time, all use the one that was stored first.
func (i *Issuer) load(ctx context.Context) error {
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	if len(stored) == 0 {
		first, err := newKey(i.master, i.now())
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

func (i *Issuer) setKeys(stored []iamdb.SigningKey) error {
	if len(stored) == 0 {
		return errors.New("there is no signing key")
	}
	k, err := openKeys(stored, i.master)
	if err != nil {
		return err
	}
	removed := func(s signer) bool { return k.public[s.id] == nil }
	if old := i.keys.Swap(k); old != nil && slices.ContainsFunc(old.signers, removed) {
		i.verified.Purge() // tokens signed with a removed key are void, cached or not
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

// refresh reads the keys, unless that was done less than age ago. It returns
// the current keys even if there is an error.
func (i *Issuer) refresh(ctx context.Context, age time.Duration) (*keys, error) {
	i.refreshMu.Lock()
	defer i.refreshMu.Unlock()
	if now := i.now(); now.Sub(i.refreshedAt) < age {
		return i.keys.Load(), nil
	}
	i.stale.Store(false) // before the read: a change from here on sets it again
	stored, err := i.store.SigningKeys(ctx)
	if err != nil {
		i.stale.Store(true)
	}
	if ctx.Err() == nil {
		i.refreshedAt = i.now() // after an answer or an outage, but not if the caller left
	}
	if err == nil {
		err = i.setKeys(stored)
	}
	return i.keys.Load(), err
}
