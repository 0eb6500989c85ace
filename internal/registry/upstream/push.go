package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
)

// A push is what a request has that writes to a registry. The nil push changes nothing.
type push struct {
	address     string // where the registry wants an upload; "" for the address that the call names
	contentType string
	size        int64
	open        func() (io.ReadCloser, error) // opens the body; nil for none
	want        []int                         // statuses of a successful response
}

// prepare adds the body to a request.
func (p *push) prepare(req *http.Request) error {
	if p == nil {
		return nil
	}
	if p.contentType != "" {
		req.Header.Set("Content-Type", p.contentType)
	}
	if p.open == nil {
		return nil
	}
	body, err := p.open()
	if err != nil {
		return err
	}
	req.Body, req.ContentLength = body, p.size
	if p.size == 0 {
		req.Body = http.NoBody
		return body.Close()
	}
	return nil
}

// HasBlob reports whether a repo of a registry has a blob.
func (c *Client) HasBlob(ctx context.Context, r Registry, repo, digest string) (bool, error) {
	return c.has(ctx, r, repo, "/blobs/"+digest)
}

// HasManifest reports whether a repo of a registry has a manifest.
func (c *Client) HasManifest(ctx context.Context, r Registry, repo, digest string) (bool, error) {
	return c.has(ctx, r, repo, "/manifests/"+digest)
}

func (c *Client) has(ctx context.Context, r Registry, repo, path string) (bool, error) {
	resp, err := c.ask(ctx, r, call{method: http.MethodHead, repo: repo, path: path, accept: accepted,
		push: &push{want: []int{http.StatusOK, http.StatusNotFound}}})
	return err == nil && resp.StatusCode == http.StatusOK, err
}

// ask is do for a request whose response has no body that matters. It limits the time of the request, including the
// time in which it waits for a connection, and closes the response.
func (c *Client) ask(ctx context.Context, r Registry, what call) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.short)
	defer cancel()
	resp, err := c.do(ctx, r, what)
	if err == nil {
		discard(resp)
	}
	return resp, err
}

// TagDigest returns the digest of the manifest that a tag names, or "" if there is no such tag. It returns an error if
// the registry does not report the digest.
func (c *Client) TagDigest(ctx context.Context, r Registry, repo, tag string) (string, error) {
	resp, err := c.ask(ctx, r, call{method: http.MethodHead, repo: repo, path: "/manifests/" + tag, accept: accepted,
		push: &push{want: []int{http.StatusOK, http.StatusNotFound}}})
	if err != nil {
		return "", err
	}
	digest := resp.Header.Get("Docker-Content-Digest")
	if resp.StatusCode == http.StatusOK && digest == "" {
		return "", &Error{Reason: "it does not report the digest of a tag"}
	}
	if resp.StatusCode == http.StatusNotFound {
		return "", nil
	}
	return digest, nil
}

// PushBlob stores a blob in a repo of a registry. If from is not "", it asks the registry first to take the blob from
// its repo of that name. open opens the bytes of the blob; the caller vouches for their digest and size. The push fails
// if the registry accepts the bytes too slowly.
func (c *Client) PushBlob(
	ctx context.Context, r Registry, repo, digest string, size int64, from string,
	open func() (io.ReadCloser, error),
) error {
	begin := call{method: http.MethodPost, repo: repo, path: "/blobs/uploads/",
		push: &push{want: []int{http.StatusAccepted}}}
	mount := begin
	mount.mounts, mount.query = from, url.Values{"mount": {digest}, "from": {from}}.Encode()
	mount.push = &push{want: []int{http.StatusAccepted, http.StatusCreated}}
	var resp *http.Response
	var err error
	if from != "" {
		resp, err = c.ask(ctx, r, mount)
	}
	if from == "" || Refused(err) || NotFound(err) { // a registry may refuse to mount, and accept the upload
		resp, err = c.ask(ctx, r, begin)
	}
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusCreated {
		return nil
	}
	address, err := uploadAddress(r, resp, digest)
	if err != nil {
		return err
	}
	return c.upload(ctx, r, repo, digest, &push{address: address, contentType: "application/octet-stream", size: size,
		open: open, want: []int{http.StatusCreated}})
}

