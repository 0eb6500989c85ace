// Package upstream is a client of remote registries for the OCI distribution protocol.
//
// Users choose the addresses, so all requests go through package outbound, and responses are limited in size and time.
// Credentials are sent only to the host of the registry and to one realm, never to the target of a redirect.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/link"
)

// Limits on what a registry may send.
const (
	MaxManifest = 4 << 20

	maxToken     = 1 << 20
	maxRedirects = 5
	tokensCached = 4096

	defaultShort = 2 * time.Minute

	maxPause     = time.Hour   // longest pause that a registry may demand
	defaultPause = time.Minute // pause if the registry does not name one
)

// A Registry is a remote registry.
type Registry struct {
	Key     string // identifies the settings; a token for one key is never used for another
	Address string // https:// and a host
	Realm   string // the only address besides Address to which the password may be sent; "" for none

	// SignIn returns a user and a password. It is nil if the registry needs no credentials.
	SignIn func(context.Context) (user, password string, err error)
}

// A Client sends requests to registries. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	tokens  *lru.Cache[tokenKey, grant]
	now     func() time.Time
	stall   time.Duration
	minRate int64

	// short limits a request that writes and sends no blob, so that a registry that reads or writes single bytes, or whose
	// connections are all in use, cannot keep it running.
	short time.Duration
}

// Config configures a Client.
type Config struct {
	Outbound outbound.Config
	Now      func() time.Time // nil means time.Now
	Stall    time.Duration    // period over which the rate of a blob is measured; 0 means 30 seconds
	MinRate  int64            // least rate at which a blob must arrive, in bytes per second; 0 means 32 KiB
}

// New returns a Client.
func New(c Config) *Client {
	tokens, _ := lru.New[tokenKey, grant](tokensCached) // fails only for sizes below one
	client := &Client{http: outbound.Client(c.Outbound), tokens: tokens, now: c.Now, stall: c.Stall, minRate: c.MinRate}
	client.http.Timeout = 0 // a large blob may take long; MinRate ends a download without progress
	if client.now == nil {
		client.now = time.Now
	}
	client.short = 2 * cmp.Or(c.Outbound.Timeout, defaultShort/2)
	if client.stall == 0 {
		client.stall = 30 * time.Second
	}
	if client.minRate == 0 {
		client.minRate = defaultMinRate
	}
	return client
}

// An Error is the failure of a request to a registry.
type Error struct {
	Status  int           // status of the response; 0 if there was no usable response
	Reason  string        // text for clients that pull; it contains no secret and nothing about our network
	RetryIn time.Duration // pause that the registry demands; 0 if it demands none
	Cause   error         // cause of the failure, for the log
}

// Error implements error.
func (e *Error) Error() string { return e.Reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// NotFound reports whether err means that the registry does not have the content.
func NotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound
}

// Unsupported reports whether err means that the registry does not support the method.
func Unsupported(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusMethodNotAllowed
}

// Limited reports whether err means that the registry got too many requests, and returns the pause that it demands.
func Limited(err error) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	return e.retryIn(), ok && e.Status == http.StatusTooManyRequests
}

func (e *Error) retryIn() time.Duration {
	if e == nil {
		return 0
	}
	return e.RetryIn
}

// Refused reports whether err means that the registry denies access to the content.
func Refused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden)
}

// A Manifest is a manifest in a registry.
type Manifest struct {
	Digest    string // digest in the header of the response; "" if there is none
	MediaType string
	Body      []byte // content of the manifest; nil in the result of Stat
}

// accepted is the value of the Accept header in requests for manifests.
var accepted = strings.Join([]string{
	"application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
	"application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json",
	"application/vnd.oci.artifact.manifest.v1+json", "*/*;q=0.1",
}, ", ")

// Ping returns nil if a registry answers and accepts the credentials, if there are any. It names no repo, so it does
// not find out which images the credentials allow.
func (c *Client) Ping(ctx context.Context, r Registry) error {
	resp, err := c.do(ctx, r, call{method: http.MethodGet})
	if err == nil {
		defer discard(resp)
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			return &Error{Reason: "it is not a registry: it answers with a web page"}
		}
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return err
	case e.Status == http.StatusNotFound:
		return &Error{Reason: "it is not a registry: it has nothing at /v2/", Cause: e.Cause}
	case e.Reason == refusedOrMissing && r.SignIn != nil:
		return &Error{Status: e.Status, Reason: "it refuses the credentials", Cause: e.Cause}
	case e.Reason == refusedOrMissing:
		return &Error{Status: e.Status, Reason: "it refuses requests without credentials", Cause: e.Cause}
	}
	return err
}

