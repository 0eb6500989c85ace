package assembly_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestAttackAbandonedDownloads: a client starts as many slow downloads as its organization may have, and disconnects.
// The requests to the upstream end, so that the next client is served. A client that waits for a download gets all of
// it, even if others leave.
func TestAttackAbandonedDownloads(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		var running atomic.Int32
		release := make(chan struct{})
		o.behave(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			running.Add(1)
			defer running.Add(-1)
			w.Header().Set("Content-Length", "1000000")
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			w.(http.Flusher).Flush()
			select {
			case <-release:
				_, _ = io.WriteString(w, strings.Repeat("x", 999_000))
			case <-r.Context().Done():
			}
			return true
		})
		const most = 8 // downloads of an organization at the same time
		begin := func(digest string) io.ReadCloser {
			resp := m.stream(t, at+"/app/blobs/"+digest)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d", resp.StatusCode)
			}
			return resp.Body
		}
		var bodies []io.Closer
		for i := range most {
			bodies = append(bodies, begin(sha([]byte{byte(i)})))
		}
		for _, body := range bodies {
			must(t, body.Close())
		}
		until(t, "the upstream is not asked any more", func() bool { return running.Load() == 0 })

		content := strings.Repeat("x", 1_000_000)
		stays, leaves := begin(sha([]byte(content))), begin(sha([]byte(content)))
		defer stays.Close()
		must(t, leaves.Close())
		close(release)
		if got, err := io.ReadAll(stays); string(got) != content {
			t.Errorf("a client that waits gets %d bytes, %v", len(got), err)
		}
		if n := o.count("GET blobs"); n != most+1 {
			t.Errorf("the upstream was asked %d times, want %d", n, most+1)
		}
	})
}

// TestAbandonedDownloadStartsAgain checks that a blob can be pulled after its download was abandoned, and that the
// upstream does not count as failed.
func TestAbandonedDownloadStartsAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, u := m.mirrors(t, "mirror", o.URL, nil)
		content := strings.Repeat("content", 10_000)
		path := at + "/app/blobs/" + string(o.blob(content).Digest)
		defer o.slow(content)()
		must(t, m.stream(t, path).Body.Close())
		o.behave(nil)
		if got := m.get(t, path, http.StatusOK); string(got.body) != content {
			t.Errorf("it has %d bytes", len(got.body))
		}
		if last, ok := m.Mirror.LastFailure(u); ok {
			t.Errorf("the upstream has failed: %s", last.Reason)
		}
	})
}
