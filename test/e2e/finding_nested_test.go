package e2e_test

import (
	"net/http"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// nest pushes an index that lists only a manifest, and returns the digest of the index. The index names no platform.
func (w *world) nest(t *testing.T, repo, tag, mediaType, digest string) string {
	t.Helper()
	return w.pushManifest(t, repo, tag, indexType, map[string]any{
		"schemaVersion": 2, "mediaType": indexType,
		"manifests": []descriptor{{MediaType: mediaType, Digest: digest, Size: 1}},
	})
}

// TestNestedIndex pushes an index that lists an index with an image. Only the outer index has a tag. Findings, tags,
// the blast radius and retention must all see the image.
func TestNestedIndex(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		h := newHierarchy(t, serve(t, url, server.Config{InspectWorkers: 1}, nil))
		g := &gallery{hierarchy: h, repo: h.repo(t, h.folder, "app")}
		const path = "dev/folder/app"
		g.pushImage(t, path, "older", "amd64", "older")
		g.digest = g.pushImage(t, path, "image", "amd64", bookworm(t))
		inner := g.nest(t, path, "inner", manifestType, g.digest)
		outer := g.nest(t, path, "v1", indexType, inner)
		for _, tag := range []string{"image", "inner"} {
			if got := g.askRegistry(t, g.RegistryToken, "DELETE", path+"/manifests/"+tag); got != http.StatusAccepted {
				t.Fatalf("DELETE %s: %d", tag, got)
			}
		}
		g.await(t, "v1", findingspb.Inspection_STATE_INDEXED)
		g.publish(t, g.org, osvOf("DSA-1", "CVE-3", "Debian:12", "openssl", "3.0.2-1"))
		procUntil(t, "the match is known", func() bool { return len(g.found(t, g.overGRPC, g.Token)) == 1 })
		g.pushInventory(t, g.Token, g.folder, "prod", outer)
		for protocol, call := range g.protocols() {
			t.Run(protocol, func(t *testing.T) { g.seesNested(t, call) })
		}
		g.retain(t, g.folder, &ocipb.Retention{KeepNewest: 1})
		plan := must[*ocipb.RetentionPlan](t, g.overGRPC, g.Token, &ocipb.PreviewRetentionRequest{Uid: g.repo})
		must[proto.Message](t, g.overGRPC, g.Token,
			&ocipb.RunRetentionRequest{Uid: g.repo, Fingerprint: plan.GetFingerprint()})
		for target, want := range map[string]int{
			"older": http.StatusNotFound, "v1": http.StatusOK, inner: http.StatusOK, g.digest: http.StatusOK,
		} {
			if got := g.askRegistry(t, g.RegistryToken, "GET", path+"/manifests/"+target); got != want {
				t.Errorf("GET %s after the retention: %d, want %d", target, got, want)
			}
		}
	})
}

// seesNested checks the answers about the image below two indexes.
func (g *gallery) seesNested(t *testing.T, call caller) {
	t.Helper()
	if got := g.found(t, call, g.Token); len(got) != 1 {
		t.Errorf("findings of the outer index: %v", got)
	}
	lines, images := g.foundIn(t, call, g.Token, g.repo)
	if want := []string{"CVE-3 libssl3 1 [dev/folder/app:v1]"}; !slices.Equal(lines, want) || images != 2 {
		t.Errorf("findings of the repo: %v in %d images, want %v in 2", lines, images, want)
	}
	described := must[*ocipb.Image](t, call, g.Token, &ocipb.GetImageRequest{RepoUid: g.repo, Reference: "v1"})
	if v := described.GetVariants(); len(v) != 1 || v[0].GetDigest() != g.digest || v[0].GetArchitecture() != "amd64" {
		t.Errorf("the outer index has the images %v", v)
	}
	if totals := g.radius(t, call, g.Token); !slices.Equal(totals[:4], []int64{1, 1, 1, 1}) {
		t.Errorf("the stages of the blast radius have %v items", totals)
	}
}
