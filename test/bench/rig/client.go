package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Client is an HTTP client for one server. It reuses its connections.
type Client struct {
	HTTP          *http.Client
	Address       string // base URL, in the form http://host:port
	Token         string // API token; both tokens may be ""
	registryToken string
}

// NewClient returns a client that sends token to the server at address. token may be "".
func NewClient(address, token string) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	return &Client{HTTP: &http.Client{Transport: transport}, Address: address, Token: token}
}

// Close closes the idle connections.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// AnyStatus makes Do accept every status.
const AnyStatus = 0

// Do sends a request and reads the response. It returns an error if the response has another status than status,
// unless status is AnyStatus. It returns no body if the body is longer than 1 MiB. headers contains alternating names
// and values.
func (c *Client) Do(
	ctx context.Context, status int, method, path string, body io.Reader, headers ...string,
) (http.Header, []byte, error) {
	if strings.HasPrefix(path, "/") {
		path = c.Address + path
	}
	req, err := http.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	token := c.Token
	if strings.HasPrefix(req.URL.Path, "/v2/") {
		token = c.registryToken
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.HTTP.Do(req)
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
	if err == nil && resp.StatusCode != status && status != AnyStatus {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, content.Bytes())
	}
	return resp.Header, content.Bytes(), err
}

// DoJSON sends a request and decodes the response into out. It returns an error if the status is not 200.
func (c *Client) DoJSON(
	ctx context.Context, method, path string, body io.Reader, out any, headers ...string,
) error {
	_, text, err := c.Do(ctx, http.StatusOK, method, path, body, headers...)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// Get reads the content at a path. It returns an error if the status is not 200.
func (c *Client) Get(ctx context.Context, path string, headers ...string) ([]byte, error) {
	_, body, err := c.Do(ctx, http.StatusOK, http.MethodGet, path, nil, headers...)
	return body, err
}

// Getter returns an operation that calls Get with the path.
func (c *Client) Getter(path string, headers ...string) Operation {
	return func(ctx context.Context, _ int) error {
		_, err := c.Get(ctx, path, headers...)
		return err
	}
}

// Post creates a resource with a POST request and returns its UID.
func (c *Client) Post(ctx context.Context, path, body string) (string, error) {
	var made struct{ UID string }
	err := c.DoJSON(ctx, http.MethodPost, path, strings.NewReader(body), &made, "Content-Type", "application/json")
	return made.UID, err
}

// Exchange exchanges a token of a platform for a token of the server.
func (c *Client) Exchange(ctx context.Context, offered Credential) (string, error) {
	var got struct{ Token string }
	err := c.DoJSON(ctx, http.MethodPost, "/sts/exchange", strings.NewReader(offered.Form), &got,
		"Authorization", "Bearer "+offered.Bearer, "Content-Type", "application/x-www-form-urlencoded")
	return got.Token, err
}

// CreateFolders creates groups directly under the organization. Their number is CreatedFolders.
func (c *Client) CreateFolders(ctx context.Context, org resource.UID) (folders []resource.UID) {
	for i := range CreatedFolders {
		uid := Must(c.Post(ctx, "/iam/v2beta1/groups/"+string(org), fmt.Sprintf(`{"name": "f%d"}`, i)))
		folders = append(folders, resource.UID(uid))
	}
	return folders
}

// A Credential is a token of a platform, with the form to send when it is exchanged.
type Credential struct{ Bearer, Form string }

// CreatedFolders is the number of folders that CreateFolders creates.
const CreatedFolders = 100
