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

// PushBlob pushes a blob as most clients do: in an upload with one stream of bytes, and
// with the digest at the end.
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
	at := h.Get("Location")
	sep := "?"
	if strings.Contains(at, "?") {
		sep = "&"
	}
	_, _, err = p.Do(ctx, http.StatusCreated, http.MethodPut, at+sep+"digest="+digest(), nil)
	return err
}

// PushChunks pushes a blob in chunks.
func (p *Process) PushChunks(ctx context.Context, repo string, content []byte, digest string) error {
	h, _, err := p.Do(ctx, http.StatusAccepted, http.MethodPost, "/v2/"+p.Prefix+repo+"/blobs/uploads/", nil)
	for at := 0; err == nil && at < len(content); at += ChunkSize {
		end := min(at+ChunkSize, len(content))
		h, _, err = p.Do(ctx, http.StatusAccepted, http.MethodPatch, h.Get("Location"), bytes.NewReader(content[at:end]),
			"Content-Type", "application/octet-stream", "Content-Range", fmt.Sprintf("%d-%d", at, end-1))
	}
	if err != nil {
		return err
	}
	at, sep := h.Get("Location"), "?"
	if strings.Contains(at, "?") {
		sep = "&"
	}
	_, _, err = p.Do(ctx, http.StatusCreated, http.MethodPut, at+sep+"digest="+digest, nil)
	return err
}

const ImageMediaType = "application/vnd.oci.image.manifest.v1+json"

func (p *Process) PutManifest(ctx context.Context, repo, reference string, m []byte) error {
	path := "/v2/" + p.Prefix + repo + "/manifests/" + reference
	_, _, err := p.Do(ctx, http.StatusCreated, http.MethodPut, path, bytes.NewReader(m), "Content-Type", ImageMediaType)
	return err
}

// SmallLayer is the layer of a small image.
const SmallLayer = "a layer"

func DigestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func Descriptor(digest string, size int) string {
	return fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, digest, size)
}

// SmallImages pushes two small blobs, and returns a function that returns a new manifest of
// them at every call.
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

// ChunkSize is the size of the chunks of pushChunks, in bytes.
const ChunkSize = 10 << 20
