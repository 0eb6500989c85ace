package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/server"
)

const (
	// The issuer in tokens does not depend on the port, so that the owner of a kept
	// dataset stays its owner.
	baseURL = "http://holdfast.test"

	encryptionKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" // datasets have no secrets
)

// A service is a server in dev mode, in this process.
type service struct {
	addr  string
	org   resource.UID
	token string
	stop  func() error
}

// serve starts a server with default settings on the database at url, for as long as the
// measurement takes. It formats its log, and discards it.
func (m *measurement) serve(ctx context.Context, url string) *service {
	s := m.startService(ctx, url)
	m.atEnd(s.stop)
	return s
}

// startService is like serve, for a server that the caller stops.
func (b *bench) startService(ctx context.Context, url string) *service {
	folder := b.dataFolder()
	ctx, cancel := context.WithCancel(ctx)
	srv, err := server.New(ctx, server.Config{
		Listen: "127.0.0.1:0", BaseURL: baseURL, DataDir: folder, Database: url, Dev: true,
		EncryptionKey: encryptionKey, Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil {
		cancel()
		check(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	dev := readDev(folder)
	stop := func() error {
		cancel()
		return <-done
	}
	return &service{srv.Addr().String(), dev.Organization, dev.Token, stop}
}

// devInfo is the dev.json of a server in dev mode.
type devInfo struct {
	Token, RegistryToken, RefreshToken string
	Organization                       resource.UID `json:"organizationUid"`
}

func readDev(folder string) (d devInfo) {
	check(json.Unmarshal(must(os.ReadFile(filepath.Join(folder, "dev.json"))), &d))
	return d
}

// listen listens on a free port of this machine.
func listen(ctx context.Context) net.Listener {
	return must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
}

// serveHTTP serves on a free port of this machine until the measurement ends.
func (m *measurement) serveHTTP(ctx context.Context, h http.Handler) (address string) {
	l := listen(ctx)
	srv := &http.Server{Handler: h}
	m.atEnd(srv.Close)
	go func() { _ = srv.Serve(l) }() // ends with Close
	return "http://" + l.Addr().String()
}

// A client is an HTTP client that keeps its connections.
type client struct {
	http  *http.Client
	token string
}

func newClient(token string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}
	return &client{&http.Client{Transport: transport}, token}
}

// do sends a request and reads the response. It returns an error for any status except
// 200.
func (c *client) do(ctx context.Context, method, url, body string) (http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, content)
	}
	return resp.Header, content, err
}

func (c *client) close() { c.http.CloseIdleConnections() }
