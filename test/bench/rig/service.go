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

// The settings that all servers share.
const (
	// BaseURL is the issuer in the servers' tokens. It does not contain the port, so that the same person stays the
	// owner of a dataset that is used in several runs.
	BaseURL = "http://holdfast.test"

	EncryptionKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" // not secret, because datasets contain no secrets
)

// A Service is a server in dev mode, in this process.
type Service struct {
	*Client
	Org  resource.UID
	Stop func() error
}

// Serve starts a server with default settings on the database at url. The server runs until the measurement ends. Its
// log is formatted and then discarded.
func (m *Measurement) Serve(ctx context.Context, url string) *Service {
	s := m.StartService(ctx, url)
	m.AtEnd(s.Stop)
	return s
}

// StartService is like Serve, but the caller must stop the server.
func (b *Bench) StartService(ctx context.Context, url string) *Service {
	folder := b.DataFolder()
	ctx, cancel := context.WithCancel(ctx)
	srv, err := server.New(ctx, server.Config{
		Listen: "127.0.0.1:0", BaseURL: BaseURL, DataDir: folder, Database: url, Dev: true,
		MaxGroups: 1 << 40, MaxBindings: 1 << 40, // the datasets are larger than the defaults
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

// DevInfo is the content of the file dev.json that a server in dev mode writes.
type DevInfo struct {
	Token, RegistryToken, RefreshToken string
	Organization                       resource.UID `json:"organizationUid"`
	OwnerEmail, OwnerPassword          string
}

func readDev(folder string) (d DevInfo) {
	Check(json.Unmarshal(Must(os.ReadFile(filepath.Join(folder, "dev.json"))), &d))
	return d
}

// listen listens on a free local port.
func listen(ctx context.Context) net.Listener {
	return Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
}

// ServeHandler serves h on a free local port until the measurement ends. It returns the address.
func (m *Measurement) ServeHandler(ctx context.Context, h http.Handler) (address string) {
	l := listen(ctx)
	srv := &http.Server{Handler: h}
	m.AtEnd(srv.Close)
	go func() { _ = srv.Serve(l) }() // Serve returns when AtEnd calls Close
	return "http://" + l.Addr().String()
}
