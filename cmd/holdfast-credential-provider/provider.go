package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	apiVersion = "credentialprovider.kubelet.k8s.io/v1"

	// annotation is the annotation of a service account with the UID of the identity that its pods use.
	annotation = "holdfast.dev/identity"

	userName = "_token" // user name for a login with a token

	maxAnswer = 1 << 20 // maximum size of an answer of the server, in bytes
)

// A request is a CredentialProviderRequest of the kubelet.
type request struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Image       string            `json:"image"`
	Token       string            `json:"serviceAccountToken"`
	Annotations map[string]string `json:"serviceAccountAnnotations"`
}

// A response is a CredentialProviderResponse for the kubelet.
type response struct {
	APIVersion    string                `json:"apiVersion"`
	Kind          string                `json:"kind"`
	CacheKeyType  string                `json:"cacheKeyType"`
	CacheDuration string                `json:"cacheDuration"`
	Auth          map[string]credential `json:"auth"`
}

type credential struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

func parseRequest(text []byte) (q request, _ error) {
	if err := json.Unmarshal(text, &q); err != nil { // the error could contain a part of the token
		return q, errors.New("the request of the kubelet is not a JSON object with the expected fields")
	}
	switch {
	case q.Kind != "CredentialProviderRequest" || q.APIVersion != apiVersion:
		return q, fmt.Errorf("the kubelet must send a CredentialProviderRequest of %s: set apiVersion in the configuration "+
			"of its credential providers", apiVersion)
	case q.Token == "":
		return q, errors.New("the kubelet sent no token of a service account: set tokenAttributes in the configuration of " +
			"its credential providers (Kubernetes 1.34 or later)")
	}
	return q, nil
}

// splitImage returns the host and the repo in the name of an image, without tag and digest.
func splitImage(image string) (host, repo string, _ error) {
	name, _, _ := strings.Cut(image, "@")
	host, repo, found := strings.Cut(name, "/")
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo = repo[:i]
	}
	if !found || host == "" || repo == "" || strings.ContainsAny(name, " ?#%\\\x00\r\n\t") {
		return "", "", fmt.Errorf("%.256q is not the name of an image with a registry", image)
	}
	return host, repo, nil
}

// A provider gets credentials from a server.
type provider struct {
	server, registry, ca string
	timeout              time.Duration
}

// answer returns the credentials for a request. They allow pulls from the repo of the image only.
func (p provider) answer(ctx context.Context, q request) (a response, _ error) {
	server, err := url.Parse(strings.TrimSuffix(p.server, "/"))
	if err != nil || server.Host == "" || server.User != nil || server.Scheme != "https" && !isLocal(server) {
		return a, errors.New("--server or HOLDFAST_SERVER must be the address of Holdfast, with https://")
	}
	host, repo, err := splitImage(q.Image)
	if err != nil {
		return a, err
	}
	a = response{APIVersion: apiVersion, Kind: "CredentialProviderResponse", CacheKeyType: "Image", CacheDuration: "0s",
		Auth: map[string]credential{}}
	if registry := firstOf(p.registry, server.Host); host != registry {
		return a, fmt.Errorf("%s gets no credentials, because this program serves only %s: correct matchImages",
			host, registry)
	}
	token, life, err := p.pullToken(ctx, server, repo, q)
	if err != nil {
		return a, err
	}
	a.CacheDuration = (life * 9 / 10).Truncate(time.Second).String()
	a.Auth[host] = credential{userName, token}
	return a, nil
}

// isLocal reports whether requests to an address stay on this machine, so that nobody can read the token.
func isLocal(address *url.URL) bool {
	ip, err := netip.ParseAddr(address.Hostname())
	return address.Scheme == "http" && (address.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

func firstOf(texts ...string) string {
	i := slices.IndexFunc(texts, func(s string) bool { return s != "" })
	return texts[max(i, 0)]
}

// pullToken exchanges the token of a service account for a token that can pull from a repo, and returns its life.
func (p provider) pullToken(
	ctx context.Context, server *url.URL, repo string, q request,
) (token string, life time.Duration, _ error) {
	client, err := p.client()
	if err != nil {
		return "", 0, err
	}
	address := server.JoinPath("/v2/token")
	address.RawQuery = url.Values{"scope": {"repository:" + repo + ":pull"}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return "", 0, err
	}
	r.SetBasicAuth(q.Annotations[annotation], q.Token)
	resp, err := client.Do(r)
	if err != nil {
		return "", 0, fmt.Errorf("%s does not answer: %w", server.Host, err)
	}
	defer resp.Body.Close()
	var got struct {
		Token, Scope string
		Expires      int64 `json:"expires_in"`
		Errors       []struct{ Message string }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&got); err != nil {
		return "", 0, fmt.Errorf("%s answers with status %d and something other than JSON", server.Host, resp.StatusCode)
	}
	switch {
	case resp.StatusCode != http.StatusOK && len(got.Errors) > 0:
		return "", 0, fmt.Errorf("%s gives no token: %s", server.Host, got.Errors[0].Message)
	case resp.StatusCode != http.StatusOK || got.Token == "":
		return "", 0, fmt.Errorf("%s gives no token: status %d", server.Host, resp.StatusCode)
	case !slices.Contains(strings.Fields(got.Scope), "repository:"+repo+":pull"):
		return "", 0, fmt.Errorf("the identity of this pod may not pull from %s, or it does not exist", repo)
	}
	return got.Token, time.Duration(got.Expires) * time.Second, nil
}

// client returns a client that follows no redirects, because the request contains a token.
func (p provider) client() (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	c := &http.Client{
		Timeout: p.timeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirects are not followed") },
	}
	if p.ca == "" {
		return c, nil
	}
	pem, err := os.ReadFile(p.ca)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no certificate in PEM", p.ca)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return c, nil
}
