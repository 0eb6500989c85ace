package rig

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

// The settings of all servers.
const (
	// BaseURL is the issuer in tokens. It does not depend on the port, so that the owner of a kept dataset stays its
	// owner.
	BaseURL = "http://holdfast.test"

	EncryptionKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" // datasets have no secrets
)

// A Service is a server in dev mode, in this process.
type Service struct {
	*Client
	Org  resource.UID
	Stop func() error
}

// Serve starts a server with default settings on the database at url. The server runs until the measurement ends. It
// formats its log, and discards it.
func (m *Measurement) Serve(ctx context.Context, url string) *Service {
	s := m.StartService(ctx, url)
	m.AtEnd(s.Stop)
	return s
}

// StartService is like Serve, but the caller stops the server.
func (b *Bench) StartService(ctx context.Context, url string) *Service {
	folder := b.DataFolder()
	ctx, cancel := context.WithCancel(ctx)
	srv, err := server.New(ctx, server.Config{
		Listen: "127.0.0.1:0", BaseURL: BaseURL, DataDir: folder, Database: url, Dev: true,
		EncryptionKey: EncryptionKey, Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil {
		cancel()
		Check(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	dev := readDev(folder)
	c := NewClient("http://"+srv.Addr().String(), dev.Token)
	return &Service{c, dev.Organization, func() error {
		c.Close()
		cancel()
		return <-done
	}}
}

// DevInfo is the content of the file dev.json of a server in dev mode.
type DevInfo struct {
	Token, RegistryToken, RefreshToken string
	Organization                       resource.UID `json:"organizationUid"`
	OwnerEmail, OwnerPassword          string
}

func readDev(folder string) (d DevInfo) {
	Check(json.Unmarshal(Must(os.ReadFile(filepath.Join(folder, "dev.json"))), &d))
	return d
}

// listen listens on a free port of this machine.
func listen(ctx context.Context) net.Listener {
	return Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
}

// ServeHandler serves on a free port of this machine until the measurement ends.
func (m *Measurement) ServeHandler(ctx context.Context, h http.Handler) (address string) {
	l := listen(ctx)
	srv := &http.Server{Handler: h}
	m.AtEnd(srv.Close)
	go func() { _ = srv.Serve(l) }() // ends with Close
	return "http://" + l.Addr().String()
}
