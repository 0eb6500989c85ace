package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// oci sends a request with a bearer token to the registry. headers contains alternating names and values.
func (w *world) oci(t *testing.T, bearer, method, path, body string, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.BaseURL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return w.roundTrip(t, r)
}

// statuses calls do concurrently for n callers. It returns how often each status occurred.
func statuses(n int, do func(i int) int) map[int]int {
	var mu sync.Mutex
	var callers sync.WaitGroup
	got := map[int]int{}
	for i := range n {
		callers.Go(func() {
			status := do(i)
			mu.Lock()
			defer mu.Unlock()
			got[status]++
		})
	}
	callers.Wait()
	return got
}

// TestAttackRacedUploads lets many requests write to one upload and finish it at the same time. Only one write and
// one finish may succeed, and the blob must have the bytes of that write.
func TestAttackRacedUploads(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		const racers, size = 8, 100_000
		w.repo(t, string(w.Organization), "app")
		for round := range 10 {
			location := w.oci(t, w.RegistryToken, "POST", "/v2/dev/app/blobs/uploads/", "").header.Get("Location")
			content := func(i int) string { return strings.Repeat(fmt.Sprintf("%d-%d,", round, i), size)[:size] }
			patched := statuses(racers, func(i int) int {
				return w.oci(t, w.RegistryToken, "PATCH", location, content(i), "Content-Range", fmt.Sprintf("0-%d", size-1)).status
			})
			if patched[202] != 1 || patched[202]+patched[409]+patched[416] != racers {
				t.Fatalf("several writes at the start of one upload succeeded: %v", patched)
			}
			for _, wrong := range []string{
				"0-99999", "99999-100000", "100001-100002", "-1-5", "100000-",
				"100000-99999", "100000-9223372036854775807", "bytes 0-0/1", "x",
			} {
				got := w.oci(t, w.RegistryToken, "PATCH", location, "ab", "Content-Range", wrong).status
				if got != 400 && got != 416 {
					t.Errorf("Content-Range %s: HTTP status %d", wrong, got)
				}
			}
			// Only one of the digests matches the content of the upload.
			ended := statuses(racers, func(i int) int {
				return w.oci(t, w.RegistryToken, "PUT", location+"?digest="+digestOf(content(i)), "").status
			})
			if ended[201] > 1 || ended[500] > 0 {
				t.Fatalf("one upload was finished more than once: %v", ended)
			}
			for i := range racers {
				got := w.oci(t, w.RegistryToken, "GET", "/v2/dev/app/blobs/"+digestOf(content(i)), "")
				if got.status == http.StatusOK && got.body != content(i) {
					t.Fatal("a blob does not match its digest")
				}
			}
			got := w.oci(t, w.RegistryToken, "PUT", location+"?digest="+digestOf(content(0)), "").status
			if got != http.StatusNotFound {
				t.Errorf("a finished upload: HTTP status %d", got)
			}
		}
		location := w.oci(t, w.RegistryToken, "POST", "/v2/dev/app/blobs/uploads/", "").header.Get("Location")
		ended := statuses(racers, func(int) int {
			return w.oci(t, w.RegistryToken, "PUT", location+"?digest="+digestOf("same"), "same").status
		})
		if ended[201] != 1 || ended[500] > 0 {
			t.Errorf("the same bytes from all callers: %v", ended)
		}
	})
}

