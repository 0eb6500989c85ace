package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
)

const (
	// The issuer in tokens does not depend on the port, so that the owner of a kept
	// dataset stays its owner.
	baseURL = "http://holdfast.test"

	encryptionKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" // datasets have no secrets
)

// A service is a server in dev mode, in this process.
type service struct {
	*client
	org  resource.UID
	stop func() error
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
	c := newClient("http://"+srv.Addr().String(), dev.Token)
	return &service{c, dev.Organization, func() error {
		c.close()
		cancel()
		return <-done
	}}
}

// devInfo is the dev.json of a server in dev mode.
type devInfo struct {
	Token, RegistryToken, RefreshToken string
	Organization                       resource.UID `json:"organizationUid"`
	OwnerEmail, OwnerPassword          string
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