// upload sends the bytes of a blob in one request.
func (c *Client) upload(ctx context.Context, r Registry, repo, digest string, what *push) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	least := int64(float64(c.minRate) * c.stall.Seconds())
	open := what.open
	what.open = func() (io.ReadCloser, error) {
		body, err := open()
		if err != nil {
			return nil, err
		}
		return newSteady(body, c.stall, least, func(cause error) {
			if cause != nil { // the transport closes the body when all of it was sent, and then waits for the response
				cancel(cause)
			}
		}), nil
	}
	resp, err := c.do(ctx, r, call{method: http.MethodPut, repo: repo, push: what})
	if errors.Is(context.Cause(ctx), errStalled) {
		return &Error{Reason: "it takes too little of a blob in the time", Cause: err}
	}
	if err != nil {
		return err
	}
	defer discard(resp)
	return wrongDigest(resp, digest)
}

// uploadAddress returns the address to which the registry wants a blob to be sent. It must be at the registry's host,
// because the request has the registry's credentials.
func uploadAddress(r Registry, resp *http.Response, digest string) (string, error) {
	base, err := url.Parse(r.Address)
	if err != nil {
		return "", err
	}
	to, err := resp.Request.URL.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" || to.User != nil {
		return "", &Error{Reason: "it names no address for an upload"}
	}
	if to.Scheme != base.Scheme || to.Host != base.Host {
		return "", &Error{Reason: "it wants an upload to be sent to another host"}
	}
	q := to.Query()
	q.Set("digest", digest)
	to.RawQuery = q.Encode()
	return to.String(), nil
}

// PushManifest stores a manifest in a repo of a registry, under a tag or its digest. listed is true if the registry
// will list the manifest as a referrer of its subject.
func (c *Client) PushManifest(
	ctx context.Context, r Registry, repo, reference, digest, mediaType string, body []byte,
) (listed bool, _ error) {
	resp, err := c.ask(ctx, r, call{method: http.MethodPut, repo: repo, path: "/manifests/" + reference, push: &push{
		contentType: mediaType, size: int64(len(body)), want: []int{http.StatusCreated},
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}})
	if err != nil {
		return false, err
	}
	return resp.Header.Get("Oci-Subject") != "", wrongDigest(resp, digest)
}

// wrongDigest returns an error if a response says that another digest was stored.
func wrongDigest(resp *http.Response, want string) error {
	got := resp.Header.Get("Docker-Content-Digest")
	if got == "" || got == want || !strings.HasPrefix(got, want[:strings.Index(want, ":")+1]) {
		return nil // some registries report the digest with another algorithm
	}
	return &Error{Reason: "it stored other content than it was sent"}
}

// DeleteTag removes a tag from a repo of a registry. It succeeds if there is no such tag.
func (c *Client) DeleteTag(ctx context.Context, r Registry, repo, tag string) error {
	_, err := c.ask(ctx, r, call{method: http.MethodDelete, repo: repo, path: "/manifests/" + tag, push: &push{
		want: []int{http.StatusAccepted, http.StatusOK, http.StatusNoContent, http.StatusNotFound},
	}})
	return err
}

// TaggedManifest returns a manifest of a repo by its tag, or no body if there is none.
func (c *Client) TaggedManifest(ctx context.Context, r Registry, repo, tag string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.short)
	defer cancel()
	resp, err := c.do(ctx, r, call{method: http.MethodGet, repo: repo, path: "/manifests/" + tag, accept: accepted,
		push: &push{want: []int{http.StatusOK, http.StatusNotFound}}})
	if err != nil {
		return nil, err
	}
	defer discard(resp)
	if resp.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	body, err := outbound.Read(resp.Body, MaxManifest)
	if err != nil {
		return nil, &Error{Reason: "its list of attached artifacts cannot be read", Cause: err}
	}
	return body, nil
}
