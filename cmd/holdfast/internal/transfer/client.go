// Package transfer copies images between registries with the OCI distribution protocol.
// Blobs are streamed from one registry to the other without storing them.
package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/challenge"
)

// A Registry is the source or the target of a copy.
type Registry struct {
	Host string // host, as in image references
	User string // user name; if "", requests are anonymous
	Pass string

	base   string
	client *http.Client
	tokens map[string]string // authorization headers, by scope
}

// Limits on the answers of a registry.
const (
	maxManifest = 4 << 20
	maxAnswer   = 1 << 20
	maxPages    = 1000
	quiet       = time.Minute // maximum time until an answer begins
)

// New returns the registry at a host. It uses TLS unless the host is this machine.
func New(host, user, pass string) *Registry {
	r := &Registry{Host: host, User: user, Pass: pass, tokens: map[string]string{}}
	r.base = "https://" + host
	if host == "docker.io" || host == "index.docker.io" {
		r.base = "https://registry-1.docker.io"
	}
	if isLocal(host) {
		r.base = "http://" + host
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = quiet
	r.client = &http.Client{Transport: transport, CheckRedirect: r.redirect}
	return r
}

func isLocal(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// redirect follows at most five redirects. It refuses a redirect from TLS to an
// unencrypted address, and sends no credentials to another host.
func (r *Registry) redirect(req *http.Request, via []*http.Request) error {
	const most = 5
	if len(via) >= most {
		return errors.New("too many redirects")
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("it redirects to %s, which is not encrypted", req.URL.Host)
	}
	if req.URL.Host != via[0].URL.Host {
		req.Header.Del("Authorization")
	}
	return nil
}

// A call is a request to a registry.
type call struct {
	method, path string // path is the part after /v2/, or a full address
	scope        string
	header       map[string]string
	body         io.Reader
	size         int64
	want         []int
}

// do sends a request and returns the answer if its status is one of c.want. If the
// registry requires a token, do gets one and sends the request again. It cannot repeat a
// request with a body, so a caller sends another request first to get the token.
func (r *Registry) do(ctx context.Context, c call) (*http.Response, error) {
	for try := range 2 {
		resp, err := r.send(ctx, c)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusUnauthorized || c.body != nil || try > 0 {
			return r.accept(resp, c)
		}
		header := resp.Header.Get("Www-Authenticate")
		discard(resp)
		if err := r.authenticate(ctx, header, c.scope); err != nil {
			return nil, err
		}
	}
	return nil, problem.New(problem.ExitError, "%s does not accept a token that it has issued", r.Host)
}

func (r *Registry) send(ctx context.Context, c call) (*http.Response, error) {
	address := c.path
	if !strings.Contains(address, "://") {
		address = r.base + "/v2/" + c.path
	}
	req, err := http.NewRequestWithContext(ctx, c.method, address, c.body)
	if err != nil {
		return nil, err
	}
	if c.body != nil {
		req.ContentLength = c.size
	}
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	if auth := r.tokens[c.scope]; auth != "" &&
		req.URL.Host == strings.TrimPrefix(strings.TrimPrefix(r.base, "https://"), "http://") {
		req.Header.Set("Authorization", auth)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Host, err)
	}
	return resp, nil
}

// accept returns an answer if its status is one of c.want, and otherwise the registry's
// error.
func (r *Registry) accept(resp *http.Response, c call) (*http.Response, error) {
	for _, status := range c.want {
		if resp.StatusCode == status {
			return resp, nil
		}
	}
	defer discard(resp)
	var said struct {
		Errors []struct{ Code, Message string }
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = json.Unmarshal(text, &said) // text that is not JSON, such as HTML, is not shown
	why := http.StatusText(resp.StatusCode)
	if len(said.Errors) > 0 {
		why = fmt.Sprintf("%.500s", said.Errors[0].Code+": "+said.Errors[0].Message)
	}
	exit := problem.ExitError
	if resp.StatusCode == http.StatusNotFound {
		exit = problem.ExitNotFound
	}
	return nil, problem.New(exit, "%s answers %s %s: %s", r.Host, c.method, c.path, why)
}

func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	resp.Body.Close()
}

// authenticate gets the credentials that a challenge requires.
func (r *Registry) authenticate(ctx context.Context, header, scope string) error {
	asks := challenge.Parse(header)
	switch {
	case asks.Scheme == "basic" && r.User != "":
		req := &http.Request{Header: http.Header{}}
		req.SetBasicAuth(r.User, r.Pass)
		r.tokens[scope] = req.Header.Get("Authorization")
		return nil
	case asks.Scheme != "bearer":
		return problem.New(problem.ExitError, "%s requires a sign-in", r.Host).Hint("docker login " + r.Host)
	}
	realm, ok := asks.Realm()
	if !ok {
		return problem.New(problem.ExitError, "%s does not name its token service", r.Host)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, asks.Address(realm, scope), nil)
	if err != nil {
		return err
	}
	if r.User != "" {
		if !r.trusts(realm) {
			return problem.New(problem.ExitError, "%s asked to send its password to %s, so nothing was sent", r.Host,
				realm.Host)
		}
		req.SetBasicAuth(r.User, r.Pass)
	}
	return r.fetchToken(req, scope)
}

func (r *Registry) fetchToken(req *http.Request, scope string) error {
	resp, err := r.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Host, err)
	}
	defer discard(resp)
	got, err := challenge.ReadToken(resp.Body, maxAnswer)
	if resp.StatusCode != http.StatusOK || err != nil {
		return problem.New(problem.ExitError, "%s issued no token: %s", r.Host,
			http.StatusText(resp.StatusCode)).Hint("docker login " + r.Host)
	}
	r.tokens[scope] = "Bearer " + got.Text
	return nil
}

// trusts reports whether the password of the registry may be sent to a realm. The realm
// must have the same scheme, and the same host or, with TLS, a host with the same last
// two labels, as Docker Hub has.
func (r *Registry) trusts(realm *url.URL) bool {
	base, err := url.Parse(r.base)
	if err != nil || realm.Scheme != base.Scheme {
		return false
	}
	if realm.Host == base.Host {
		return true
	}
	end := func(host string) string {
		names := strings.Split(host, ".")
		if net.ParseIP(host) != nil || len(names) < 2 {
			return host
		}
		return strings.Join(names[len(names)-2:], ".")
	}
	return realm.Scheme == "https" && net.ParseIP(realm.Hostname()) == nil && end(realm.Hostname()) == end(base.Hostname())
}
