package assembly_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// only returns answers to requests with a method for a kind of content. The registry answers all other requests.
func only(method, kind string, f http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.Contains(r.URL.Path, "/"+kind+"/") {
			return false
		}
		f(w, r)
		return true
	}
}

// answering returns a handler that responds with a status and headers.
func answering(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

// silence reads a request and never answers it.
func silence(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client has gone
	<-r.Context().Done()
}

// A hostile is a way in which a target misbehaves, and the reason that is reported.
type hostile struct {
	answers func(http.ResponseWriter, *http.Request) bool
	reason  string
	layer   int // size of the layer in bytes; 0 means a few
}

// hostileTargets returns the ways. A target that does not read waits until released is closed.
func hostileTargets(released <-chan struct{}) map[string]hostile {
	const inside = "http://169.254.169.254/latest/meta-data"
	return map[string]hostile{
		"the disk is full": {answers: only("PUT", "uploads", answering(507)), reason: "status 507"},
		"an error":         {answers: only("PUT", "manifests", answering(500)), reason: "status 500"},
		"it stores something else": {
			answers: only("PUT", "manifests", answering(201, "Docker-Content-Digest", sha(nil))), reason: "other content",
		},
		"it redirects inside": {
			answers: only("PUT", "manifests", answering(307, "Location", inside)), reason: "status 307",
		},
		"it redirects a question": {
			answers: only("HEAD", "blobs", answering(307, "Location", inside)), reason: "only https addresses",
		},
		"an upload goes elsewhere": {
			answers: only("POST", "uploads", answering(202, "Location", "https://evil.example/x")), reason: "another host",
		},
		"an upload goes nowhere": {answers: only("POST", "uploads", answering(202)), reason: "no address"},
		"it forbids the repo":    {answers: only("POST", "uploads", answering(403)), reason: "refuses"},
		"it breaks off": {
			answers: only("PUT", "uploads", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			reason:  "reached",
		},
		"it does not answer a question": {answers: only("HEAD", "manifests", silence), reason: "reached"},
		"it does not answer":            {answers: only("PUT", "manifests", silence), reason: "reached"},
		"it does not read": {
			answers: only("PUT", "uploads", func(http.ResponseWriter, *http.Request) { <-released }),
			reason:  "too little of a blob", layer: 8 << 20, // more than the buffers of the connection take
		},
		"it asks for unknown credentials": {
			answers: only("HEAD", "manifests", answering(401)), reason: "asks for credentials",
		},
		"it refuses the credentials": {
			answers: only("HEAD", "manifests", answering(401, "Www-Authenticate", `Basic realm="x"`)),
			reason:  "refuses the request",
		},
		"it wants the password inside": {
			answers: only("HEAD", "manifests", answering(401, "Www-Authenticate", `Bearer realm="http://127.0.0.1:1/token"`)),
			reason:  "another host",
		},
		"it was asked too often": {
			answers: only("HEAD", "manifests", answering(429, "Retry-After", "1")), reason: "too often",
		},
	}
}

// A misbehaving is a replication to a hostile target.
type misbehaving struct {
	registry.Replication
	hostile
	*target
	repo  string
	image []byte
}

// TestReplicationHostileTarget checks what happens if a target misbehaves: the reason is reported, nothing else stops,
// and the tag is copied once the target behaves. All targets misbehave at the same time.
func TestReplicationHostileTarget(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r, d := newCopyRig(t, s, answerTime), newDistribution(t)
		good := r.replicates(t, d.replication("good", "good"))
		all, released := map[string]*misbehaving{}, make(chan struct{})
		for name, how := range hostileTargets(released) {
			all[name] = r.misbehaves(t, d, fmt.Sprint("app", len(all)), how)
		}
		t.Cleanup(func() { close(released) }) // before the servers of the targets are closed
		for name, m := range all {
			t.Run(name, func(t *testing.T) {
				r.failing(t, m.Replication, m.reason)
				until(t, "the other target has the image", func() bool {
					return string(d.get(t, "good/"+m.repo, "/manifests/v1").body) == string(m.image)
				})
				got := d.get(t, "bad/"+m.repo, "/manifests/v1")
				if got.status == http.StatusOK && m.reason != "other content" {
					t.Errorf("the tag is there: %s", got.body)
				}
				m.behave(nil)
				r.again(t, m.Replication)
			})
		}
		for name, m := range all {
			t.Run(name+" at first", func(t *testing.T) {
				r.idle(t, m.Replication)
				if got := d.get(t, "bad/"+m.repo, "/manifests/v1"); string(got.body) != string(m.image) {
					t.Errorf("the image is %d %s", got.status, got.body)
				}
			})
		}
		r.idle(t, good)
	})
}

// misbehaves copies a new image to a target that misbehaves.
func (r *copyRig) misbehaves(t *testing.T, d distribution, repo string, how hostile) *misbehaving {
	t.Helper()
	bad := newTarget(t, "http://"+d.Address)
	bad.behave(how.answers)
	v := d.replication(repo, "bad")
	v.Address, v.Repos = bad.URL, []string{repo}
	img := r.pushImage(t, "acme/team/"+repo, "v1", strings.Repeat("x", max(how.layer, 1)))
	return &misbehaving{r.replicates(t, v), how, bad, repo, img}
}

// TestReplicationSilentTargets checks that eight targets that never answer do not delay another target of their
// organization on the same host, whether they answer at first or not.
func TestReplicationSilentTargets(t *testing.T) {
	t.Parallel()
	const targets = 8
	for name, tt := range map[string]struct {
		takesOne bool // whether each of them takes an image first
		silenced int  // requests without an answer
	}{
		"from the beginning":    {false, targets},
		"after the first image": {true, targets + 8}, // each has one, and together they have the slots of the organization
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Each(t, func(t *testing.T, s *storetest.Store) {
				r, d := newCopyRig(t, s, time.Hour), newDistribution(t)
				for i := range 6 {
					r.pushImage(t, "acme/team/app", fmt.Sprint("v", i), fmt.Sprint("layer ", i))
				}
				var silenced atomic.Int32
				d.behave(silentAt("/silent", tt.takesOne, &silenced))
				t.Cleanup(r.stop) // before the server of the targets is closed
				for i := range targets {
					r.replicates(t, d.replication(fmt.Sprint("silent", i), fmt.Sprint("silent", i)))
				}
				until(t, "all silent targets are asked", func() bool { return int(silenced.Load()) >= tt.silenced })
				r.idle(t, r.replicates(t, d.replication("good", "good")))
			})
		})
	}
}

// silentAt never answers questions about manifests of repos whose path has a prefix, from the beginning or after a
// repo has taken an image. It counts such questions.
func silentAt(prefix string, takesOne bool, silenced *atomic.Int32) func(http.ResponseWriter, *http.Request) bool {
	var taken sync.Map
	return func(w http.ResponseWriter, r *http.Request) bool {
		repo, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2"), "/manifests/")
		if !ok || !strings.HasPrefix(repo, prefix) {
			return false
		}
		if r.Method == http.MethodPut {
			taken.Store(repo, true)
			return false
		}
		if _, has := taken.Load(repo); takesOne && !has {
			return false
		}
		silenced.Add(1)
		silence(w, r)
		return true
	}
}
