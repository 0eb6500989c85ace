package assembly_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestMirror checks that content which is pulled through a mirror is fetched only once. If a tag is no longer fresh,
// only its digest is compared, and the manifest is not fetched again.
func TestMirror(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		amd, arm := o.image("library/app", "", "layer of amd64"), o.image("library/app", "", "layer of arm64")
		index := o.index("library/app", "v1", amd, arm)
		app := at + "/library/app"
		for range 2 { // from the upstream first, then from the storage
			got := m.get(t, app+"/manifests/v1", http.StatusOK)
			if !bytes.Equal(got.body, index) || got.header.Get("Docker-Content-Digest") != sha(index) ||
				got.header.Get("Content-Type") != ocispec.MediaTypeImageIndex || got.header.Get("Warning") != "" {
				t.Errorf("the index is %s %v", got.body, got.header)
			}
			if got := m.get(t, app+"/manifests/"+sha(amd), http.StatusOK); !bytes.Equal(got.body, amd) {
				t.Errorf("the image is %s", got.body)
			}
			if got := m.get(t, app+"/blobs/"+sha([]byte("layer of amd64")),
				http.StatusOK); string(got.body) != "layer of amd64" ||
				got.header.Get("Content-Length") != "14" ||
				got.header.Get("Docker-Content-Digest") != sha([]byte("layer of amd64")) {
				t.Errorf("the layer is %q %v", got.body, got.header)
			}
		}
		if n := o.total(); n != 3 {
			t.Errorf("the upstream was asked %d times, want 3", n)
		}
		m.pass(2 * time.Hour)
		m.get(t, app+"/manifests/v1", http.StatusOK)
		if heads, all := o.count("HEAD manifests"), o.total(); heads != 1 || all != 0 {
			t.Errorf("a tag that is not fresh took %d HEADs and %d others", heads, all)
		}
		m.get(t, app+"/manifests/v1", http.StatusOK)
		if n := o.total(); n != 0 {
			t.Errorf("a tag that is fresh again took %d requests", n)
		}
		moved := o.index("library/app", "v1", arm)
		m.pass(2 * time.Hour)
		if got := m.get(t, app+"/manifests/v1", http.StatusOK); !bytes.Equal(got.body, moved) {
			t.Errorf("a tag that has moved is %s", got.body)
		}
		m.get(t, app+"/manifests/"+sha(index), http.StatusOK)
		m.get(t, app+"/manifests/none", http.StatusNotFound)
		m.get(t, app+"/blobs/"+sha([]byte("none")), http.StatusNotFound)
		m.get(t, at+"/library/none/manifests/v1", http.StatusNotFound)
		if _, err := s.GroupAt(t.Context(), []string{"acme", "mirror", "none"}); !errors.Is(err, fault.NotFound) {
			t.Errorf("a group of what is not there: %v", err)
		}
		m.Pulls.Flush(t.Context())
		repo, err := s.RepoAt(t.Context(), strings.Split(app, "/"))
		must(t, err)
		var pulls int
		must(t,
			s.Row(t.Context(), `SELECT count(*) FROM pulls WHERE uid LIKE $1 AND NOT push`, []any{string(repo) + "/%"}, &pulls))
		if pulls != 8 {
			t.Errorf("%d pulls are recorded, want 8", pulls)
		}
	})
}

// TestMirrorOfMovingTag checks that if a tag moves at the upstream during a pull, the client gets the digest that the
// upstream reported first.
func TestMirrorOfMovingTag(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		o.image("app", "v1", "first")
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		second := o.image("app", "v1", "second")
		o.behave(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodHead {
				return false
			}
			w.Header().Set("Docker-Content-Digest", sha(second))
			o.image("app", "v1", "third")
			return true
		})
		m.pass(2 * time.Hour)
		if got := m.get(t, at+"/app/manifests/v1", http.StatusOK); !bytes.Equal(got.body, second) ||
			got.header.Get("Docker-Content-Digest") != sha(second) {
			t.Errorf("the tag is %s", got.body)
		}
	})
}

