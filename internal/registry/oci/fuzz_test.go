package oci

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// FuzzManifest checks that an accepted manifest is valid JSON and refers to a bounded number of valid digests, each
// once, and that others are refused with status 400.
func FuzzManifest(f *testing.F) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, body := range []string{
		`{"schemaVersion":2}`,
		`{"schemaVersion":2,"mediaType":"application/vnd.image.manifest.v1+json","config":{"digest":"` + digest +
			`","size":1},"layers":[{"digest":"` + digest + `"}]}`,
		`{"schemaVersion":2,"manifests":[{"digest":"` + digest +
			`","platform":{"os":"linux"}}],"annotations":{"Digest":"x"}}`,
		`{"schemaVersion":2,"subject":{"digest":"` + digest + `"},"artifactType":"a/b"}`,
		`{"a":{"a":[{"b":1,"b":2}]}}`, `[]`, `{"Layers":[]}`,
	} {
		f.Add("application/vnd.image.manifest.v1+json", []byte(body))
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		m, err := ParseManifest(contentType, body, false)
		if err != nil {
			if p := AsProblem(err); p.Status != 400 || p.Issues[0].Code == "" {
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
