package registrydb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

var copyPromises = map[string]func(t *testing.T, s registrytest.Shelf){
	"an image is copied with its blob and its tag, into a repo that is created": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		to := registrytest.NewRepo(s.Org.UID, "copy")
		before := registrytest.StoredBytes(t, s)
		done, err := s.CopyImages(t.Context(), registrytest.NewCopy(s.App, to, "v1", m))
		testkit.Must(t, err)
		if got, err := s.Manifest(t.Context(), done.Repo, "v1"); err != nil || got.Digest != m.Digest ||
			string(got.Body) != "one" {
			t.Errorf("manifest = %+v, %v", got, err)
		}
		if _, err := s.Blob(t.Context(), done.Repo, registrytest.Digest("one")); err != nil {
			t.Error(err)
		}
		want := registry.ImageCopy{Repo: done.Repo, From: s.App.UID,
			Images:    []registry.CopiedImage{{Digest: m.Digest, Tag: "v1", FromTag: "v1"}},
			Manifests: 1, Bytes: 6}
		if diff := cmp.Diff(want, done); diff != "" {
			t.Errorf("copy (-want +got):\n%s", diff)
		}
		if got := registrytest.StoredBytes(t, s) - before; got != done.Bytes {
			t.Errorf("%d bytes are stored more, of %d", got, done.Bytes)
		}
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID)) // the copy does not need the first repo
		registrytest.CollectAll(t, s.Store)
		if !registrytest.BlobExists(t, s.RegistryStore, "one") {
			t.Error("the blob of the copy is gone")
		}
	},
	"an index is copied with what it lists, and again it changes nothing": func(t *testing.T, s registrytest.Shelf) {
		a, b := registrytest.AddImage(t, s.RegistryStore, s.App, "", "a"), registrytest.AddImage(t, s.RegistryStore, s.App,
			"", "b")
		i := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "a", "b"), "v1")
		to := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "copy")
		registrytest.AddImage(t, s.RegistryStore, to, "old", "a")
		done, err := s.CopyImages(t.Context(), registrytest.NewCopy(s.App, to, "v1", a, b, i))
		if err != nil || done.Manifests != 2 || done.Images[0].Present {
			t.Errorf("copy = %+v, %v", done, err)
		}
		done, err = s.CopyImages(t.Context(), registrytest.NewCopy(s.App, to, "v1", a, b, i))
		if err != nil || done.Manifests != 0 || done.Bytes != 0 || !done.Images[0].Present || done.Images[0].Replaced != "" {
			t.Errorf("copy = %+v, %v", done, err)
		}
	},
	"a tag that is moved says from where, and one that must not be stays": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		to := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "copy")
		old := registrytest.AddImage(t, s.RegistryStore, to, "v1", "old")
		c := registrytest.NewCopy(s.App, to, "v1", m)
		c.Frozen = registrytest.Always
		_, err := s.CopyImages(t.Context(), c)
		testkit.WantUnmet(t, err, "TAG_IMMUTABLE")
		if _, err := s.Manifest(t.Context(), to.UID, m.Digest); !errors.Is(err, fault.NotFound) {
			t.Errorf("a part was copied: %v", err)
		}
		c.Frozen = nil
		done, err := s.CopyImages(t.Context(), c)
		if err != nil || done.Images[0].Replaced != old.Digest {
			t.Errorf("copy = %+v, %v", done, err)
		}
	},
	"what is not there any more, or not what it was, is not copied": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		to := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "copy")
		c := registrytest.NewCopy(s.App, to, "v1", m)
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "two")
		_, err := s.CopyImages(t.Context(), c)
		testkit.WantFault(t, err, fault.Aborted, fault.Resource{})
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		_, err = s.CopyImages(t.Context(), c)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "tag", Name: "v1"})
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		_, err = s.CopyImages(t.Context(), c)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: m.Digest})
		c.To.Create, c.To.Name = false, "none"
		_, err = s.CopyImages(t.Context(), c)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "repo", Name: "none"})
		c.From = s.Org.UID.NewChild()
		_, err = s.CopyImages(t.Context(), c)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"the segment of a group of others is not that group": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		other := iamtest.AddGroup(t, s.IAMStore, "", "other")
		c := registrytest.NewCopy(s.App, s.App, "v1", m)
		c.To.Group = other.UID + s.Folder.UID[strings.LastIndexByte(string(s.Folder.UID), '/'):]
		_, err := s.CopyImages(t.Context(), c)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a blob that the repo lacks is told": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		m.Needs = append(m.Needs, registry.Need{Digest: registrytest.Digest("none")})
		_, err := s.CopyImages(t.Context(), registrytest.NewCopy(s.App, registrytest.NewRepo(s.Org.UID, "copy"), "v1", m))
		if missing := (*registrydb.MissingError)(nil); !errors.As(err, &missing) {
			t.Errorf("error = %v", err)
		}
	},
	"a copy is a pull, a push and an event, and a promotion says who approved it": func(t *testing.T,
		s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		n := len(dbtest.Events(t, s.DB))
		c := registrytest.NewCopy(s.App, registrytest.NewRepo(s.Org.UID, "copy"), "v1", m)
		c.Promote, c.Reason = true, "tested"
		ctx := resource.WithActor(t.Context(), resource.Actor{Subject: iamtest.Alice})
		done, err := s.CopyImages(ctx, c)
		testkit.Must(t, err)
		if done.By != iamtest.Alice || !done.Promoted || done.Reason != "tested" {
			t.Errorf("copy = %+v", done)
		}
		var types []resource.EventType
		for _, e := range dbtest.Events(t, s.DB)[n:] {
			types = append(types, e.Type)
		}
		slices.Sort(types)
		want := []resource.EventType{resource.ImagePromoted, resource.RepoCreated, resource.TagCreated,
			resource.RegistryPull, resource.RegistryPush}
		slices.Sort(want)
		if !slices.Equal(types, want) {
			t.Errorf("events = %v, want %v", types, want)
		}
		sums, err := s.PullSums(t.Context(), s.App.UID, iamtest.Epoch, 10)
		if err != nil || len(sums) != 1 || sums[0].Identity != iamtest.Alice {
			t.Errorf("pulls = %+v, %v", sums, err)
		}
	},
}

