package e2e_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// A descriptor is a reference from one document in the registry to another.
type descriptor struct {
	MediaType string            `json:"mediaType"`
	Digest    string            `json:"digest"`
	Size      int               `json:"size"`
	Platform  map[string]string `json:"platform,omitempty"`
}

func describe(mediaType, content string) descriptor {
	return descriptor{MediaType: mediaType, Digest: digestOf(content), Size: len(content)}
}

func digestOf(content string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content))) }

// put sends content to the registry as the owner. It fails the test unless the status is 201 Created.
func (w *world) put(t *testing.T, verb, target, contentType, content string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, w.BaseURL+"/v2/"+target, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.SetBasicAuth("_token", w.RegistryToken)
	if got := w.roundTrip(t, r); got.status != http.StatusCreated {
		t.Fatalf("%s %s: HTTP status %d\n%s", verb, target, got.status, got.body)
	}
}

// pushImage pushes an image with one layer to a repo and tags it. repo is the path of the repo. It returns the
// digest of the image.
func (w *world) pushImage(t *testing.T, repo, tag, architecture, layer string) string {
	t.Helper()
	config := fmt.Sprintf(`{"architecture":%q,"os":"linux","created":"2026-01-02T03:04:05Z",`+
		`"config":{"User":"1000","Env":["A=b"],"Entrypoint":["/app"],"Cmd":["serve"],"WorkingDir":"/srv",`+
		`"ExposedPorts":{"8080/tcp":{}},"Labels":{"l":"v"}},`+
		`"rootfs":{"type":"layers","diff_ids":[%q]}}`, architecture, digestOf(layer))
	for _, blob := range []string{config, layer} {
		w.put(t, "POST", repo+"/blobs/uploads/?digest="+digestOf(blob), "application/octet-stream", blob)
	}
	return w.pushManifest(t, repo, tag, manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": describe(configType, config),
		"layers": []descriptor{describe(layerType, layer)}, "annotations": map[string]string{"made": "here"},
	})
}

// pushIndex pushes an index with one image for each architecture, and returns its digest.
func (w *world) pushIndex(t *testing.T, repo, tag string, architectures ...string) string {
	t.Helper()
	var manifests []descriptor
	for _, a := range architectures {
		digest := w.pushImage(t, repo, "only-"+a, a, "layer for "+a)
		manifests = append(manifests, descriptor{
			MediaType: manifestType, Digest: digest, Size: 1, Platform: map[string]string{"architecture": a, "os": "linux"},
		})
	}
	return w.pushManifest(t, repo, tag, indexType, map[string]any{
		"schemaVersion": 2, "mediaType": indexType, "manifests": manifests,
	})
}

func (w *world) pushManifest(t *testing.T, repo, tag, mediaType string, content any) string {
	t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	w.put(t, "PUT", repo+"/manifests/"+tag, mediaType, string(text))
	return digestOf(string(text))
}

// repo creates a repo as the owner and returns its UID.
func (w *world) repo(t *testing.T, parent, name string) string {
	t.Helper()
	return must[*registrypb.Repo](t, w.overGRPC, w.Token, &registrypb.CreateRepoRequest{
		Parent: parent, Repo: &registrypb.Repo{Name: name},
	}).GetUid()
}

// tag creates a tag for an image as the owner and returns its UID.
func (w *world) tag(t *testing.T, repo, name, digest string) string {
	t.Helper()
	return must[*registrypb.Tag](t, w.overGRPC, w.Token, &registrypb.CreateTagRequest{
		Parent: repo, Tag: &registrypb.Tag{Name: name, Digest: digest},
	}).GetUid()
}
