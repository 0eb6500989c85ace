package store_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// pushRunnable pushes an image that waits for its inspection afterwards, and returns its digest.
func pushRunnable(t *testing.T, s *storetest.Store, r registry.Repo, word string) string {
	t.Helper()
	addBlob(t, s, r, word)
	m := newImage(word)
	m.ArtifactType = registry.ImageConfigs[0]
	return push(t, s, r, m, "").Digest
}

// take takes the next image from the queue.
func take(t *testing.T, s *storetest.Store, last *imagedb.QueuedImage) *imagedb.QueuedImage {
	t.Helper()
	q, ok, err := s.ReserveImage(t.Context(), last, time.Minute)
	must(t, err)
	if !ok {
		return nil
	}
	return &q
}

// settleImage takes an image out of the queue, and gives it a number and packages.
func settleImage(ctx context.Context, s *storetest.Store, q imagedb.QueuedImage, packages ...int64) (number int64,
	_ error) {
	err := s.Write(ctx, func(t *store.Tx) error {
		there, err := imagedb.In(t).HoldImage(ctx, q)
		if err != nil || !there {
			return err
		}
		if number, err = imagedb.In(t).NumberImage(ctx, q); err != nil {
			return err
		}
		if err := findingdb.In(t).ChangeImages(ctx, []int64{number}, packages, nil); err != nil {
			return err
		}
		return imagedb.In(t).SettleImage(ctx, q, registry.ImageIndexed, "", 1)
	})
	return number, err
}

// repoNamed returns the repo with a name in the organization.
func repoNamed(t *testing.T, s *storetest.Store, name string) (r registry.Repo) {
	t.Helper()
	var uid resource.UID
	must(t, s.Row(t.Context(), `SELECT r.uid FROM repos AS r JOIN groups AS g ON g.seg = r.parent WHERE g.name = $1`,
		[]any{name}, &uid))
	r, err := s.Repo(t.Context(), uid)
	must(t, err)
	return r
}

