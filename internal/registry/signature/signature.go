// Package signature verifies the signatures of images without using a network. It supports the signatures of cosign
// (a payload, and annotations that contain the signature) and Sigstore's bundles. A signature is verified with a
// public key, or with the certificate of an identity.
//
// Attached content is untrusted input. A signature is valid if it signs the bytes of the image's manifest with a
// trusted key. This is the key of a signer, or a key that an authority of a trusted root has certified, if a log or a
// timestamp authority of this root confirms the time of the signature. Like cosign, the package ignores the repo that
// a payload names, because a signature is about bytes and images are copied.
package signature

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	bundlepb "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	commonpb "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	rekorpb "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"google.golang.org/protobuf/encoding/protojson"
)

// Limits on attached content. The key in a log entry is used before it is verified, and the time for that grows with
// the square of its size.
const (
	MaxPayload = 16 << 10 // bytes of cosign's payload; real payloads have 300
	MaxBundle  = 64 << 10 // bytes of a bundle; real bundles have 10,000

	maxAnnotation = 32 << 10
	maxEntries    = 4       // log entries in a bundle
	maxEntry      = 8 << 10 // bytes of a log entry; real entries have 4,000
	maxTimestamps = 4
)

// Media types of layers that are signatures.
const (
	CosignPayload = "application/vnd.dev.cosign.simplesigning.v1+json"
	BundlePrefix  = "application/vnd.dev.sigstore.bundle" // a version follows this prefix
)

// Annotations of the layers in which cosign stores signatures.
const (
	signatureAnnotation   = "dev.cosignproject.cosign/signature"
	certificateAnnotation = "dev.sigstore.cosign/certificate"
	bundleAnnotation      = "dev.sigstore.cosign/bundle"
	timestampAnnotation   = "dev.sigstore.cosign/rfc3161timestamp"
)

// PredicateType is the predicate type of a statement that signs an image. Other statements, such as an SBOM or the
// report of a scanner, describe an image but do not approve it.
const PredicateType = "https://sigstore.dev/cosign/sign/v1"

// payloadType is the type that cosign writes into its payloads.
const payloadType = "cosign container image signature"

// A Subject is the image whose signature is verified.
type Subject struct {
	Digest string
	Body   []byte // content of the manifest
}

// A Signature is a signature that is attached to an image.
type Signature struct {
	raw     *bundle.Bundle
	payload []byte // cosign's payload; nil for a bundle, whose statement names the image
	signed  []byte // cosign's signature of the payload
}

// ParseBundle parses a Sigstore bundle.
func ParseBundle(text []byte) (*Signature, error) {
	if len(text) > MaxBundle {
		return nil, fmt.Errorf("the bundle has more than %d bytes", MaxBundle)
	}
	var p bundlepb.Bundle
	if err := protojson.Unmarshal(text, &p); err != nil {
		return nil, errors.New("not a bundle")
	}
	return newSignature(&p)
}

// newSignature parses a bundle. It first checks the limits, because keys in the bundle are used before they are
// verified.
func newSignature(p *bundlepb.Bundle) (*Signature, error) {
	m := p.GetVerificationMaterial()
	if len(m.GetTlogEntries()) > maxEntries {
		return nil, fmt.Errorf("more than %d entries of logs", maxEntries)
	}
	for _, e := range m.GetTlogEntries() {
		if len(e.GetCanonicalizedBody()) > maxEntry {
			return nil, fmt.Errorf("the entry of a log has more than %d bytes", maxEntry)
		}
	}
	if len(m.GetTimestampVerificationData().GetRfc3161Timestamps()) > maxTimestamps {
		return nil, fmt.Errorf("more than %d timestamps", maxTimestamps)
	}
	b, err := bundle.NewBundle(p)
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	return &Signature{raw: b}, nil
}

// ParseCosign parses a signature of cosign from a payload and the annotations of the layer that contains it. It
// returns an error if the payload is not about the image with this digest.
func ParseCosign(payload []byte, annotations map[string]string, digest string) (*Signature, error) {
	if err := checkPayload(payload, digest); err != nil {
		return nil, err
	}
	for _, name := range []string{signatureAnnotation, certificateAnnotation, bundleAnnotation, timestampAnnotation} {
		if len(annotations[name]) > maxAnnotation {
			return nil, fmt.Errorf("the annotation %s has more than %d bytes", name, maxAnnotation)
		}
	}
	signed, err := base64.StdEncoding.DecodeString(annotations[signatureAnnotation])
	if err != nil || len(signed) == 0 {
		return nil, errors.New("there is no signature in its annotations")
	}
	s := &Signature{payload: payload, signed: signed}
	if annotations[certificateAnnotation] == "" {
		return s, nil
	}
	p, err := cosignBundle(payload, signed, annotations)
	if err != nil {
		return nil, err
	}
	certified, err := newSignature(p)
	if err != nil {
		return nil, err
	}
	s.raw = certified.raw
	return s, nil
}