func TestCopyPromises(t *testing.T) {
	registrytest.KeepPromises(t, copyPromises)
}

var copyDuels = map[string]func(t *testing.T, s *registrytest.Store, r, to registry.Repo, word string) dbtest.Duel{
	"copy an image and delete it": func(t *testing.T, s *registrytest.Store, r, to registry.Repo,
		word string) dbtest.Duel {
		m := registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		return dbtest.NewDuel(
			func() error {
				return testkit.Ignore(s.CopyImages(t.Context(), registrytest.NewCopy(r, to, "t-"+word, m)))
			},
			func() error { return s.DeleteManifest(t.Context(), r.UID, m.Digest, nil) },
			copiedOrGone(t, s, to, word),
		)
	},
	"copy an image and delete its repo": func(t *testing.T, s *registrytest.Store, r, to registry.Repo,
		word string) dbtest.Duel {
		own := registrytest.AddRepo(t, s.RegistryStore, r.UID.Parent(), "own-"+word)
		m := registrytest.AddImage(t, s.RegistryStore, own, "t-"+word, word)
		return dbtest.NewDuel(
			func() error {
				return testkit.Ignore(s.CopyImages(t.Context(), registrytest.NewCopy(own, to, "t-"+word, m)))
			},
			func() error { return s.DeleteRepo(t.Context(), own.UID) },
			copiedOrGone(t, s, to, word),
		)
	},
	"copy an image and collect its blob": func(t *testing.T, s *registrytest.Store, r, to registry.Repo,
		word string) dbtest.Duel {
		s.KeepTrash = 0
		m := registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		return dbtest.NewDuel(
			func() error {
				return testkit.Ignore(s.CopyImages(t.Context(), registrytest.NewCopy(r, to, "t-"+word, m)))
			},
			func() error {
				err := s.DeleteManifest(t.Context(), r.UID, m.Digest, nil)
				if err == nil {
					err = s.DeleteBlob(t.Context(), r.UID, registrytest.Digest(word))
				}
				unheld, read := s.UnheldBlobs(t.Context(), "", 1000)
				_, purge := s.PurgeUnheld(t.Context(), unheld)
				return errors.Join(err, read, purge)
			},
			copiedOrGone(t, s, to, word),
		)
	},
	"copy an image and back": func(t *testing.T, s *registrytest.Store, r, to registry.Repo, word string) dbtest.Duel {
		m := registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		registrytest.AddImage(t, s.RegistryStore, to, "t-"+word, word)
		return dbtest.NewDuel(
			func() error {
				return testkit.Ignore(s.CopyImages(t.Context(), registrytest.NewCopy(r, to, "t-"+word, m)))
			},
			func() error {
				return testkit.Ignore(s.CopyImages(t.Context(), registrytest.NewCopy(to, r, "t-"+word, m)))
			},
			func(a, b error) error {
				return errors.Join(a, b, registrytest.CheckWhole(t, s.RegistryStore, r, word),
					registrytest.CheckWhole(t, s.RegistryStore, to, word))
			},
		)
	},
}