// imagePromises contains the tests for the queue of images, their numbers and their bitmaps.
var imagePromises = map[string]func(t *testing.T, s *storetest.Store){
	"the queue serves one organization after the other": func(t *testing.T, s *storetest.Store) {
		var want []string
		busy := addRepo(t, s, addGroup(t, s, "", "busy").UID, "app")
		for _, word := range []string{"1", "2", "3"} {
			pushRunnable(t, s, busy, word)
		}
		quiet := pushRunnable(t, s, addRepo(t, s, addGroup(t, s, "", "quiet").UID, "app"), "4")
		first := take(t, s, nil)
		second := take(t, s, first)
		if want = []string{first.Digest, second.Digest}; !slices.Contains(want, quiet) {
			t.Errorf("the first two are %v, and %s is not among them", want, quiet)
		}
	},
	"an image is taken once, and again when its time is over": func(t *testing.T, s *storetest.Store) {
		d := pushRunnable(t, s, addRepo(t, s, addGroup(t, s, "", "org").UID, "app"), "1")
		first := take(t, s, nil)
		if first == nil || first.Digest != d || first.Tries != 1 {
			t.Fatalf("took %v", first)
		}
		if again := take(t, s, first); again != nil {
			t.Fatalf("it was taken twice: %v", again)
		}
		must(t, s.PostponeImage(t.Context(), *first, 0, "later"))
		known, err := s.Images(t.Context(), first.Repo, []string{d})
		must(t, err)
		if got := known[d]; got.State != registry.ImageWaiting || got.Reason != "later" {
			t.Errorf("it is told to be %v", got)
		}
		if again := take(t, s, first); again == nil || again.Tries != 1 {
			t.Fatalf("took %v after it was put back", again)
		}
	},
	"no two organizations share a chunk": func(t *testing.T, s *storetest.Store) {
		chunks := map[resource.UID]int64{}
		for _, word := range []string{"1", "2", "3"} {
			for _, name := range []string{"one", "two"} {
				var r registry.Repo
				if word == "1" {
					r = addRepo(t, s, addGroup(t, s, "", name).UID, "app")
				} else {
					r = repoNamed(t, s, name)
				}
				pushRunnable(t, s, r, word+name)
				number, err := settleImage(t.Context(), s, *take(t, s, nil))
				must(t, err)
				chunk, _ := bitmap.At(number)
				if have, ok := chunks[r.UID]; ok && have != chunk {
					t.Errorf("images of %s are in the chunks %d and %d", name, have, chunk)
				}
				chunks[r.UID] = chunk
			}
		}
		if n := len(slices.Compact(slices.Sorted(maps.Values(chunks)))); n != 2 {
			t.Errorf("two organizations have %d chunks", n)
		}
	},
	"what is left of images is swept up when all of a chunk are gone": func(t *testing.T, s *storetest.Store) {
		r := addRepo(t, s, addGroup(t, s, "", "org").UID, "app")
		p, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left", Version: "1"}})
		must(t, err)
		d := pushRunnable(t, s, r, "1")
		_, err = settleImage(t.Context(), s, *take(t, s, nil), p...)
		must(t, err)
		must(t, s.DeleteManifest(t.Context(), r.UID, d, nil))
		_, err = s.SweepChunks(t.Context())
		must(t, err)
		var rows int
		must(t, s.Row(t.Context(), `SELECT count(*) FROM package_images`, nil, &rows))
		if rows != 0 {
			t.Errorf("%d bitmaps are left", rows)
		}
	},
	"very many versions that others have change no answer": func(t *testing.T, s *storetest.Store) {
		var crowd []registry.Package
		for i := range 1100 {
			crowd = append(crowd, registry.Package{Ecosystem: "npm", Name: "left", Version: strconv.Itoa(i)})
		}
		all, err := s.AddPackages(t.Context(), crowd)
		must(t, err)
		orgs := map[string]resource.UID{}
		for name, has := range map[string][]int64{"many": all, "few": all[7:9]} {
			r := addRepo(t, s, addGroup(t, s, "", name).UID, "app")
			orgs[name] = r.UID.Root()
			pushRunnable(t, s, r, name)
			_, err = settleImage(t.Context(), s, *take(t, s, nil), has...)
			must(t, err)
		}
		want := findingdb.NewMatches()
		for _, id := range all[8:] {
			want.Ratings[findingdb.Match{Package: id, Root: 1, Advisory: 2}] = findingdb.Rating{}
		}
		must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			return findingdb.In(tx).MatchAdvisories(t.Context(), []int64{2}, want, nil, func(findingdb.Change) error {
				return nil
			})
		}))
		for name, n := range map[string]int{"many": len(all), "few": 2} {
			known, err := s.PackagesNamed(t.Context(), []resource.UID{orgs[name]}, "left", 2000)
			must(t, err)
			if len(known) != n {
				t.Errorf("%s have %d versions, want %d", name, len(known), n)
			}
			if known, err = s.PackagesNamed(t.Context(), []resource.UID{orgs[name]}, "left", 2); err != nil || len(known) != 2 {
				t.Errorf("%d of two versions, and %v", len(known), err)
			}
		}
		got, err := s.AffectedBy(t.Context(), []resource.UID{orgs["few"]}, []int64{2})
		must(t, err)
		if diff := cmp.Diff(all[8:9], got); diff != "" {
			t.Error(diff)
		}
		got, err = s.AffectedBy(t.Context(), []resource.UID{orgs["many"]}, []int64{2})
		must(t, err)
		slices.Sort(got)
		if diff := cmp.Diff(slices.Sorted(slices.Values(all[8:])), got); diff != "" {
			t.Error(diff)
		}
	},
	"what is not an image does not wait": func(t *testing.T, s *storetest.Store) {
		r := addRepo(t, s, addGroup(t, s, "", "org").UID, "app")
		addImage(t, s, r, "", "a chart")
		if got := take(t, s, nil); got != nil {
			t.Errorf("took %v", got)
		}
	},
	"an image that is deleted is not inspected, and counted nowhere": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		r := addRepo(t, s, org.UID, "app")
		for _, word := range []string{"1", "2", "3"} {
			pushRunnable(t, s, r, word)
		}
		p, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left", Version: "1"}})
		must(t, err)
		for range 2 {
			_, err := settleImage(t.Context(), s, *take(t, s, nil), p...)
			must(t, err)
		}
		wantHaving(t, s, p, []resource.UID{org.UID}, 2)
		q := take(t, s, nil)
		must(t, s.DeleteManifest(t.Context(), r.UID, q.Digest, nil))
		_, err = settleImage(t.Context(), s, *q, p...)
		must(t, err)
		wantHaving(t, s, p, []resource.UID{org.UID}, 2)
		wantHaving(t, s, p, []resource.UID{r.UID}, 2)
		must(t, s.DeleteRepo(t.Context(), r.UID))
		wantHaving(t, s, p, []resource.UID{org.UID}, 0)
		if again := take(t, s, nil); again != nil {
			t.Errorf("took %v of a repo that is gone", again)
		}
	},
	"an image is read again when more can be read": func(t *testing.T, s *storetest.Store) {
		pushRunnable(t, s, addRepo(t, s, addGroup(t, s, "", "org").UID, "app"), "1")
		_, err := settleImage(t.Context(), s, *take(t, s, nil))
		must(t, err)
		_, err = s.SweepImages(t.Context(), 1)
		must(t, err)
		if got := take(t, s, nil); got != nil {
			t.Errorf("took %v, which was read by this version", got)
		}
		_, err = s.SweepImages(t.Context(), 2)
		must(t, err)
		if take(t, s, nil) == nil {
			t.Error("the next version does not read it again")
		}
	},
	"what SBOMs list counts for one image in one repo": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		repos := []registry.Repo{addRepo(t, s, org.UID, "with"), addRepo(t, s, org.UID, "without")}
		numbers := map[resource.UID]int64{}
		d := pushRunnable(t, s, repos[0], "1")
		pushRunnable(t, s, repos[1], "1")
		p, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left"},
			{Ecosystem: "npm", Name: "right"}})
		must(t, err)
		slices.Sort(p)
		for range repos {
			q := take(t, s, nil)
			numbers[q.Repo], err = settleImage(t.Context(), s, *q, p[0])
			must(t, err)
		}
		must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			_, _, err := findingdb.In(tx).SaveSBOMs(t.Context(), repos[0].UID, d, []registry.SBOM{
				{Origin: registry.Origin{Manifest: digest("a"), Time: time.UnixMilli(7)}, IDs: p},
				{Origin: registry.Origin{Manifest: digest("b"), Time: time.UnixMilli(5)}, IDs: p[1:]}})
			return err
		}))
		have, err := s.HaveSBOMs(t.Context(), []resource.UID{repos[0].UID, repos[1].UID})
		must(t, err)
		claims, err := s.Claims(t.Context(), []int64{numbers[repos[0].UID], numbers[repos[1].UID]})
		must(t, err)
		want := map[int64][]findingdb.Claim{numbers[repos[0].UID]: {{Package: p[0], Since: 7}, {Package: p[1], Since: 5}}}
		if diff := cmp.Diff(want, claims); diff != "" || len(have) != 1 || !have[repos[0].UID] {
			t.Errorf("SBOMs in %v: %s", have, diff)
		}
		each, err := s.HavingEach(t.Context(), []int64{numbers[repos[0].UID], numbers[repos[1].UID]}, p)
		must(t, err)
		if got := each[p[0]]; len(got) != 2 || got[0] < got[1] || len(each[p[1]]) != 0 {
			t.Errorf("images by package: %v", each)
		}
		_, err = s.PutTag(t.Context(), registry.Tag{UID: repos[1].UID.NewChild(), Name: "v1", Digest: d}, nil)
		must(t, err)
		tagged, err := s.TaggedImages(t.Context(), []resource.UID{org.UID}, 10)
		must(t, err)
		if diff := cmp.Diff([]imagedb.TaggedImage{{Repo: repos[1].UID, Digest: d, State: registry.ImageIndexed,
			Number: numbers[repos[1].UID]}}, tagged); diff != "" {
			t.Error(diff)
		}
	},
	"packages are numbered once, whoever has them": func(t *testing.T, s *storetest.Store) {
		all := []registry.Package{
			{Ecosystem: "npm", Name: "left", Version: "1"}, {Ecosystem: "npm", Name: "left", Version: "1", Owned: true},
			{Ecosystem: "Debian:12", Name: "left", Version: "1", SourceName: "l", SourceVersion: "2"},
		}
		first, err := s.AddPackages(t.Context(), all)
		must(t, err)
		again, err := s.AddPackages(t.Context(), slices.Repeat(all, 2))
		must(t, err)
		if diff := cmp.Diff(slices.Repeat(first, 2), again); diff != "" ||
			len(slices.Compact(slices.Sorted(slices.Values(first)))) != 3 {
			t.Errorf("numbers %v: %s", first, diff)
		}
		known, err := s.ByID(t.Context(), first)
		must(t, err)
		for i, p := range all {
			if known[first[i]] != p {
				t.Errorf("%v, want %v", known[first[i]], p)
			}
		}
	},
	"an inspection is kept as it was": func(t *testing.T, s *storetest.Store) {
		want := registry.Inspection{Digest: digest("x"), Extractors: 3,
			Distribution: registry.Distribution{ID: "debian", Version: "12", Name: "D"},
			Warnings:     []string{"ü"}, Packages: []registry.ImagePackage{
				{Package: registry.Package{Ecosystem: "a", Name: "n", Version: "1"}, Place: "x\ny", Layer: 7},
				{Package: registry.Package{Ecosystem: "b", Name: "n", Version: "1"}, Place: "", Layer: 0},
			}}
		ids, err := s.AddPackages(t.Context(), []registry.Package{want.Packages[0].Package, want.Packages[1].Package})
		must(t, err)
		want.Packages[0].ID, want.Packages[1].ID = ids[0], ids[1]
		must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			_, err := findingdb.In(tx).SaveInspection(t.Context(), want, ids)
			return err
		}))
		got, ok, err := s.Inspection(t.Context(), want.Digest)
		must(t, err)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(registry.Inspection{}, "UpdateTime")); !ok || diff != "" {
			t.Errorf("found: %v, %s", ok, diff)
		}
		_, err = s.SweepChunks(t.Context()) // removes the inspection, because no image has the digest
		must(t, err)
		if _, ok, err := s.Inspection(t.Context(), want.Digest); ok || err != nil {
			t.Errorf("it is still there: %v, %v", ok, err)
		}
	},
}

