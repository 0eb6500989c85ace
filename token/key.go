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
	algorithm  = jose.ES256
	keyPurpose = "signing key" // purpose that stored keys are sealed for
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

func newSigner(s iamdb.SigningKey, private *ecdsa.PrivateKey) (signer, error) {
	header, err := json.Marshal(map[string]string{"alg": string(algorithm), "kid": s.ID, "typ": "JWT"})
	return signer{s.ID, s.CreateTime, private, base64.RawURLEncoding.EncodeToString(header)}, err
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

// newKey creates a signing key, ready to be stored.
func newKey(master seal.Key, now time.Time) (iamdb.SigningKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return iamdb.SigningKey{}, fmt.Errorf("make a signing key: %w", err)
	}
	id, err := thumbprint(&private.PublicKey)
	if err != nil {
		return iamdb.SigningKey{}, err
	}
	plain, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return iamdb.SigningKey{}, fmt.Errorf("encode a signing key: %w", err)
	}
	return iamdb.SigningKey{
		ID: id, Algorithm: string(algorithm), Sealed: master.Seal(keyPurpose, plain), CreateTime: now,
	}, nil
}

// thumbprint returns the RFC 7638 thumbprint of a key, which is its id.
func thumbprint(public *ecdsa.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("take the thumbprint of a key: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}

// openKeys decrypts the stored keys, of which there is at least one, sorted
// newest first.
func openKeys(stored []iamdb.SigningKey, master seal.Key) (*keys, error) {
	k := &keys{public: map[string]*ecdsa.PublicKey{}}
	var set jose.JSONWebKeySet
	for _, s := range stored {
		private, err := openKey(s, master)
		if err != nil {
			return nil, err
		}
		with, err := newSigner(s, private)
		if err != nil {
			return nil, err
		}
		k.signers = append(k.signers, with)
		k.public[s.ID] = &private.PublicKey
		set.Keys = append(set.Keys, jose.JSONWebKey{
			Key: &private.PublicKey, KeyID: s.ID, Algorithm: s.Algorithm, Use: "sig",
		})
	}
	var err error
	if k.document, err = json.Marshal(set); err != nil {
		return nil, fmt.Errorf("encode the key set: %w", err)
	}
	return k, nil
}

func openKey(s iamdb.SigningKey, master seal.Key) (*ecdsa.PrivateKey, error) {
	plain, err := master.Open(keyPurpose, s.Sealed)
	if err != nil {
		return nil, fmt.Errorf("signing key %s cannot be opened; "+
			"start with the encryption key this database was set up with: %w", s.ID, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		return nil, fmt.Errorf("decode signing key %s: %w", s.ID, err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() || s.Algorithm != string(algorithm) {
		return nil, fmt.Errorf("signing key %s is for %s, which this version does not sign with", s.ID, s.Algorithm)
	}
	return private, nil
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
