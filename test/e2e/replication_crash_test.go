package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry/upstream/upstreamtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// crashTags is the number of tags that TestReplicationCrash copies.
const crashTags = 40

// countTags returns a proxy in front of a registry, and a function that returns how often each tag was pushed.
func countTags(t *testing.T, address string) (front string, pushes func() map[string]int) {
	t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before, tag, ok := strings.Cut(r.URL.Path, "/manifests/"); ok && r.Method == http.MethodPut && before != "" {
			mu.Lock()
			counts[tag]++
			mu.Unlock()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		copied := map[string]int{}
		for tag, n := range counts {
			copied[tag] = n
		}
		return copied
	}
}

// copiedTags returns the tags that the server reports as copied. A run would not copy them again.
func copiedTags(t *testing.T, c *procClient, uid string) map[string]bool {
	t.Helper()
	got := procMust[struct {
		Tags     []struct{ Tag string }
		Examined string
	}](t, c, http.MethodGet, "/oci/v1/replicationPreviews/"+uid, nil)
	if got.Examined != fmt.Sprint(crashTags) {
		t.Fatalf("the server examined %q tags", got.Examined)
	}
	copied := map[string]bool{}
	for i := range crashTags {
		copied[fmt.Sprint("v", i)] = true
	}
	for _, g := range got.Tags {
		delete(copied, g.Tag)
	}
	return copied
}

// pushCrashTags pushes the tags that are copied.
func pushCrashTags(t *testing.T, p *proc) {
	t.Helper()
	for i := range crashTags {
		if err := p.registry().push(t.Context(), "dev/app", fmt.Sprint("v", i), fmt.Append(nil, "layer ", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// replicateTo creates a replication to a registry behind a proxy, and returns its UID.
func replicateTo(t *testing.T, p *proc, front string, d *upstreamtest.Distribution) string {
	t.Helper()
	return procMust[struct{ UID string }](t, p.owner(), http.MethodPost,
		"/oci/v1/replications/"+string(p.dev.Organization), map[string]any{
			"name": "far", "address": front, "path": "far", "realm": d.Realm(),
			"credentials": upstreamtest.User + ":" + upstreamtest.Password,
		}).UID
}

// pushedOnce checks that tags that were reported as copied before a crash were not pushed after it.
func pushedOnce(t *testing.T, copied map[string]bool, before, after map[string]int) {
	t.Helper()
	for tag := range copied {
		if after[tag] != before[tag] {
			t.Errorf("%s was copied before the crash, and pushed again", tag)
		}
	}
	again := 0
	for _, n := range after {
		again += n - 1
	}
	t.Logf("killed after %d copied tags; %d tags were pushed twice", len(copied), again)
}

// TestReplicationCrash kills the server while it copies tags to the registry "distribution". After the restart, all
// tags arrive, and a tag that the server has reported as copied is not pushed again.
func TestReplicationCrash(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, database string) {
		d := upstreamtest.Start(t)
		front, pushes := countTags(t, d.Address)
		env := []string{"HOLDFAST_DATA_DIR=" + t.TempDir(), "HOLDFAST_DATABASE=" + database}
		p := procStart(t, env...)
		pushCrashTags(t, p)
		owner := p.owner()
		uid := replicateTo(t, p, front, d)
		least := 1 + rand.IntN(crashTags*3/4)
		var copied map[string]bool
		procUntil(t, "some tags are copied", func() bool {
			copied = copiedTags(t, owner, uid)
			return len(copied) >= least
		})
		p.kill()
		before := pushes()
		p = procStart(t, env...)
		owner = p.owner()
		procUntil(t, "all tags are copied", func() bool { return len(copiedTags(t, owner, uid)) == crashTags })
		pushedOnce(t, copied, before, pushes())
		arrived(t, p, d)
	})
}

// arrived checks that the target has each tag as the server has it.
func arrived(t *testing.T, p *proc, d *upstreamtest.Distribution) {
	t.Helper()
	far := &ociClient{d.Address, d.Token("repository:far/app:pull"), &http.Client{Timeout: procPatience}}
	for i := range crashTags {
		tag := fmt.Sprint("v", i)
		_, want, err := p.registry().expect(t.Context(), http.StatusOK, "GET", "/v2/dev/app/manifests/"+tag, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := far.expect(t.Context(), http.StatusOK, "GET", "/v2/far/app/manifests/"+tag, nil, "Accept",
			manifestType)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is %s (%v), want %s", tag, got, err, want)
		}
		layer := "layer " + fmt.Sprint(i)
		_, got, err = far.expect(t.Context(), http.StatusOK, "GET", "/v2/far/app/blobs/"+ociDigest([]byte(layer)), nil)
		if err != nil || string(got) != layer {
			t.Errorf("the layer of %s is %q: %v", tag, got, err)
		}
	}
}
