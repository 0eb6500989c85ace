package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

// Limits on documents about images. A document needs about ten times its size in memory.
const (
	maxAttached  = 100              // attached manifests that are examined for an image, newest first
	MaxDocuments = 32 << 20         // bytes of documents that are read for one response
	maxAbout     = 256 << 10        // bytes of an attached manifest; larger manifests are ignored
	maxReaders   = 3                // number of requests that may read documents at the same time
	readerWait   = 20 * time.Second // longest time that a request waits for another one to finish

	maxReadersOfOne  = 1  // number of requests of one tenant that may read documents at the same time
	maxQueuedReaders = 32 // number of requests of one tenant that read documents or wait
)

// newReaderLimiter returns the limiter of the requests that read documents. A tenant with many requests cannot use
// all slots, and its requests wait for each other.
func newReaderLimiter() *fairlimit.Limiter {
	busy := fairlimit.Busy("too many requests read documents of images just now")
	busy.RetryIn = readerWait
	return fairlimit.New(fairlimit.Limits{
		Total: maxReaders, PerTenant: maxReadersOfOne, QueuedPerTenant: maxQueuedReaders, Wait: readerWait, Busy: busy,
	})
}

// Acquire waits until a tenant may read documents, and returns fault.ResourceExhausted after readerWait, or if too many
// requests of the tenant wait. The caller keeps its slot until ctx ends. That is when the response is complete but not
// yet sent. If the slot were kept until the client has read the response, slow clients would block all others.
func (r *Reader) Acquire(ctx context.Context, tenant resource.Tenant) error {
	release, err := r.readers.Acquire(ctx, tenant)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, release)
	return nil
}

// A Budget limits the bytes of documents that are read for one response.
type Budget struct{ left int64 }

// NewBudget returns a budget of MaxDocuments bytes.
func NewBudget() *Budget { return &Budget{MaxDocuments} }

// An Attached is a document about an image, and the layer that contains it.
type Attached struct {
	evidence.Document
	Digest string    // digest of the layer
	Time   time.Time // time of the push
}

// A Search says which documents about an image to look for.
type Search struct {
	Repo   resource.UID
	What   string // name of the documents in error messages
	Most   int    // largest number of documents to find
	Budget *Budget
	accept func(Attached) bool

	found int  // number of documents that were accepted
	large bool // whether a document was too large to be read
}

// attached looks for documents about a manifest, newest first, until s has accepted s.Most of them. It looks where
// clients attach documents: in the manifests that name the manifest as their subject, in the manifests in the index
// at its referrers tag, and in the manifests that have one of cosign's tags. For an image in an index, it also looks
// in the attestations that BuildKit adds to the index.
func (r *Reader) attached(ctx context.Context, sub subject, s *Search) error {
	about, err := r.about(ctx, s.Repo, sub.image.Digest)
	if err != nil {
		return err
	}
	if sub.index != nil {
		attestations, err := r.attestations(ctx, s.Repo, *sub.index, sub.image.Digest)
		if err != nil {
			return err
		}
		about = append(about, attestations...)
	}
	slices.SortStableFunc(about, func(a, b registry.Manifest) int { return b.PushTime.Compare(a.PushTime) })
	for _, m := range about[:min(len(about), maxAttached)] {
		if err := r.searchLayers(ctx, sub.image.Digest, m, s); err != nil || s.found == s.Most {
			return err
		}
	}
	return nil
}

// searchLayers looks through the layers of one manifest. It begins with the last layer, because cosign appends new
// layers.
func (r *Reader) searchLayers(ctx context.Context, subject string, m registry.Manifest, s *Search) error {
	var doc oci.Document
	if json.Unmarshal(m.Body, &doc) != nil {
		return nil
	}
	for _, layer := range slices.Backward(append(doc.Blobs, doc.Layers...)) {
		if !mayBeDocument(layer.MediaType) {
			continue
		}
		if layer.Size > min(evidence.MaxDocument, s.Budget.left) {
			s.large = true
			continue
		}
		s.Budget.left -= layer.Size
		d, err := r.openDocument(ctx, s.Repo, layer)
		if err != nil {
			return err
		}
		if d.Format == "" || d.Subjects != nil && !slices.Contains(d.Subjects, subject) ||
			!s.accept(Attached{d, layer.Digest.String(), m.PushTime}) {
			continue
		}
		if s.found++; s.found == s.Most {
			return nil
		}
	}
	return nil
}

// mayBeDocument reports whether a layer with a media type may be a document. It is false for signatures and archives.
func mayBeDocument(mediaType string) bool {
	return strings.HasPrefix(mediaType, "text/spdx") ||
		strings.Contains(mediaType, "json") && mediaType != "application/vnd.dev.cosign.simplesigning.v1+json"
}

// openDocument reads a blob. The result has no Format if the blob is missing or is not a document.
func (r *Reader) openDocument(
	ctx context.Context, repo resource.UID, d ocispec.Descriptor,
) (evidence.Document, error) {
	body, err := r.readBlob(ctx, repo, d.Digest.String(), evidence.MaxDocument)
	if err != nil || body == nil {
		return evidence.Document{}, err
	}
	doc, _ := evidence.Open(body) // an error is not a failure, because a client can push anything
	return doc, nil
}

// readBlob reads a blob of a repo. It returns nil if the blob is missing or larger than most bytes.
func (r *Reader) readBlob(ctx context.Context, repo resource.UID, digest string, most int64) ([]byte, error) {
	b, err := r.store.Blob(ctx, repo, digest)
	if errors.Is(err, fault.NotFound) || err == nil && b.Size > most {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	body, err := r.storage.OpenBlob(ctx, b.Path, b.Size)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, most))
	if err != nil {
		return nil, fmt.Errorf("read blob: %w", err)
	}
	return text, nil
}