// TestMirrorIsReadOnly checks that nobody can push, tag or copy content to a mirror, and that fetched content can be
// deleted.
func TestMirrorIsReadOnly(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, u := m.mirrors(t, "mirror", o.URL, nil)
		img := o.image("app", "v1", "layer")
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		for path, method := range map[string]string{"/blobs/uploads/": "POST", "/manifests/v2": "PUT"} {
			for _, repo := range []string{"/app", "/new", "/deep/new"} {
				got := m.want(t, call{method: method, path: "/v2/" + at + repo + path, who: "owner", body: bytes.NewReader(img)},
					http.StatusForbidden)
				if !strings.Contains(string(got.body), "mirror of origin") {
					t.Errorf("%s %s: %s", method, repo, got.body)
				}
			}
		}
		ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: m.uids["owner"]})
		repo, err := s.RepoAt(t.Context(), []string{"acme", "mirror", "app"})
		must(t, err)
		if _, err := m.service.CreateTag(ctx, repo,
			registry.Tag{Name: "mine", Digest: sha(img)}); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("a tag: %v", err)
		}
		m.pushImage(t, "acme/team/app", "v1", "pushed")
		from, err := s.RepoAt(t.Context(), []string{"acme", "team", "app"})
		must(t, err)
		_, err = m.service.CopyImages(ctx,
			registry.CopyRequest{From: from, Group: u.Group(), Repo: "app", References: []string{"v1"}})
		if !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("a copy: %v", err)
		}
		m.want(t, call{method: "DELETE", path: "/v2/" + at + "/app/manifests/v1", who: "owner"}, http.StatusAccepted)
		m.want(t, call{method: "DELETE", path: "/v2/" + at + "/app/manifests/" + sha(img), who: "owner"}, http.StatusAccepted)
		m.get(t, at+"/app/manifests/v1", http.StatusOK) // the image is fetched again after it was deleted
		if _, err := m.service.CreateUpstream(ctx, m.folder.UID,
			registry.Upstream{Name: "x", Address: o.URL}); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("an upstream of a group with repos: %v", err)
		}
		must(t, m.service.DeleteUpstream(ctx, u.UID))
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		m.get(t, at+"/app/blobs/"+sha([]byte("layer")), http.StatusNotFound)
	})
}

// faults are failures of an upstream, with the status of the response to a pull of content that is not stored.
var faults = map[string]struct {
	status int
	do     func(w http.ResponseWriter, r *http.Request) bool
}{
	"error":        {http.StatusBadGateway, status(http.StatusInternalServerError)},
	"asked a lot":  {http.StatusTooManyRequests, status(http.StatusTooManyRequests)},
	"unauthorized": {http.StatusForbidden, status(http.StatusUnauthorized)},
	"forbidden":    {http.StatusForbidden, status(http.StatusForbidden)},
	"gone":         {http.StatusNotFound, status(http.StatusNotFound)},
	"a page": {http.StatusBadGateway, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html><body>sign in</body></html>")
		return true
	}},
	"a page as a manifest": {http.StatusBadGateway, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Docker-Content-Digest", sha([]byte("<html>")))
		fmt.Fprint(w, "<html>")
		return true
	}},
	"another digest than it says": {http.StatusBadGateway, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Docker-Content-Digest", sha([]byte("something else")))
		_, _ = w.Write(image(ocispec.Descriptor{Digest: digestOf(nil)}))
		return true
	}},
	"no digest at all": {http.StatusBadGateway, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Docker-Content-Digest", "../../etc/passwd")
		return true
	}},
	"a manifest of 100 MB": {http.StatusBadGateway, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		if r.Method == http.MethodGet {
			_, _ = io.CopyN(w, endless{}, 100<<20) // ends when the client closes the connection
		}
		return true
	}},
	"redirects without end": {http.StatusBadGateway, func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, r.URL.Path+"x", http.StatusTemporaryRedirect)
		return true
	}},
	"a redirect inside": {http.StatusBadGateway, func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, "https://10.0.0.1/x", http.StatusTemporaryRedirect)
		return true
	}},
	"an answer that breaks off": {http.StatusBadGateway, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "{")
		panic(http.ErrAbortHandler)
	}},
	"no answer": {http.StatusBadGateway, func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-r.Context().Done():
		case <-time.After(patience):
		}
		return true
	}},
	"a realm that is not": {http.StatusForbidden, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Www-Authenticate", `Bearer realm="::"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}},
}

