// Package signaturetest signs images, for tests: with keys as cosign does, and with certificates of a Sigstore inside
// the test, which has a certificate authority, a log and a timestamp authority.
package signaturetest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	bundlepb "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	commonpb "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	dssepb "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	rekorpb "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"
)

// Media types and the predicate type of signatures.
const (
	BundleType    = "application/vnd.dev.sigstore.bundle.v0.3+json"
	SignPredicate = "https://sigstore.dev/cosign/sign/v1"
	inToto        = "application/vnd.in-toto+json"
)

// Payload returns the payload that cosign signs for an image.
func Payload(repo, digest string) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},`+
		`"type":"cosign container image signature"},"optional":null}`, repo, digest)
}

// Statement returns an in-toto statement about a digest, with a predicate type.
func Statement(digest, predicate string) []byte {
	algorithm, value, _ := strings.Cut(digest, ":")
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{%q:%q}}],`+
		`"predicateType":%q,"predicate":{}}`,
		algorithm, value, predicate)
}

// A Key is a private key that signs images as cosign does.
type Key struct {
	private crypto.Signer
	hash    crypto.Hash
}

// NewKey returns a new key. The kind is ecdsa, ecdsa-384, rsa or ed25519.
func NewKey(kind string) (k Key, err error) {
	k.hash = crypto.SHA256
	switch kind {
	case "ecdsa":
		k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ecdsa-384":
		k.hash = crypto.SHA384
		k.private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "rsa":
		k.private, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ed25519":
		_, k.private, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("no kind of key: %s", kind)
	}
	return k, err
}

// PEM returns the public key in PEM.
func (k Key) PEM() string {
	der, err := x509.MarshalPKIXPublicKey(k.private.Public())
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign returns the signature of a message.
func (k Key) sign(message []byte) ([]byte, error) {
	s, err := signature.LoadSigner(k.private, k.hash)
	if err != nil {
		return nil, err
	}
	return s.SignMessage(bytes.NewReader(message))
}

// Cosign returns the annotations in which cosign stores the signature of a payload.
func (k Key) Cosign(payload []byte) (map[string]string, error) {
	sig, err := k.sign(payload)
	return map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)}, err
}

// Bundle returns a bundle with a statement and its signature.
func (k Key) Bundle(statement []byte) ([]byte, error) {
	sig, err := k.sign(dsse.PAE(inToto, statement))
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(&bundlepb.Bundle{
		MediaType: BundleType,
		VerificationMaterial: &bundlepb.VerificationMaterial{Content: &bundlepb.VerificationMaterial_PublicKey{
			PublicKey: &commonpb.PublicKeyIdentifier{Hint: "any"},
		}},
		Content: envelope(statement, sig),
	})
}

func envelope(statement, sig []byte) *bundlepb.Bundle_DsseEnvelope {
	return &bundlepb.Bundle_DsseEnvelope{DsseEnvelope: &dssepb.Envelope{
		Payload: statement, PayloadType: inToto, Signatures: []*dssepb.Signature{{Sig: sig}},
	}}
}

// A Sigstore issues certificates to identities, and records their signatures in a log.
type Sigstore struct{ ca *ca.VirtualSigstore }

// NewSigstore returns a Sigstore with new keys.
func NewSigstore() (*Sigstore, error) {
	v, err := ca.NewVirtualSigstore()
	return &Sigstore{v}, err
}

// Root returns the trusted_root.json of the Sigstore. It contains no log of certificates. The parts in without are
// left out: log, timestamps or authority.
func (s *Sigstore) Root(without ...string) (string, error) {
	authorities, stamps := s.ca.FulcioCertificateAuthorities(), s.ca.TimestampingAuthorities()
	logs := map[string]*root.TransparencyLog{}
	for id, log := range s.ca.RekorLogs() {
		log.ID, _ = hex.DecodeString(id)
		logs[id] = log
	}
	for _, part := range without {
		switch part {
		case "log":
			logs = nil
		case "timestamps":
			stamps = nil
		case "authority":
			authorities = nil
		}
	}
	r, err := root.NewTrustedRoot(root.TrustedRootMediaType01, authorities, nil, stamps, logs)
	if err != nil {
		return "", err
	}
	text, err := r.MarshalJSON()
	return string(text), err
}

// A Proof says how the time of a signature is confirmed.
type Proof struct {
	At        time.Time // time of the log entry; zero means now
	NoLog     bool
	NoStamp   bool
	OtherLogs *Sigstore // if not nil, its log records the signature instead
}

