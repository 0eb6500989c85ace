package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

func start(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

const patience = 90 * time.Second // timeout for responses that the tests expect

// client returns a client with a long timeout, so that tests do not fail on a slow machine.
func client() *upstream.Client { return clientThatWaits(patience) }

// clientThatWaits returns a client with the given period in Config.Stall.
func clientThatWaits(stall time.Duration) *upstream.Client {
	return upstream.New(upstream.Config{Outbound: outbound.Config{Loopback: true, Timeout: patience}, Stall: stall})
}

func signIn(context.Context) (user, password string, err error) { return "robot", "secret", nil }

// TestSignIn checks that the password is sent only to the host of the registry and to the realm in the settings,
// and a token only to the registry.
func TestSignIn(t *testing.T) {
	var got []string // Authorization headers, with the server that got them
	note := func(who string, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			got = append(got, who+" "+scheme)
		}
	}
	realm := start(t, func(w http.ResponseWriter, r *http.Request) {
		note("realm", r)
		if r.URL.Path != "/token" {
			http.Redirect(w, r, "/token", http.StatusFound)
			return
		}
		fmt.Fprint(w, `{"token":"t","expires_in":600}`)
	})
	bucket := start(t, func(w http.ResponseWriter, r *http.Request) { note("bucket", r); fmt.Fprint(w, "blob") })
	path := "/token"
	registry := start(t, func(w http.ResponseWriter, r *http.Request) {
		note("registry", r)
		switch {
		case r.Header.Get("Authorization") != "Bearer t":
			w.Header().Set("Www-Authenticate", `Bearer realm="`+realm+path+`",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "/blobs/"):
			http.Redirect(w, r, bucket+"/x", http.StatusTemporaryRedirect)
		default:
			w.Header().Set("Docker-Content-Digest", "sha256:x")
		}
	})
	c := client()
	if _, err := c.Stat(t.Context(), upstream.Registry{Key: "a", Address: registry, SignIn: signIn}, "app",
		"v1"); !upstream.Refused(err) {
		t.Errorf("a realm that nobody named: %v", err)
	}
	if len(got) != 0 {
		t.Errorf("the password went to %v", got)
	}
	named := upstream.Registry{Key: "b", Address: registry, Realm: realm + "/token", SignIn: signIn}
	if m, err := c.Stat(t.Context(), named, "app", "v1"); err != nil || m.Digest != "sha256:x" {
		t.Errorf("%+v, %v", m, err)
	}
	b, err := c.Blob(t.Context(), named, "app", "sha256:x", 0)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if want := "[realm Basic registry Bearer registry Bearer]"; fmt.Sprint(got) != want {
		t.Errorf("credentials went to %v, want %s", got, want)
	}
	path, got = "/redirects", nil
	other := upstream.Registry{Key: "c", Address: registry, Realm: realm + "/redirects", SignIn: signIn}
	if _, err := c.Stat(t.Context(), other, "app", "v1"); err == nil || fmt.Sprint(got) != "[realm Basic]" {
		t.Errorf("a realm that redirects: %v, %v", got, err)
	}
}

// TestTokensAreKept checks that a token is used for all requests to one repo until it expires, and not for other
// repos or other settings.
func TestTokensAreKept(t *testing.T) {
	var tokens atomic.Int32
	var address string
	address = start(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			tokens.Add(1)
			fmt.Fprintf(w, `{"token":"t%d","expires_in":60}`, tokens.Load())
		case r.Header.Get("Authorization") == "":
			w.Header().Set("Www-Authenticate", `Bearer realm="`+address+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	now := time.Now()
	out := outbound.Config{Loopback: true, Timeout: patience}
	c := upstream.New(upstream.Config{Outbound: out, Now: func() time.Time { return now }})
	stat := func(key, repo string, want int32) {
		t.Helper()
		if _, err := c.Stat(t.Context(), upstream.Registry{Key: key, Address: address}, repo, "v1"); err != nil ||
			tokens.Load() != want {
			t.Errorf("%d tokens, want %d: %v", tokens.Load(), want, err)
		}
	}
	stat("a", "app", 1)
	stat("a", "app", 1)
	stat("a", "other", 2)
	stat("b", "app", 3)
	now = now.Add(55 * time.Second)
	stat("a", "app", 4)
}

// TestAnswers checks that the status and headers of a response become the right error: not found, refused, or limited
// with a pause.
func TestAnswers(t *testing.T) {
	answer := http.StatusOK
	var header [2]string
	address := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(header[0], header[1])
		w.WriteHeader(answer)
	})
	at := func(status int, name, value string) error {
		answer, header = status, [2]string{name, value}
		_, err := client().Stat(t.Context(), upstream.Registry{Address: address}, "app", "v1")
		return err
	}
	if err := at(http.StatusNotFound, "X", ""); !upstream.NotFound(err) {
		t.Error(err)
	}
	if err := at(http.StatusForbidden, "X", ""); !upstream.Refused(err) {
		t.Error(err)
	}
	for text, want := range map[string]time.Duration{
		"": time.Minute, "7": 7 * time.Second, "-1": time.Second, "99999": time.Hour, "soon": time.Minute,
	} {
		if wait, ok := upstream.Limited(at(http.StatusTooManyRequests, "Retry-After", text)); !ok || wait != want {
			t.Errorf("Retry-After %q: %s, %v", text, wait, ok)
		}
	}
	for _, status := range []int{
		http.StatusInternalServerError, http.StatusNoContent, http.StatusPartialContent, http.StatusTeapot,
	} {
		e, ok := errors.AsType[*upstream.Error](at(status, "X", ""))
		if !ok || e.Status != status {
			t.Errorf("status %d: %v", status, e)
		}
	}
	if err := at(http.StatusTemporaryRedirect, "Location", "http://u:p@127.0.0.1/"); err == nil {
		t.Error("a redirect with a password is followed")
	}
}

// TestPing checks that Ping names what keeps an address from being used, and that it sends credentials.
func TestPing(t *testing.T) {
	status, kind, challenge := http.StatusOK, "application/json", ""
	var sent string
	address := start(t, func(w http.ResponseWriter, r *http.Request) {
		if sent = r.Header.Get("Authorization"); sent != "" && challenge != "" {
			return
		}
		if r.URL.Path != "/v2/" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Www-Authenticate", challenge)
		w.WriteHeader(status)
	})
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, tt := range map[string]struct {
		status          int
		kind, challenge string
		address         string
		signIn          func(context.Context) (user, password string, err error)
		want            string // "" if the address can be used
	}{
		"a registry":            {http.StatusOK, "application/json", "", address, nil, ""},
		"a registry for one":    {http.StatusUnauthorized, "application/json", `Basic realm="r"`, address, signIn, ""},
		"without credentials":   {http.StatusUnauthorized, "", `Basic realm="r"`, address, nil, "it asks for credentials"},
		"a refusal":             {http.StatusForbidden, "", "", address, nil, "it refuses requests without credentials"},
		"refused credentials":   {http.StatusForbidden, "", "", address, signIn, "it refuses the credentials"},
		"a web page":            {http.StatusOK, "text/html; charset=utf-8", "", address, nil, "it is not a registry"},
		"a server without /v2/": {http.StatusNotFound, "", "", address, nil, "it is not a registry"},
		"a broken server":       {http.StatusBadGateway, "", "", address, nil, "it answers with status 502"},
		"no server":             {http.StatusOK, "", "", gone.URL, nil, "the host cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			status, kind, challenge = tt.status, tt.kind, tt.challenge
			err := client().Ping(t.Context(), upstream.Registry{Key: name, Address: tt.address, SignIn: tt.signIn})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			if tt.signIn != nil && tt.want == "" && !strings.HasPrefix(sent, "Basic ") {
				t.Errorf("sent %q", sent)
			}
		})
	}
}

// TestSlowBlob checks that reading a blob fails if the registry sends it too slowly.
func TestSlowBlob(t *testing.T) {
	address := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	})
	c := clientThatWaits(300 * time.Millisecond)
	b, err := c.Blob(t.Context(), upstream.Registry{Address: address}, "app", "sha256:x", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if n, err := io.Copy(io.Discard, b); err == nil {
		t.Errorf("%d bytes without an error", n)
	}
}