func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestMirrorFaults checks for every kind of failure that stored content is served with a warning, that pulls of other
// content are refused, and that nothing is stored.
func TestMirrorFaults(t *testing.T) {
	t.Parallel()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		patient := newMirrorRig(t, s, nil)
		n := 0
		for name, tt := range faults {
			n++
			o := newOrigin(t)
			at, _ := patient.mirrors(t, fmt.Sprintf("m%d", n), o.URL, nil)
			t.Run(name, func(t *testing.T) {
				m := patient
				img := o.image("app", "v1", "layer")
				o.image("app", "v2", "another layer")
				m.get(t, at+"/app/manifests/v1", http.StatusOK)
				m.get(t, at+"/app/blobs/"+sha([]byte("layer")), http.StatusOK)
				o.behave(tt.do)
				if name == "no answer" { // continue on a replica with a short timeout, once the layer is stored
					m.stored(t, sha([]byte("layer")))
					m = m.replicaThatWaits(t, time.Second, patience)
				}
				m.pass(2 * time.Hour)
				for _, method := range []string{"GET", "HEAD"} {
					got := m.want(t, call{method: method, path: "/v2/" + at + "/app/manifests/v1", who: "registry.pull"},
						http.StatusOK)
					if method == "GET" && !bytes.Equal(got.body, img) ||
						!strings.HasPrefix(got.header.Get("Warning"), `299 - "this is what was fetched before: origin `) {
						t.Errorf("%s: %s, Warning %q", method, got.body, got.header.Get("Warning"))
					}
				}
				m.get(t, at+"/app/manifests/"+sha(img), http.StatusOK)
				m.get(t, at+"/app/blobs/"+sha([]byte("layer")), http.StatusOK)
				m.pass(2 * time.Hour)
				got := m.get(t, at+"/app/manifests/v2", tt.status)
				if got.code() == "" || strings.Contains(string(got.body), "127.0.0.1") {
					t.Errorf("the problem is %s", got.body)
				}
				if name == "asked a lot" && got.header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
				m.get(t, at+"/other/manifests/v1", tt.status)
				repo, err := s.RepoAt(t.Context(), strings.Split(at+"/app", "/"))
				must(t, err)
				if names, err := s.TagNames(t.Context(), repo, "", 10); err != nil || len(names) != 1 {
					t.Errorf("tags %v, %v", names, err)
				}
			})
		}
	})
}

// TestMirrorLimits checks that an upstream gets no requests during a pause that it demands. It also checks that after
// a failure, the upstream is not asked for some time whether stored content is current.
func TestMirrorLimits(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		o.image("app", "v1", "layer")
		o.image("app", "v2", "layer")
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		o.behave(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})
		m.pass(2 * time.Hour)
		o.total()
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		if n := o.total(); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		got := m.get(t, at+"/app/manifests/v2", http.StatusTooManyRequests)
		m.get(t, at+"/app/blobs/"+sha([]byte("layer")), http.StatusTooManyRequests)
		if n := o.total(); n != 0 || got.header.Get("Retry-After") == "" {
			t.Errorf("%d requests while it wants none; Retry-After %q", n, got.header.Get("Retry-After"))
		}
		o.behave(nil)
		m.pass(601 * time.Second)
		m.get(t, at+"/app/manifests/v2", http.StatusOK)

		o.behave(status(http.StatusServiceUnavailable))
		m.pass(2 * time.Hour)
		o.total()
		for range 5 {
			m.get(t, at+"/app/manifests/v1", http.StatusOK)
		}
		if n := o.total(); n != 1 {
			t.Errorf("%d requests to an upstream that fails, want 1", n)
		}
		m.get(t, at+"/app/manifests/v3", http.StatusBadGateway) // content that is not stored is still requested
		if n := o.total(); n != 1 {
			t.Errorf("%d requests for what is not here, want 1", n)
		}
		o.behave(nil)
		m.pass(time.Minute)
		if got := m.get(t, at+"/app/manifests/v1", http.StatusOK); got.header.Get("Warning") != "" {
			t.Errorf("an upstream that is well again: %v", got.header)
		}
	})
}