// about returns the manifests that clients have attached to a manifest.
func (r *Reader) about(ctx context.Context, repo resource.UID, subject string) ([]registry.Manifest, error) {
	found, err := r.store.ManifestsAbout(ctx, repo, subject, maxAbout, maxAttached)
	if err != nil {
		return nil, err
	}
	add := func(reference string) error {
		m, ok, err := r.smallManifest(ctx, repo, reference)
		if ok {
			found = append(found, m)
		}
		return err
	}
	tag := strings.Replace(subject, ":", "-", 1)
	for _, suffix := range []string{".att", ".sbom"} {
		if err := add(tag[:min(len(tag), oci.MaxTag-len(suffix))] + suffix); err != nil {
			return nil, err
		}
	}
	every := func(ocispec.Descriptor) bool { return true }
	tagged, err := r.taggedReferrers(ctx, repo, digest.Digest(subject), maxAttached, every)
	if err != nil {
		return nil, err
	}
	for _, d := range tagged {
		if err := add(d.Digest.String()); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// smallManifest returns the manifest that a reference names. ok is false if there
// is none, or if it is larger than maxAbout.
func (r *Reader) smallManifest(
	ctx context.Context, repo resource.UID, reference string,
) (m registry.Manifest, ok bool, _ error) {
	m, err := r.store.StatManifest(ctx, repo, reference)
	if err == nil && m.Size <= maxAbout {
		m, err = r.store.Manifest(ctx, repo, m.Digest)
		ok = err == nil
	}
	if errors.Is(err, fault.NotFound) {
		return m, false, nil
	}
	return m, ok, err
}

// attestations returns the attestations in an index that are about one of its images.
func (r *Reader) attestations(
	ctx context.Context, repo resource.UID, index oci.Document, subject string,
) ([]registry.Manifest, error) {
	var all []registry.Manifest
	read := map[digest.Digest]bool{}
	for _, d := range index.Manifests {
		if d.Annotations[oci.AttestedImage] != subject || read[d.Digest] || len(read) == maxAttached {
			continue
		}
		read[d.Digest] = true
		m, ok, err := r.smallManifest(ctx, repo, d.Digest.String())
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, m)
		}
	}
	return all, nil
}

// A subject is an image that documents may describe, and the index that lists the image, if any.
type subject struct {
	image registry.Manifest
	index *oci.Document
}

// subjects returns the manifests that documents about an image may describe. For an image, that is the image itself.
// For an index, it is the image for an architecture (amd64 if architecture is ""), and then the index. It returns
// fault.NotFound if there is no such manifest, or if architecture is not "" and the index has no image for it.
func (r *Reader) subjects(ctx context.Context, repo resource.UID, digest, architecture string) ([]subject, error) {
	m, doc, err := r.document(ctx, repo, digest)
	if err != nil {
		return nil, err
	}
	if doc.Manifests == nil {
		return []subject{{image: m}}, nil
	}
	want := cmp.Or(architecture, DefaultArchitecture)
	var chosen []subject
	err = r.eachListed(ctx, repo, &doc, func(index *oci.Document, d ocispec.Descriptor) (more bool, _ error) {
		if d.Platform == nil || d.Platform.Architecture != want {
			return true, nil
		}
		child, err := r.store.Manifest(ctx, repo, d.Digest.String())
		if errors.Is(err, fault.NotFound) { // the index is sparse and the repo lacks this image
			return true, nil
		}
		chosen = []subject{{image: child, index: index}, {image: m}}
		return false, err
	})
	if err != nil || chosen != nil {
		return chosen, err
	}
	if architecture != "" {
		return nil, fault.Missing("image for "+clip(architecture)+" in", digest)
	}
	return []subject{{image: m}}, nil
}

// Find looks for documents about an image. For an index, it looks for documents about its image for an architecture,
// and then about the index itself, unless f.Most is 1 and it has found a document. It calls accept with each document
// and with the digest of the manifest that the document describes. It returns fault.NotFound if accept has accepted
// none, and fault.FailedPrecondition if the reason may be that documents are too large.
func (r *Reader) Find(
	ctx context.Context, f Search, digest, architecture string, accept func(image string, a Attached) bool,
) error {
	if err := CheckDigest(digest); err != nil {
		return err
	}
	subjects, err := r.subjects(ctx, f.Repo, digest, architecture)
	if err != nil {
		return err
	}
	found := false
	for _, sub := range subjects {
		f.found, f.accept = 0, func(a Attached) bool { return accept(sub.image.Digest, a) }
		if err := r.attached(ctx, sub, &f); err != nil {
			return err
		}
		if found = found || f.found > 0; found && f.Most == 1 {
			break
		}
	}
	if !found {
		return noDocument(f.large, f.What, digest)
	}
	return nil
}

// noDocument returns the error for the case that no document was found.
func noDocument(large bool, what, digest string) error {
	if large {
		return fault.Unmet("DOCUMENT_TOO_LARGE",
			"the documents attached to %s are larger than %d MiB, or %d MiB together",
			digest, evidence.MaxDocument>>20, MaxDocuments>>20)
	}
	no := fault.Missing(what, digest)
	no.Message = "Not found: no " + what + " is attached to " + digest
	return no
}

// CheckDigest returns fault.InvalidArgument if digest is not a valid digest.
func CheckDigest(digest string) error {
	if !resource.ValidDigest(digest) {
		return fault.Field("digest", "is not sha256: and 64 digits, or sha512: and 128")
	}
	return nil
}