// checkPayload returns an error if a payload does not have cosign's type, or is not about the image with a digest.
func checkPayload(payload []byte, digest string) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("the payload has more than %d bytes", MaxPayload)
	}
	var p struct {
		Critical struct {
			Type  string `json:"type"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	if json.Unmarshal(payload, &p) != nil {
		return errors.New("the payload is not JSON")
	}
	if p.Critical.Type != payloadType {
		return errors.New("the payload is not that of a signature")
	}
	if p.Critical.Image.Digest != digest {
		return errors.New("it is about another image")
	}
	return nil
}

// cosignBundle returns a bundle with the content of cosign's annotations.
func cosignBundle(payload, signed []byte, annotations map[string]string) (*bundlepb.Bundle, error) {
	block, _ := pem.Decode([]byte(annotations[certificateAnnotation]))
	if block == nil {
		return nil, errors.New("the certificate is not PEM")
	}
	digest := sha256.Sum256(payload)
	material := &bundlepb.VerificationMaterial{Content: &bundlepb.VerificationMaterial_X509CertificateChain{
		X509CertificateChain: &commonpb.X509CertificateChain{
			Certificates: []*commonpb.X509Certificate{{RawBytes: block.Bytes}},
		},
	}}
	entry, err := cosignEntry(annotations[bundleAnnotation])
	if err != nil {
		return nil, err
	}
	if entry != nil {
		material.TlogEntries = []*rekorpb.TransparencyLogEntry{entry}
	}
	if material.TimestampVerificationData, err = cosignTimestamp(annotations[timestampAnnotation]); err != nil {
		return nil, err
	}
	return &bundlepb.Bundle{
		MediaType: BundlePrefix + "+json;version=0.1", VerificationMaterial: material,
		Content: &bundlepb.Bundle_MessageSignature{MessageSignature: &commonpb.MessageSignature{
			MessageDigest: &commonpb.HashOutput{Algorithm: commonpb.HashAlgorithm_SHA2_256, Digest: digest[:]},
			Signature:     signed,
		}},
	}, nil
}

// cosignEntry returns the log entry in an annotation, or nil if text is "".
func cosignEntry(text string) (*rekorpb.TransparencyLogEntry, error) {
	if text == "" {
		return nil, nil
	}
	var b struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body                     []byte `json:"body"`
			IntegratedTime, LogIndex int64
			LogID                    string
		}
	}
	var body struct{ APIVersion, Kind string }
	if json.Unmarshal([]byte(text), &b) != nil || json.Unmarshal(b.Payload.Body, &body) != nil {
		return nil, errors.New("the entry of the log cannot be read")
	}
	id, err := hex.DecodeString(b.Payload.LogID)
	if err != nil {
		return nil, errors.New("the entry of the log has no valid id of the log")
	}
	return &rekorpb.TransparencyLogEntry{
		LogIndex: b.Payload.LogIndex, LogId: &commonpb.LogId{KeyId: id}, IntegratedTime: b.Payload.IntegratedTime,
		KindVersion:       &rekorpb.KindVersion{Kind: body.Kind, Version: body.APIVersion},
		InclusionPromise:  &rekorpb.InclusionPromise{SignedEntryTimestamp: b.SignedEntryTimestamp},
		CanonicalizedBody: b.Payload.Body,
	}, nil
}

// cosignTimestamp returns the timestamp in an annotation, or nil if text is "".
func cosignTimestamp(text string) (*bundlepb.TimestampVerificationData, error) {
	if text == "" {
		return nil, nil
	}
	var t struct{ SignedRFC3161Timestamp []byte }
	if json.Unmarshal([]byte(text), &t) != nil || len(bytes.TrimSpace(t.SignedRFC3161Timestamp)) == 0 {
		return nil, errors.New("the timestamp cannot be read")
	}
	return &bundlepb.TimestampVerificationData{
		Rfc3161Timestamps: []*commonpb.RFC3161SignedTimestamp{{SignedTimestamp: t.SignedRFC3161Timestamp}},
	}, nil
}