// TestMirrorAccess checks that content is fetched only for callers that may pull, and only from repos whose names
// match the patterns of the upstream. For anonymous callers, it is fetched only if the settings allow it.
func TestMirrorAccess(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, u := m.mirrors(t, "mirror", o.URL,
			func(u *registry.Upstream) { u.Names = []string{"library/*", "!library/secret"} })
		img := o.image("library/app", "v1", "layer")
		o.image("library/secret", "v1", "layer")
		o.image("other/app", "v1", "layer")
		ask := func(who, path string, want int) {
			t.Helper()
			m.want(t, call{method: "GET", path: "/v2/" + at + path, who: who}, want)
		}
		for path := range map[string]bool{
			"/library/app/manifests/v1": true, "/library/app/blobs/" + sha([]byte("layer")): true,
			"/library/app/referrers/" + sha(img): true,
		} {
			ask("stranger", path, http.StatusForbidden)
			ask("", path, http.StatusUnauthorized)
		}
		for _, path := range []string{
			"/library/secret/manifests/v1", "/other/app/manifests/v1", "/library/secret/blobs/" + sha([]byte("layer")),
		} {
			ask("registry.pull", path, http.StatusNotFound)
		}
		m.settings(t, u.Group(), func(s *registry.Settings) { s.Public = true })
		ask("", "/library/app/manifests/v1", http.StatusNotFound)
		ask("stranger", "/library/app/blobs/"+sha([]byte("layer")), http.StatusNotFound)
		if n := o.total(); n != 0 {
			t.Errorf("the upstream was asked %d times", n)
		}
		ask("registry.pull", "/library/app/manifests/v1", http.StatusOK)
		ask("", "/library/app/manifests/v1", http.StatusOK)
		ask("", "/library/app/blobs/"+sha([]byte("layer")), http.StatusNotFound)
		m.pass(2 * time.Hour)
		o.total()
		got := m.want(t, call{method: "GET", path: "/v2/" + at + "/library/app/manifests/v1"}, http.StatusOK)
		if got.header.Get("Warning") == "" || o.total() != 0 {
			t.Errorf("everybody gets what is here: %v", got.header)
		}
		ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: m.uids["owner"]})
		_, err := m.service.UpdateUpstream(ctx, u.UID, func(u *registry.Upstream) error { u.Anyone = true; return nil })
		must(t, err)
		ask("", "/library/app/blobs/"+sha([]byte("layer")), http.StatusOK)
	})
}

