package store_test

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

func (st stage) actsOnTheRegistry() map[string]act {
	ctx0 := context.Background()
	none := st.org.UID.NewChild()
	fresh := registrytest.NewRepo(st.org.UID, "new")
	tag, _ := st.TagNamed(ctx0, st.repo.UID, "v1")
	u := registry.Upload{ID: "new " + st.org.Name, Group: st.org.UID, Repo: "new", Algorithm: "sha256"}
	deleteTag := func(frozen func(string) bool) func(context.Context) error {
		return func(ctx context.Context) error { return st.DeleteTag(ctx, tag.UID, frozen) }
	}
	return map[string]act{
		"InsertRepo": {
			func(ctx context.Context) error { return st.InsertRepo(ctx, fresh) },
			func(ctx context.Context) error { return st.InsertRepo(ctx, registrytest.NewRepo(st.org.UID, "repo")) },
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
		"DeleteTag": {deleteTag(nil), deleteTag(registrytest.Always)},
		"DeleteTagNamed": {
			func(ctx context.Context) error { return st.DeleteTagNamed(ctx, st.repo.UID, "v1", nil) },
			func(ctx context.Context) error { return st.DeleteTagNamed(ctx, st.repo.UID, "v2", nil) },
		},
		"DeleteManifest": {
			func(ctx context.Context) error {
				return st.DeleteManifest(ctx, st.repo.UID, registrytest.NewImage("one").Digest, nil)
			},
			func(ctx context.Context) error {
				return st.DeleteManifest(ctx, st.repo.UID, registrytest.NewImage("one").Digest, registrytest.Always)
			},
		},
		"DeleteBlob": {
			func(ctx context.Context) error {
				if _, err := st.AddBlob(ctx, registrytest.Ref(st.repo), registry.Upload{}, "",
					registry.Blob{Digest: registrytest.Digest("spare"), Path: "/" + st.org.Name}); err != nil {
					return err
				}
				if resource.IsDryRun(ctx) {
					return nil
				}
				return st.DeleteBlob(ctx, st.repo.UID, registrytest.Digest("spare"))
			},
			func(ctx context.Context) error { return st.DeleteBlob(ctx, st.repo.UID, registrytest.Digest("one")) },
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
				return testkit.Ignore(st.SetRetention(ctx, registry.Retention{UID: st.repo.UID, KeepNewest: 1}))
			},
			func(ctx context.Context) error {
				return testkit.Ignore(st.SetRetention(ctx, registry.Retention{UID: none, KeepNewest: 1}))
			},
		},
		"DeleteRetention": {
			func(ctx context.Context) error { return st.DeleteRetention(ctx, st.org.UID) },
			func(ctx context.Context) error { return st.DeleteRetention(ctx, none) },
		},
		"TakeRetention": {func(ctx context.Context) error {
			return testkit.Ignore(st.TakeRetention(ctx, st.org.UID, st.Now().AddDate(0, 0, 2)))
		}, nil},
		"ApplyRetention": {
			func(ctx context.Context) error {
				return testkit.Ignore(st.ApplyRetention(ctx, st.repo.UID, retentiondb.RetentionOrder{}))
			},
			func(ctx context.Context) error {
				return testkit.Ignore(st.ApplyRetention(ctx, none, retentiondb.RetentionOrder{}))
			},
		},
		"InsertUpload": {func(ctx context.Context) error { return st.InsertUpload(ctx, u) }, nil},
		"DeleteUpload": {
			func(ctx context.Context) error { return st.DeleteUpload(ctx, st.u.ID) },
			func(ctx context.Context) error { return st.DeleteUpload(ctx, "none") },
		},
		"InsertPulls": {func(ctx context.Context) error {
			return st.InsertPulls(ctx, []registry.Pull{{UID: st.repo.UID.NewChild(), Digest: registrytest.Digest("one"),
				Time: iamtest.Epoch}})
		}, nil},
		"InsertDeployment": {
			func(ctx context.Context) error {
				return st.InsertDeployment(ctx, registrytest.NewDeployment(st.repo.UID))
			},
			func(ctx context.Context) error { return st.InsertDeployment(ctx, registrytest.NewDeployment(none)) },
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

// actsOnSigners returns calls of the methods that write signers.
func (st stage) actsOnSigners() map[string]act {
	none := st.org.UID.NewChild()
	v := registrytest.NewSigner(st.org.UID, "new")
	return map[string]act{
		"InsertSigner": {
			func(ctx context.Context) error { return st.InsertSigner(ctx, v) },
			func(ctx context.Context) error { return st.InsertSigner(ctx, registrytest.NewSigner(none, "new")) },
		},
		"DeleteSigner": {
			func(ctx context.Context) error { return st.DeleteSigner(ctx, st.signer.UID) },
			func(ctx context.Context) error { return st.DeleteSigner(ctx, none) },
		},
	}
}

// actsOnReplications returns calls of the methods that write replications.
func (st stage) actsOnReplications() map[string]act {
	none := st.org.UID.NewChild()
	fresh := registrytest.NewReplication(st.folder.UID, "new")
	rename := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := store.Edit(ctx, uid, st.Replication, st.UpdateReplication, func(r *registry.Replication) error {
				r.Tags = []string{"v*"}
				return nil
			})
			return err
		}
	}
	scan := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error { return st.ScanReplication(ctx, uid, 0) }
	}
	return map[string]act{
		"InsertReplication": {
			func(ctx context.Context) error { return st.InsertReplication(ctx, fresh) },
			func(ctx context.Context) error {
				return st.InsertReplication(ctx, registrytest.NewReplication(st.org.UID, "copied"))
			},
		},
		"UpdateReplication": {rename(st.copied.UID), rename(none)},
		"DeleteReplication": {
			func(ctx context.Context) error { return st.DeleteReplication(ctx, st.copied.UID) },
			func(ctx context.Context) error { return st.DeleteReplication(ctx, none) },
		},
		"ScanReplication": {scan(st.copied.UID), scan(none)},
	}
}

