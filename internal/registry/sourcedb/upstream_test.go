package sourcedb_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

func blobOf(word string) registry.Blob {
	return registry.Blob{Digest: registrytest.Digest(word), Size: int64(len(word)), Path: "/blobs/" + rand.Text()}
}

var upstreamPromises = map[string]func(t *testing.T, s *registrytest.Store, group resource.UID){
	"a group has one upstream, and keeps it as it was given": func(t *testing.T, s *registrytest.Store,
		group resource.UID) {
		u := registrytest.AddUpstream(t, s.SourceStore, group)
		testkit.WantSame(t, s.Upstream, u.UID, u)
		testkit.WantFault(t, s.InsertUpstream(t.Context(), registrytest.NewUpstream(group)), fault.AlreadyExists,
			fault.Resource{Type: "upstream", Name: "docker.io"})
		none := group.NewChild()
		testkit.WantFault(t, s.InsertUpstream(t.Context(), registrytest.NewUpstream(none)), fault.NotFound,
			fault.Resource{Type: "group", Name: string(none)})
		testkit.WantFault(t, s.DeleteGroup(t.Context(), group, ""), fault.FailedPrecondition, fault.Resource{})
		testkit.Must(t, s.DeleteUpstream(t.Context(), u.UID))
		testkit.WantFault(t, s.DeleteUpstream(t.Context(), u.UID), fault.NotFound,
			fault.Resource{Type: "upstream", Name: string(u.UID)})
	},
	"a group with repos gets no upstream": func(t *testing.T, s *registrytest.Store, group resource.UID) {
		registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, group, "below").UID, "app")
		testkit.WantUnmet(t, s.InsertUpstream(t.Context(), registrytest.NewUpstream(group)), "GROUP_HAS_REPOS")
	},
	"every replica knows the upstream of a group and of those below": func(t *testing.T, s *registrytest.Store,
		group resource.UID) {
		cache := sourcedb.NewUpstreamCache(sourcedb.New(registrydb.New(s.DB)))
		over := func(uid resource.UID) string {
			t.Helper()
			set, err := cache.Get(t.Context())
			testkit.Must(t, err)
			u, _ := set.Over(uid)
			return u.Name
		}
		below := group.NewChild().NewChild()
		if over(group) != "" || over(below) != "" {
			t.Error("there is an upstream before one was made")
		}
		u := registrytest.AddUpstream(t, s.SourceStore, group)
		if over(group) != u.Name || over(below) != u.Name || over(group.Parent()) != "" {
			t.Error("the upstream is not known where it is")
		}
		_, err := store.Edit(t.Context(), u.UID, s.Upstream, s.UpdateUpstream, func(u *registry.Upstream) error {
			u.Name = "ghcr.io"
			return nil
		})
		testkit.Must(t, err)
		if over(below) != "ghcr.io" {
			t.Error("a change is not known")
		}
		testkit.Must(t, s.DeleteUpstream(t.Context(), u.UID))
		if over(group) != "" {
			t.Error("the upstream is known after it was deleted")
		}
	},
	"an image is inspected when its layers are here, and holds them": func(t *testing.T, s *registrytest.Store,
		group resource.UID) {
		to := registrydb.RepoRef{Group: group, Name: "app", Create: true}
		m := registrytest.NewMirroredImage("layer")
		m.Needs = append(m.Needs, registry.Need{Digest: registrytest.Digest("config"), Optional: true})
		repo, err := s.MirrorManifest(t.Context(), to, m, "v1", nil)
		testkit.Must(t, err)
		queued := func() bool {
			t.Helper()
			_, ok, err := s.ReserveImage(t.Context(), nil, time.Minute)
			testkit.Must(t, err)
			return ok
		}
		if queued() {
			t.Error("an image without its layers is inspected")
		}
		testkit.Must(t, testkit.Ignore(s.MirrorBlob(t.Context(), to, blobOf("layer"))))
		if queued() {
			t.Error("an image without its configuration is inspected")
		}
		testkit.WantFault(t, s.DeleteBlob(t.Context(), repo, registrytest.Digest("layer")), fault.FailedPrecondition,
			fault.Resource{})
		testkit.Must(t, testkit.Ignore(s.MirrorBlob(t.Context(), to, blobOf("config"))))
		if !queued() {
			t.Error("an image that is complete is not inspected")
		}
		testkit.Must(t, s.DeleteManifest(t.Context(), repo, m.Digest, nil))
		testkit.Must(t, s.DeleteBlob(t.Context(), repo, registrytest.Digest("layer")))
	},
	"an index holds its images when they are here": func(t *testing.T, s *registrytest.Store, group resource.UID) {
		to := registrydb.RepoRef{Group: group, Name: "app", Create: true}
		index := registrytest.NewIndex("all", "amd64")
		index.Needs[0].Optional = true
		repo, err := s.MirrorManifest(t.Context(), to, index, "v1", nil)
		testkit.Must(t, err)
		img := registrytest.NewMirroredImage("amd64")
		testkit.Must(t, testkit.Ignore(s.MirrorManifest(t.Context(), to, img, "", nil)))
		testkit.WantFault(t, s.DeleteManifest(t.Context(), repo, img.Digest, nil), fault.FailedPrecondition, fault.Resource{})
		testkit.Must(t, s.DeleteManifest(t.Context(), repo, index.Digest, nil))
		testkit.Must(t, s.DeleteManifest(t.Context(), repo, img.Digest, nil))
	},
	"a tag moves unless it is frozen, and is seen": func(t *testing.T, s *registrytest.Store, group resource.UID) {
		to := registrydb.RepoRef{Group: group, Name: "app", Create: true}
		repo, err := s.MirrorManifest(t.Context(), to, registrytest.NewMirroredImage("one"), "v1", nil)
		testkit.Must(t, err)
		seen, err := s.TagSeen(t.Context(), repo, "v1")
		if none, err := s.TagSeen(t.Context(), repo, "v2"); err != nil || !none.IsZero() {
			t.Errorf("a tag that was never seen was at %v, %v", none, err)
		}
		testkit.Must(t, err)
		if seen.IsZero() {
			t.Error("a tag was not seen")
		}
		_, err = s.MirrorManifest(t.Context(), to, registrytest.NewMirroredImage("two"), "v1",
			func(string) bool { return true })
		testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		testkit.Must(t, testkit.Ignore(s.MirrorManifest(t.Context(), to, registrytest.NewMirroredImage("two"), "v1", nil)))
		if m, err := s.StatManifest(t.Context(), repo, "v1"); err != nil ||
			m.Digest != registrytest.NewMirroredImage("two").Digest {
			t.Errorf("the tag is at %s, %v", m.Digest, err)
		}
		testkit.Must(t, s.DeleteRepo(t.Context(), repo))
	},
	"a manifest and its blob that come at the same time find each other": func(t *testing.T, s *registrytest.Store,
		group resource.UID) {
		to := registrydb.RepoRef{Group: group, Name: "app", Create: true}
		for n := range 30 {
			word := fmt.Sprint("layer ", n)
			var both sync.WaitGroup
			var errs [2]error
			both.Go(func() {
				errs[0] = testkit.Ignore(s.MirrorManifest(t.Context(), to, registrytest.NewMirroredImage(word), "v1", nil))
			})
			both.Go(func() { errs[1] = testkit.Ignore(s.MirrorBlob(t.Context(), to, blobOf(word))) })
			both.Wait()
			testkit.Must(t, errors.Join(errs[:]...))
		}
		var awaited, held int
		testkit.Must(t, s.Row(t.Context(), `SELECT (SELECT count(*) FROM awaited), (SELECT count(*) FROM manifest_refs)`, nil,
			&awaited, &held))
		if awaited != 0 || held != 30 {
			t.Errorf("%d blobs are awaited that are here, and %d are held", awaited, held)
		}
	},
	"credentials that no key opens are forgotten": func(t *testing.T, s *registrytest.Store, group resource.UID) {
		u := registrytest.AddUpstream(t, s.SourceStore, group)
		if all, err := s.UpstreamSecrets(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("secrets %q, %v", all, err)
		}
		forget := func(opens bool) (lost []registry.Upstream) {
			testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) (err error) {
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
			registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
				org := iamtest.AddGroup(t, s.IAMStore, "", "org")
				f(t, s, iamtest.AddGroup(t, s.IAMStore, org.UID, "mirror").UID)
				dbtest.WantExact(t, s.DB)
			})
		})
	}
}