// TestMirrorSignsIn checks that credentials are sent only to the upstream: not to the targets of redirects, not to a
// realm that the settings do not name, and not to a new address of the upstream.
func TestMirrorSignsIn(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, other := newMirrorRig(t, s, nil), newOrigin(t)
		secret := func(u *registry.Upstream) { u.Credentials.Plain = originUser + ":" + originPassword }
		for _, auth := range []string{"basic", "token"} {
			o := newOrigin(t)
			o.auth = auth
			o.image("app", "v1", "layer of "+auth)
			at, u := m.mirrors(t, auth, o.URL, secret)
			m.get(t, at+"/app/manifests/v1", http.StatusOK)
			o.behave(func(w http.ResponseWriter, r *http.Request) bool { // like a registry that stores its blobs in a bucket
				if strings.Contains(r.URL.Path, "/blobs/") && r.Header.Get("Authorization") != "" {
					other.blob("layer of " + auth)
					http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
					return true
				}
				return false
			})
			if got := m.get(t, at+"/app/blobs/"+sha([]byte("layer of "+auth)),
				http.StatusOK); string(got.body) != "layer of "+auth {
				t.Errorf("the layer is %q", got.body)
			}
			ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: m.uids["owner"]})
			u, err := m.service.UpdateUpstream(ctx, u.UID,
				func(u *registry.Upstream) error { u.FreshFor = time.Minute; return nil })
			must(t, err)
			if u.Credentials.Empty() {
				t.Error("the credentials are gone, at the same address")
			}
			m.get(t, at+"/app/manifests/v1", http.StatusOK)
			u, err = m.service.UpdateUpstream(ctx, u.UID, func(u *registry.Upstream) error { u.Address = other.URL; return nil })
			must(t, err)
			if !u.Credentials.Empty() {
				t.Error("the credentials are still there, at another address")
			}
		}
		none := newOrigin(t)
		none.auth = "token"
		none.image("app", "v1", "layer")
		at, _ := m.mirrors(t, "anonymous", none.URL, nil)
		m.get(t, at+"/app/manifests/v1", http.StatusForbidden)

		o := newOrigin(t)
		o.image("app", "v1", "layer")
		o.behave(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Www-Authenticate", `Bearer realm="`+other.URL+`/token",service="origin"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		})
		at, _ = m.mirrors(t, "elsewhere", o.URL, secret)
		got := m.get(t, at+"/app/manifests/v1", http.StatusForbidden)
		if strings.Contains(string(got.body), originPassword) {
			t.Errorf("the answer has the password: %s", got.body)
		}
		if len(other.passwords) != 0 {
			t.Errorf("another host got %q", other.passwords)
		}
		var sealed []byte
		must(t, s.Row(t.Context(), `SELECT secret FROM registry_upstreams WHERE length(secret) > 0`, nil, &sealed))
		if bytes.Contains(sealed, []byte(originPassword)) {
			t.Error("the password is not sealed")
		}
		events, err := outbox.Read(t.Context(), s.DB, 0, 1000)
		must(t, err)
		for _, e := range events {
			if bytes.Contains(append(e.Before, e.After...), []byte(originPassword)) {
				t.Errorf("an event has the password: %s", e.After)
			}
		}
	})
}

// TestMirrorOfHoldfast checks that another Holdfast server can be mirrored. Its realm issues tokens for a password.
func TestMirrorOfHoldfast(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		far := newRig(t, storetest.Open(t, storetest.SQLite(t)), assembly.Config{})
		img := far.pushImage(t, "acme/team/app", "v1", "from afar")
		m := newMirrorRig(t, s, nil)
		at, _ := m.mirrors(t, "mirror", far.url, func(u *registry.Upstream) {
			u.Credentials.Plain = protocol.LoginName + ":" + far.tokens["registry.pull"]
		})
		if got := m.get(t, at+"/acme/team/app/manifests/v1", http.StatusOK); !bytes.Equal(got.body, img) {
			t.Errorf("the image is %s", got.body)
		}
		if got := m.get(t, at+"/acme/team/app/blobs/"+sha([]byte("from afar")),
			http.StatusOK); string(got.body) != "from afar" {
			t.Errorf("the layer is %s", got.body)
		}
		m.get(t, at+"/acme/none/manifests/v1", http.StatusNotFound)
	})
}

// slow makes an origin send a blob in two halves. It sends the second half after release is called.
func (o *origin) slow(content string) (release func()) {
	gate := make(chan struct{})
	o.behave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = io.WriteString(w, content[:len(content)/2])
		w.(http.Flusher).Flush()
		select {
		case <-gate:
		case <-r.Context().Done():
			return true
		}
		_, _ = io.WriteString(w, content[len(content)/2:])
		return true
	})
	return sync.OnceFunc(func() { close(gate) })
}

// stream starts the pull of a blob, and returns the response without reading its body.
func (m *mirrorRig) stream(t testing.TB, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), "GET", m.url+"/v2/"+path, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+m.tokens["registry.pull"])
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	return resp
}

