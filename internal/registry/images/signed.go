package images

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/signature"
)

// Limits on the signatures of an image. Further signatures are ignored.
const (
	maxSignatures    = 50      // signatures of the image; the indexes that list it have the same limit together
	maxOfOne         = 25      // signatures in one manifest, so that one manifest cannot hide all other signatures
	maxSignedIndexes = 10      // indexes that list the image; signatures of further indexes are not read
	maxLayers        = 8 << 20 // bytes of layers that are read to find out whether they are documents
	maxProblem       = 200     // bytes of Verified.Problem

	// maxIdentity is the longest issuer or subject, in bytes. It is limited because both are cached, and the owner of
	// a certificate authority can choose them freely.
	maxIdentity = 1024

	outcomesCached = 1 << 11 // cache entries; each has up to maxOfOne outcomes
	trustsCached   = 1 << 8
)

// A Verified is a signature that is attached to an image, with the result of its verification.
type Verified struct {
	Manifest        string           // digest of the manifest that contains the signature
	Index           string           // digest of the index that is signed; "" if the image itself is signed
	Signer          *registry.Signer // the trusted signer; nil if there is none
	Issuer, Subject string           // identity in the certificate, if the root trusts it
	Problem         string           // reason why the signature is not trusted
}

// A verifier caches the outcomes of verifications. An outcome never expires, because it depends only on content that
// is identified by its digest. Which signers are trusted can change, and is not cached.
type verifier struct {
	outcomes *lru.Cache[outcomeKey, []outcome]
	trusts   *lru.Cache[[32]byte, trust]
	turns    *fairlimit.Limiter // one verification at a time for each tenant, because it may take long
}

// An outcomeKey identifies the outcomes of verifying the signatures of an image that one manifest contains, with one
// key or root.
type outcomeKey struct {
	image, manifest string
	layers          int // number of layers that were verified, counted from the first
	trust           [32]byte
}

// An outcome is the result of verifying one signature.
type outcome struct {
	who     signature.Identity // identity in the certificate
	problem string             // reason why the signature is not valid; "" if it is
}

func newVerifier() *verifier {
	outcomes, _ := lru.New[outcomeKey, []outcome](outcomesCached) // fails only for sizes below one
	trusts, _ := lru.New[[32]byte, trust](trustsCached)
	return &verifier{outcomes: outcomes, trusts: trusts, turns: fairlimit.New(fairlimit.Limits{PerTenant: 1})}
}

// A trust is a public key or a root, with the signers that use it.
type trust struct {
	id      [32]byte
	key     *signature.Key
	root    *signature.Root
	problem string // reason why the key or root cannot verify signatures
	signers []registry.Signer
}

// verify verifies a signature of an image with the key or root.
func (t trust) verify(image signature.Subject, s *signature.Signature) (o outcome) {
	var err error
	switch {
	case t.problem != "":
		err = errors.New(t.problem)
	case t.key != nil:
		err = t.key.Verify(image, s)
	default:
		o.who, err = t.root.Verify(image, s)
		if len(o.who.Issuer) > maxIdentity || len(o.who.Subject) > maxIdentity {
			err = errors.New("its identity is too long")
		}
	}
	if err != nil {
		return outcome{problem: printable(err.Error())}
	}
	return o
}

// printable shortens a text and replaces its control characters, because it may contain parts of pushed content.
func printable(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxProblem)], "")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// trusts returns the keys and roots of signers, without duplicates.
func (r *Reader) trusts(signers []registry.Signer) (all []trust) {
	for _, s := range signers {
		root := cmp.Or(s.Root, string(r.trustedRoot))
		id := sha256.Sum256([]byte("key\x00" + s.Key))
		if s.Key == "" {
			id = sha256.Sum256([]byte("root\x00" + root))
		}
		i := slices.IndexFunc(all, func(t trust) bool { return t.id == id })
		if i < 0 {
			i, all = len(all), append(all, r.verifier.trust(id, s.Key, root))
		}
		all[i].signers = append(all[i].signers, s)
	}
	return all
}

// trust parses a key or a root.
func (v *verifier) trust(id [32]byte, key, root string) (t trust) {
	if t, ok := v.trusts.Get(id); ok {
		return t
	}
	var err error
	switch {
	case key != "":
		t.key, err = signature.ParseKey(key)
	case root == "":
		err = errNoRoot
	default:
		t.root, err = signature.ParseRoot([]byte(root))
	}
	if t.id = id; err != nil {
		t.problem = "the key or root of the signer cannot be used: " + err.Error()
	}
	v.trusts.Add(id, t)
	return t
}

var errNoRoot = errors.New("the server has no trusted root, so the signer needs one")

