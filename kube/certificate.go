package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkEvery is how often the files of a certificate are looked at.
const checkEvery = 10 * time.Second

// A certificate is read again when its files change. cert-manager replaces the files in a running pod.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time // modification time of the loaded file
	checked time.Time
}

// get returns the current certificate. If the new files cannot be read, it returns the previous one.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && time.Since(c.checked) < checkEvery {
		return c.loaded, nil
	}
	c.checked = time.Now()
	info, err := os.Stat(c.certFile)
	if err == nil && c.loaded != nil && info.ModTime().Equal(c.changed) {
		return c.loaded, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile)
	}
	if err != nil {
		if c.loaded == nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		c.log.Error("the new certificate cannot be read; the previous one is used", "error", err.Error())
		return c.loaded, nil
	}
	c.loaded, c.changed = &pair, info.ModTime()
	return c.loaded, nil
}