// TestMirrorStreams checks that concurrent pulls of a blob cause one fetch, and that all clients get the bytes as
// they arrive, except for the last byte. It is held back until the digest is verified.
func TestMirrorStreams(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		content := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
		path := at + "/app/blobs/" + string(o.blob(content).Digest)
		release := o.slow(content)
		defer release()
		const readers = 20
		var bodies []io.ReadCloser
		first := make([]byte, 1000)
		for range readers {
			resp := m.stream(t, path)
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.ContentLength != int64(len(content)) {
				t.Fatalf("status %d, length %d", resp.StatusCode, resp.ContentLength)
			}
			if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != content[:1000] {
				t.Fatalf("the first bytes are %q, %v", first[:20], err)
			}
			bodies = append(bodies, resp.Body)
		}
		bodies[0].Close() // a client that disconnects does not affect the others
		release()
		for _, body := range bodies[1:] {
			rest, err := io.ReadAll(body)
			if err != nil || string(rest) != content[1000:] {
				t.Fatalf("the rest has %d bytes, %v", len(rest), err)
			}
		}
		if got := m.get(t, path, http.StatusOK); string(got.body) != content {
			t.Error("what is stored is something else")
		}
		if n := o.count("GET blobs"); n != 1 {
			t.Errorf("it was fetched %d times", n)
		}
	})
}

// TestMirrorWrongBlobs checks that if an upstream sends a blob with a wrong digest, no client gets all of it and it
// is not stored, and that the right blob can be pulled afterwards.
func TestMirrorWrongBlobs(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("x", 100_000)
	send := func(text string, length int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if length >= 0 {
				w.Header().Set("Content-Length", fmt.Sprint(length))
			}
			_, _ = io.WriteString(w, text)
			if length < 0 {
				w.(http.Flusher).Flush() // flushing makes the response chunked, without Content-Length
			}
			return true
		}
	}
	tests := map[string]func(http.ResponseWriter, *http.Request) bool{
		"another blob":              send(strings.Repeat("y", len(content)), len(content)),
		"another of unknown length": send(strings.Repeat("y", len(content)), -1),
		"the right one and more":    send(content+"more", len(content)+4),
		"less":                      send(content[1:], len(content)-1),
		"less than it says":         send(content[1:], len(content)),
		"nothing":                   send("", 0),
		"a page":                    send("<html>sign in</html>", 20),
		"one byte, the wrong one":   send("y", 1),
		"an error after a redirect": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/x", http.StatusTemporaryRedirect)
			return true
		},
		"a redirect that has no end": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
			return true
		},
		"a byte, and then nothing": func(w http.ResponseWriter,
			r *http.Request) bool {
			stall(w, r, content)
			return true
		},
		"a part that is not asked for": func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(206); return true },
	}
	digest := sha([]byte(content))
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		patient := newMirrorRig(t, s, nil)
		n := 0
		for name, do := range tests {
			n++
			o := newOrigin(t)
			at, _ := patient.mirrors(t, fmt.Sprint("m", n), o.URL, nil)
			path := at + "/app/blobs/" + digest
			t.Run(name, func(t *testing.T) {
				t.Parallel() // some cases last until the timeout for an upstream
				m := patient
				if strings.HasSuffix(name, "and then nothing") {
					m = m.replicaThatWaits(t, patience, 2*time.Second)
				}
				o.behave(do)
				resp := m.stream(t, path)
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if resp.StatusCode == http.StatusOK && err == nil {
					t.Errorf("%d bytes that look complete", len(got))
				}
				o.behave(status(http.StatusForbidden))
				m.get(t, path, http.StatusForbidden)
				o.behave(nil)
				o.blob(content)
				if got := m.get(t, path, http.StatusOK); string(got.body) != content {
					t.Error("the right blob does not arrive afterwards")
				}
			})
		}
	})
}

// stall sends the first byte of content and then nothing more.
func stall(w http.ResponseWriter, r *http.Request, content string) {
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	_, _ = io.WriteString(w, "x")
	w.(http.Flusher).Flush()
	select {
	case <-r.Context().Done():
	case <-time.After(patience):
	}
}

