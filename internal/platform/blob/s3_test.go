package blob_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/blob/blobtest"
)

// TestS3Keys checks the keys of files. They are the same as in the versions that used the storage driver of the
// distribution registry, so objects need not be moved.
func TestS3Keys(t *testing.T) {
	server := blobtest.Start(t)
	const path = "/blobs/0a/0a1b2c3d-1111-4222-8333-444455556666"
	for prefix, key := range map[string]string{
		"":               path[1:],
		"registry":       "registry" + path,
		"registry/":      "registry" + path,
		"/registry":      "registry" + path,
		"some/where/":    "some/where" + path,
		"//some/where//": "some/where" + path,
	} {
		server.Prefix = prefix
		must(t, server.Storage(t).Put(t.Context(), path, strings.NewReader("of "+prefix)))
		got, err := os.ReadFile(filepath.Join(server.Folder, key))
		if err != nil || string(got) != "of "+prefix {
			t.Errorf("prefix %q: %q, %v", prefix, got, err)
		}
	}
}

// raw returns a client of a server, for requests that a Storage cannot make.
func raw(t *testing.T, s blobtest.Server) minio.Core {
	t.Helper()
	c, err := minio.NewCore(strings.TrimPrefix(s.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Region: s.Region, BucketLookup: minio.BucketLookupPath,
	})
	must(t, err)
	return *c
}

// TestS3OtherParts checks that uploads whose parts have other sizes than ours can be resumed, unless the sum of
// the sizes differs from the size in the database.
func TestS3OtherParts(t *testing.T) {
	server := blobtest.Start(t)
	core, s := raw(t, server), server.Storage(t)
	const path, key = "/blobs/0a/0a1b", "registry/blobs/0a/0a1b"
	for name, parts := range map[string][]int{
		"small":           {10},
		"one part":        {10 * mib},
		"several parts":   {10 * mib, 10 * mib, 6 * mib},
		"a small last":    {10 * mib, 3},
		"after a restart": {13 * mib, 5 * mib}, // the first part is a copy
	} {
		size := sum(parts)
		content := random(size + 10)
		id, err := core.NewMultipartUpload(t.Context(), "blobs", key, minio.PutObjectOptions{})
		must(t, err)
		at := 0
		for i, n := range parts {
			_, err := core.PutObjectPart(t.Context(), "blobs", key, id, i+1, bytes.NewReader(content[at:at+n]), int64(n),
				minio.PutObjectPartOptions{})
			must(t, err)
			at += n
		}
		if _, err := s.Resume(t.Context(), path, int64(size-1)); !blob.Missing(err) {
			t.Errorf("%s: resumed where it is not: %v", name, err)
		}
		w, err := s.Resume(t.Context(), path, int64(size))
		must(t, err)
		_, err = w.Write(content[size:])
		must(t, err)
		must(t, w.Commit(t.Context()))
		wantFile(t, s, path, content)
		must(t, s.Discard(t.Context(), path))
		wantNothing(t, s)
	}
}

// TestS3Pages checks operations on more files and uploads than the service returns in one response. It also aborts
// the uploads that several killed servers have left for one file.
func TestS3Pages(t *testing.T) {
	const files = 2100
	server := blobtest.Start(t)
	s := server.Storage(t)
	for i := range files {
		name := filepath.Join(server.Folder, "registry", "blobs", fmt.Sprintf("%02x", i%256), fmt.Sprint(i))
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte("x"), 0o600))
	}
	found := map[string]bool{}
	must(t, s.Walk(t.Context(), "/blobs", func(f blob.File) error { found[f.Path] = true; return nil }))
	names, err := s.Names(t.Context(), "/blobs")
	if len(found) != files || len(names) != 256 || err != nil {
		t.Errorf("found %d files, %d folders, %v", len(found), len(names), err)
	}
	must(t, s.RemoveAll(t.Context(), "/blobs/07"))
	if names, err := s.Names(t.Context(), "/blobs/07"); len(names) != 0 || err != nil {
		t.Errorf("%d names are left, %v", len(names), err)
	}
}

// TestS3Faults checks that a file is stored and read although the service is slow, breaks
// connections and loses responses.
func TestS3Faults(t *testing.T) {
	server := blobtest.Start(t)
	const slowDown = `<?xml version="1.0"?>
		<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>`
	var n atomic.Int64
	tests := map[string]func(w http.ResponseWriter, r *http.Request, forward http.Handler){
		"every other request is too much": func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
			if n.Add(1)%2 == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, slowDown)
				return
			}
			forward.ServeHTTP(w, r)
		},
		"the answer to each first request is lost": lossy(),
		"each file breaks off in the middle": func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
			if r.Method != http.MethodGet || r.URL.RawQuery != "" || n.Add(1)%2 == 0 {
				forward.ServeHTTP(w, r)
				return
			}
			cut := &cutWriter{ResponseWriter: w, left: 100_000}
			forward.ServeHTTP(cut, r)
		},
	}
	for name, meddle := range tests {
		t.Run(name, func(t *testing.T) {
			s := server.Behind(t, meddle).Storage(t)
			for _, size := range []int{10, 9 * mib, 17 * mib} {
				path := fmt.Sprintf("/blobs/aa/%d", size)
				must(t, s.Put(t.Context(), path, bytes.NewReader(random(size))))
				f, err := blob.OpenSeeker(t.Context(), s, path, int64(size))
				must(t, err)
				got, err := io.ReadAll(f)
				if err != nil || !bytes.Equal(got, random(size)) {
					t.Errorf("%d of %d bytes, %v", len(got), size, err)
				}
				must(t, f.Close())
				must(t, s.Discard(t.Context(), path))
			}
			wantNothing(t, server.Storage(t))
		})
	}
}

