package store_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func newRepo(group resource.UID, name string) registry.Repo {
	return registry.Repo{UID: group.NewChild(), Name: name, CreateTime: epoch, UpdateTime: epoch}
}

// newDeployment returns a deployment by one Helm chart.
func newDeployment(repo resource.UID) registry.Deployment {
	chart := "app"
	return registry.Deployment{
		UID: repo, Charts: []registry.HelmChart{{Repo: "https://charts.example.com",
			Chart: &chart}}, CreateTime: epoch, UpdateTime: epoch,
	}
}

func addRepo(t *testing.T, s *storetest.Store, group resource.UID, name string) registry.Repo {
	t.Helper()
	r := newRepo(group, name)
	must(t, s.InsertRepo(t.Context(), r))
	return r
}

func addUpload(t *testing.T, s *storetest.Store, group resource.UID, repo string) registry.Upload {
	t.Helper()
	u := registry.Upload{ID: rand.Text(), Group: group, Repo: repo, Algorithm: "sha256"}
	must(t, s.InsertUpload(t.Context(), u))
	return u
}

// digest returns the digest of a word.
func digest(word string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(word))) }

// ref returns a reference to an existing repo, by its group and name.
func ref(r registry.Repo) registrydb.RepoRef {
	return registrydb.RepoRef{Group: r.UID.Parent(), Name: r.Name}
}

// addBlob adds a blob whose content is a word to a repo, and returns its digest.
func addBlob(t *testing.T, s *storetest.Store, r registry.Repo, word string) string {
	t.Helper()
	b := registry.Blob{Digest: digest(word), Size: int64(len(word)), Path: "/blobs/" + rand.Text()}
	_, err := s.AddBlob(t.Context(), ref(r), registry.Upload{}, "", b)
	must(t, err)
	return b.Digest
}

// newImage returns a manifest with one blob, whose content is word.
func newImage(word string) registry.Manifest {
	return registry.Manifest{
		Digest: digest("manifest " + word), MediaType: "application/vnd.oci.image.manifest.v1+json", Size: int64(len(word)),
		Body:  []byte(word),
		Needs: []registry.Need{{Digest: digest(word)}},
	}
}

// newIndex returns an index that lists the images for the given words.
func newIndex(word string, images ...string) registry.Manifest {
	m := registry.Manifest{Digest: digest("index " + word), MediaType: "application/vnd.oci.image.index.v1+json",
		Body: []byte(word)}
	for _, w := range images {
		m.Needs = append(m.Needs, registry.Need{Digest: newImage(w).Digest, Manifest: true})
	}
	return m
}

// addImage pushes an image and its blob. If tag is not "", it also tags the image.
func addImage(t *testing.T, s *storetest.Store, r registry.Repo, tag, word string) registry.Manifest {
	t.Helper()
	addBlob(t, s, r, word)
	return push(t, s, r, newImage(word), tag)
}

func push(t *testing.T, s *storetest.Store, r registry.Repo, m registry.Manifest, tags ...string) registry.Manifest {
	t.Helper()
	if len(tags) == 1 && tags[0] == "" {
		tags = nil
	}
	_, err := s.PutManifest(t.Context(), ref(r), m, tags)
	must(t, err)
	return m
}

// always is a rule that keeps every tag.
func always(string) bool { return true }