// copiedOrGone returns a check that a copy is complete, or was refused because the image was
// deleted before.
func copiedOrGone(t *testing.T, s *registrytest.Store, to registry.Repo, word string) func(a, b error) error {
	return func(a, b error) error {
		if b != nil {
			return b
		}
		missing := (*registrydb.MissingError)(nil)
		if errors.Is(a, fault.NotFound) || errors.As(a, &missing) {
			if _, err := s.Manifest(t.Context(), to.UID, "t-"+word); !errors.Is(err, fault.NotFound) {
				return fmt.Errorf("a copy that was refused is there: %v", err)
			}
			return nil
		}
		return errors.Join(a, registrytest.CheckWhole(t, s.RegistryStore, to, word))
	}
}

// TestCopyDuels runs copies while the copied images are deleted, and checks that each copy is
// complete or refused.
func TestCopyDuels(t *testing.T) {
	const rounds = 20
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		for name, prepare := range copyDuels {
			t.Run(name, func(t *testing.T) {
				s.KeepTrash = registrytest.Week
				g := iamtest.AddGroup(t, s.IAMStore, org.UID, strings.ReplaceAll(name, " ", "-"))
				r, to := registrytest.AddRepo(t, s.RegistryStore, g.UID, "app"), registrytest.AddRepo(t, s.RegistryStore, g.UID,
					"copy")
				for i := range rounds {
					d := prepare(t, s, r, to, fmt.Sprintf("%d-%s", i, strings.ReplaceAll(name, " ", "-")))
					a, b := dbtest.AtOnce(d.A, d.B)
					if err := d.OK(a, b); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		dbtest.WantExact(t, s.DB)
	})
}

// TestCopyManyAtOnce copies 400 tags in one transaction, several times. It checks that the UIDs of the recorded
// pulls do not collide, even if they are not consecutive.
func TestCopyManyAtOnce(t *testing.T) {
	s := registrytest.Open(t, dbtest.SQLite(t))
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := registrytest.AddRepo(t, s.RegistryStore, org.UID, "app")
	m := registrytest.AddImage(t, s.RegistryStore, r, "", "one")
	c := registrytest.NewCopy(r, registrytest.NewRepo(org.UID, "copy"), "t", m)
	for i := range 400 {
		tag := fmt.Sprint("t", i)
		registrytest.Push(t, s.RegistryStore, r, m, tag)
		c.Images = append(c.Images, registry.CopiedImage{Digest: m.Digest, Tag: tag, FromTag: tag})
	}
	c.Images = c.Images[1:]
	// from now on, new UIDs are not consecutive but random within a millisecond
	org.UID.NewRisingChild(time.Now().Add(time.Hour))
	for range 5 {
		testkit.Must(t, testkit.Ignore(s.CopyImages(t.Context(), c)))
	}
}