// TestMirrorResumes checks that an interrupted download is resumed, if the registry supports ranges and if it does
// not.
func TestMirrorResumes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		for _, can := range []bool{true, false} {
			content := strings.Repeat(fmt.Sprint(can), 100_000)
			o.blob(content)
			var from []string
			o.behave(func(w http.ResponseWriter, r *http.Request) bool {
				from = append(from, r.Header.Get("Range"))
				if len(from) > 2 {
					if !can {
						r.Header.Del("Range")
					}
					return false
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				_, _ = io.WriteString(w, content[:50_000])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			})
			got := m.get(t, at+"/app/blobs/"+sha([]byte(content)), http.StatusOK)
			if string(got.body) != content || len(from) != 3 || from[2] == "" {
				t.Errorf("%d bytes of %d, asked for %q", len(got.body), len(content), from)
			}
		}
	})
}

// TestMirrorBudget checks that an organization cannot store more content of an upstream than its budget allows.
func TestMirrorBudget(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		o.image("app", "v1", strings.Repeat("layer", 1000))
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		now := m.now().UTC().Truncate(time.Millisecond)
		_, err := s.UpdateBudget(t.Context(), resource.Budget{UID: m.org.UID}, resource.Budget{
			UID: m.org.UID, Limits: map[resource.Metric]int64{resource.StoredBytes: 2000}, CreateTime: now, UpdateTime: now})
		must(t, err)
		path := at + "/app/blobs/" + sha([]byte(strings.Repeat("layer", 1000)))
		m.get(t, path, http.StatusForbidden)
		sent := make(chan int64, 1)
		o.behave(func(w http.ResponseWriter, _ *http.Request) bool { // sends an endless body of unknown length
			w.(http.Flusher).Flush()
			n, _ := io.CopyN(w, endless{}, 1<<30)
			sent <- n
			return true
		})
		m.get(t, path, http.StatusForbidden)
		if n := <-sent; n > 100<<20 {
			t.Errorf("%d bytes were read", n)
		}
		usage, err := s.Usage(t.Context(), m.org.UID)
		must(t, err)
		if used := usage[resource.StoredBytes]; used > 2000 {
			t.Errorf("%d bytes are stored", used)
		}
	})
}

// TestMirrorCollect checks that a fetched blob stays while a manifest needs it, whichever of the two arrived first,
// and that the collector removes the blob after the manifest was deleted.
func TestMirrorCollect(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		first, second := o.image("app", "v1", "manifest first"), o.image("app", "v2", "blob first")
		layers := []string{sha([]byte("manifest first")), sha([]byte("blob first"))}
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		m.get(t, at+"/app/blobs/"+layers[0], http.StatusOK)
		m.get(t, at+"/app/blobs/"+layers[1], http.StatusOK)
		m.get(t, at+"/app/manifests/v2", http.StatusOK)
		for _, layer := range layers { // wait, because the collector would remove blobs that are not stored yet
			m.stored(t, layer)
		}
		o.behave(status(http.StatusInternalServerError))
		collect := func() {
			t.Helper()
			for range 3 {
				m.pass(25 * time.Hour)
				_, err := m.Collect(t.Context(), upkeep.Collection{Grace: time.Hour})
				must(t, err)
			}
		}
		collect()
		for _, layer := range layers {
			m.get(t, at+"/app/blobs/"+layer, http.StatusOK)
		}
		for _, img := range [][]byte{first, second} {
			m.want(t, call{method: "DELETE", path: "/v2/" + at + "/app/manifests/" + sha(img), who: "owner"},
				http.StatusAccepted)
		}
		collect()
		for _, layer := range layers {
			m.get(t, at+"/app/blobs/"+layer, http.StatusBadGateway)
		}
		if n := m.files(t); n != 0 {
			t.Errorf("%d files are left", n)
		}
	})
}

