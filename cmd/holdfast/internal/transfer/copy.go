package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/link"
)

// A Repo is a repository in a registry.
type Repo struct {
	*Registry
	Name string
}

// manifestTypes is the Accept header for manifests.
const manifestTypes = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, " +
	"application/vnd.docker.distribution.manifest.list.v2+json, " +
	"application/vnd.docker.distribution.manifest.v2+json, */*;q=0.5"

// A Copier copies images from one repo to another.
type Copier struct {
	From, To  Repo
	Referrers bool // whether to copy attached artifacts
	DryRun    bool // whether to write nothing

	Manifests int   // number of copied manifests
	Bytes     int64 // size of the copied blobs, in bytes
	Present   int   // number of blobs that the target already had

	seen  map[string]bool
	noted map[string]bool // manifests that the target has listed as referrers of their subject, by digest
}

// A descriptor is a reference in a manifest.
type descriptor struct {
	MediaType string   `json:"mediaType"`
	Digest    string   `json:"digest"`
	Size      int64    `json:"size"`
	URLs      []string `json:"urls"`
}

type manifest struct {
	MediaType string       `json:"mediaType"`
	Config    *descriptor  `json:"config"`
	Layers    []descriptor `json:"layers"`
	Blobs     []descriptor `json:"blobs"`
	Manifests []descriptor `json:"manifests"`
}

func (r Repo) pull() string { return "repository:" + r.Name + ":pull" }
func (r Repo) push() string { return "repository:" + r.Name + ":pull,push" }

// Copy copies the image that a reference names, with everything that it lists, and tags
// the copy unless tag is "". It returns the digest of the image.
func (c *Copier) Copy(ctx context.Context, reference, tag string) (digest string, _ error) {
	if c.seen == nil {
		c.seen, c.noted = map[string]bool{}, map[string]bool{}
	}
	return c.copy(ctx, reference, tag, 0)
}

// maxDepth is the largest nesting depth of indexes.
const maxDepth = 8

func (c *Copier) copy(ctx context.Context, reference, tag string, depth int) (string, error) {
	if depth > maxDepth {
		return "", problem.New(problem.ExitError, "the indexes are nested too deeply at %s", reference)
	}
	if tag == "" && c.seen[reference] {
		return reference, nil
	}
	body, mediaType, digest, err := c.From.manifest(ctx, reference)
	if err != nil {
		return "", err
	}
	var m manifest
	if json.Unmarshal(body, &m) != nil {
		return "", problem.New(problem.ExitError, "%s of %s/%s is not a manifest", reference, c.From.Host, c.From.Name)
	}
	for _, child := range m.Manifests {
		if _, err := c.copy(ctx, child.Digest, "", depth+1); err != nil {
			return "", err
		}
	}
	blobs := append(m.Layers, m.Blobs...)
	if m.Config != nil {
		blobs = append(blobs, *m.Config)
	}
	for _, b := range blobs {
		if err := c.blob(ctx, b); err != nil {
			return "", err
		}
	}
	name := digest
	if tag != "" {
		name = tag
	}
	if c.noted[digest], err = c.put(ctx, name, mediaType, body); err != nil {
		return "", err
	}
	c.Manifests++
	if c.seen[digest] || !c.Referrers {
		c.seen[digest] = true
		return digest, nil
	}
	c.seen[digest] = true
	return digest, c.referrers(ctx, digest, depth)
}

// hasher returns the hash function of a digest and the expected sum.
func hasher(digest string) (h hash.Hash, want string, _ error) {
	algorithm, want, _ := strings.Cut(digest, ":")
	switch {
	case algorithm == "sha256" && len(want) == 64:
		return sha256.New(), want, nil
	case algorithm == "sha512" && len(want) == 128:
		return sha512.New(), want, nil
	}
	return nil, "", problem.New(problem.ExitError, "%.100q is not a digest", digest)
}

// manifest reads a manifest. It checks the digest in the reference, or else the digest in
// the registry's answer.
func (r Repo) manifest(ctx context.Context, reference string) (body []byte, mediaType, digest string, _ error) {
	resp, err := r.do(ctx, call{
		method: http.MethodGet, path: r.Name + "/manifests/" + url.PathEscape(reference), scope: r.pull(),
		header: map[string]string{"Accept": manifestTypes}, want: []int{http.StatusOK},
	})
	if err != nil {
		return nil, "", "", err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(resp.Body, maxManifest+1)); err != nil {
		return nil, "", "", fmt.Errorf("%s: %w", r.Host, err)
	}
	if len(body) > maxManifest {
		return nil, "", "", problem.New(problem.ExitError, "the manifest %s of %s is too large", reference, r.Host)
	}
	switch said := resp.Header.Get("Docker-Content-Digest"); {
	case strings.Contains(reference, ":"):
		digest = reference
	case said != "":
		digest = said
	default:
		sum := sha256.Sum256(body)
		digest = "sha256:" + hex.EncodeToString(sum[:])
	}
	h, want, err := hasher(digest)
	if err != nil {
		return nil, "", "", err
	}
	h.Write(body)
	if hex.EncodeToString(h.Sum(nil)) != want {
		return nil, "", "", problem.New(problem.ExitError, "the answer of %s for %s is not %s", r.Host, reference, digest)
	}
	mediaType, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	return body, strings.TrimSpace(mediaType), digest, nil
}

