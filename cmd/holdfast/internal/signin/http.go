package signin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

// Send sends an HTTP request to a path of the server, with the token that a call would
// carry. It does not follow redirects.
func (a *Agent) Send(ctx context.Context, method, path, body string) (*http.Response, error) {
	api, err := a.Server()
	if err != nil {
		return nil, err
	}
	token, err := a.TokenFor(ctx, "")
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, holdfast.Audience(api.Text)+path, strings.NewReader(body))
	if err != nil {
		return nil, problem.Usage("%q is not a path", path)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "holdfast/"+buildinfo.Version())
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	security, err := a.tls()
	if err != nil {
		return nil, err
	}
	resp, err := transmit(security, req)
	if err != nil {
		return nil, problem.New(problem.ExitUnreachable, "cannot reach %s: %v", req.URL.Host, err)
	}
	return resp, nil
}

// RedirectAddress returns the redirect address that the server's identity providers
// share. It needs no token.
func (a *Agent) RedirectAddress(ctx context.Context) (string, error) {
	issuer, err := a.Issuer()
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, issuer+"/.well-known/openid-configuration", nil)
	if err != nil {
		return "", problem.Usage("%q is not an address", issuer)
	}
	security, err := a.tls()
	if err != nil {
		return "", err
	}
	resp, err := transmit(security, req)
	if err != nil {
		return "", problem.New(problem.ExitUnreachable, "cannot reach %s: %v", req.URL.Host, err)
	}
	defer resp.Body.Close()
	var document struct {
		Redirect string `json:"identity_provider_redirect_uri"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&document)
	if err != nil || resp.StatusCode != http.StatusOK || document.Redirect == "" {
		return "", problem.New(problem.ExitError, "%s does not publish its redirect address", issuer)
	}
	return document.Redirect, nil
}

// Transmit sends a request that has its own credentials, such as a token of a workload. It follows no redirects, and
// refuses to send the credentials unencrypted to another machine, unless the settings allow that.
func (a *Agent) Transmit(req *http.Request) (*http.Response, error) {
	if err := a.allow(req.URL.Scheme + "://" + req.URL.Host); err != nil {
		return nil, err
	}
	security, err := a.tls()
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "holdfast/"+buildinfo.Version())
	resp, err := transmit(security, req)
	if err != nil {
		return nil, problem.New(problem.ExitUnreachable, "cannot reach %s: %v", req.URL.Host, err)
	}
	return resp, nil
}
