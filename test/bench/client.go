package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A client is an HTTP client of one server, which keeps its connections.
type client struct {
	http          *http.Client
	address       string // http://host:port
	token         string // or "", as the next
	registryToken string
}

func newClient(address, token string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	return &client{http: &http.Client{Transport: transport}, address: address, token: token}
}

func (c *client) close() { c.http.CloseIdleConnections() }

const anyStatus = 0

// do sends a request and reads the response. It returns an error for another status, and no
// body if that is very large. headers are names and values.
func (c *client) do(
	ctx context.Context, status int, method, path string, body io.Reader, headers ...string,
) (http.Header, []byte, error) {
	if strings.HasPrefix(path, "/") {
		path = c.address + path
	}
	req, err := http.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	token := c.token
	if strings.HasPrefix(req.URL.Path, "/v2/") {
		token = c.registryToken
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	var content bytes.Buffer
	if resp.ContentLength > 1<<20 {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		_, err = content.ReadFrom(resp.Body)
	}
	if err == nil && resp.StatusCode != status && status != anyStatus {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, content.Bytes())
	}
	return resp.Header, content.Bytes(), err
}

// doJSON sends a request whose status must be 200, and decodes the response into out.
func (c *client) doJSON(
	ctx context.Context, method, path string, body io.Reader, out any, headers ...string,
) error {
	_, text, err := c.do(ctx, http.StatusOK, method, path, body, headers...)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// get reads a path, whose status must be 200.
func (c *client) get(ctx context.Context, path string, headers ...string) ([]byte, error) {
	_, body, err := c.do(ctx, http.StatusOK, http.MethodGet, path, nil, headers...)
	return body, err
}

// getter returns an operation that reads a path.
func (c *client) getter(path string, headers ...string) operation {
	return func(ctx context.Context, _ int) error {
		_, err := c.get(ctx, path, headers...)
		return err
	}
}

// post creates a resource and returns its UID.
func (c *client) post(ctx context.Context, path, body string) (string, error) {
	var made struct{ UID string }
	err := c.doJSON(ctx, http.MethodPost, path, strings.NewReader(body), &made, "Content-Type", "application/json")
	return made.UID, err
}

// exchange exchanges a token.
func (c *client) exchange(ctx context.Context, of credential) (string, error) {
	var got struct{ Token string }
	err := c.doJSON(ctx, http.MethodPost, "/sts/exchange", strings.NewReader(of.form), &got,
		"Authorization", "Bearer "+of.bearer, "Content-Type", "application/x-www-form-urlencoded")
	return got.Token, err
}
