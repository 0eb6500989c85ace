package fetch_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/fetch"
)

const record = `{"id": "A-1", "modified": "2024-01-01T00:00:00Z"}`

// serve starts an https server. It returns the address of the server, and a Fetcher that trusts it.
func serve(t *testing.T, c fetch.Config, h http.HandlerFunc) (string, *fetch.Fetcher) {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	c.Client = outbound.Client(outbound.Config{Loopback: true, CAs: pool, Timeout: time.Minute})
	c.Dir = t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(c.Dir); err != nil || len(left) > 0 {
			t.Errorf("left in the folder for downloads: %v, %v", left, err)
		}
	})
	return srv.URL + "/all.json", fetch.New(c)
}

// ids reads the records of a Result, and closes it.
func ids(t *testing.T, r fetch.Result) string {
	t.Helper()
	var found []string
	for rec := range r.Records {
		if rec.Err != nil {
			t.Errorf("%s %v", rec.Name, rec.Err)
		}
		found = append(found, rec.Advisory.ID)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return strings.Join(found, " ")
}

func TestConditions(t *testing.T) {
	tests := map[string]struct {
		answer http.HandlerFunc
		sent   int32 // number of responses that contained the content
	}{
		"an entity tag": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"one"`)
			if r.Header.Get("If-None-Match") == `"one"` {
				w.WriteHeader(http.StatusNotModified)
			}
		}, 1},
		"a time": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
			if r.Header.Get("If-Modified-Since") == "Mon, 01 Jan 2024 00:00:00 GMT" {
				w.WriteHeader(http.StatusNotModified)
			}
		}, 1},
		"neither": {func(http.ResponseWriter, *http.Request) {}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int32
			address, f := serve(t, fetch.Config{}, func(w http.ResponseWriter, r *http.Request) {
				answer := httptest.NewRecorder()
				tt.answer(answer, r)
				for k, v := range answer.Header() {
					w.Header()[k] = v
				}
				if answer.Code == http.StatusNotModified {
					w.WriteHeader(answer.Code)
					return
				}
				sent.Add(1)
				fmt.Fprint(w, record)
			})
			first, err := f.Fetch(t.Context(), address, nil)
			if err != nil || !first.Changed || first.Size != int64(len(record)) {
				t.Fatalf("the first time: changed %v, %d bytes, %v", first.Changed, first.Size, err)
			}
			if got := ids(t, first); got != "A-1" {
				t.Errorf("records: %s", got)
			}
			second, err := f.Fetch(t.Context(), address, first.State)
			if err != nil || second.Changed || ids(t, second) != "" || sent.Load() != tt.sent {
				t.Errorf("the second time: changed %v, sent %d times, %v", second.Changed, sent.Load(), err)
			}
			third, err := f.Fetch(t.Context(), address, second.State)
			if err != nil || third.Changed || string(third.State) != string(first.State) {
				t.Errorf("the third time: changed %v, %s, %v", third.Changed, third.State, err)
			}
			moved, err := f.Fetch(t.Context(), address+"?other", first.State)
			if err != nil || !moved.Changed || ids(t, moved) != "A-1" {
				t.Errorf("another address, the same state: changed %v, %v", moved.Changed, err)
			}
		})
	}
}

func TestNotModifiedOutOfTheBlue(t *testing.T) {
	address, f := serve(t, fetch.Config{},
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	if _, err := f.Fetch(t.Context(), address, nil); err == nil {
		t.Error("no error, although nothing was ever fetched")
	}
}

func TestStateStaysSmall(t *testing.T) {
	address, f := serve(t, fetch.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", strings.Repeat("x", 10_000))
		w.Header().Set("Last-Modified", strings.Repeat("x", 10_000))
		fmt.Fprint(w, record)
	})
	r, err := f.Fetch(t.Context(), address, nil)
	if err != nil || len(r.State) > 1000 {
		t.Fatalf("a state of %d bytes, %v", len(r.State), err)
	}
	ids(t, r)
}

func TestChecksums(t *testing.T) {
	sum := sha256.Sum256([]byte(record))
	good := base64.StdEncoding.EncodeToString(sum[:])
	tests := map[string]struct {
		header, value string
		ok            bool
	}{
		"of RFC 9530":            {"Repr-Digest", "sha-256=:" + good + ":", true},
		"of RFC 9530, another":   {"Content-Digest", "sha-256=:AAAA:", false},
		"of RFC 3230":            {"Digest", "SHA-256=" + good, true},
		"of RFC 3230, another":   {"Digest", "SHA-256=AAAA", false},
		"of a store":             {"X-Goog-Hash", "crc32c=AAAAAA==,md5=hJqf2Q1AkhMcqsKSFBlsoA==", false},
		"of two headers":         {"Digest", "sha-256=" + good + ", SHA-256=" + good, true},
		"two that differ":        {"Digest", "sha-256=" + good + ", SHA-256=AAAA", false},
		"one we do not know":     {"Digest", "unixsum=7", true},
		"one that is not base64": {"Repr-Digest", "sha-256=:?:", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			address, f := serve(t, fetch.Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(tt.header, tt.value)
				fmt.Fprint(w, record)
			})
			r, err := f.Fetch(t.Context(), address, nil)
			if tt.ok != (err == nil) {
				t.Fatalf("error = %v", err)
			}
			if err == nil {
				ids(t, r)
			}
		})
	}
}

func TestServersThatMisbehave(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	tests := map[string]struct {
		answer http.HandlerFunc
		reason string
	}{
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.org/", http.StatusFound)
		}, "redirects are not followed"},
		"has nothing": {http.NotFound, "the server answered 404 Not Found"},
		"is broken": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
			"502 Bad Gateway"},
		"answers in part": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) },
			"206 Partial Content"},
		"says it is long": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "2000") },
			"the answer is too long"},
		"is long": {func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				fmt.Fprint(w, strings.Repeat(" ", 1000))
			}
		}, "the answer is too long"},
		"says it is longer than it is": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "900")
			fmt.Fprint(w, record)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "the response is incomplete"},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hangs:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler) // returning would send a response with status 200
		}, "no answer in time"},
		"hangs in the middle": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-hangs:
			case <-r.Context().Done():
			}
		}, "the response took too long"},
		"stalls before its answer": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hangs:
			case <-r.Context().Done():
			}
		}, "the server sends no data, or sends too slowly"},
		"stalls": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-hangs:
			case <-r.Context().Done():
			}
		}, "the server sends no data, or sends too slowly"},
		"stalls by a byte now and then": {func(w http.ResponseWriter, r *http.Request) {
			for tick := time.NewTicker(10 * time.Millisecond); ; {
				if _, err := fmt.Fprint(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
				select {
				case <-hangs:
				case <-r.Context().Done():
					return
				case <-tick.C:
				}
			}
		}, "the server sends no data, or sends too slowly"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var followed atomic.Bool
			timeout, stall := time.Minute, time.Minute
			if strings.HasPrefix(name, "hangs") {
				timeout = 3 * time.Second // long enough for the start of the response to arrive on a slow machine
			}
			if strings.HasPrefix(name, "stalls") {
				stall = 200 * time.Millisecond
			}
			address, f := serve(t, fetch.Config{MaxBytes: 1000, Timeout: timeout, Stall: stall},
				func(w http.ResponseWriter, r *http.Request) {
					followed.Store(r.URL.Path != "/all.json")
					tt.answer(w, r)
				})
			if _, err := f.Fetch(t.Context(), address, nil); err == nil || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("error = %v, want %q", err, tt.reason)
			}
			if followed.Load() {
				t.Error("the redirect was followed")
			}
		})
	}
}

// TestLongDownload checks that a download may take longer than Config.Stall if data keeps arriving.
func TestLongDownload(t *testing.T) {
	t.Parallel()
	const stall, parts = 5 * time.Second, 15 // long enough that a slow machine does not cause a stall
	address, f := serve(t, fetch.Config{Stall: stall}, func(w http.ResponseWriter, _ *http.Request) {
		for range parts {
			fmt.Fprint(w, strings.Repeat(" ", 64<<10))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(stall / 10) // the test measures real time
		}
		fmt.Fprint(w, record)
	})
	start := time.Now()
	r, err := f.Fetch(t.Context(), address, nil)
	if err != nil || time.Since(start) < stall {
		t.Fatalf("after %s: %v", time.Since(start), err)
	}
	ids(t, r)
}

func TestPrivateAddressesAreNotReached(t *testing.T) {
	reached := make(chan struct{}, 1)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if c, err := listener.Accept(); err == nil {
			reached <- struct{}{}
			_ = c.Close()
		}
	}()
	f := fetch.New(fetch.Config{Client: outbound.Client(outbound.Config{}), Dir: t.TempDir()})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254"} {
		if _, err := f.Fetch(t.Context(), "https://"+net.JoinHostPort(strings.Trim(host, "[]"), port)+"/",
			nil); err == nil || !strings.Contains(err.Error(), "not public") {
			t.Errorf("%s: %v", host, err)
		}
	}
	select {
	case <-reached:
		t.Error("a connection was made")
	default:
	}
}

// TestNoPlaceToKeep checks that the error for a failed download does not contain a path of the server.
func TestNoPlaceToKeep(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, record) }))
	defer srv.Close()
	f := fetch.New(fetch.Config{Client: outbound.Client(outbound.Config{Loopback: true}),
		Dir: filepath.Join(t.TempDir(), "missing")})
	_, err := f.Fetch(t.Context(), srv.URL+"/all.json", nil)
	if err == nil || strings.Contains(err.Error(), "missing") || !errors.Is(err, fault.Internal) {
		t.Errorf("error = %v", err)
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("feeds/one/a.json", record)
	put("secret.json", record)
	for link, to := range map[string]string{"feeds/out.json": filepath.Join(dir, "secret.json"), "feeds/up": ".."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f := fetch.New(fetch.Config{Folders: []string{filepath.Join(dir, "feeds")}})
	for _, name := range []string{"feeds/one", "feeds/one/a.json", "feeds/one/../one/"} {
		address := dir + "/" + name
		first, err := f.Fetch(t.Context(), address, nil)
		if err != nil || !first.Changed || ids(t, first) != "A-1" {
			t.Fatalf("%s: changed %v, %v", name, first.Changed, err)
		}
		put("feeds/one/.git/"+strings.ReplaceAll(name, "/", "_"), "not a part of the feed")
		put("feeds/one/.lock", name)
		second, err := f.Fetch(t.Context(), address, first.State)
		if err != nil || second.Changed || ids(t, second) != "" {
			t.Errorf("%s, again: changed %v, %v", name, second.Changed, err)
		}
		put("feeds/one/a.json", record+"\n"+strings.Repeat(" ", len(name)))
		third, err := f.Fetch(t.Context(), address, second.State)
		if err != nil || !third.Changed || ids(t, third) != "A-1" {
			t.Errorf("%s, changed: changed %v, %v", name, third.Changed, err)
		}
		put("feeds/one/a.json", record)
	}
	for name, reason := range map[string]string{
		"feeds/none":           "there is no such folder or file",
		"feeds/out.json":       "is a link that leaves the folder",
		"feeds/up/secret.json": "is a link that leaves the folder",
		"secret.json":          "is not in a folder that the operator allows",
		"feeds/../secret.json": "is not in a folder that the operator allows",
		"feedstuff":            "is not in a folder that the operator allows",
	} {
		if r, err := f.Fetch(t.Context(), dir+"/"+name, nil); err == nil || !strings.Contains(err.Error(), reason) ||
			strings.Contains(err.Error(), dir) {
			t.Errorf("%s: changed %v, %v, want %q", name, r.Changed, err, reason)
		}
	}
}

func TestCheck(t *testing.T) {
	f := fetch.New(fetch.Config{Folders: []string{"/feeds"}})
	for address, ok := range map[string]bool{
		"https://example.org/all.zip": true, "https://example.org:8443/a?b=c": true, "http://127.0.0.1:8080/a": true,
		"/feeds": true, "/feeds/a": true,
		"http://example.org/all.zip": false, "ftp://example.org/a": false, "https://": false,
		"https://user:pass@example.org/": false,
		"https://example.org/#a":         false, "": false, "feeds": false, "../feeds": false, "file:///feeds": false,
		"/etc/passwd":   false,
		"/feeds/../etc": false, "https://exa mple.org": false, "https://example.org/\x00": false,
	} {
		if err := f.Check(address); ok != (err == nil) || err != nil && !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("Check(%q) = %v", address, err)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address, f := serve(t, fetch.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := f.Fetch(ctx, address, nil); err == nil {
		t.Error("no error")
	}
}