// lossy returns a handler for Behind that forwards each request, but answers it with an error the
// first time.
func lossy() func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	var seen sync.Map
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		_, again := seen.LoadOrStore(r.Method+r.URL.String(), true)
		if again && r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			// Amazon answers like this. The server in this test would say that the upload was
			// completed already.
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w,
				`<?xml version="1.0"?><Error><Code>NoSuchUpload</Code><Message>It has ended.</Message></Error>`)
			return
		}
		if again || r.Method == http.MethodGet {
			forward.ServeHTTP(w, r)
			return
		}
		forward.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusBadGateway)
	}
}

// A cutWriter breaks a connection after some bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(b)
}

// TestS3Mistakes checks the error messages that an operator gets for a wrong configuration.
func TestS3Mistakes(t *testing.T) {
	server := blobtest.Start(t)
	must(t, server.Storage(t).Put(t.Context(), "/blobs/a", strings.NewReader("a")))
	late := func(r *http.Request) {
		old := time.Now().Add(-time.Hour).UTC().Format("20060102T150405Z")
		r.Header.Set("X-Amz-Date", old)
	}
	tests := map[string]struct {
		change func(*blob.Bucket)
		want   string
	}{
		"another region":    {func(b *blob.Bucket) { b.Region = "eu-west-1" }, "(s3_region)"},
		"another bucket":    {func(b *blob.Bucket) { b.Name = "other" }, "there is no bucket other"},
		"a wrong secret":    {func(b *blob.Bucket) { b.SecretKey = "wrong" }, "SignatureDoesNotMatch"},
		"an unknown key":    {func(b *blob.Bucket) { b.AccessKey = "nobody" }, "access key ID"},
		"a clock that lags": {func(b *blob.Bucket) { b.Transport = changed{late} }, "too far apart"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := server.Bucket
			tt.change(&b)
			s, err := blob.NewS3(b)
			must(t, err)
			_, open := s.Open(t.Context(), "/blobs/a")
			_, names := s.Names(t.Context(), "/blobs")
			n, size := s.Size(t.Context(), "/blobs/a")
			if n == -1 { // a 404 without a body can mean that there is no bucket, or that there is no such key
				size = names
			}
			for operation, err := range map[string]error{
				"open": open, "names": names, "size": size, "put": s.Put(t.Context(), "/blobs/b", strings.NewReader("b")),
			} {
				if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "testsecret") {
					t.Errorf("%s: %v; want %s", operation, err, tt.want)
				}
				if blob.Missing(err) {
					t.Errorf("%s: it is said to be missing: %v", operation, err)
				}
			}
		})
	}
	server.Endpoint += "/path"
	if _, err := blob.NewS3(server.Bucket); err == nil {
		t.Error("an endpoint with a path was accepted")
	}
}

// changed is a RoundTripper that changes requests after they were signed.
type changed struct{ change func(*http.Request) }

func (c changed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	c.change(r)
	return http.DefaultTransport.RoundTrip(r)
}

// TestS3Address checks that a file can be read without credentials at the address that Address
// returns.
func TestS3Address(t *testing.T) {
	server := blobtest.Start(t)
	s := server.Storage(t)
	must(t, s.Put(t.Context(), "/blobs/a", strings.NewReader("content")))
	address, err := s.Address(t.Context(), "/blobs/a")
	must(t, err)
	get := func(address string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		must(t, err)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(b)
	}
	if status, body := get(address); status != http.StatusOK || body != "content" {
		t.Errorf("the address answers %d %s", status, body)
	}
	if status, _ := get(strings.Replace(address, "/blobs/a", "/blobs/b", 1)); status != http.StatusForbidden {
		t.Errorf("the address of another file answers %d", status)
	}
	if address, err := blob.NewFolder(t.TempDir()).Address(t.Context(), "/blobs/a"); address != "" || err != nil {
		t.Errorf("a folder has the address %s, %v", address, err)
	}
}

// TestS3Credentials checks that credentials are found in the places that the documentation lists.
func TestS3Credentials(t *testing.T) {
	server := blobtest.Start(t)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	access, secret := server.AccessKey, server.SecretKey
	server.AccessKey, server.SecretKey = "", ""
	works := func(t *testing.T) {
		t.Helper()
		must(t, server.Storage(t).Put(t.Context(), "/blobs/a", strings.NewReader(t.Name())))
		wantFile(t, server.Storage(t), "/blobs/a", []byte(t.Name()))
	}
	t.Run("the environment", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", access)
		t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
		works(t)
	})
	t.Run("a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "credentials")
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", access, secret)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
		works(t)
	})
	t.Run("the container", func(t *testing.T) {
		agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "the pod's token" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q,"Token":"","Expiration":%q}`, access, secret,
				time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}))
		defer agent.Close()
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL)
		t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "the pod's token")
		works(t)
	})
}
