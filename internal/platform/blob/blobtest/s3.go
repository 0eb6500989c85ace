// Package blobtest runs an S3 server for tests.
package blobtest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// A Server is an S3 server with one bucket.
type Server struct {
	blob.Bucket
	Folder string // the folder that contains the objects of the bucket as files
}

// Start runs an S3 server with an empty bucket until the test ends.
func Start(t testing.TB) Server {
	t.Helper()
	binary := testprogram.Path(t, "versitygw")
	root, side := t.TempDir(), t.TempDir()
	s := Server{Folder: filepath.Join(root, "blobs")}
	if err := os.Mkdir(s.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	free, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	s.Bucket = blob.Bucket{
		Name: "blobs", Region: "us-east-1", Endpoint: "http://" + address, Prefix: "registry",
		AccessKey: "test", SecretKey: "testsecret",
	}
	cmd := exec.CommandContext(t.Context(), binary, "--port", address, "--access", s.AccessKey, "--secret", s.SecretKey,
		"--region", s.Region, "--quiet", "posix", "--sidecar", side, root)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for until := time.Now().Add(time.Minute); ; {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", address)
		if err == nil {
			conn.Close()
			return s
		}
		if time.Now().After(until) {
			t.Fatalf("the S3 server does not answer: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Storage returns a Storage in the bucket.
func (s Server) Storage(t testing.TB) *blob.S3 {
	t.Helper()
	storage, err := blob.NewS3(s.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	return storage
}

// Behind returns the server behind a proxy. For each request, the proxy calls meddle with a handler that forwards
// the request. If meddle does not call the handler, the server does not get the request.
func (s Server) Behind(t testing.TB, meddle func(w http.ResponseWriter, r *http.Request, forward http.Handler)) Server {
	t.Helper()
	to, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the signature covers the host
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { meddle(w, r, forward) }))
	t.Cleanup(proxy.Close)
	s.Endpoint = proxy.URL
	return s
}
