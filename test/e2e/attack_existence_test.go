package e2e_test

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// statements returns the statements that a trace contains, sorted.
func (c *traceCollector) statements(trace string) (texts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		for _, a := range s.GetAttributes() {
			if hex.EncodeToString(s.GetTraceId()) == trace && a.GetKey() == "db.query.text" {
				texts = append(texts, a.GetValue().GetStringValue())
			}
		}
	}
	slices.Sort(texts)
	return texts
}

// TestAttackMissingOrPrivate: a stranger compares the times of requests for a private repo and for a missing one. For
// both, the server runs the same statements: for reads and writes, over the registry protocol and the API, with and
// without a token, and for a repo whose path is cached. The owner finds the repo, and does not find the missing one.
func TestAttackMissingOrPrivate(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { testMissingOrPrivate(t, storetest.SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { testMissingOrPrivate(t, storetest.Postgres(t)) })
}

// registryWrites returns the writes of the registry protocol in a repo that has a blob.
func registryWrites(digest string) []string {
	upload := "/blobs/uploads/0123456789abcdef0123456789abcdef"
	return []string{
		"POST /blobs/uploads/", "POST /blobs/uploads/?digest=" + digest,
		"POST /blobs/uploads/?mount=" + digest + "&from=dev/team/app", "POST /blobs/uploads/?mount=" + digest,
		"GET " + upload, "PATCH " + upload, "PUT " + upload + "?digest=" + digest, "DELETE " + upload,
		"PUT /manifests/v2", "DELETE /manifests/v1", "DELETE /manifests/" + digest, "DELETE /blobs/" + digest,
	}
}

// pathsOfRepo returns paths of the API that name a repo, with REPO in the place of its uid.
func pathsOfRepo(digest string) []string {
	return []string{
		"/oci/v1/settings/REPO", "/oci/v1/repos/REPO/images/v1", "/oci/v1/repos/REPO/referrers/" + digest,
		"/oci/v1/repos/REPO/summaries", "/oci/v1/repos/REPO/tagHistory", "/oci/v1/retention/REPO",
		"/oci/v1/retentionPreviews/REPO", "/oci/v1/repos/REPO/signatures/v1", "/oci/v1/syncs/REPO", "/oci/v1/trash/REPO",
		"/findings/v1/repos/REPO/inspections/v1", "/findings/v1/repos/REPO/packages/v1",
		"/findings/v1/repos/REPO/findings/v1", "/findings/v1/repos/REPO/vex/v1", "/findings/v1/checks/REPO",
	}
}

func testMissingOrPrivate(t *testing.T, database string) {
	c, env := newTraceCollector(t, "http/protobuf")
	p := procStart(t, append(env, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+database)...)
	api, registry := "http://"+p.address, p.registry()
	issuer := newFakeIssuer(t, &world{AuthURL: procBase})
	owner := p.owner()
	defer owner.close()
	group := procMust[procGroup](t, owner, "POST", "/iam/v2beta1/groups/"+string(p.dev.Organization),
		map[string]any{"name": "team"})
	identity := procMust[procGroup](t, owner, "POST", "/iam/v2beta1/identities/"+string(p.dev.Organization),
		map[string]any{"name": "stranger", "claimMatch": map[string]any{"issuer": issuer.url, "subject": "stranger"}})
	layer := []byte("a layer")
	if err := registry.push(t.Context(), "dev/team/app", "v1", layer); err != nil {
		t.Fatal(err)
	}
	repos := procMust[struct {
		Repos []struct{ UID resource.UID }
	}](t, owner, "GET", "/registry/v2beta1/repos?name=app", nil)
	repo := string(repos.Repos[0].UID)

	trace := 0
	status := func(method, path, bearer string) int {
		t.Helper()
		trace++
		r, err := http.NewRequestWithContext(t.Context(), method, api+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Traceparent", "00-"+traceOf(trace)+"-00000000000000aa-00")
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	exchange := func(audience string) string {
		query := url.Values{"aud": {audience}, "identity": {string(identity.UID)}}
		trace++
		answer := traced(t, trace, "GET", api+"/sts/exchange?"+query.Encode(),
			issuer.token(map[string]any{"sub": "stranger"}), "")
		var out struct{ Token string }
		if err := json.Unmarshal(answer, &out); err != nil || out.Token == "" {
			t.Fatalf("%s: %v", answer, err)
		}
		return out.Token
	}
	_, host, _ := strings.Cut(procBase, "://")
	stranger, strangerAPI := exchange(host), exchange(procBase)
	type comparison struct {
		name             string
		private, missing int // traces
	}
	var comparisons []comparison
	compare := func(method, private, missing, bearer string) {
		t.Helper()
		a := status(method, private, bearer)
		first := trace
		if b := status(method, missing, bearer); a != b || a < 400 {
			t.Errorf("%s %s: %d, but %d for a missing one", method, private, a, b)
		}
		comparisons = append(comparisons, comparison{method + " " + private, first, trace})
	}
	digest := ociDigest(layer)
	for range 2 { // the first requests fill the caches
		for _, bearer := range []string{"", stranger} {
			for _, at := range []string{"/manifests/v1", "/manifests/" + digest, "/blobs/" + digest, "/tags/list",
				"/referrers/" + digest} {
				for _, method := range []string{"GET", "HEAD"} {
					if method == "HEAD" && (at == "/tags/list" || strings.HasPrefix(at, "/referrers")) {
						continue
					}
					for _, missing := range []string{"dev/team/none", "dev/none/app", "none/team/app"} {
						compare(method, "/v2/dev/team/app"+at, "/v2/"+missing+at, bearer)
					}
				}
			}
		}
		for _, write := range registryWrites(digest) {
			method, at, _ := strings.Cut(write, " ")
			compare(method, "/v2/dev/team/app"+at, "/v2/dev/team/none"+at, stranger)
		}
		compare("GET", "/v2/_catalog?last=dev/team/app", "/v2/_catalog?last=dev/team/none", stranger)
		unknown := string(group.UID) + "/0123456789abcdef"
		for _, path := range []string{"/registry/v2beta1/repos/", "/iam/v2beta1/budgets/"} {
			compare("GET", path+repo, path+unknown, strangerAPI)
		}
		compare("DELETE", "/registry/v2beta1/repos/"+repo, "/registry/v2beta1/repos/"+unknown, strangerAPI)
		for _, path := range pathsOfRepo(digest) {
			compare("GET", strings.ReplaceAll(path, "REPO", repo), strings.ReplaceAll(path, "REPO", unknown), strangerAPI)
		}
		if status("GET", "/v2/dev/team/app/manifests/v1", registry.token) != http.StatusOK ||
			status("GET", "/v2/_catalog?last=dev/team/app", registry.token) != http.StatusOK ||
			status("GET", "/v2/dev/team/none/manifests/v1", registry.token) != http.StatusNotFound {
			t.Error("the owner gets other answers")
		}
	}
	p.stop() // a stopping server sends the remaining spans
	for _, check := range comparisons {
		private, missing := c.statements(traceOf(check.private)), c.statements(traceOf(check.missing))
		if !slices.Equal(private, missing) {
			t.Errorf("%s runs %q, and for a missing one %q", check.name, private, missing)
		}
	}
}
