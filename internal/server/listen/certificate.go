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

// A Certificate is a certificate with its key. Both files are read again when the files
// change, so that a renewal needs no restart. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	states [2]fileState // versions of the certificate file and the key file that were read last
}

// A fileState identifies a version of a file.
type fileState struct {
	time time.Time
	size int64
}

// WithTLS returns a TLS listener over l, and its certificate. Without a certificate
// file it returns l and nil.
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

// Expiry returns the expiry time of the current certificate.
func (c *Certificate) Expiry() time.Time {
	pair, _ := c.get(nil) // never fails
	return pair.Leaf.NotAfter
}

// get returns the newest pair that could be read. After an incomplete renewal, it is the
// old pair.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(); err != nil {
		c.log.Error("cannot use the new certificate; the old one is still used", "err", err)
	}
	return c.pair, nil
}

// refresh reads the files if they have changed since the last attempt.
func (c *Certificate) refresh() error {
	var current [2]fileState
	for i, path := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
		current[i] = fileState{info.ModTime(), info.Size()}
	}
	if current == c.states {
		return nil
	}
	c.states = current
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", c.certFile, err)
	}
	c.pair = &pair
	return nil
}