// put writes a manifest. attached is true if the registry has attached it to its subject
// and will list it.
func (c *Copier) put(ctx context.Context, reference, mediaType string, body []byte) (attached bool, _ error) {
	if c.DryRun {
		return false, nil
	}
	if err := c.begin(ctx); err != nil {
		return false, err
	}
	resp, err := c.To.do(ctx, call{
		method: http.MethodPut, path: c.To.Name + "/manifests/" + reference, scope: c.To.push(),
		header: map[string]string{"Content-Type": mediaType}, body: bytes.NewReader(body), size: int64(len(body)),
		want: []int{http.StatusCreated},
	})
	if err != nil {
		return false, err
	}
	discard(resp)
	return resp.Header.Get("Oci-Subject") != "", nil
}

// begin gets the token for writing with a request that has no body, because a request
// with a body cannot be repeated.
func (c *Copier) begin(ctx context.Context) error {
	resp, err := c.To.do(ctx, call{
		method: http.MethodHead, path: c.To.Name + "/blobs/sha256:" + strings.Repeat("0", 64), scope: c.To.push(),
		want: []int{http.StatusOK, http.StatusNotFound, http.StatusForbidden},
	})
	if err != nil {
		return err
	}
	discard(resp)
	return nil
}

// blob copies a blob, unless the target has it. A blob with external URLs is not copied,
// as in other clients.
func (c *Copier) blob(ctx context.Context, b descriptor) error {
	if len(b.URLs) > 0 || c.seen[b.Digest] {
		return nil
	}
	h, want, err := hasher(b.Digest)
	if err != nil {
		return err
	}
	c.seen[b.Digest] = true
	resp, err := c.To.do(ctx, call{method: http.MethodHead, path: c.To.Name + "/blobs/" + b.Digest, scope: c.To.push(),
		want: []int{http.StatusOK, http.StatusNotFound, http.StatusForbidden}})
	if err != nil {
		return err
	}
	discard(resp)
	if resp.StatusCode == http.StatusOK {
		c.Present++
		return nil
	}
	c.Bytes += b.Size
	if c.DryRun {
		return nil
	}
	got, err := c.From.do(ctx,
		call{
			method: http.MethodGet, path: c.From.Name + "/blobs/" + b.Digest, scope: c.From.pull(), want: []int{http.StatusOK},
		})
	if err != nil {
		return err
	}
	defer got.Body.Close()
	checked := &checkedReader{in: got.Body, left: b.Size, hash: h, want: want, what: b.Digest + " of " + c.From.Host}
	return c.upload(ctx, b, checked)
}

// upload sends a blob in one request.
func (c *Copier) upload(ctx context.Context, b descriptor, body io.Reader) error {
	resp, err := c.To.do(ctx,
		call{
			method: http.MethodPost, path: c.To.Name + "/blobs/uploads/", scope: c.To.push(), want: []int{http.StatusAccepted},
		})
	if err != nil {
		return err
	}
	discard(resp)
	base, err := url.Parse(c.To.base)
	if err != nil {
		return err
	}
	address, err := base.Parse(resp.Header.Get("Location"))
	if err != nil || address.Scheme != base.Scheme {
		return problem.New(problem.ExitError, "%s does not name an address for the upload", c.To.Host)
	}
	q := address.Query()
	q.Set("digest", b.Digest)
	address.RawQuery = q.Encode()
	resp, err = c.To.do(ctx, call{
		method: http.MethodPut, path: address.String(), scope: c.To.push(), body: body, size: b.Size,
		header: map[string]string{"Content-Type": "application/octet-stream"}, want: []int{http.StatusCreated},
	})
	if err != nil {
		return err
	}
	discard(resp)
	return nil
}

// A checkedReader fails before the last byte if the content has another size or digest
// than expected.
type checkedReader struct {
	in   io.Reader
	left int64
	hash hash.Hash
	want string
	what string
}

func (r *checkedReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.in.Read(p[:min(int64(len(p)), r.left)])
	r.hash.Write(p[:n])
	r.left -= int64(n)
	if r.left == 0 {
		if extra, _ := io.ReadFull(r.in, make([]byte, 1)); extra > 0 || hex.EncodeToString(r.hash.Sum(nil)) != r.want {
			return 0, problem.New(problem.ExitError, "the content is not %s", r.what)
		}
		return n, nil
	}
	if err == io.EOF {
		return 0, problem.New(problem.ExitError, "%s ended early", r.what)
	}
	return n, err
}

// Tags returns the tags of a repo that match a pattern.
func (r Repo) Tags(ctx context.Context, pattern string) (tags []string, _ error) {
	next := r.Name + "/tags/list"
	for range maxPages {
		resp, err := r.do(ctx, call{method: http.MethodGet, path: next, scope: r.pull(), want: []int{http.StatusOK}})
		if err != nil {
			return nil, err
		}
		var list struct{ Tags []string }
		err = json.NewDecoder(io.LimitReader(resp.Body, maxManifest)).Decode(&list)
		discard(resp)
		if err != nil {
			return nil, problem.New(problem.ExitError, "%s sends an invalid list of tags", r.Host)
		}
		for _, tag := range list.Tags {
			if ok, err := path.Match(pattern, tag); err != nil {
				return nil, problem.Usage("%q is not a pattern of tags", pattern)
			} else if ok && !strings.HasPrefix(tag, "sha256-") {
				tags = append(tags, tag)
			}
		}
		query, ok := link.Next(resp.Header)
		if !ok {
			return tags, nil
		}
		next = r.Name + "/tags/list?" + query
	}
	return nil, problem.New(problem.ExitError, "the list of tags of %s does not end", r.Host)
}
