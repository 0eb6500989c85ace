package rig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// PushBlob pushes a blob as most clients do: it sends the bytes in one stream, and the digest at the end.
func (p *Process) PushBlob(ctx context.Context, repo string, body io.Reader, digest func() string) error {
	h, _, err := p.Do(ctx, http.StatusAccepted, http.MethodPost, "/v2/"+p.Prefix+repo+"/blobs/uploads/", nil)
	if err != nil {
		return err
	}
	h, _, err = p.Do(ctx, http.StatusAccepted, http.MethodPatch, h.Get("Location"), body,
		"Content-Type", "application/octet-stream")
	if err != nil {
		return err
	}
	location := h.Get("Location")
	sep := "?"
	if strings.Contains(location, "?") {
		sep = "&"
	}
	_, _, err = p.Do(ctx, http.StatusCreated, http.MethodPut, location+sep+"digest="+digest(), nil)
	return err
}

// PushChunks pushes a blob in chunks of ChunkSize bytes.
func (p *Process) PushChunks(ctx context.Context, repo string, content []byte, digest string) error {
	h, _, err := p.Do(ctx, http.StatusAccepted, http.MethodPost, "/v2/"+p.Prefix+repo+"/blobs/uploads/", nil)
	for offset := 0; err == nil && offset < len(content); offset += ChunkSize {
		end := min(offset+ChunkSize, len(content))
		h, _, err = p.Do(ctx, http.StatusAccepted, http.MethodPatch, h.Get("Location"), bytes.NewReader(content[offset:end]),
			"Content-Type", "application/octet-stream", "Content-Range", fmt.Sprintf("%d-%d", offset, end-1))
	}
	if err != nil {
		return err
	}
	location, sep := h.Get("Location"), "?"
	if strings.Contains(location, "?") {
		sep = "&"
	}
	_, _, err = p.Do(ctx, http.StatusCreated, http.MethodPut, location+sep+"digest="+digest, nil)
	return err
}

// ImageMediaType is the media type of image manifests.
const ImageMediaType = "application/vnd.oci.image.manifest.v1+json"

// PutManifest pushes a manifest under a reference.
func (p *Process) PutManifest(ctx context.Context, repo, reference string, m []byte) error {
	path := "/v2/" + p.Prefix + repo + "/manifests/" + reference
	_, _, err := p.Do(ctx, http.StatusCreated, http.MethodPut, path, bytes.NewReader(m), "Content-Type", ImageMediaType)
	return err
}

// SmallLayer is the content of the layer in a small image.
const SmallLayer = "a layer"

// DigestOf returns the SHA-256 digest of the content b.
func DigestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// Descriptor returns the JSON descriptor for a blob.
func Descriptor(digest string, size int) string {
	return fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, digest, size)
}

// SmallImages pushes two small blobs. It returns a function that returns a new manifest with these blobs at every
// call.
func SmallImages(ctx context.Context, d *Process, repo string) func() []byte {
	var parts []string
	for _, content := range []string{`{"architecture":"amd64","os":"linux"}`, SmallLayer} {
		digest := DigestOf([]byte(content))
		Check(d.PushBlob(ctx, repo, strings.NewReader(content), func() string { return digest }))
		parts = append(parts, Descriptor(digest, len(content)))
	}
	var n atomic.Int64
	return func() []byte {
		const manifest = `{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s],"annotations":{"n":"%d"}}`
		return fmt.Appendf(nil, manifest, ImageMediaType, parts[0], parts[1], n.Add(1))
	}
}

// ChunkSize is the size of the chunks that PushChunks sends, in bytes.
const ChunkSize = 10 << 20