// SignedBy returns the name of the first trusted signer that has signed an image. If there is none, it returns "" and
// the reason. An image is also signed if an index of the repo that lists it is signed. Content that no client can run
// needs no signature. For such content, both results are "".
func (r *Reader) SignedBy(
	ctx context.Context, repo resource.UID, digest string, group resource.UID,
) (signer, why string, _ error) {
	signer, why, err := r.signerOf(ctx, repo, digest, group)
	if err != nil || signer != "" {
		return signer, why, err
	}
	documents, err := r.onlyDocuments(ctx, repo, digest)
	if documents {
		why = ""
	}
	return "", why, err
}

// onlyDocuments reports whether all layers of a manifest are JSON documents, and its configuration names no others.
// cosign attaches such manifests to images, and gives them the media types of an image.
func (r *Reader) onlyDocuments(ctx context.Context, repo resource.UID, digest string) (bool, error) {
	m, err := r.store.Manifest(ctx, repo, digest)
	if err != nil {
		return false, err
	}
	var doc struct {
		Layers   []ocispec.Descriptor
		FSLayers []json.RawMessage // layers in Docker's first format
	}
	if json.Unmarshal(m.Body, &doc) != nil || doc.FSLayers != nil || len(doc.Layers) == 0 ||
		len(doc.Layers) > maxSignatures {
		return false, nil
	}
	room := int64(maxLayers)
	for _, l := range doc.Layers {
		text, err := r.readBlob(ctx, repo, l.Digest.String(), room)
		if err != nil || !isDocument(text) {
			return false, err
		}
		room -= int64(len(text))
	}
	extra, err := r.NamesOtherLayers(ctx, repo, digest)
	return !extra, err
}

// isDocument reports whether content is a JSON document. No client can unpack it, whatever its media type is, because
// JSON is neither an archive of files nor compressed.
func isDocument(content []byte) bool {
	_, err := tar.NewReader(bytes.NewReader(content)).Next()
	return err != nil && json.Valid(content)
}

// signerOf is SignedBy for content that needs a signature.
func (r *Reader) signerOf(
	ctx context.Context, repo resource.UID, digest string, group resource.UID,
) (signer, why string, _ error) {
	signers, err := r.signers.SignersOver(ctx, group)
	if err != nil {
		return "", "", err
	}
	if len(signers) == 0 {
		return "", "there are no signers, so nobody can have signed it", nil
	}
	found, err := r.Signatures(ctx, repo, digest, signers, true)
	if err != nil {
		return "", "", err
	}
	for _, v := range found {
		if v.Signer != nil {
			return v.Signer.Name, "", nil
		}
	}
	if len(found) == 0 {
		return "", "it is not signed", nil
	}
	return "", "none of the signers has signed it", nil
}

// Signatures returns the signatures of an image, and then the signatures of the indexes that list it. If one is true,
// it returns after the first trusted signature.
func (r *Reader) Signatures(
	ctx context.Context, repo resource.UID, digest string, signers []registry.Signer, one bool,
) (all []Verified, _ error) {
	trusts := r.trusts(signers)
	indexes, err := r.signers.SignedIndexes(ctx, repo, digest, maxSignedIndexes)
	if err != nil {
		return nil, err
	}
	left := maxSignatures
	for i, d := range append([]string{digest}, indexes...) {
		if i == 1 {
			left = maxSignatures
		}
		m, err := r.store.Manifest(ctx, repo, d)
		if errors.Is(err, fault.NotFound) && d != digest {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := r.signaturesOf(ctx, repo, signature.Subject{Digest: d, Body: m.Body}, trusts, &left)
		if err != nil {
			return nil, err
		}
		for _, v := range found {
			if d != digest {
				v.Index = d
			}
			if all = append(all, v); one && v.Signer != nil {
				return all, nil
			}
		}
	}
	return all, nil
}

// signaturesOf returns the signatures of a manifest, without the signatures of indexes that list it. It verifies at
// most left signatures and reduces left by their number.
func (r *Reader) signaturesOf(
	ctx context.Context, repo resource.UID, image signature.Subject, trusts []trust, left *int,
) (all []Verified, _ error) {
	carriers, err := r.signatureManifests(ctx, repo, image.Digest)
	if err != nil {
		return nil, err
	}
	for _, m := range carriers {
		layers := signatureLayers(m, min(*left, maxOfOne))
		if len(layers) == 0 {
			continue
		}
		*left -= len(layers)
		by, err := r.outcomes(ctx, repo, image, m.Digest, layers, trusts)
		if err != nil {
			return nil, err
		}
		for i := range layers {
			v := Verified{Manifest: m.Digest}
			for t, outcomes := range by {
				v.judge(trusts[t], outcomes[i])
			}
			all = append(all, v)
		}
	}
	return all, nil
}

// judge updates v with the outcome of verifying its signature with a key or root.
func (v *Verified) judge(t trust, o outcome) {
	if v.Signer != nil {
		return
	}
	if o.problem != "" {
		if v.Issuer == "" && (v.Problem == "" || t.key == nil) { // prefer the problem of a certificate
			v.Problem = o.problem
		}
		return
	}
	if t.key == nil {
		v.Issuer, v.Subject = printable(o.who.Issuer), printable(o.who.Subject)
	}
	for i, s := range t.signers {
		if t.key != nil || s.Is(o.who.Issuer, o.who.Subject) {
			v.Signer, v.Problem = &t.signers[i], ""
			return
		}
	}
	v.Problem = "its identity is none of the signers"
}

// signatureManifests returns the manifests that may contain signatures of a subject: the manifest at cosign's tag,
// the manifests that name the subject, and the manifests in the index at its referrers tag.
func (r *Reader) signatureManifests(
	ctx context.Context, repo resource.UID, subject string,
) ([]registry.Manifest, error) {
	var all []registry.Manifest
	tagged, ok, err := r.smallManifest(ctx, repo, strings.Replace(subject, ":", "-", 1)+".sig")
	if err != nil {
		return nil, err
	}
	if ok {
		all = append(all, tagged)
	}
	about, err := r.signers.SignaturesAbout(ctx, repo, subject, signature.PredicateType, maxAbout, maxSignatures)
	if err != nil {
		return nil, err
	}
	all = append(all, about...)
	listed, err := r.taggedReferrers(ctx, repo, digest.Digest(subject), maxSignatures, func(d ocispec.Descriptor) bool {
		return registry.IsSignature(d.ArtifactType)
	})
	for _, d := range listed {
		m, ok, err := r.smallManifest(ctx, repo, d.Digest.String())
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, m)
		}
	}
	return all, err
}

