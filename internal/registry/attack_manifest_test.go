package registry_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

// TestAttackRuns checks that everything counts as an image that clients run, except artifacts of known types and
// indexes.
func TestAttackRuns(t *testing.T) {
	const (
		oci    = "application/vnd.oci.image.manifest.v1+json"
		docker = "application/vnd.docker.distribution.manifest.v2+json"
	)
	for body, want := range map[string]bool{
		`{"config":{"mediaType":"application/vnd.oci.image.config.v1+json"},"artifactType":"x"}`: true,
		`{"config":{"mediaType":" Application/Vnd.Docker.Container.Image.v1+json"}}`:             true,
		`{"config":{}}`: true,
		`{"config":{"mediaType":"application/octet-stream"}}`:                                                       true,
		`{"config":{"mediaType":"application/vnd.example.config+json"},"layers":[]}`:                                true,
		`{"config":{"mediaType":"application/vnd.wasm.config.v0+json"},"layers":[]}`:                                true,
		`{"config":{"mediaType":"application/vnd.oci.empty.v1+json"}}`:                                              false,
		`{"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json"}}`:                                       false,
		`{"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json"},"layers":[{"mediaType":"text/plain"}]}`: false,
		`{"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json"},
			"layers":[{"mediaType":"text/plain"},{"mediaType":" APPLICATION/vnd.oci.image.layer.v1.tar"}]}`: true,
		`{"config":{"mediaType":"application/vnd.oci.empty.v1+json"},
			"layers":[{"mediaType":"application/vnd.docker.container.image.v1+json"}]}`: true,
		`{"config":{"mediaType":"application/vnd.oci.empty.v1+json"},
			"layers":[{"mediaType":"application/vnd.wasm.content.layer.v1+wasm"}]}`: true,
		`{"layers":[]}`:                                        true,
		`{"manifests":[]}`:                                     false,
		`{"manifests":[{"digest":"sha256:00"}]}`:               false,
		`{"manifests":[{"digest":"sha256:00","data":"e30="}]}`: true,
		`{"manifests":null,"config":{"mediaType":"application/vnd.oci.image.config.v1+json"}}`: true,
		`{"fsLayers":[]}`:                 true,
		`{"fsLayers":"x"}`:                true,
		`{"blobs":[],"artifactType":"x"}`: false,
		`{}`:                              false,
		``:                                true, // a body that cannot be parsed counts as runnable
	} {
		if got := (registry.Manifest{MediaType: oci, Body: []byte(body)}).Runs(); got != want {
			t.Errorf("%s: %t", body, got)
		}
	}
	for _, mediaType := range []string{docker, "application/json", ""} {
		body := []byte(`{"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json"},"layers":[]}`)
		if !(registry.Manifest{MediaType: mediaType, Body: body}).Runs() {
			t.Errorf("a manifest of the type %q is an artifact", mediaType)
		}
	}
}
