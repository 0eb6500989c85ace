package e2e_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/upstreamtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// holdTags returns a proxy in front of a registry that lets some tags through. Further tags wait until release is
// called; what a client sends that is gone by then never arrives. held is closed when the first one waits.
func holdTags(t *testing.T, address string, through int) (front string, held <-chan struct{}, release func()) {
	t.Helper()
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	waits, released := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(waits) })
	var mu sync.Mutex
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
			body, err := io.ReadAll(r.Body) // only then does the server notice that the client has gone
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			mu.Lock()
			through--
			wait := through < 0
			mu.Unlock()
			if wait {
				first()
				select {
				case <-released:
				case <-r.Context().Done():
				}
			}
			if r.Context().Err() != nil {
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	return server.URL, waits, release
}

// TestReplicationTakeover kills the replica that copies tags. The other replica copies the rest, pushes no tag again
// that was reported as copied, and copies what is pushed later.
func TestReplicationTakeover(t *testing.T) {
	t.Parallel()
	d := upstreamtest.Start(t)
	counted, pushes := countTags(t, d.Address)
	front, held, release := holdTags(t, counted, 1+rand.IntN(crashTags*3/4))
	env := []string{
		"HOLDFAST_DATABASE=" + storetest.Postgres(t), "HOLDFAST_ENCRYPTION_KEY=" + secret.NewKey().Text(),
		"HOLDFAST_BLOBS=" + t.TempDir(),
	}
	a := procStart(t, slices.Concat(env, []string{"HOLDFAST_DATA_DIR=" + t.TempDir()})...)
	pushCrashTags(t, a)
	uid := replicateTo(t, a, front, d)
	procUntil(t, "a tag waits at the target", func() bool {
		select {
		case <-held:
			return true
		default:
			return false
		}
	})
	b := procStart(t, slices.Concat(env, []string{"HOLDFAST_DATA_DIR=" + t.TempDir()})...)
	owner := b.owner()
	copied := copiedTags(t, owner, uid)
	a.kill()
	before := pushes()
	release()
	procUntil(t, "all tags are copied", func() bool { return len(copiedTags(t, owner, uid)) == crashTags })
	pushedOnce(t, copied, before, pushes())
	arrived(t, b, d)
	caughtUp := func() bool {
		s := procMust[struct{ State, OldestPendingTime, SuccessTime string }](t, owner, http.MethodGet,
			"/oci/v1/replications/"+uid, nil)
		return s.State == "REPLICATION_STATE_IDLE" && s.OldestPendingTime == "" && s.SuccessTime != ""
	}
	procUntil(t, "nothing is pending", caughtUp)
	if err := b.registry().push(t.Context(), "dev/app", "later", []byte("a later layer")); err != nil {
		t.Fatal(err)
	}
	far := &ociClient{d.Address, d.Token("repository:far/app:pull"), &http.Client{Timeout: procPatience}}
	procUntil(t, "a tag that is pushed later is copied", func() bool {
		resp, _, err := far.send(t.Context(), "GET", "/v2/far/app/manifests/later", nil, "Accept", manifestType)
		return err == nil && resp.StatusCode == http.StatusOK
	})
	procUntil(t, "nothing is pending again", caughtUp)
	for tag, n := range pushes() {
		if tag != "later" && copied[tag] && n != 1 {
			t.Errorf("%s was pushed %d times", tag, n)
		}
	}
}
