package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/server"
)

const (
	// The address in the tokens does not change with the port, so that the
	// owner of a kept dataset stays its owner.
	baseURL = "http://holdfast.test"

	// The datasets hold no secret.
	encryptionKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
)

// A service is a server in dev mode, in this process, and what a client needs
// to use it.
type service struct {
	addr  string
	org   resource.UID
	token string
	stop  func() error
}

// serve starts a server on the database at url, with the settings it has by
// itself. Its log goes nowhere, but is written.
func (b *bench) serve(ctx context.Context, url string) (*service, error) {
	folder, err := b.dataFolder()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	srv, err := server.New(ctx, server.Config{
		Listen: "127.0.0.1:0", BaseURL: baseURL, DataDir: folder, Database: url, Dev: true,
		EncryptionKey: encryptionKey, Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	s := &service{addr: srv.Addr().String()}
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	s.stop = func() error {
		cancel()
		return <-done
	}
	if err := s.introduce(filepath.Join(folder, "dev.json")); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// introduce reads what dev mode says about itself.
func (s *service) introduce(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var dev struct {
		Organization resource.UID `json:"organizationUid"`
		Token        string       `json:"token"`
	}
	err = json.Unmarshal(b, &dev)
	s.org, s.token = dev.Organization, dev.Token
	return err
}

// A client is a web client that keeps its connections.
type client struct {
	http  *http.Client
	token string
}

func newClient(token string) *client {
	return &client{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}}, token}
}

// do sends a request and returns its answer, which it has read to the end. It
// fails on any status but 200.
func (c *client) do(ctx context.Context, method, url, body string) (http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, content)
	}
	return answer.Header, content, err
}

func (c *client) close() { c.http.CloseIdleConnections() }
