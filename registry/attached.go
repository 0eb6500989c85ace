package registry

import (
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

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/registry/evidence"
	"github.com/holdfast-dev/holdfast/resource"
)

// Limits on what documents cost. In memory one takes some ten times its size.
const (
	maxAttached = 100              // manifests about an image that are looked at, the newest first
	maxEvidence = 32 << 20         // bytes of documents that are read for one answer
	maxAbout    = 256 << 10        // bytes of a manifest about an image; larger ones are not looked at
	maxReaders  = 2                // requests that are about documents, at once
	readerWait  = 20 * time.Second // for one of them to be over
)

// turn waits until the caller may read documents, and counts the request among
// those that do until its answer has been made. The API counts the answer from
// then on, by the caller's organization: if a client that does not read its answer
// kept a turn, two of them would keep everybody out. It returns
// fault.ResourceExhausted after a while.
func (r *Registry) turn(ctx context.Context) error {
	late := time.NewTimer(readerWait)
	defer late.Stop()
	select {
	case r.reading <- struct{}{}:
		context.AfterFunc(ctx, func() { <-r.reading })
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		busy := fault.New(fault.ResourceExhausted, "Resource exhausted: too many requests read documents of images just now; try again")
		busy.RetryIn = readerWait
		return busy
	}
}

// A budget is what may still be read for an answer.
type budget struct{ left int64 }

// An Attached is a document about an image, and how it came to be there.
type Attached struct {
	evidence.Document
	Digest string    // of what was attached
	Time   time.Time // when it was
}

// attachments are what a search found.
type attachments struct {
	found []Attached
	large bool // a document was too large to be read
}

// attached looks for documents about a manifest, the newest first, until take
// has taken n of them. It looks where clients put them: among the manifests that
// name it as their subject, those noted in the index under its tag, and under
// cosign's tags; and, if it is an image of an index, among the attestations that
// BuildKit puts into that.
func (r *Registry) attached(ctx context.Context, repo resource.UID, s subject, n int, b *budget, take func(evidence.Document) bool) (attachments, error) {
	all := attachments{}
	about, err := r.about(ctx, repo, s.image.Digest)
	if err != nil {
		return all, err
	}
	if s.index != nil {
		inside, err := r.inside(ctx, repo, *s.index, s.image.Digest)
		if err != nil {
			return all, err
		}
		about = append(about, inside...)
	}
	slices.SortStableFunc(about, func(a, b resource.Manifest) int { return b.PushTime.Compare(a.PushTime) })
	for _, m := range about[:min(len(about), maxAttached)] {
		if err := r.search(ctx, repo, s.image.Digest, m, n, b, take, &all); err != nil || len(all.found) == n {
			return all, err
		}
	}
	return all, nil
}

// search looks through the layers of one manifest. cosign adds its later ones
// at the end.
func (r *Registry) search(ctx context.Context, repo resource.UID, subject string, m resource.Manifest, n int, b *budget, take func(evidence.Document) bool, all *attachments) error {
	var doc document
	if json.Unmarshal(m.Body, &doc) != nil {
		return nil
	}
	for _, layer := range slices.Backward(append(doc.Blobs, doc.Layers...)) {
		if !promising(layer) {
			continue
		}
		if layer.Size > min(evidence.MaxDocument, b.left) {
			all.large = true
			continue
		}
		b.left -= layer.Size
		d, err := r.openDocument(ctx, repo, layer)
		if err != nil {
			return err
		}
		if d.Format == "" || d.Subjects != nil && !slices.Contains(d.Subjects, subject) || !take(d) {
			continue
		}
		all.found = append(all.found, Attached{d, layer.Digest.String(), m.PushTime})
		if len(all.found) == n {
			return nil
		}
	}
	return nil
}

// promising tells whether a layer may be a document. Signatures and archives are
// none.
func promising(d ocispec.Descriptor) bool {
	return strings.Contains(d.MediaType, "json") && d.MediaType != "application/vnd.dev.cosign.simplesigning.v1+json" || strings.HasPrefix(d.MediaType, "text/spdx")
}

