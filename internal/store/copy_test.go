package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// copying returns the parameters for a copy of manifests to a repo. The last manifest is an
// image whose tag is the same in both repos.
func copying(from, to registry.Repo, tag string, all ...registry.Manifest) registrydb.Copying {
	last := all[len(all)-1]
	return registrydb.Copying{From: from.UID, To: registrydb.RepoRef{Group: to.UID.Parent(), Name: to.Name,
		Create: true}, Manifests: all,
		Images: []registry.CopiedImage{{Digest: last.Digest, Tag: tag, FromTag: tag}}}
}

var copyPromises = map[string]func(t *testing.T, s shelf){
	"an image is copied with its blob and its tag, into a repo that is created": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		to := newRepo(s.org.UID, "copy")
		before := stored(t, s)
		done, err := s.CopyImages(t.Context(), copying(s.repo, to, "v1", m))
		must(t, err)
		if got, err := s.Manifest(t.Context(), done.Repo, "v1"); err != nil || got.Digest != m.Digest ||
			string(got.Body) != "one" {
			t.Errorf("manifest = %+v, %v", got, err)
		}
		if _, err := s.Blob(t.Context(), done.Repo, digest("one")); err != nil {
			t.Error(err)
		}
		want := registry.ImageCopy{Repo: done.Repo, From: s.repo.UID,
			Images:    []registry.CopiedImage{{Digest: m.Digest, Tag: "v1", FromTag: "v1"}},
			Manifests: 1, Bytes: 6}
		if diff := cmp.Diff(want, done); diff != "" {
			t.Errorf("copy (-want +got):\n%s", diff)
		}
		if got := stored(t, s) - before; got != done.Bytes {
			t.Errorf("%d bytes are stored more, of %d", got, done.Bytes)
		}
		must(t, s.DeleteRepo(t.Context(), s.repo.UID)) // the copy does not need the first repo
		collectAll(t, s.Store)
		if !blobExists(t, s.Store, "one") {
			t.Error("the blob of the copy is gone")
		}
	},
	"an index is copied with what it lists, and again it changes nothing": func(t *testing.T, s shelf) {
		a, b := addImage(t, s.Store, s.repo, "", "a"), addImage(t, s.Store, s.repo, "", "b")
		i := push(t, s.Store, s.repo, newIndex("i", "a", "b"), "v1")
		to := addRepo(t, s.Store, s.org.UID, "copy")
		addImage(t, s.Store, to, "old", "a")
		done, err := s.CopyImages(t.Context(), copying(s.repo, to, "v1", a, b, i))
		if err != nil || done.Manifests != 2 || done.Images[0].Present {
			t.Errorf("copy = %+v, %v", done, err)
		}
		done, err = s.CopyImages(t.Context(), copying(s.repo, to, "v1", a, b, i))
		if err != nil || done.Manifests != 0 || done.Bytes != 0 || !done.Images[0].Present || done.Images[0].Replaced != "" {
			t.Errorf("copy = %+v, %v", done, err)
		}
	},
	"a tag that is moved says from where, and one that must not be stays": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		to := addRepo(t, s.Store, s.org.UID, "copy")
		old := addImage(t, s.Store, to, "v1", "old")
		c := copying(s.repo, to, "v1", m)
		c.Frozen = always
		_, err := s.CopyImages(t.Context(), c)
		wantUnmet(t, err, "TAG_IMMUTABLE")
		if _, err := s.Manifest(t.Context(), to.UID, m.Digest); !errors.Is(err, fault.NotFound) {
			t.Errorf("a part was copied: %v", err)
		}
		c.Frozen = nil
		done, err := s.CopyImages(t.Context(), c)
		if err != nil || done.Images[0].Replaced != old.Digest {
			t.Errorf("copy = %+v, %v", done, err)
		}
	},
	"what is not there any more, or not what it was, is not copied": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		to := addRepo(t, s.Store, s.org.UID, "copy")
		c := copying(s.repo, to, "v1", m)
		addImage(t, s.Store, s.repo, "v1", "two")
		_, err := s.CopyImages(t.Context(), c)
		wantFault(t, err, fault.Aborted, fault.Resource{})
		must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		_, err = s.CopyImages(t.Context(), c)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "tag", Name: "v1"})
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		_, err = s.CopyImages(t.Context(), c)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: m.Digest})
		c.To.Create, c.To.Name = false, "none"
		_, err = s.CopyImages(t.Context(), c)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "repo", Name: "none"})
		c.From = s.org.UID.NewChild()
		_, err = s.CopyImages(t.Context(), c)
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"the segment of a group of others is not that group": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		other := addGroup(t, s.Store, "", "other")
		c := copying(s.repo, s.repo, "v1", m)
		c.To.Group = other.UID + s.folder.UID[strings.LastIndexByte(string(s.folder.UID), '/'):]
		_, err := s.CopyImages(t.Context(), c)
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a blob that the repo lacks is told": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		m.Needs = append(m.Needs, registry.Need{Digest: digest("none")})
		_, err := s.CopyImages(t.Context(), copying(s.repo, newRepo(s.org.UID, "copy"), "v1", m))
		if missing := (*registrydb.MissingError)(nil); !errors.As(err, &missing) {
			t.Errorf("error = %v", err)
		}
	},
	"a copy is a pull, a push and an event, and a promotion says who approved it": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		n := len(events(t, s.Store))
		c := copying(s.repo, newRepo(s.org.UID, "copy"), "v1", m)
		c.Promote, c.Reason = true, "tested"
		ctx := resource.WithActor(t.Context(), resource.Actor{Subject: alice})
		done, err := s.CopyImages(ctx, c)
		must(t, err)
		if done.By != alice || !done.Promoted || done.Reason != "tested" {
			t.Errorf("copy = %+v", done)
		}
		var types []resource.EventType
		for _, e := range events(t, s.Store)[n:] {
			types = append(types, e.Type)
		}
		slices.Sort(types)
		want := []resource.EventType{resource.ImagePromoted, resource.RepoCreated, resource.TagCreated,
			resource.RegistryPull, resource.RegistryPush}
		slices.Sort(want)
		if !slices.Equal(types, want) {
			t.Errorf("events = %v, want %v", types, want)
		}
		sums, err := s.PullSums(t.Context(), s.repo.UID, epoch, 10)
		if err != nil || len(sums) != 1 || sums[0].Identity != alice {
			t.Errorf("pulls = %+v, %v", sums, err)
		}
	},
}

