package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func newUpstream(group resource.UID) registry.Upstream {
	return registry.Upstream{
		UID: group.NewChild(), Name: "docker.io", Address: "https://registry-1.docker.io", FreshFor: time.Hour,
		Credentials: resource.Secret{Sealed: []byte("sealed")}, CreateTime: epoch, UpdateTime: epoch,
	}
}

func addUpstream(t *testing.T, s *storetest.Store, group resource.UID) registry.Upstream {
	t.Helper()
	u := newUpstream(group)
	must(t, s.InsertUpstream(t.Context(), u))
	return u
}

// mirroredImage returns an image whose layer may be missing in the repo.
func mirroredImage(word string) registry.Manifest {
	m := newImage(word)
	m.ArtifactType = registry.ImageConfigs[0]
	m.Needs[0].Optional = true
	return m
}

func blobOf(word string) registry.Blob {
	return registry.Blob{Digest: digest(word), Size: int64(len(word)), Path: "/blobs/" + rand.Text()}
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
			_, err := st.MirrorManifest(ctx, to, mirroredImage("mirrored"), "v1", nil)
			return err
		}
	}
	blob := func(to registrydb.RepoRef) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.MirrorBlob(ctx, to, registry.Blob{Digest: digest("mirrored " + st.org.Name), Size: 8,
				Path: "/mirrored/" + st.org.Name})
			return err
		}
	}
	return map[string]act{
		"InsertUpstream": {
			func(ctx context.Context) error { return st.InsertUpstream(ctx, newUpstream(st.folder.UID)) },
			func(ctx context.Context) error { return st.InsertUpstream(ctx, newUpstream(st.upstream.Group())) },
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

var upstreamPromises = map[string]func(t *testing.T, s *storetest.Store, group resource.UID){
	"a group has one upstream, and keeps it as it was given": func(t *testing.T, s *storetest.Store, group resource.UID) {
		u := addUpstream(t, s, group)
		wantSame(t, s.Upstream, u.UID, u)
		wantFault(t, s.InsertUpstream(t.Context(), newUpstream(group)), fault.AlreadyExists,
			fault.Resource{Type: "upstream", Name: "docker.io"})
		none := group.NewChild()
		wantFault(t, s.InsertUpstream(t.Context(), newUpstream(none)), fault.NotFound,
			fault.Resource{Type: "group", Name: string(none)})
		wantFault(t, s.DeleteGroup(t.Context(), group, ""), fault.FailedPrecondition, fault.Resource{})
		must(t, s.DeleteUpstream(t.Context(), u.UID))
		wantFault(t, s.DeleteUpstream(t.Context(), u.UID), fault.NotFound,
			fault.Resource{Type: "upstream", Name: string(u.UID)})
	},
	"a group with repos gets no upstream": func(t *testing.T, s *storetest.Store, group resource.UID) {
		addRepo(t, s, addGroup(t, s, group, "below").UID, "app")
		wantUnmet(t, s.InsertUpstream(t.Context(), newUpstream(group)), "GROUP_HAS_REPOS")
	},
	"every replica knows the upstream of a group and of those below": func(t *testing.T, s *storetest.Store,
		group resource.UID) {
		cache := sourcedb.NewUpstreamCache(sourcedb.New(registrydb.New(s.DB)))
		over := func(uid resource.UID) string {
			t.Helper()
			set, err := cache.Get(t.Context())
			must(t, err)
			u, _ := set.Over(uid)
			return u.Name
		}
		below := group.NewChild().NewChild()
		if over(group) != "" || over(below) != "" {
			t.Error("there is an upstream before one was made")
		}
		u := addUpstream(t, s, group)
		if over(group) != u.Name || over(below) != u.Name || over(group.Parent()) != "" {
			t.Error("the upstream is not known where it is")
		}
		_, err := store.Edit(t.Context(), u.UID, s.Upstream, s.UpdateUpstream, func(u *registry.Upstream) error {
			u.Name = "ghcr.io"
			return nil
		})
		must(t, err)
		if over(below) != "ghcr.io" {
			t.Error("a change is not known")
		}
		must(t, s.DeleteUpstream(t.Context(), u.UID))
		if over(group) != "" {
			t.Error("the upstream is known after it was deleted")
		}
	},
	"an image is inspected when its layers are here, and holds them": func(t *testing.T, s *storetest.Store,
		group resource.UID) {
		to := registrydb.RepoRef{Group: group, Name: "app", Create: true}
		m := mirroredImage("layer")
		m.Needs = append(m.Needs, registry.Need{Digest: digest("config"), Optional: true})
		repo, err := s.MirrorManifest(t.Context(), to, m, "v1", nil)
		must(t, err)
		queued := func() bool {
			t.Helper()
			_, ok, err := s.ReserveImage(t.Context(), nil, time.Minute)
			must(t, err)
			return ok
		}
		if queued() {
			t.Error("an image without its layers is inspected")
		}
		must(t, ignore(s.MirrorBlob(t.Context(), to, blobOf("layer"))))
		if queued() {
			t.Error("an image without its configuration is inspected")
		}
		wantFault(t, s.DeleteBlob(t.Context(), repo, digest("layer")), fault.FailedPrecondition, fault.Resource{})
		must(t, ignore(s.MirrorBlob(t.Context(), to, blobOf("config"))))
		if !queued() {
			t.Error("an image that is complete is not inspected")
		}
		must(t, s.DeleteManifest(t.Context(), repo, m.Digest, nil))
		must(t, s.DeleteBlob(t.Context(), repo, digest("layer")))
	},
	"an index holds its images when they are here": func(t *testing.T, s *storetest.Store, group resource.UID) {
		to := registrydb.RepoRef{Group: group, Name: "app", Create: true}
		index := newIndex("all", "amd64")
		index.Needs[0].Optional = true
		repo, err := s.MirrorManifest(t.Context(), to, index, "v1", nil)
		must(t, err)
		img := mirroredImage("amd64")
		must(t, ignore(s.MirrorManifest(t.Context(), to, img, "", nil)))
		wantFault(t, s.DeleteManifest(t.Context(), repo, img.Digest, nil), fault.FailedPrecondition, fault.Resource{})
		must(t, s.DeleteManifest(t.Context(), repo, index.Digest, nil))
		must(t, s.DeleteManifest(t.Context(), repo, img.Digest, nil))
	},
	"a tag moves unless it is frozen, and is seen": func(t *testing.T, s *storetest.Store, group resource.UID) {
		to := registrydb.RepoRef{Group: group, Name: "app", Create: true}
		repo, err := s.MirrorManifest(t.Context(), to, mirroredImage("one"), "v1", nil)
		must(t, err)
		seen, err := s.TagSeen(t.Context(), repo, "v1")
		if none, err := s.TagSeen(t.Context(), repo, "v2"); err != nil || !none.IsZero() {
			t.Errorf("a tag that was never seen was at %v, %v", none, err)
		}
		must(t, err)
		if seen.IsZero() {
			t.Error("a tag was not seen")
		}
		_, err = s.MirrorManifest(t.Context(), to, mirroredImage("two"), "v1", func(string) bool { return true })
		wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		must(t, ignore(s.MirrorManifest(t.Context(), to, mirroredImage("two"), "v1", nil)))
		if m, err := s.StatManifest(t.Context(), repo, "v1"); err != nil || m.Digest != mirroredImage("two").Digest {
			t.Errorf("the tag is at %s, %v", m.Digest, err)
		}
		must(t, s.DeleteRepo(t.Context(), repo))
	},
	"a manifest and its blob that come at the same time find each other": func(t *testing.T, s *storetest.Store,
		group resource.UID) {
		to := registrydb.RepoRef{Group: group, Name: "app", Create: true}
		for n := range 30 {
			word := fmt.Sprint("layer ", n)
			var both sync.WaitGroup
			var errs [2]error
			both.Go(func() { errs[0] = ignore(s.MirrorManifest(t.Context(), to, mirroredImage(word), "v1", nil)) })
			both.Go(func() { errs[1] = ignore(s.MirrorBlob(t.Context(), to, blobOf(word))) })
			both.Wait()
			must(t, errors.Join(errs[:]...))
		}
		var awaited, held int
		must(t, s.Row(t.Context(), `SELECT (SELECT count(*) FROM awaited), (SELECT count(*) FROM manifest_refs)`, nil,
			&awaited, &held))
		if awaited != 0 || held != 30 {
			t.Errorf("%d blobs are awaited that are here, and %d are held", awaited, held)
		}
	},
	"credentials that no key opens are forgotten": func(t *testing.T, s *storetest.Store, group resource.UID) {
		u := addUpstream(t, s, group)
		if all, err := s.UpstreamSecrets(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("secrets %q, %v", all, err)
		}
		forget := func(opens bool) (lost []registry.Upstream) {
			must(t, s.Write(t.Context(), func(tx *store.Tx) (err error) {
				lost, err = sourcedb.In(tx).ForgetUpstreamSecrets(t.Context(), func([]byte) bool { return opens })
				return err
			}))
			return lost
		}
		if lost := forget(true); len(lost) != 0 {
			t.Errorf("lost %v", lost)
		}
		if lost := forget(false); len(lost) != 1 || lost[0].UID != u.UID {
			t.Errorf("lost %v", lost)
		}
		if got, err := s.Upstream(t.Context(), u.UID); err != nil || !got.Credentials.Empty() {
			t.Errorf("%v, %v", got, err)
		}
	},
}

func TestUpstreamPromises(t *testing.T) {
	for name, f := range upstreamPromises {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, s *storetest.Store) {
				org := addGroup(t, s, "", "org")
				f(t, s, addGroup(t, s, org.UID, "mirror").UID)
				wantExact(t, s)
			})
		})
	}
}