// TestAttackOtherRegistry lets the owner of another organization try to reach the contents of a private repo: by
// mounts, uploads, referrers and tokens for other places. No answer may reveal whether something exists.
func TestAttackOtherRegistry(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		secret := w.pushImage(t, "dev/folder/app", "1.0", "amd64", "secret layer")
		thief := resource.UID(h.person())
		h.bind(t, h.other, string(thief), string(resource.OwnerRole))
		bearer := w.mint(t, thief, token.Claims{Audience: []string{w.RegistryHost}})
		upload := w.oci(t, w.RegistryToken, "POST", "/v2/dev/folder/app/blobs/uploads/", "").header.Get("Location")
		id := upload[strings.LastIndexByte(upload, '/'):]
		layer := digestOf("secret layer")
		for _, from := range []string{"", "&from=dev/folder/app", "&from=dev/folder/none", "&from=other/../dev/folder/app"} {
			got := w.oci(t, bearer, "POST", "/v2/other/mine/blobs/uploads/?mount="+layer+from, "")
			if got.status != http.StatusAccepted {
				t.Errorf("a mount%s: HTTP status %d", from, got.status)
			}
		}
		about := `{"schemaVersion":2,"mediaType":"` + manifestType + `","config":` + w.emptyConfig(t, bearer) +
			`,"layers":[],"subject":{"mediaType":"` + manifestType + `","digest":"` + secret + `","size":1}}`
		got := w.oci(t, bearer, "PUT", "/v2/other/mine/manifests/claim", about, "Content-Type", manifestType)
		if got.status != http.StatusCreated {
			t.Fatalf("a manifest that refers to a foreign image: %d %s", got.status, got.body)
		}
		if got := w.oci(t, w.RegistryToken, "GET", "/v2/dev/folder/app/referrers/"+secret, ""); got.status != 200 ||
			strings.Contains(got.body, digestOf(about)) {
			t.Errorf("referrers of the image: %d %s", got.status, got.body)
		}
		for _, tt := range []struct{ bearer, method, path string }{
			{bearer, "GET", "/v2/%s/manifests/1.0"},
			{bearer, "GET", "/v2/%s/blobs/" + layer},
			{bearer, "HEAD", "/v2/%s/blobs/" + layer},
			{bearer, "GET", "/v2/%s/tags/list"},
			{bearer, "GET", "/v2/%s/referrers/" + secret},
			{bearer, "DELETE", "/v2/%s/manifests/1.0"},
			{bearer, "PATCH", "/v2/%s/blobs/uploads" + id},
			{bearer, "PUT", "/v2/%s/blobs/uploads" + id + "?digest=" + layer},
			{bearer, "GET", "/v2/%s/blobs/uploads" + id},
			{"", "GET", "/v2/%s/manifests/1.0"},
			{w.Token, "GET", "/v2/%s/manifests/1.0"},
			{"anonymous", "GET", "/v2/%s/blobs/" + layer},
		} {
			existing := w.oci(t, tt.bearer, tt.method, fmt.Sprintf(tt.path, "dev/folder/app"), "")
			absent := w.oci(t, tt.bearer, tt.method, fmt.Sprintf(tt.path, "dev/folder/ape"), "")
			if existing.status != 401 && existing.status != 403 || existing.status != absent.status ||
				strings.ReplaceAll(existing.body, "app", "ape") != absent.body {
				t.Errorf("%s %s: HTTP status %d %s, for a missing repo %d %s",
					tt.method, tt.path, existing.status, existing.body, absent.status, absent.body)
			}
		}
		for path, want := range map[string]int{
			"/v2/other/mine/blobs/" + layer:      404,
			"/v2/other/mine/manifests/" + secret: 404,
			"/v2/other/mine/blobs/uploads" + id:  404,
			"/v2/other/mine/manifests/claim":     200,
		} {
			if got := w.oci(t, bearer, "GET", path, "").status; got != want {
				t.Errorf("GET %s: HTTP status %d, want %d", path, got, want)
			}
		}
		if got := w.send(t, bearer, "GET", "/iam/v2beta1/groups", "").status; got != http.StatusUnauthorized {
			t.Errorf("a token for the registry, used with the API: HTTP status %d", got)
		}
		if got := w.oci(t, w.RegistryToken, "GET", "/v2/dev/folder/app/blobs/"+layer, ""); got.body != "secret layer" {
			t.Errorf("the owner gets %d %s", got.status, got.body)
		}
	})
}

// emptyConfig pushes an empty configuration to the repo other/mine and returns its descriptor.
func (w *world) emptyConfig(t *testing.T, bearer string) string {
	t.Helper()
	got := w.oci(t, bearer, "POST", "/v2/other/mine/blobs/uploads/?digest="+digestOf("{}"), "{}")
	if got.status != http.StatusCreated {
		t.Fatalf("push a blob: %d %s", got.status, got.body)
	}
	return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":2}`, configType, digestOf("{}"))
}