// TestMirrorIsRenamed renames the group of an upstream during a fetch, and gives its old name to another group. It
// checks that the content is stored below the renamed group, and that the pull does not return content of the other
// group.
func TestMirrorIsRenamed(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, u := m.mirrors(t, "mirror", o.URL, nil)
		img := o.image("app", "v1", "layer")
		o.behave(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/v1") {
				_, err := store.Edit(t.Context(), u.Group(), s.Group, s.UpdateGroup,
					func(g *resource.Group) error { g.Name = "moved"; return nil })
				if err != nil {
					t.Error(err)
				}
				m.group(t, m.org.UID, "mirror")
				m.pushImage(t, "acme/mirror/app", "v1", "of another group")
			}
			return false
		})
		m.get(t, at+"/app/manifests/v1", http.StatusNotFound)
		if got := m.get(t, "acme/moved/app/manifests/v1", http.StatusOK); !bytes.Equal(got.body, img) {
			t.Errorf("the image is %s", got.body)
		}
		if got := m.get(t, at+"/app/manifests/v1", http.StatusOK); bytes.Equal(got.body, img) {
			t.Error("the other group has what the upstream sent")
		}
	})
}

// TestMirrorOfItself checks that the requests of a server that mirrors itself come to an end, because each request
// has a shorter name.
func TestMirrorOfItself(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m := newMirrorRig(t, s, nil)
		img := m.pushImage(t, "acme/team/app", "v1", "layer")
		at, _ := m.mirrors(t, "loop", m.url, func(u *registry.Upstream) {
			u.Credentials.Plain = protocol.LoginName + ":" + m.tokens["registry.pull"]
		})
		m.get(t, at+"/"+at+"/"+at+"/none/manifests/v1", http.StatusForbidden)
		if got := m.get(t, at+"/"+at+"/acme/team/app/manifests/v1", http.StatusOK); !bytes.Equal(got.body, img) {
			t.Errorf("the image is %s", got.body)
		}
	})
}

// TestMirrorReplicas checks that if two replicas fetch the same blob, it is stored only once.
func TestMirrorReplicas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		content := strings.Repeat("shared", 10_000)
		o.blob(content)
		second := m.replica(t)
		release := o.slow(content)
		defer release()
		path := at + "/app/blobs/" + sha([]byte(content))
		one, two := m.stream(t, path), second.stream(t, path)
		release()
		for _, resp := range []*http.Response{one, two} {
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(got) != content {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		m.get(t, path, http.StatusOK)
		second.get(t, path, http.StatusOK)
		if n := o.count("GET blobs"); n != 2 {
			t.Errorf("it was fetched %d times, want once by each", n)
		}
		// When both clients have their responses, the blob is stored and the second copy is removed soon.
		until(t, "one blob in one file", func() bool {
			var blobs int
			must(t, s.Row(t.Context(), `SELECT count(*) FROM blobs`, nil, &blobs))
			return blobs == 1 && m.files(t) == 1
		})
	})
}

// TestMirrorHeals checks that a damaged blob is fetched again from the upstream: during a scrub or, if the scrub
// could not repair it, during a pull.
func TestMirrorHeals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		o.image("library/app", "v1", "layer")
		layer := at + "/library/app/blobs/" + sha([]byte("layer"))
		m.get(t, layer, http.StatusOK)
		m.stored(t, sha([]byte("layer")))
		must(t, os.WriteFile(m.file(t, sha([]byte("layer"))), []byte("lager"), 0o600))
		if got := m.scrub(t); got.Repaired != 1 || len(got.Rotten) != 0 {
			t.Errorf("a scrub with an upstream that is well: %+v", got)
		}
		o.total()
		if got := m.get(t, layer, http.StatusOK); string(got.body) != "layer" || o.total() != 0 {
			t.Errorf("what was repaired is %q", got.body)
		}
		must(t, os.WriteFile(m.file(t, sha([]byte("layer"))), []byte("lager"), 0o600))
		o.behave(status(http.StatusInternalServerError))
		if got := m.scrub(t); got.Repaired != 0 || len(got.Rotten) != 1 {
			t.Errorf("a scrub with an upstream that is not: %+v", got)
		}
		o.behave(nil)
		m.pass(time.Hour)
		if got := m.get(t, layer, http.StatusOK); string(got.body) != "layer" {
			t.Errorf("what was rotten and is pulled again is %q", got.body)
		}
		until(t, "nothing is rotten", func() bool {
			n, err := s.RottenBlobs(t.Context())
			return n == 0 && err == nil
		})
	})
}