// openDocument reads a blob. One that is not here, or no document, has no format.
func (r *Registry) openDocument(ctx context.Context, repo resource.UID, d ocispec.Descriptor) (evidence.Document, error) {
	body, err := r.readBlob(ctx, repo, d.Digest.String(), evidence.MaxDocument)
	if err != nil || body == nil {
		return evidence.Document{}, err
	}
	doc, err := evidence.Open(body)
	if err != nil {
		return evidence.Document{}, nil // whoever pushed it could write what they liked
	}
	return doc, nil
}

// readBlob reads a blob of a repo. One that is not there, or larger than most,
// is nil.
func (r *Registry) readBlob(ctx context.Context, repo resource.UID, digest string, most int64) ([]byte, error) {
	b, err := r.store.Blob(ctx, repo, digest)
	if errors.Is(err, fault.NotFound) || err == nil && b.Size > most {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	body, err := r.storage.open(ctx, b.Path, b.Size)
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

// about returns the manifests that clients made about another.
func (r *Registry) about(ctx context.Context, repo resource.UID, subject string) ([]resource.Manifest, error) {
	all, err := r.store.About(ctx, repo, subject, maxAbout, maxAttached)
	if err != nil {
		return nil, err
	}
	add := func(reference string) error {
		m, ok, err := r.smallManifest(ctx, repo, reference)
		if ok {
			all = append(all, m)
		}
		return err
	}
	tag := strings.Replace(subject, ":", "-", 1)
	for _, suffix := range []string{".att", ".sbom"} {
		if err := add(tag[:min(len(tag), maxTag-len(suffix))] + suffix); err != nil {
			return nil, err
		}
	}
	every := func(ocispec.Descriptor) bool { return true }
	noted, err := r.adopted(ctx, repo, digest.Digest(subject), maxAttached, every)
	if err != nil {
		return nil, err
	}
	for _, d := range noted {
		if err := add(d.Digest.String()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// smallManifest returns what a reference names in a repo. ok is false if there is
// none, or it is larger than maxAbout.
func (r *Registry) smallManifest(ctx context.Context, repo resource.UID, reference string) (m resource.Manifest, ok bool, _ error) {
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

// maxTag is how long a tag can be.
const maxTag = 128

// inside returns the attestations that an index holds about one of its images.
func (r *Registry) inside(ctx context.Context, repo resource.UID, index document, subject string) ([]resource.Manifest, error) {
	var all []resource.Manifest
	seen := map[digest.Digest]bool{}
	for _, d := range index.Manifests {
		if d.Annotations["vnd.docker.reference.digest"] != subject || seen[d.Digest] || len(seen) == maxAttached {
			continue
		}
		seen[d.Digest] = true
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

// A subject is an image that documents may be about: by itself, or as one of an
// index.
type subject struct {
	image resource.Manifest
	index *document
}

// subjects returns what documents about an image may name: of an index, the
// image for an architecture, or else amd64, and then the index itself. It
// returns fault.NotFound if there is no such manifest, or no image for the
// architecture that was asked for.
func (r *Registry) subjects(ctx context.Context, repo resource.UID, digest, architecture string) ([]subject, error) {
	m, err := r.store.Manifest(ctx, repo, digest)
	if err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(m.Body, &doc); err != nil {
		return nil, fmt.Errorf("decode %s: %w", digest, err)
	}
	if doc.Manifests == nil {
		return []subject{{image: m}}, nil
	}
	want := architecture
	if want == "" {
		want = defaultArchitecture
	}
	for _, d := range doc.Manifests {
		if d.Platform == nil || d.Platform.Architecture != want {
			continue
		}
		child, err := r.store.Manifest(ctx, repo, d.Digest.String())
		if errors.Is(err, fault.NotFound) { // the index is sparse
			continue
		}
		return []subject{{image: child, index: &doc}, {image: m}}, err
	}
	if architecture != "" {
		return nil, fault.Missing("image for "+printed(architecture)+" in", digest)
	}
	return []subject{{image: m}}, nil
}
