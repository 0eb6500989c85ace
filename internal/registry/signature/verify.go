package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"
)

// Limits on keys and roots.
const (
	MaxKey  = 8 << 10  // bytes of a public key in PEM
	MaxRoot = 64 << 10 // bytes of a trusted root; the root of the public Sigstore has 10,000

	minRSA, maxRSA = 2048, 8192 // allowed sizes of RSA keys, in bits
)

// A Key verifies signatures with a public key.
type Key struct {
	verifiers []signature.Verifier // one for each signature scheme that a signer may have used
}

// ParseKey reads a public key in PEM: ECDSA, RSA or Ed25519.
func ParseKey(text string) (*Key, error) {
	if len(text) > MaxKey {
		return nil, fmt.Errorf("a key has at most %d bytes", MaxKey)
	}
	block, rest := pem.Decode([]byte(text))
	switch {
	case block == nil:
		return nil, errors.New("is not a public key in PEM")
	case strings.Contains(block.Type, "PRIVATE"):
		return nil, errors.New("is a private key, which only its owner should have; give the public one")
	case block.Type == "CERTIFICATE":
		return nil, errors.New("is a certificate; give its public key")
	case strings.TrimSpace(string(rest)) != "":
		return nil, errors.New("has more than one key")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, errors.New("is not a public key in PEM")
	}
	return newKey(public)
}

// newKey returns a Key with a verifier for each signature scheme that may be used with a public key.
func newKey(public crypto.PublicKey) (*Key, error) {
	var k Key
	add := func(v signature.Verifier, err error) error {
		k.verifiers = append(k.verifiers, v)
		return err
	}
	err := add(signature.LoadVerifier(public, crypto.SHA256)) // for Ed25519, the message itself is signed
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		if err == nil && p.Curve.Params().BitSize > 256 { // newer programs use a hash of the curve's size
			err = add(signature.LoadDefaultVerifier(public))
		}
	case ed25519.PublicKey:
		if err == nil {
			err = add(signature.LoadDefaultVerifier(public, options.WithED25519ph()))
		}
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); bits < minRSA || bits > maxRSA {
			return nil, fmt.Errorf("has %d bits; a key of RSA has %d to %d", bits, minRSA, maxRSA)
		}
	default:
		return nil, errors.New("is not a key of ECDSA, RSA or Ed25519")
	}
	if err != nil {
		return nil, errors.New("is not a key that signatures can be verified with")
	}
	return &k, nil
}

// Verify returns nil if s is a signature of an image with this key.
func (k *Key) Verify(image Subject, s *Signature) error {
	err := errors.New("another key has signed it")
	for _, v := range k.verifiers {
		if s.payload != nil {
			if v.VerifySignature(bytes.NewReader(s.signed), bytes.NewReader(s.payload)) == nil {
				return nil
			}
			continue
		}
		if err = verifyKey(v, image, s); err == nil {
			return nil
		}
	}
	return plainReason(err)
}

// plainReason replaces an error of the libraries that verify signatures, if it would confuse a reader.
func plainReason(err error) error {
	for part, reason := range map[string]string{
		"accepted signatures do not match threshold": "another key has signed it",
		"could not verify message":                   "another key has signed it",
		"threshold not met for verified":             "no trusted log or timestamp authority confirms its time",
		"not enough verified log entries":            "no trusted transparency log contains it",
		"SCT entries; unable to meet threshold":      "no trusted certificate log contains its certificate",
	} {
		if strings.Contains(err.Error(), part) {
			return errors.New(reason)
		}
	}
	return err
}

// verifyKey returns nil if s is a signature of an image with the key of v. It ignores the key hint in the bundle.
func verifyKey(v signature.Verifier, image Subject, s *Signature) error {
	trusted := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		return root.NewExpiringKey(v, time.Time{}, time.Time{}), nil
	})
	verifier, err := verify.NewVerifier(trusted, verify.WithNoObserverTimestamps(), verify.WithoutStatementPredicate())
	if err != nil {
		return err
	}
	policy := verify.NewPolicy(verify.WithArtifact(bytes.NewReader(image.Body)), verify.WithKey())
	result, err := verifier.Verify(s.raw, policy)
	if err != nil {
		return err
	}
	return checkStatement(result)
}

// checkStatement returns an error if a bundle contains a statement that does not sign an image, such as an SBOM.
func checkStatement(r *verify.VerificationResult) error {
	if r.Statement != nil && r.Statement.GetPredicateType() != PredicateType {
		return fmt.Errorf("it is a statement of type %.100q, not a signature", r.Statement.GetPredicateType())
	}
	return nil
}

// A Root verifies signatures by identities. It has certificate authorities, logs and timestamp authorities.
type Root struct {
	verifier *verify.Verifier
}

// ParseRoot parses a trusted root, which Sigstore publishes as trusted_root.json. The root must have a certificate
// authority, and a log or a timestamp authority. Without the latter, nothing confirms the time at which a certificate
// was used, and certificates are valid only for minutes.
//
// If a root has logs, a signature needs an entry in one of them. If it has certificate logs, a certificate needs a
// timestamp from one of them.
func ParseRoot(text []byte) (*Root, error) {
	if len(text) > MaxRoot {
		return nil, fmt.Errorf("a trusted root has at most %d bytes", MaxRoot)
	}
	trusted, err := root.NewTrustedRootFromJSON(text)
	if err != nil {
		return nil, errors.New("is not a trusted root, as in trusted_root.json")
	}
	if len(trusted.FulcioCertificateAuthorities()) == 0 {
		return nil, errors.New("has no certificate authority")
	}
	if len(trusted.RekorLogs()) == 0 && len(trusted.TimestampingAuthorities()) == 0 {
		return nil, errors.New("has neither a transparency log nor a timestamp authority")
	}
	needs := []verify.VerifierOption{verify.WithObserverTimestamps(1), verify.WithoutStatementPredicate()}
	if len(trusted.RekorLogs()) > 0 {
		needs = append(needs, verify.WithTransparencyLog(1))
	}
	if len(trusted.CTLogs()) > 0 {
		needs = append(needs, verify.WithSignedCertificateTimestamps(1))
	}
	v, err := verify.NewVerifier(trusted, needs...)
	if err != nil {
		return nil, fmt.Errorf("cannot be used: %w", err)
	}
	return &Root{v}, nil
}

// An Identity is the identity in a certificate: the issuer and the subject of the token for which the certificate was
// issued.
type Identity struct{ Issuer, Subject string }

// Verify returns the identity that has signed an image. It accepts all identities that the authorities of the root
// have certified.
func (r *Root) Verify(image Subject, s *Signature) (who Identity, _ error) {
	if s.raw == nil {
		return who, errors.New("it has no certificate")
	}
	signed := image.Body
	if s.payload != nil {
		signed = s.payload
	}
	// The caller compares the returned identity with its signers.
	result, err := r.verifier.Verify(s.raw, verify.NewPolicy(verify.WithArtifact(bytes.NewReader(signed)),
		verify.WithoutIdentitiesUnsafe()))
	if err != nil {
		return who, plainReason(err)
	}
	if result.Signature == nil || result.Signature.Certificate == nil {
		return who, errors.New("it has no certificate")
	}
	c := result.Signature.Certificate
	if c.Issuer == "" || c.SubjectAlternativeName == "" {
		return who, errors.New("its certificate names no issuer or no subject")
	}
	return Identity{c.Issuer, c.SubjectAlternativeName}, checkStatement(result)
}
