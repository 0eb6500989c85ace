package protocol

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// FuzzManifest reads manifests. What is accepted refers to nothing but digests,
// a bounded number of them, each once, and is one document to every reader.
func FuzzManifest(f *testing.F) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, body := range []string{
		`{"schemaVersion":2}`,
		`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"digest":"` + digest +
			`","size":1},"layers":[{"digest":"` + digest + `"}]}`,
		`{"schemaVersion":2,"manifests":[{"digest":"` + digest +
			`","platform":{"os":"linux"}}],"annotations":{"Digest":"x"}}`,
		`{"schemaVersion":2,"subject":{"digest":"` + digest + `"},"artifactType":"a/b"}`,
		`{"a":{"a":[{"b":1,"b":2}]}}`, `[]`, `{"Layers":[]}`,
	} {
		f.Add("application/vnd.oci.image.manifest.v1+json", []byte(body))
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		m, err := parseManifest(contentType, body, false)
		if err != nil {
			if p := asProblem(err); p.Status != 400 || p.Issues[0].Code == "" {
				t.Errorf("refused with %d %v", p.Status, err)
			}
			return
		}
		if !json.Valid(body) || m.MediaType == "" || len(m.Needs) > maxNeeds {
			t.Errorf("accepted: %q with %d needs", m.MediaType, len(m.Needs))
		}
		seen := map[string]bool{}
		for _, n := range m.Needs {
			if !resource.ValidDigest(n.Digest) || seen[n.Digest] {
				t.Errorf("needs %q", n.Digest)
			}
			seen[n.Digest] = true
		}
		if m.Subject != "" && !resource.ValidDigest(m.Subject) {
			t.Errorf("subject = %q", m.Subject)
		}
	})
}

// FuzzTarget reads paths. A name that is accepted has nothing in it that could
// lead elsewhere.
func FuzzTarget(f *testing.F) {
	for _, path := range []string{
		"/v2/", "/v2/a/b/tags/list", "/v2/a/blobs/uploads/", "/v2/a/blobs/uploads/x", "/v2/a/manifests/manifests/v1",
		"/v2/../x/tags/list",
		"/v2/a/b/referrers/sha256:x", "/v2/_catalog", "/v2/token", "/v2/%2e%2e/tags/list", "/v2/a%2Fb/tags/list",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		got, err := parseTarget(u)
		if err != nil {
			if p := asProblem(err); p.Status != 400 && p.Status != 404 {
				t.Errorf("refused with %d", p.Status)
			}
			return
		}
		if got.name != "" && (len(got.name) > maxName || strings.Contains(got.name, "..") ||
			strings.ToLower(got.name) != got.name || strings.ContainsAny(got.name, "%\x00 ")) {
			t.Errorf("name = %q", got.name)
		}
		if got.name == "" && got.kind != "base" && got.kind != "token" && got.kind != "catalog" {
			t.Errorf("%s without a name", got.kind)
		}
	})
}