func (st stage) actsOnUpstreams() map[string]act {
	none := st.org.UID.NewChild()
	to := registrydb.RepoRef{Group: st.upstream.Group(), Name: "app", Create: true}
	nowhere := registrydb.RepoRef{Group: none, Name: "app", Create: true}
	rename := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := store.Edit(ctx, uid, st.Upstream, st.UpdateUpstream, func(u *registry.Upstream) error {
				u.Name, u.Address = "other", "https://other.example"
				return nil
			})
			return err
		}
	}
	manifest := func(to registrydb.RepoRef) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.MirrorManifest(ctx, to, registrytest.NewMirroredImage("mirrored"), "v1", nil)
			return err
		}
	}
	blob := func(to registrydb.RepoRef) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.MirrorBlob(ctx, to, registry.Blob{Digest: registrytest.Digest("mirrored " + st.org.Name), Size: 8,
				Path: "/mirrored/" + st.org.Name})
			return err
		}
	}
	return map[string]act{
		"InsertUpstream": {
			func(ctx context.Context) error {
				return st.InsertUpstream(ctx, registrytest.NewUpstream(st.folder.UID))
			},
			func(ctx context.Context) error {
				return st.InsertUpstream(ctx, registrytest.NewUpstream(st.upstream.Group()))
			},
		},
		"UpdateUpstream": {rename(st.upstream.UID), rename(none)},
		"DeleteUpstream": {
			func(ctx context.Context) error { return st.DeleteUpstream(ctx, st.upstream.UID) },
			func(ctx context.Context) error { return st.DeleteUpstream(ctx, none) },
		},
		"MirrorManifest": {manifest(to), manifest(nowhere)},
		"MirrorBlob":     {blob(to), blob(nowhere)},
	}
}

func (st stage) actsOnFollowers() map[string]act {
	fresh, loop := registrytest.NewFollower(st.org.UID, "new", st.repo.UID), registrytest.NewFollower(st.org.UID, "loop",
		st.org.UID.NewChild())
	update := func(source resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			return testkit.Ignore(store.Edit(ctx, st.follower.UID, st.Repo,
				func(ctx context.Context, before, after registry.Repo) (registry.Repo, error) {
					return st.UpdateFollower(ctx, before, after, iamtest.Bob)
				}, func(r *registry.Repo) error { r.Sync.Source = string(source); return nil }))
		}
	}
	return map[string]act{
		"InsertFollower": {
			func(ctx context.Context) error { return st.InsertFollower(ctx, fresh, iamtest.Alice) },
			func(ctx context.Context) error { return st.InsertFollower(ctx, loop, iamtest.Alice) },
		},
		"UpdateFollower": {update(st.deployed.UID), update(st.follower.UID)},
		"RequestFollow": {
			func(ctx context.Context) error { return st.RequestFollow(ctx, st.equal.UID, 0) },
			func(ctx context.Context) error { return st.RequestFollow(ctx, st.repo.UID, time.Second) },
		},
		"TakeFollow": {func(ctx context.Context) error {
			_, _, err := st.TakeFollow(ctx, st.follower.UID, "me")
			return err
		}, nil},
	}
}