// Bundle returns a bundle with a statement that is signed by the identity with a subject and an issuer.
func (s *Sigstore) Bundle(subject, issuer string, statement []byte, proof Proof) ([]byte, error) {
	signTime := proof.At
	if signTime.IsZero() {
		signTime = time.Now()
	}
	e, err := s.ca.AttestAtTime(subject, issuer, statement, signTime, true)
	if err != nil {
		return nil, err
	}
	content, err := e.SignatureContent()
	if err != nil {
		return nil, err
	}
	m, err := s.material(e, signTime, proof)
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(&bundlepb.Bundle{
		MediaType: BundleType, VerificationMaterial: m, Content: envelope(statement, content.Signature()),
	})
}

// material returns the certificate, the log entry and the timestamp for a signature, as proof demands.
func (s *Sigstore) material(e *ca.TestEntity, at time.Time, proof Proof) (*bundlepb.VerificationMaterial, error) {
	verification, err := e.VerificationContent()
	if err != nil {
		return nil, err
	}
	m := &bundlepb.VerificationMaterial{Content: &bundlepb.VerificationMaterial_Certificate{
		Certificate: &commonpb.X509Certificate{RawBytes: verification.Certificate().Raw},
	}}
	if !proof.NoLog {
		entry, err := s.entry(e, at, proof)
		if err != nil {
			return nil, err
		}
		m.TlogEntries = []*rekorpb.TransparencyLogEntry{entry}
	}
	if !proof.NoStamp {
		stamps, err := e.Timestamps()
		if err != nil {
			return nil, err
		}
		m.TimestampVerificationData = &bundlepb.TimestampVerificationData{
			Rfc3161Timestamps: []*commonpb.RFC3161SignedTimestamp{{SignedTimestamp: stamps[0]}},
		}
	}
	return m, nil
}

// entry returns a log entry with the signature of the log.
func (s *Sigstore) entry(e *ca.TestEntity, at time.Time, proof Proof) (*rekorpb.TransparencyLogEntry, error) {
	entries, err := e.TlogEntries()
	if err != nil {
		return nil, err
	}
	entry := entries[0].TransparencyLogEntry()
	var body struct{ APIVersion, Kind string }
	if err := json.Unmarshal(entry.GetCanonicalizedBody(), &body); err != nil {
		return nil, err
	}
	entry.KindVersion = &rekorpb.KindVersion{Kind: body.Kind, Version: body.APIVersion}
	by := s.ca
	if proof.OtherLogs != nil {
		by = proof.OtherLogs.ca
	}
	set, err := by.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(entry.GetCanonicalizedBody()), IntegratedTime: at.Unix(),
		LogIndex: entry.GetLogIndex(), LogID: hex.EncodeToString(entry.GetLogId().GetKeyId()),
	})
	entry.InclusionPromise = &rekorpb.InclusionPromise{SignedEntryTimestamp: set}
	return entry, err
}

// Cosign returns the annotations in which cosign stores the signature of a payload by the identity with a subject and
// an issuer.
func (s *Sigstore) Cosign(subject, issuer string, payload []byte, proof Proof) (map[string]string, error) {
	signTime := proof.At
	if signTime.IsZero() {
		signTime = time.Now()
	}
	e, err := s.ca.SignAtTime(subject, issuer, payload, signTime)
	if err != nil {
		return nil, err
	}
	content, err := e.SignatureContent()
	if err != nil {
		return nil, err
	}
	m, err := s.material(e, signTime, proof)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{
		"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(content.Signature()),
		"dev.sigstore.cosign/certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: m.GetCertificate().GetRawBytes()})),
	}
	if !proof.NoLog {
		entry := m.GetTlogEntries()[0]
		text, err := json.Marshal(map[string]any{
			"SignedEntryTimestamp": entry.GetInclusionPromise().GetSignedEntryTimestamp(),
			"Payload": map[string]any{"body": entry.GetCanonicalizedBody(), "integratedTime": signTime.Unix(),
				"logIndex": entry.GetLogIndex(), "logID": hex.EncodeToString(entry.GetLogId().GetKeyId())},
		})
		if err != nil {
			return nil, err
		}
		annotations["dev.sigstore.cosign/bundle"] = string(text)
	}
	if stamps := m.GetTimestampVerificationData().GetRfc3161Timestamps(); len(stamps) > 0 {
		text, err := json.Marshal(map[string][]byte{"SignedRFC3161Timestamp": stamps[0].GetSignedTimestamp()})
		if err != nil {
			return nil, err
		}
		annotations["dev.sigstore.cosign/rfc3161timestamp"] = string(text)
	}
	return annotations, nil
}

// Digest returns the digest of a body.
func Digest(body []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(body)) }
