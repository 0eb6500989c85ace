package indexer_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/indexer"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// pushLayers pushes an image with layers, which are named by words, and returns its digest.
func pushLayers(t *testing.T, s *storetest.Store, repo registry.Repo, words ...string) string {
	t.Helper()
	digest := func(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }
	ref := registrydb.RepoRef{Group: repo.UID.Parent(), Name: repo.Name}
	m := registry.Manifest{MediaType: registry.ImageManifests[0], ArtifactType: registry.ImageConfigs[0]}
	layers := ""
	for i, word := range words {
		_, err := s.AddBlob(t.Context(), ref, registry.Upload{}, "",
			registry.Blob{Digest: digest(word), Size: 1, Path: "/blobs/" + rand.Text()})
		testkit.Must(t, err)
		m.Needs = append(m.Needs, registry.Need{Digest: digest(word)})
		if i > 0 {
			layers += ","
		}
		layers += fmt.Sprintf(`{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": %q, "size": 1}`,
			digest(word))
	}
	m.Body = fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": %q, "config": {"mediaType": %q, "digest": %q, "size": 2},
		"layers": [%s]}`, m.MediaType, m.ArtifactType, digest("config"), layers)
	m.Digest, m.Size = digest(string(m.Body)), int64(len(m.Body))
	_, err := s.PutManifest(t.Context(), ref, m, nil)
	testkit.Must(t, err)
	return m.Digest
}

// TestAttackCostlyLayers: a tenant pushes ever new images that contain layers which together exceed the limits of an
// inspection. Only the first image is read. Images of the tenant without these layers are read, and so are images of
// another tenant that contain a layer with the same digest, because its cost may be false.
func TestAttackCostlyLayers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		quiet := slog.New(slog.DiscardHandler)
		checker, err := authz.Load(t.Context(), s.DB, quiet)
		testkit.Must(t, err)
		issuer, err := token.New(t.Context(), s.DB, token.Config{Issuer: "http://issuer.test", Key: secret.NewKey()})
		testkit.Must(t, err)
		images := assembly.New(s.DB, checker, issuer, blob.NewFolder(t.TempDir()), assembly.Config{}).Images
		limits := inspect.DefaultLimits()
		var read [][]inspect.Layer
		x := indexer.New(s.ImageStore, s.FindingStore, images, indexer.Config{
			Version: 1, Log: quiet,
			Read: func(_ context.Context, _ string, layers []inspect.Layer) (inspect.Result, error) {
				read = append(read, layers)
				costs := []inspect.LayerCost{{Layer: 0, Bytes: limits.Bytes / 2, Processor: time.Second}}
				if len(layers) == 1 {
					return inspect.Result{Layers: costs, Processor: time.Second}, nil
				}
				costs = append(costs, inspect.LayerCost{Layer: 1, Bytes: limits.Bytes/2 + 1, Processor: time.Second})
				return inspect.Result{}, &inspect.NotUnderstood{Reason: "too large", Layers: costs, Processor: 2 * time.Second}
			},
		})
		newRepo := func(name string) registry.Repo {
			return registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", name).UID, "app")
		}
		attacker, other := newRepo("attacker"), newRepo("other")
		inspected := func(r registry.Repo, words ...string) (registry.ImageState, bool) {
			t.Helper()
			before := len(read)
			d := pushLayers(t, s, r, words...)
			testkit.Must(t, x.Step(t.Context()))
			found, err := s.Images(t.Context(), r.UID, []string{d})
			testkit.Must(t, err)
			return found[d].State, len(read) > before
		}
		for _, tt := range []struct {
			what  string
			repo  registry.Repo
			words []string
			state registry.ImageState
			read  bool
		}{
			{"the first image", attacker, []string{"one", "two"}, registry.ImageNotUnderstood, true},
			{"the same layers with another one", attacker, []string{"one", "new", "two"}, registry.ImageNotUnderstood, false},
			{"the same layers in another order", attacker, []string{"two", "one"}, registry.ImageNotUnderstood, false},
			{"one of the layers", attacker, []string{"one"}, registry.ImageIndexed, true},
			{"one of the layers, of another tenant", other, []string{"one", "three"}, registry.ImageNotUnderstood, true},
			{"the layers of another tenant", other, []string{"one", "two"}, registry.ImageNotUnderstood, true},
		} {
			if state, read := inspected(tt.repo, tt.words...); state != tt.state || read != tt.read {
				t.Errorf("%s: state %v, read %t", tt.what, state, read)
			}
		}
	})
}