// TestAttackSlowBlob: a registry sends a blob just fast enough that the connection is never silent. The download fails.
// A blob that arrives at the least rate is read to its end.
func TestAttackSlowBlob(t *testing.T) {
	const stall, pieces, pause = 4 * time.Second, 120, 100 * time.Millisecond // the response takes 12 seconds
	for name, tt := range map[string]struct {
		piece int
		whole bool
	}{
		"slow": {2300, false},
		"fast": {16 << 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := start(t, func(w http.ResponseWriter, r *http.Request) {
				for range pieces {
					_, _ = w.Write(make([]byte, tt.piece)) // fails if the client has canceled the request
					w.(http.Flusher).Flush()
					time.Sleep(pause)
				}
			})
			b, err := clientThatWaits(stall).Blob(t.Context(), upstream.Registry{Key: "k", Address: address}, "app", "d", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if n, err := io.Copy(io.Discard, b); tt.whole != (err == nil) {
				t.Errorf("%d of %d bytes have arrived, %v", n, pieces*tt.piece, err)
			}
		})
	}
}

// TestAttackConnections: all connections to a registry are in use, because it sends a manifest that never ends. A push
// waits for a connection, but not forever.
func TestAttackConnections(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	address := start(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPost:
			w.Header().Set("Location", "/upload")
			w.WriteHeader(http.StatusAccepted)
		case http.MethodGet:
			w.(http.Flusher).Flush()
			close(seen)
			<-r.Context().Done()
		}
	})
	c := upstream.New(upstream.Config{
		Outbound: outbound.Config{Loopback: true, Timeout: 5 * time.Second, PerHost: 1}, Stall: time.Second,
	})
	at := upstream.Registry{Key: "k", Address: address}
	holding, free := context.WithCancel(t.Context())
	t.Cleanup(free)
	err := c.PushBlob(t.Context(), at, "app", "sha256:x", 3, "", func() (io.ReadCloser, error) {
		go func() { _, _ = c.Manifest(holding, at, "app", "v1") }() // before the upload asks for a connection
		<-seen
		return io.NopCloser(strings.NewReader("abc")), nil
	})
	if err == nil || !strings.Contains(err.Error(), "too little of a blob") {
		t.Errorf("an upload without a connection: %v", err)
	}
	for name, ask := range map[string]func() error{
		"a question": func() error {
			_, err := c.HasManifest(t.Context(), at, "app", "sha256:x")
			return err
		},
		"the beginning of an upload": func() error { return c.PushBlob(t.Context(), at, "app", "sha256:x", 0, "", nil) },
		"a deletion":                 func() error { return c.DeleteTag(t.Context(), at, "app", "v1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := ask(); err == nil {
				t.Error("it succeeds")
			}
		})
	}
}