func (st stage) actsOnTheRegistry() map[string]act {
	ctx0 := context.Background()
	none := st.org.UID.NewChild()
	fresh := newRepo(st.org.UID, "new")
	tag, _ := st.TagNamed(ctx0, st.repo.UID, "v1")
	u := registry.Upload{ID: "new " + st.org.Name, Group: st.org.UID, Repo: "new", Algorithm: "sha256"}
	deleteTag := func(frozen func(string) bool) func(context.Context) error {
		return func(ctx context.Context) error { return st.DeleteTag(ctx, tag.UID, frozen) }
	}
	return map[string]act{
		"InsertRepo": {
			func(ctx context.Context) error { return st.InsertRepo(ctx, fresh) },
			func(ctx context.Context) error { return st.InsertRepo(ctx, newRepo(st.org.UID, "repo")) },
		},
		"UpdateRepo": {st.describeRepo(st.repo.UID), st.describeRepo(none)},
		"UpdateRepoReadme": {
			func(ctx context.Context) error {
				return st.UpdateRepoReadme(ctx, registry.RepoReadme{UID: st.repo.UID, Content: "x"})
			},
			func(ctx context.Context) error { return st.UpdateRepoReadme(ctx, registry.RepoReadme{UID: none}) },
		},
		"DeleteRepo": {
			func(ctx context.Context) error { return st.DeleteRepo(ctx, st.repo.UID) },
			func(ctx context.Context) error { return st.DeleteRepo(ctx, none) },
		},
		"DeleteTag": {deleteTag(nil), deleteTag(always)},
		"DeleteTagNamed": {
			func(ctx context.Context) error { return st.DeleteTagNamed(ctx, st.repo.UID, "v1", nil) },
			func(ctx context.Context) error { return st.DeleteTagNamed(ctx, st.repo.UID, "v2", nil) },
		},
		"DeleteManifest": {
			func(ctx context.Context) error {
				return st.DeleteManifest(ctx, st.repo.UID, newImage("one").Digest, nil)
			},
			func(ctx context.Context) error {
				return st.DeleteManifest(ctx, st.repo.UID, newImage("one").Digest, always)
			},
		},
		"DeleteBlob": {
			func(ctx context.Context) error {
				if _, err := st.AddBlob(ctx, ref(st.repo), registry.Upload{}, "",
					registry.Blob{Digest: digest("spare"), Path: "/" + st.org.Name}); err != nil {
					return err
				}
				if resource.IsDryRun(ctx) {
					return nil
				}
				return st.DeleteBlob(ctx, st.repo.UID, digest("spare"))
			},
			func(ctx context.Context) error { return st.DeleteBlob(ctx, st.repo.UID, digest("one")) },
		},
		"DeleteTrash": {
			func(ctx context.Context) error { return st.DeleteTrash(ctx, st.trash.UID) },
			func(ctx context.Context) error { return st.DeleteTrash(ctx, none) },
		},
		"Restore": {
			func(ctx context.Context) error {
				_, err := st.Restore(ctx, st.trash.UID, registrydb.Restoration{})
				return err
			},
			func(ctx context.Context) error { _, err := st.Restore(ctx, none, registrydb.Restoration{}); return err },
		},
		"SetRetention": {
			func(ctx context.Context) error {
				return ignore(st.SetRetention(ctx, registry.Retention{UID: st.repo.UID, KeepNewest: 1}))
			},
			func(ctx context.Context) error {
				return ignore(st.SetRetention(ctx, registry.Retention{UID: none, KeepNewest: 1}))
			},
		},
		"DeleteRetention": {
			func(ctx context.Context) error { return st.DeleteRetention(ctx, st.org.UID) },
			func(ctx context.Context) error { return st.DeleteRetention(ctx, none) },
		},
		"TakeRetention": {func(ctx context.Context) error {
			return ignore(st.TakeRetention(ctx, st.org.UID, st.Now().AddDate(0, 0, 2)))
		}, nil},
		"ApplyRetention": {
			func(ctx context.Context) error {
				return ignore(st.ApplyRetention(ctx, st.repo.UID, retentiondb.RetentionOrder{}))
			},
			func(ctx context.Context) error {
				return ignore(st.ApplyRetention(ctx, none, retentiondb.RetentionOrder{}))
			},
		},
		"InsertUpload": {func(ctx context.Context) error { return st.InsertUpload(ctx, u) }, nil},
		"DeleteUpload": {
			func(ctx context.Context) error { return st.DeleteUpload(ctx, st.u.ID) },
			func(ctx context.Context) error { return st.DeleteUpload(ctx, "none") },
		},
		"InsertPulls": {func(ctx context.Context) error {
			return st.InsertPulls(ctx, []registry.Pull{{UID: st.repo.UID.NewChild(), Digest: digest("one"), Time: epoch}})
		}, nil},
		"InsertDeployment": {
			func(ctx context.Context) error { return st.InsertDeployment(ctx, newDeployment(st.repo.UID)) },
			func(ctx context.Context) error { return st.InsertDeployment(ctx, newDeployment(none)) },
		},
		"UpdateDeployment": {
			func(ctx context.Context) error { return st.redeploy(ctx, st.deployed.UID) },
			func(ctx context.Context) error { return st.redeploy(ctx, none) },
		},
		"UpdateRegistrySettings": {st.open(st.org.UID), st.open(none)},
		"DeleteRegistrySettings": {func(ctx context.Context) error {
			if !resource.IsDryRun(ctx) {
				if err := st.open(st.folder.UID)(ctx); err != nil {
					return err
				}
			}
			return st.DeleteRegistrySettings(ctx, st.folder.UID)
		}, nil},
	}
}

func (st stage) redeploy(ctx context.Context, repo resource.UID) error {
	_, err := st.UpdateDeployment(ctx, repo, func(d *registry.Deployment) error { d.Charts = nil; return nil })
	return err
}

func (st stage) describeRepo(uid resource.UID) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := store.Edit(ctx, uid, st.Repo, st.UpdateRepo, func(r *registry.Repo) error {
			r.Description = "x"
			return nil
		})
		return err
	}
}

func (st stage) open(group resource.UID) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := st.UpdateRegistrySettings(ctx, group, func(s *registry.Settings) error { s.Public = true; return nil })
		return err
	}
}
