package imagedb_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// A nested is a repo with an image below a chain of five indexes. The fourth index also lists the image directly, and
// the third lists the fifth's only image a second time. Each index has a tag with its name.
type nested struct {
	repo   registry.Repo
	digest string // digest of the image
	number int64  // number of the image
	index  map[string]string
}

// newNested pushes the image and its indexes, and numbers the image.
func newNested(t *testing.T, s *vulntest.Store) (n nested) {
	t.Helper()
	n.repo = registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "app")
	n.digest = registrytest.PushRunnable(t, s.RegistryStore, n.repo, "image")
	number, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil))
	testkit.Must(t, err)
	n.number, n.index = number, map[string]string{}
	below := n.digest
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		m := registrytest.NewIndex(name)
		m.Needs = []registry.Need{{Digest: below, Manifest: true}}
		if name == "three" {
			m.Needs = append(m.Needs, registry.Need{Digest: n.digest, Manifest: true})
		}
		below = registrytest.Push(t, s.RegistryStore, n.repo, m, name).Digest
		n.index[name] = below
	}
	return n
}

// TestNestedIndexes checks that an image is known below an index that lists another index, up to four levels. The
// index "three" lists the image directly, so the index "five" has it at its third level.
func TestNestedIndexes(t *testing.T) {
	t.Parallel()
	every := []string{"five", "four", "one", "three", "two"}
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		n := newNested(t, s)
		numbers := []int64{n.number}
		want := func(what string, got, want any, err error) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v\n%s", what, err, diff)
			}
		}
		tagged, err := s.TaggedImages(t.Context(), []resource.UID{n.repo.UID}, 10)
		want("the images of a repo", tagged, []imagedb.TaggedImage{{Repo: n.repo.UID, Digest: n.digest,
			State: registry.ImageIndexed, Number: n.number}}, err)
		images, err := s.NumberedImages(t.Context(), numbers)
		testkit.Must(t, err)
		want("the tags of an image", images[0].Tags, every, nil)
		tags, err := s.TagsOf(t.Context(), n.repo.UID, []string{n.digest, n.index["four"]})
		for _, names := range tags {
			slices.Sort(names)
		}
		want("the tags of manifests", tags, map[string][]string{n.digest: every, n.index["four"]: {"five", "four"}}, err)
		rows, err := s.ImageTags(t.Context(), numbers)
		var names []string
		for _, r := range rows {
			if names = append(names, r.Name); r.Repo != n.repo.UID || r.Digest != n.index[r.Name] {
				t.Errorf("the tag %s is %v", r.Name, r)
			}
		}
		slices.Sort(names)
		want("the tags in a blast radius", names, every, err)
		below, err := s.ListedBy(t.Context(), n.repo.UID, n.index["two"], 10)
		wanted := []string{n.digest, n.index["one"]}
		slices.Sort(wanted)
		want("what an index lists", below, wanted, err)
		past, err := s.TagsAt(t.Context(), n.repo.UID, n.digest, s.Time().Add(time.Minute))
		slices.Sort(past)
		want("the tags at a time", past, every, err)
		periods, err := s.TagPeriods(t.Context(), []resource.UID{n.repo.UID}, 0, 10)
		testkit.Must(t, err)
		for _, p := range periods {
			if len(p.Images) != 1 || p.Images[0].Digest != n.digest {
				t.Errorf("the tag %s had the images %v", p.Name, p.Images)
			}
		}
		for name, d := range n.index {
			testkit.Must(t, s.DeleteTagNamed(t.Context(), n.repo.UID, name, nil))
			past, err := s.PastTags(t.Context(), numbers)
			if testkit.Must(t, err); !slices.ContainsFunc(past[n.number],
				func(p registry.PastTag) bool { return p.Name == name }) {
				t.Errorf("%s pointed to %s, and the past tags are %v", name, d, past)
			}
		}
	})
}

// TestNestedLevels checks that five levels of indexes are more than a query follows.
func TestNestedLevels(t *testing.T) {
	t.Parallel()
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		n := newNested(t, s)
		_, err := s.Exec(t.Context(), `DELETE FROM manifest_refs WHERE repo = $1 AND digest = $2 AND child = $3`,
			store.Segment(n.repo.UID), n.index["three"], n.digest)
		testkit.Must(t, err)
		tags, err := s.TagsOf(t.Context(), n.repo.UID, []string{n.digest})
		testkit.Must(t, err)
		slices.Sort(tags[n.digest])
		if diff := cmp.Diff([]string{"four", "one", "three", "two"}, tags[n.digest]); diff != "" {
			t.Error(diff)
		}
	})
}

// TestNestedCycle checks that a cycle of references ends. No client can push one, because a digest depends on the
// digests that the manifest lists.
func TestNestedCycle(t *testing.T) {
	t.Parallel()
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		n := newNested(t, s)
		_, err := s.Exec(t.Context(), `INSERT INTO manifest_refs (repo, digest, child) VALUES ($1, $2, $3)`,
			store.Segment(n.repo.UID), n.index["one"], n.index["two"])
		testkit.Must(t, err)
		images, err := s.NumberedImages(t.Context(), []int64{n.number})
		testkit.Must(t, err)
		if diff := cmp.Diff([]string{"five", "four", "one", "three", "two"}, images[0].Tags); diff != "" {
			t.Error(diff)
		}
	})
}