func TestCopyPromises(t *testing.T) {
	keepPromises(t, copyPromises)
}

var copyDuels = map[string]func(t *testing.T, s *storetest.Store, r, to registry.Repo, word string) duel{
	"copy an image and delete it": func(t *testing.T, s *storetest.Store, r, to registry.Repo, word string) duel {
		m := addImage(t, s, r, "t-"+word, word)
		return duel{
			func() error { return ignore(s.CopyImages(t.Context(), copying(r, to, "t-"+word, m))) },
			func() error { return s.DeleteManifest(t.Context(), r.UID, m.Digest, nil) },
			copiedOrGone(t, s, to, word),
		}
	},
	"copy an image and delete its repo": func(t *testing.T, s *storetest.Store, r, to registry.Repo, word string) duel {
		own := addRepo(t, s, r.UID.Parent(), "own-"+word)
		m := addImage(t, s, own, "t-"+word, word)
		return duel{
			func() error { return ignore(s.CopyImages(t.Context(), copying(own, to, "t-"+word, m))) },
			func() error { return s.DeleteRepo(t.Context(), own.UID) },
			copiedOrGone(t, s, to, word),
		}
	},
	"copy an image and collect its blob": func(t *testing.T, s *storetest.Store, r, to registry.Repo, word string) duel {
		s.KeepTrash = 0
		m := addImage(t, s, r, "t-"+word, word)
		return duel{
			func() error { return ignore(s.CopyImages(t.Context(), copying(r, to, "t-"+word, m))) },
			func() error {
				err := s.DeleteManifest(t.Context(), r.UID, m.Digest, nil)
				if err == nil {
					err = s.DeleteBlob(t.Context(), r.UID, digest(word))
				}
				unheld, read := s.UnheldBlobs(t.Context(), "", 1000)
				_, purge := s.PurgeUnheld(t.Context(), unheld)
				return errors.Join(err, read, purge)
			},
			copiedOrGone(t, s, to, word),
		}
	},
	"copy an image and back": func(t *testing.T, s *storetest.Store, r, to registry.Repo, word string) duel {
		m := addImage(t, s, r, "t-"+word, word)
		addImage(t, s, to, "t-"+word, word)
		return duel{
			func() error { return ignore(s.CopyImages(t.Context(), copying(r, to, "t-"+word, m))) },
			func() error { return ignore(s.CopyImages(t.Context(), copying(to, r, "t-"+word, m))) },
			func(a, b error) error { return errors.Join(a, b, wholeAt(t, s, r, word), wholeAt(t, s, to, word)) },
		}
	},
}

// copiedOrGone returns a check that a copy is complete, or was refused because the image was
// deleted before.
func copiedOrGone(t *testing.T, s *storetest.Store, to registry.Repo, word string) func(a, b error) error {
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
		return errors.Join(a, wholeAt(t, s, to, word))
	}
}

// TestCopyDuels runs copies while the copied images are deleted, and checks that each copy is
// complete or refused.
func TestCopyDuels(t *testing.T) {
	const rounds = 20
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		for name, prepare := range copyDuels {
			t.Run(name, func(t *testing.T) {
				s.KeepTrash = week
				g := addGroup(t, s, org.UID, strings.ReplaceAll(name, " ", "-"))
				r, to := addRepo(t, s, g.UID, "app"), addRepo(t, s, g.UID, "copy")
				for i := range rounds {
					d := prepare(t, s, r, to, fmt.Sprintf("%d-%s", i, strings.ReplaceAll(name, " ", "-")))
					a, b := atOnce(d.a, d.b)
					if err := d.ok(a, b); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		wantExact(t, s)
	})
}

// TestCopyManyAtOnce copies 400 tags in one transaction, several times. It checks that the UIDs of the recorded
// pulls do not collide, even if they are not consecutive.
func TestCopyManyAtOnce(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	org := addGroup(t, s, "", "org")
	r := addRepo(t, s, org.UID, "app")
	m := addImage(t, s, r, "", "one")
	c := copying(r, newRepo(org.UID, "copy"), "t", m)
	for i := range 400 {
		tag := fmt.Sprint("t", i)
		push(t, s, r, m, tag)
		c.Images = append(c.Images, registry.CopiedImage{Digest: m.Digest, Tag: tag, FromTag: tag})
	}
	c.Images = c.Images[1:]
	// from now on, new UIDs are not consecutive but random within a millisecond
	org.UID.NewRisingChild(time.Now().Add(time.Hour))
	for range 5 {
		must(t, ignore(s.CopyImages(t.Context(), c)))
	}
}
