// Package e2e_test tests the service from the outside: it starts whole servers and calls them like clients.
package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A world is a server in dev mode, with the addresses, tokens and UIDs that its clients need.
type world struct {
	BaseURL       string       `json:"baseUrl"`
	AuthURL       string       `json:"authUrl"`
	RegistryHost  string       `json:"registryHost"`
	Organization  resource.UID `json:"organizationUid"`
	Owner         resource.UID `json:"ownerUid"`
	Token         string       `json:"token"` // the owner's token
	RegistryToken string       `json:"registryToken"`
	RefreshToken  string       `json:"refreshToken"`
	TestIssuer    string       `json:"testIssuer"`
	OwnerEmail    string       `json:"ownerEmail"`
	OwnerPassword string       `json:"ownerPassword"`

	database string
	config   server.Config // settings of the server
	issuer   *token.Issuer // issues tokens that the server accepts
	client   *http.Client
	conn     *grpc.ClientConn
	stop     func() // stops the server; the database stays
}

// serve starts a server on a database. The server runs until the test ends. serve calls seed with the store before
// the server starts; seed may be nil. cfg.EncryptionKey is the key of another replica, or "" for a new key. Other unset
// fields of cfg get values for tests: a free port, a new data folder, and no output on the terminal.
func serve(t *testing.T, database string, cfg server.Config, seed func(*storetest.Store)) *world {
	t.Helper()
	key := secret.NewKey()
	if cfg.EncryptionKey != "" {
		var err error
		if key, err = secret.ParseKey(cfg.EncryptionKey); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Dev, cfg.Listen, cfg.DataDir = true, "127.0.0.1:0", t.TempDir()
	cfg.Database, cfg.EncryptionKey, cfg.AuthURL = database, key.Text(), "http://issuer.test"
	cfg.Stdout = io.Discard
	if cfg.Stderr == nil {
		cfg.Stderr = errorLog{t.Output()}
	}
	cfg.AWSEndpoint = cmp.Or(cfg.AWSEndpoint, "http://127.0.0.1:1") // no test sends requests to a cloud
	cfg.GoogleEndpoint, cfg.AzureEndpoint = cfg.AWSEndpoint, cfg.AWSEndpoint
	cfg.InspectWorkers = cmp.Or(cfg.InspectWorkers, -1)
	w := &world{database: database, config: cfg}
	w.issuer = prepare(t, database, token.Config{Issuer: cfg.AuthURL, Key: key, Now: cfg.Now}, seed)
	w.run(t, cfg)
	file, err := os.ReadFile(filepath.Join(cfg.DataDir, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, w); err != nil {
		t.Fatal(err)
	}
	w.client = newClient()
	w.conn = w.dial(t, insecure.NewCredentials())
	return w
}

// An errorLog writes those lines of the server's log that are errors, so that a failed test shows what caused an
// internal error.
type errorLog struct{ to io.Writer }

func (l errorLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`"level":"ERROR"`)) {
		return l.to.Write(line)
	}
	return len(line), nil
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
}

// prepare creates the server's signing key before the server starts, and returns an issuer that signs with it. It
// must run first, because a running server locks its SQLite file.
func prepare(t *testing.T, database string, cfg token.Config, seed func(*storetest.Store)) *token.Issuer {
	t.Helper()
	s, err := store.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	issuer, err := token.New(t.Context(), s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if seed != nil {
		seed(storetest.Combine(s))
	}
	return issuer
}

// run starts the server. It registers a cleanup that stops the server and fails the test if the server returned an
// error.
func (w *world) run(t *testing.T, cfg server.Config) {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		if w.client != nil {
			w.client.CloseIdleConnections()
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server returned an error: %v", err)
		}
	})
	t.Cleanup(w.stop)
}

// dial returns a gRPC connection to the server. The connection is closed when the test ends.
func (w *world) dial(t *testing.T, creds credentials.TransportCredentials, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	_, addr, _ := strings.Cut(w.BaseURL, "://")
	conn, err := grpc.NewClient("passthrough:///"+addr, append(more, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// mint returns an API token for an identity. The token is narrowed as c says.
func (w *world) mint(t *testing.T, identity resource.UID, c token.Claims) string {
	t.Helper()
	c.Subject = identity
	if c.Audience == nil {
		c.Audience = []string{w.BaseURL}
	}
	raw, err := w.issuer.Mint(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// eachWorld runs f with a new server on every engine.
func eachWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	storetest.EachURL(t, func(t *testing.T, url string) { f(t, serve(t, url, server.Config{Now: ticking()}, nil)) })
}

// storyWorld runs f with a new server on the engines that storetest.StoryURL chooses.
func storyWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	storetest.StoryURL(t, func(t *testing.T, url string) { f(t, serve(t, url, server.Config{Now: ticking()}, nil)) })
}

// ticking returns a clock that never returns the same millisecond twice, so that creation times are different.
func ticking() func() time.Time {
	var mu sync.Mutex
	var last time.Time
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if next := last.Add(time.Millisecond); now.Before(next) {
			now = next
		}
		last = now
		return now
	}
}

// events stops the server and returns the events in its outbox.
func (w *world) events(t *testing.T) []resource.Event {
	t.Helper()
	w.stop()
	found, err := outbox.Read(t.Context(), storetest.Open(t, w.database).DB, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A reply is an HTTP response.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request with exactly this body, and returns the response. If bearer is empty, the request has no
// Authorization header.
func (w *world) send(t *testing.T, bearer, verb, target, body string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, w.BaseURL+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return w.roundTrip(t, r)
}

func (w *world) roundTrip(t *testing.T, r *http.Request) reply {
	t.Helper()
	resp, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// A clock shows the current time until a test advances or stops it.
type clock struct {
	ahead atomic.Int64
	held  atomic.Int64 // time at which the clock was stopped, in nanoseconds, or 0
	tick  func() time.Time
}

func newClock() *clock { return &clock{tick: ticking()} }

func (c *clock) now() time.Time {
	reading := c.tick()
	if c.held.Load() != 0 {
		reading = time.Unix(0, c.held.Add(int64(time.Millisecond)))
	}
	return reading.Add(time.Duration(c.ahead.Load()))
}

// hold stops the clock. From then on each reading advances it by a millisecond, so that the speed of the machine has
// no effect on the test.
func (c *clock) hold() { c.held.CompareAndSwap(0, c.tick().UnixNano()) }

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }
