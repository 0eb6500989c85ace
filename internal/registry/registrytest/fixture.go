package registrytest

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// NewRepo returns a repo in a group.
func NewRepo(group resource.UID, name string) registry.Repo {
	return registry.Repo{UID: group.NewChild(), Name: name, CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch}
}

// NewDeployment returns a deployment by one Helm chart.
func NewDeployment(repo resource.UID) registry.Deployment {
	chart := "app"
	return registry.Deployment{
		UID: repo, Charts: []registry.HelmChart{{Repo: "https://charts.example.com",
			Chart: &chart}}, CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch,
	}
}

// AddRepo inserts a repo.
func AddRepo(t testing.TB, s *RegistryStore, group resource.UID, name string) registry.Repo {
	t.Helper()
	r := NewRepo(group, name)
	testkit.Must(t, s.InsertRepo(t.Context(), r))
	return r
}

// AddUpload inserts an upload.
func AddUpload(t testing.TB, s *RegistryStore, group resource.UID, repo string) registry.Upload {
	t.Helper()
	u := registry.Upload{ID: rand.Text(), Group: group, Repo: repo, Algorithm: "sha256"}
	testkit.Must(t, s.InsertUpload(t.Context(), u))
	return u
}

// Digest returns the digest of a word.
func Digest(word string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(word))) }

// Ref returns a reference to an existing repo, by its group and name.
func Ref(r registry.Repo) registrydb.RepoRef {
	return registrydb.RepoRef{Group: r.UID.Parent(), Name: r.Name}
}

// AddBlob adds a blob whose content is a word to a repo, and returns its digest.
func AddBlob(t testing.TB, s *RegistryStore, r registry.Repo, word string) string {
	t.Helper()
	b := registry.Blob{Digest: Digest(word), Size: int64(len(word)), Path: "/blobs/" + rand.Text()}
	_, err := s.AddBlob(t.Context(), Ref(r), registry.Upload{}, "", b)
	testkit.Must(t, err)
	return b.Digest
}

// NewImage returns a manifest with one blob, whose content is word.
func NewImage(word string) registry.Manifest {
	return registry.Manifest{
		Digest: Digest("manifest " + word), MediaType: "application/vnd.oci.image.manifest.v1+json", Size: int64(len(word)),
		Body:  []byte(word),
		Needs: []registry.Need{{Digest: Digest(word)}},
	}
}

// NewIndex returns an index that lists the images for the given words.
func NewIndex(word string, images ...string) registry.Manifest {
	m := registry.Manifest{Digest: Digest("index " + word), MediaType: "application/vnd.oci.image.index.v1+json",
		Body: []byte(word)}
	for _, w := range images {
		m.Needs = append(m.Needs, registry.Need{Digest: NewImage(w).Digest, Manifest: true})
	}
	return m
}

// AddImage pushes an image and its blob. If tag is not "", it also tags the image.
func AddImage(t testing.TB, s *RegistryStore, r registry.Repo, tag, word string) registry.Manifest {
	t.Helper()
	AddBlob(t, s, r, word)
	return Push(t, s, r, NewImage(word), tag)
}

// Push stores a manifest and tags it.
func Push(t testing.TB, s *RegistryStore, r registry.Repo, m registry.Manifest, tags ...string) registry.Manifest {
	t.Helper()
	if len(tags) == 1 && tags[0] == "" {
		tags = nil
	}
	_, err := s.PutManifest(t.Context(), Ref(r), m, tags)
	testkit.Must(t, err)
	return m
}

// Always is a rule that keeps every tag.
func Always(string) bool { return true }

// PushRunnable pushes an image that waits for its inspection afterwards, and returns its digest.
func PushRunnable(t testing.TB, s *RegistryStore, r registry.Repo, word string) string {
	t.Helper()
	AddBlob(t, s, r, word)
	m := NewImage(word)
	m.ArtifactType = registry.ImageConfigs[0]
	return Push(t, s, r, m, "").Digest
}

// TakeImage takes the next image from the queue.
func TakeImage(t testing.TB, s *ImageStore, last *imagedb.QueuedImage) *imagedb.QueuedImage {
	t.Helper()
	q, ok, err := s.ReserveImage(t.Context(), last, time.Minute)
	testkit.Must(t, err)
	if !ok {
		return nil
	}
	return &q
}

// NewCopy returns the parameters for a copy of manifests to a repo. The last manifest is an
// image whose tag is the same in both repos.
func NewCopy(from, to registry.Repo, tag string, all ...registry.Manifest) registrydb.Copying {
	last := all[len(all)-1]
	return registrydb.Copying{From: from.UID, To: registrydb.RepoRef{Group: to.UID.Parent(), Name: to.Name,
		Create: true}, Manifests: all,
		Images: []registry.CopiedImage{{Digest: last.Digest, Tag: tag, FromTag: tag}}}
}
