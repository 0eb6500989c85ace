package listen

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// A Certificate is a pair of files that is read again when it changes, so that
// a renewal needs no restart.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	states [2]fileState // of the files when they were last read
}

// A fileState identifies a version of a file.
type fileState struct {
	time time.Time
	size int64
}

// WithTLS wraps l if the settings name a certificate.
func WithTLS(l net.Listener, certFile, keyFile string, log *slog.Logger) (net.Listener, *Certificate, error) {
	if certFile == "" {
		return l, nil, nil
	}
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.refresh(); err != nil {
		return nil, nil, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: c.get,
	}), c, nil
}

// Expiry returns when the certificate expires that is in use.
func (c *Certificate) Expiry() time.Time {
	pair, _ := c.get(nil) // never fails
	return pair.Leaf.NotAfter
}

// get returns the newest pair that could be read: an incomplete renewal leaves
// the old one in use.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(); err != nil {
		c.log.Error("the new certificate cannot be used; the old one stays", "err", err)
	}
	return c.pair, nil
}

// refresh reads the files if they have changed since the last attempt.
func (c *Certificate) refresh() error {
	var now [2]fileState
	for i, path := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
		now[i] = fileState{info.ModTime(), info.Size()}
	}
	if now == c.states {
		return nil
	}
	c.states = now
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", c.certFile, err)
	}
	c.pair = &pair
	return nil
}
