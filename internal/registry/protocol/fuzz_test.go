package protocol

import (
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

// FuzzTarget checks that parseTarget refuses invalid paths with status 400 or 404, and that the names in accepted
// paths contain no "..", no upper case letters and no escapes.
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
			if p := oci.AsProblem(err); p.Status != 400 && p.Status != 404 {
				t.Errorf("refused with %d", p.Status)
			}
			return
		}
		if got.name != "" && (len(got.name) > oci.MaxName || strings.Contains(got.name, "..") ||
			strings.ToLower(got.name) != got.name || strings.ContainsAny(got.name, "%\x00 ")) {
			t.Errorf("name = %q", got.name)
		}
		if got.name == "" && got.kind != "base" && got.kind != "token" && got.kind != "catalog" {
			t.Errorf("%s without a name", got.kind)
		}
	})
}