func wantHaving(t *testing.T, s *storetest.Store, packages []int64, groups []resource.UID, want int) {
	t.Helper()
	got, err := s.Having(t.Context(), groups, packages)
	must(t, err)
	if len(got) != want {
		t.Errorf("%d images have it, want %d", len(got), want)
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	for name, promise := range imagePromises {
		t.Run(name, func(t *testing.T) { storetest.Each(t, promise) })
	}
}

// TestImagesAtOnce: several replicas number images in one chunk while others are
// deleted. The test checks that no bit is lost.
func TestImagesAtOnce(t *testing.T) {
	t.Parallel()
	url := storetest.Postgres(t)
	s := storetest.Open(t, url)
	org := addGroup(t, s, "", "org")
	r := addRepo(t, s, org.UID, "app")
	p, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left", Version: "1"}})
	must(t, err)
	const each = 15
	for i := range 3 * each {
		pushRunnable(t, s, r, string(rune('a'+i)))
	}
	var all sync.WaitGroup
	for range 3 {
		replica := storetest.Open(t, url)
		all.Go(func() {
			for i := range each {
				q, ok, err := replica.ReserveImage(t.Context(), nil, time.Minute)
				for err == nil && !ok {
					q, ok, err = replica.ReserveImage(t.Context(), nil, time.Minute)
				}
				if err == nil {
					_, err = settleImage(t.Context(), replica, q, p...)
				}
				if err == nil && i%3 == 0 {
					err = replica.DeleteManifest(t.Context(), r.UID, q.Digest, nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	wantHaving(t, s, p, []resource.UID{org.UID}, 2*each)
	wantHaving(t, s, p, []resource.UID{r.UID}, 2*each)
}
