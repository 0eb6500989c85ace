package e2e_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// An interrupter calls a function before a chosen write of a caller.
type interrupter struct {
	victim   atomic.Pointer[resource.UID]
	writes   atomic.Int32 // writes of the victim so far
	position atomic.Int32 // number of the write before which revoke is called
	revoke   func()
}

// beforeWrite is a value for the field BeforeWrite of server.Config.
func (i *interrupter) beforeWrite(ctx context.Context) {
	victim := i.victim.Load()
	if victim != nil && resource.ActorFrom(ctx).Subject == *victim && i.writes.Add(1) == i.position.Load() {
		i.revoke()
	}
}

// interrupt runs f, and calls revoke before a write of the victim. It reports whether there was such a write.
func (i *interrupter) interrupt(victim resource.UID, position int32, revoke, f func()) bool {
	i.writes.Store(0)
	i.position.Store(position)
	i.revoke = revoke
	i.victim.Store(&victim)
	f()
	i.victim.Store(nil)
	return i.writes.Load() >= position
}

const (
	emptyIndex = `{"schemaVersion":2,"mediaType":"` + indexType + `","manifests":[]}`
	octets     = "application/octet-stream"
)

// A pushRequest is a request that changes a repo.
type pushRequest struct {
	endpoint string // as protocol.Writes names it
	// prepare makes what the request needs, and returns its path. repo is the path of the repo.
	prepare func(t *testing.T, w *world, repo string) string
	body    string
	headers []string
}

// pushRequests are the requests of the registry that write, except the ones in writesNothing.
var pushRequests = map[string]pushRequest{
	"push of a manifest": {
		"PUT manifest", func(_ *testing.T, _ *world, repo string) string { return repo + "manifests/prod" },
		emptyIndex, []string{"Content-Type", indexType},
	},
	"start of an upload": {
		"POST uploads", func(_ *testing.T, _ *world, repo string) string { return repo + "blobs/uploads/" }, "", nil,
	},
	"upload in one request": {
		"POST uploads", func(_ *testing.T, _ *world, repo string) string {
			return repo + "blobs/uploads/?digest=" + digestOf("whole")
		}, "whole", []string{"Content-Type", octets},
	},
	"mount of a blob": {
		"POST uploads", func(t *testing.T, w *world, repo string) string {
			w.putBlob(t, strings.Replace(repo, "app", "other", 1), "mounted")
			from := strings.TrimSuffix(strings.TrimPrefix(strings.Replace(repo, "app", "other", 1), "/v2/"), "/")
			return repo + "blobs/uploads/?mount=" + digestOf("mounted") + "&from=" + from
		}, "", nil,
	},
	"chunk of an upload": {
		"PATCH upload", func(t *testing.T, w *world, repo string) string { return w.beginUpload(t, repo) },
		"chunk", []string{"Content-Type", octets},
	},
	"end of an upload": {
		"PUT upload", func(t *testing.T, w *world, repo string) string {
			return w.beginUpload(t, repo) + "?digest=" + digestOf("end")
		}, "end", []string{"Content-Type", octets},
	},
	"cancellation of an upload": {
		"DELETE upload", func(t *testing.T, w *world, repo string) string { return w.beginUpload(t, repo) }, "", nil,
	},
	"deletion of a tag": {
		"DELETE manifest", func(t *testing.T, w *world, repo string) string {
			w.putIndex(t, repo+"manifests/old")
			return repo + "manifests/old"
		}, "", nil,
	},
	"deletion of a manifest": {
		"DELETE manifest", func(t *testing.T, w *world, repo string) string {
			w.putIndex(t, repo+"manifests/old")
			return repo + "manifests/" + digestOf(emptyIndex)
		}, "", nil,
	},
	"deletion of a blob": {
		"DELETE blob", func(t *testing.T, w *world, repo string) string {
			w.putBlob(t, repo, "deleted")
			return repo + "blobs/" + digestOf("deleted")
		}, "", nil,
	},
}

// writesNothing are endpoints of the registry that are not called with GET and write nothing, each with the reason.
var writesNothing = map[string]string{"POST token": "returns a token, which has no rights of its own"}

// putIndex pushes an empty index as the owner.
func (w *world) putIndex(t *testing.T, path string) {
	t.Helper()
	if r := w.oci(t, w.RegistryToken, "PUT", path, emptyIndex, "Content-Type", indexType); r.status != http.StatusCreated {
		t.Fatalf("PUT %s: HTTP status %d", path, r.status)
	}
}

// putBlob pushes a blob as the owner.
func (w *world) putBlob(t *testing.T, repo, content string) {
	t.Helper()
	path := repo + "blobs/uploads/?digest=" + digestOf(content)
	if r := w.oci(t, w.RegistryToken, "POST", path, content, "Content-Type", octets); r.status != http.StatusCreated {
		t.Fatalf("POST %s: HTTP status %d", path, r.status)
	}
}

// beginUpload starts an upload as the owner and returns its path.
func (w *world) beginUpload(t *testing.T, repo string) string {
	t.Helper()
	r := w.oci(t, w.RegistryToken, "POST", repo+"blobs/uploads/", "")
	if r.status != http.StatusAccepted {
		t.Fatalf("start of an upload: HTTP status %d", r.status)
	}
	return r.header.Get("Location")
}

// TestAttackEveryPushInFlight sends every request of the registry that writes, and deletes the caller's role binding
// before its first write, or before a later one. The request must fail. Without a revocation it succeeds.
func TestAttackEveryPushInFlight(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	for _, p := range pushRequests {
		covered[p.endpoint] = true
	}
	for _, endpoint := range protocol.Writes() {
		if !covered[endpoint] && writesNothing[endpoint] == "" {
			t.Errorf("no request of the test calls %s", endpoint)
		}
	}
	storetest.EachURL(t, func(t *testing.T, url string) {
		i := &interrupter{}
		w := serve(t, url, server.Config{BeforeWrite: i.beforeWrite, InspectWorkers: -1}, nil)
		for name, p := range pushRequests {
			// position 0 is the legitimate use, without a revocation
			for position := range int32(4) {
				group := "g" + rand8()
				folder := w.child(t, string(w.Organization), group)
				robot := w.robot(t, string(w.Organization), "robot"+rand8())
				binding := w.bind(t, folder, robot, ownerRole)
				bearer := w.mint(t, resource.UID(robot), token.Claims{Audience: []string{w.RegistryHost}})
				path := p.prepare(t, w, "/v2/dev/"+group+"/app/")
				var r reply
				verb, _, _ := strings.Cut(p.endpoint, " ")
				reached := i.interrupt(resource.UID(robot), position,
					func() { w.delete(t, "/iam/v2beta1/roleBindings/"+binding) },
					func() { r = w.oci(t, bearer, verb, path, p.body, p.headers...) })
				switch {
				case position == 0 && r.status >= 400:
					t.Errorf("%s: HTTP status %d without a revocation: %s", name, r.status, r.body)
				case position == 1 && !reached:
					t.Errorf("%s did not write: HTTP status %d", name, r.status)
				case position > 0 && reached && r.status < 400:
					t.Errorf("%s succeeded with HTTP status %d, although its caller lost access before write %d",
						name, r.status, position)
				}
				if !reached {
					break
				}
			}
		}
	})
}