// signatureLayers returns the first n layers of a manifest that may be signatures.
func signatureLayers(m registry.Manifest, n int) (all []ocispec.Descriptor) {
	var doc oci.Document
	if json.Unmarshal(m.Body, &doc) != nil {
		return nil
	}
	for _, d := range doc.Layers {
		signed := d.MediaType == signature.CosignPayload || strings.HasPrefix(d.MediaType, signature.BundlePrefix)
		if signed && len(all) < n {
			all = append(all, d)
		}
	}
	return all
}

// outcomes returns the outcomes of verifying the signatures in the layers of a manifest, for each key or root.
func (r *Reader) outcomes(
	ctx context.Context, repo resource.UID, image signature.Subject, manifest string, layers []ocispec.Descriptor,
	trusts []trust,
) (all [][]outcome, _ error) {
	all = make([][]outcome, len(trusts))
	var unknown []int
	for i, t := range trusts {
		known, ok := r.verifier.outcomes.Get(outcomeKey{image.Digest, manifest, len(layers), t.id})
		r.metrics.Cache("signatures").Count(ok)
		if all[i] = known; !ok {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) == 0 {
		return all, nil
	}
	end, err := r.verifier.turns.Acquire(ctx, r.store.Tenant(ctx, repo))
	if err != nil {
		return nil, err
	}
	defer end()
	signed, problems, complete, err := r.readSignatures(ctx, repo, image.Digest, layers)
	if err != nil {
		return nil, err
	}
	for _, i := range unknown {
		for n, s := range signed {
			o := outcome{problem: problems[n]}
			if s != nil {
				o = trusts[i].verify(image, s)
			}
			all[i] = append(all[i], o)
		}
		if complete && trusts[i].problem == "" {
			r.verifier.outcomes.Add(outcomeKey{image.Digest, manifest, len(layers), trusts[i].id}, all[i])
		}
	}
	return all, ctx.Err()
}

// readSignatures reads the signatures in layers. If a signature cannot be read, its element is nil, and problems has
// the reason at the same index. complete is false if the content of a layer is missing; it may be pushed later, so
// the outcomes must not be cached.
func (r *Reader) readSignatures(
	ctx context.Context, repo resource.UID, image string, layers []ocispec.Descriptor,
) (all []*signature.Signature, problems []string, complete bool, _ error) {
	complete = true
	for _, d := range layers {
		most := int64(signature.MaxBundle)
		if d.MediaType == signature.CosignPayload {
			most = signature.MaxPayload
		}
		body, err := r.readBlob(ctx, repo, d.Digest.String(), most)
		if err != nil {
			return nil, nil, false, err
		}
		var s *signature.Signature
		switch {
		case body == nil:
			complete, err = false, errors.New("its content is missing, or too large for a signature")
		case d.MediaType == signature.CosignPayload:
			s, err = signature.ParseCosign(body, d.Annotations, image)
		default:
			s, err = signature.ParseBundle(body)
		}
		problem := ""
		if err != nil {
			s, problem = nil, printable(err.Error())
		}
		all, problems = append(all, s), append(problems, problem)
	}
	return all, problems, complete, nil
}