// Stat returns a manifest in a registry without its body. It does not verify the digest.
func (c *Client) Stat(ctx context.Context, r Registry, repo, reference string) (Manifest, error) {
	resp, err := c.do(ctx, r, call{method: http.MethodHead, repo: repo, path: "/manifests/" + reference, accept: accepted})
	if err != nil {
		return Manifest{}, err
	}
	defer discard(resp)
	return Manifest{Digest: resp.Header.Get("Docker-Content-Digest"), MediaType: resp.Header.Get("Content-Type")}, nil
}

// Manifest returns a manifest in a registry. It does not verify the digest.
func (c *Client) Manifest(ctx context.Context, r Registry, repo, reference string) (Manifest, error) {
	body, h, err := c.document(ctx, r, call{
		method: http.MethodGet, repo: repo, path: "/manifests/" + reference, accept: accepted,
	})
	return Manifest{Digest: h.Get("Docker-Content-Digest"), MediaType: h.Get("Content-Type"), Body: body}, err
}

// A Page is one page of a list.
type Page struct {
	Body []byte
	Next string // query string of the request for the next page
	More bool   // whether there is a next page
}

// Referrers returns a page of the index that lists the referrers of a digest. It returns the first page if query is
// "", and otherwise the page to which the query belongs.
func (c *Client) Referrers(ctx context.Context, r Registry, repo, digest, query string) (Page, error) {
	body, header, err := c.document(ctx, r, call{method: http.MethodGet, repo: repo, path: "/referrers/" + digest,
		query: query, accept: "application/vnd.oci.image.index.v1+json"})
	p := Page{Body: body}
	p.Next, p.More = link.Next(header)
	return p, err
}

func (c *Client) document(ctx context.Context, r Registry, what call) (body []byte, _ http.Header, _ error) {
	resp, err := c.do(ctx, r, what)
	if err != nil {
		return nil, nil, err
	}
	defer discard(resp)
	body, err = outbound.Read(resp.Body, MaxManifest)
	if errors.Is(err, outbound.ErrTooLong) {
		return nil, nil, &Error{Reason: fmt.Sprintf("its manifest has more than %d bytes", MaxManifest), Cause: err}
	}
	if err != nil {
		return nil, nil, &Error{Reason: "its answer broke off", Cause: err}
	}
	return body, resp.Header, nil
}

// StatBlob returns the size of a blob in bytes, or -1 if the registry does not report it.
func (c *Client) StatBlob(ctx context.Context, r Registry, repo, digest string) (int64, error) {
	resp, err := c.do(ctx, r, call{method: http.MethodHead, repo: repo, path: "/blobs/" + digest})
	if err != nil {
		return 0, err
	}
	defer discard(resp)
	return resp.ContentLength, nil
}

// A Blob is the body of a response that contains a blob or the end of one.
type Blob struct {
	io.ReadCloser
	Size int64 // size of the whole blob in bytes; -1 if the registry does not report it
}

// Blob returns the bytes of a blob from an offset on. It does not verify the digest. Reading fails if the registry is
// too slow.
func (c *Client) Blob(ctx context.Context, r Registry, repo, digest string, from int64) (*Blob, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	request := call{method: http.MethodGet, repo: repo, path: "/blobs/" + digest}
	if from > 0 {
		request.ranged = "bytes=" + strconv.FormatInt(from, 10) + "-"
	}
	resp, err := c.do(ctx, r, request)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	least := int64(float64(c.minRate) * c.stall.Seconds())
	b := &Blob{newSteady(resp.Body, c.stall, least, cancel), resp.ContentLength}
	if resp.StatusCode == http.StatusPartialContent {
		if b.Size >= 0 {
			b.Size += from
		}
		return b, nil
	}
	if _, err := io.CopyN(io.Discard, b, from); err != nil { // the registry ignores the range and sends the whole blob
		return nil, errors.Join(&Error{Reason: "its answer broke off", Cause: err}, b.Close())
	}
	return b, nil
}

// A call is a request to a registry.
type call struct {
	method, repo, path    string
	query, accept, ranged string

	push   *push // what a request has that writes; nil for a request that reads
	mounts string
}

// scope returns the scopes of the token that a call needs, separated by spaces, or "" if the call is about no repo.
func (c call) scope() string {
	switch {
	case c.repo == "":
		return ""
	case c.push == nil:
		return "repository:" + c.repo + ":pull"
	case c.method == http.MethodDelete:
		return "repository:" + c.repo + ":pull,delete"
	case c.mounts != "":
		return "repository:" + c.repo + ":pull,push repository:" + c.mounts + ":pull"
	}
	return "repository:" + c.repo + ":pull,push"
}

