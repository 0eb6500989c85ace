package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server/listen"
)

// A sendingListener counts the bytes of files that its connections send. The connections
// are TCP connections, so the kernel sends the files.
type sendingListener struct {
	net.Listener
	sent atomic.Int64
}

func (l *sendingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sendingConn{conn.(*net.TCPConn), l}, nil
}

type sendingConn struct {
	*net.TCPConn
	listener *sendingListener
}

func (c *sendingConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	if limited, ok := r.(*io.LimitedReader); ok {
		if _, ok := limited.R.(*os.File); ok {
			c.listener.sent.Add(n)
		}
	}
	return n, err
}

// TestKernelSendsBlobs pulls a whole blob and a range of it, and checks that the kernel
// sends the bytes without copying them to the memory of the server.
func TestKernelSendsBlobs(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := New(ctx, Config{Listen: "127.0.0.1:0", DataDir: dir, Dev: true, Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	limited := s.listener.(*listen.LimitListener)
	counted := &sendingListener{Listener: limited.Listener}
	limited.Listener = counted
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	text, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dev struct{ RegistryToken string }
	if err := json.Unmarshal(text, &dev); err != nil {
		t.Fatal(err)
	}
	send := func(method, path string, body io.Reader, span string) (int, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+path, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+dev.RegistryToken)
		if span != "" {
			req.Header.Set("Range", span)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, b
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	if status, b := send("POST", "/v2/dev/app/blobs/uploads/?digest="+digest, bytes.NewReader(content),
		""); status != http.StatusCreated {
		t.Fatalf("pushing: %d %s", status, b)
	}
	for span, want := range map[string][]byte{"": content, "bytes=100000-": content[100000:]} {
		before := counted.sent.Load()
		status, got := send("GET", "/v2/dev/app/blobs/"+digest, nil, span)
		if status >= 300 || !bytes.Equal(got, want) {
			t.Errorf("range %q: %d, %d bytes", span, status, len(got))
		}
		// net/http sends the first bytes with the header, because it detects the content
		// type from them.
		if sent := counted.sent.Load() - before; sent < int64(len(want))-(64<<10) {
			t.Errorf("range %q: the kernel has sent %d of %d bytes", span, sent, len(want))
		}
	}
}