// do sends a request and returns the response if it is successful. If the registry asks for a token, do gets one and
// sends the request again.
func (c *Client) do(ctx context.Context, r Registry, what call) (*http.Response, error) {
	for try := 0; ; try++ {
		resp, direct, err := c.send(ctx, r, what)
		if err != nil {
			return nil, &Error{Reason: outbound.Reason(err), Cause: err}
		}
		switch {
		case what.push != nil && slices.Contains(what.push.want, resp.StatusCode):
			return resp, nil
		case what.push == nil && resp.StatusCode == http.StatusOK,
			resp.StatusCode == http.StatusPartialContent && what.ranged != "":
			return resp, nil
		case resp.StatusCode != http.StatusUnauthorized || !direct || try > 0:
			discard(resp)
			return nil, c.refusal(resp)
		}
		header := resp.Header.Get("Www-Authenticate")
		discard(resp)
		if err := c.authenticate(ctx, r, header, what.scope()); err != nil {
			return nil, err
		}
	}
}

// refusedOrMissing is the reason of a refusal. Registries refuse requests for images that do not exist, too.
const refusedOrMissing = "it refuses the request, or does not have it"

// refusal returns the Error for a response that is not successful.
func (c *Client) refusal(resp *http.Response) *Error {
	e := &Error{Status: resp.StatusCode, Cause: fmt.Errorf("status %d", resp.StatusCode)}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		e.Reason = "it does not have it"
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		e.Reason = refusedOrMissing
	case resp.StatusCode == http.StatusTooManyRequests:
		e.Reason, e.RetryIn = "it was asked too often", c.pause(resp.Header.Get("Retry-After"))
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		e.Reason, e.RetryIn = "it is not available", c.pause(resp.Header.Get("Retry-After"))
	default:
		e.Reason = "it answers with status " + strconv.Itoa(resp.StatusCode)
	}
	return e
}

// pause returns the pause that a Retry-After header demands.
func (c *Client) pause(text string) time.Duration {
	d := defaultPause
	if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32); err == nil {
		d = time.Duration(n) * time.Second
	} else if until, err := http.ParseTime(text); err == nil {
		d = until.Sub(c.now())
	}
	return min(max(d, time.Second), maxPause)
}

var errRedirects = errors.New("too many redirects")

// send sends a request and follows redirects. Requests to the target of a redirect have no credentials. direct
// reports whether the response comes from the registry itself.
func (c *Client) send(ctx context.Context, r Registry, what call) (resp *http.Response, direct bool, _ error) {
	address := r.Address + "/v2/" + what.repo + what.path
	if what.push != nil && what.push.address != "" {
		address = what.push.address
	}
	if what.query != "" {
		address += "?" + what.query
	}
	header := http.Header{}
	if what.accept != "" {
		header.Set("Accept", what.accept)
	}
	if what.ranged != "" {
		header.Set("Range", what.ranged)
	}
	if auth := c.cached(r, what.scope()); auth != "" {
		header.Set("Authorization", auth)
	}
	for n := range maxRedirects + 1 {
		req, err := http.NewRequestWithContext(ctx, what.method, address, nil)
		if err != nil {
			return nil, false, err
		}
		req.Header = header.Clone()
		if err := what.push.prepare(req); err != nil {
			return nil, false, err
		}
		req.Header.Set("User-Agent", "holdfast")
		req.Header.Set("Accept-Encoding", "identity") // the digest is computed over the bytes as sent
		resp, err := c.http.Do(req)
		if err != nil {
			return nil, false, err
		}
		next, ok := redirect(req.URL, resp)
		if !ok || what.push != nil && what.method != http.MethodHead {
			return resp, n == 0, nil
		}
		discard(resp)
		if req.URL.Scheme == "https" && next.Scheme != "https" {
			return nil, false, outbound.ErrInsecure
		}
		header.Del("Authorization")
		address = next.String()
	}
	return nil, false, errRedirects
}

// redirect returns the target of a redirect. ok is false if the response is not a redirect.
func redirect(from *url.URL, resp *http.Response) (*url.URL, bool) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
	default:
		return nil, false
	}
	next, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || next.User != nil {
		return nil, false
	}
	return next, true
}

// discard closes a response without reading its body, which may never end.
func discard(resp *http.Response) { _ = resp.Body.Close() }
