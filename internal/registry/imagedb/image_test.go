package imagedb_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// repoNamed returns the repo with a name in the organization.
func repoNamed(t *testing.T, s *vulntest.Store, name string) (r registry.Repo) {
	t.Helper()
	var uid resource.UID
	testkit.Must(t, s.Row(t.Context(),
		`SELECT r.uid FROM repos AS r JOIN groups AS g ON g.seg = r.parent WHERE g.name = $1`,
		[]any{name}, &uid))
	r, err := s.Repo(t.Context(), uid)
	testkit.Must(t, err)
	return r
}

// imagePromises contains the tests for the queue of images, their numbers and their bitmaps.
var imagePromises = map[string]func(t *testing.T, s *vulntest.Store){
	"the queue serves one organization after the other": func(t *testing.T, s *vulntest.Store) {
		var want []string
		busy := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "busy").UID, "app")
		for _, word := range []string{"1", "2", "3"} {
			registrytest.PushRunnable(t, s.RegistryStore, busy, word)
		}
		quiet := registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore,
			iamtest.AddGroup(t, s.IAMStore, "", "quiet").UID, "app"), "4")
		first := registrytest.TakeImage(t, s.ImageStore, nil)
		second := registrytest.TakeImage(t, s.ImageStore, first)
		if want = []string{first.Digest, second.Digest}; !slices.Contains(want, quiet) {
			t.Errorf("the first two are %v, and %s is not among them", want, quiet)
		}
	},
	"an image is taken once, and again when its time is over": func(t *testing.T, s *vulntest.Store) {
		d := registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore,
			iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "app"), "1")
		first := registrytest.TakeImage(t, s.ImageStore, nil)
		if first == nil || first.Digest != d || first.Tries != 1 {
			t.Fatalf("took %v", first)
		}
		if again := registrytest.TakeImage(t, s.ImageStore, first); again != nil {
			t.Fatalf("it was taken twice: %v", again)
		}
		testkit.Must(t, s.PostponeImage(t.Context(), *first, 0, "later"))
		known, err := s.Images(t.Context(), first.Repo, []string{d})
		testkit.Must(t, err)
		if got := known[d]; got.State != registry.ImageWaiting || got.Reason != "later" {
			t.Errorf("it is told to be %v", got)
		}
		if again := registrytest.TakeImage(t, s.ImageStore, first); again == nil || again.Tries != 1 {
			t.Fatalf("took %v after it was put back", again)
		}
	},
	"the age of the queue is the age of its first image": func(t *testing.T, s *vulntest.Store) {
		if oldest, err := s.OldestQueued(t.Context()); !oldest.IsZero() || err != nil {
			t.Errorf("without images: %v, %v", oldest, err)
		}
		repo := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "app")
		before := s.Time().Truncate(time.Millisecond)
		d := registrytest.PushRunnable(t, s.RegistryStore, repo, "1")
		after := s.Time()
		registrytest.PushRunnable(t, s.RegistryStore, repo, "2")
		if oldest, err := s.OldestQueued(t.Context()); oldest.Before(before) || oldest.After(after) || err != nil {
			t.Errorf("the oldest image was pushed at %v, %v, not between %v and %v", oldest, err, before, after)
		}
		first := registrytest.TakeImage(t, s.ImageStore, nil)
		if oldest, err := s.OldestQueued(t.Context()); oldest.After(after) || err != nil {
			t.Errorf("while %s is inspected: %v, %v", d, oldest, err)
		}
		_, err := vulntest.SettleImage(t.Context(), s.DB, *first)
		testkit.Must(t, err)
		if oldest, err := s.OldestQueued(t.Context()); oldest.IsZero() || err != nil {
			t.Errorf("with one image left: %v, %v", oldest, err)
		}
	},
	"the end of the backlog is estimated from the images that were taken": func(t *testing.T, s *vulntest.Store) {
		start, now := s.Time().Truncate(time.Second), s.Time().Truncate(time.Second)
		s.Now = func() time.Time { return now }
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		repo := registrytest.AddRepo(t, s.RegistryStore, org, "app")
		idle := iamtest.AddGroup(t, s.IAMStore, "", "idle").UID
		want := func(what string, end time.Time, orgs ...resource.UID) {
			t.Helper()
			if got, err := s.BacklogEnd(t.Context(), orgs); !got.Equal(end) || err != nil {
				t.Errorf("%s: %v, %v, want %v", what, got, err, end)
			}
		}
		none := time.Time{}
		want("without images", none, org)
		for i := range 30 {
			registrytest.PushRunnable(t, s.RegistryStore, repo, fmt.Sprint(i))
		}
		want("before an image was taken", none, org)
		take := func(n int) {
			t.Helper()
			for range n {
				_, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil))
				testkit.Must(t, err)
			}
		}
		take(10)
		now = start.Add(4 * time.Second)
		want("after four seconds", none, org)
		now = start.Add(20 * time.Second)
		want("after 20 seconds, with 20 images left", now.Add(40*time.Second), org)
		want("with an organization that has no images", now.Add(40*time.Second), org, idle)
		want("of that organization", none, idle)
		registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore, idle, "app"), "late")
		want("with an organization whose image waits", none, org, idle)
		now = start.Add(80 * time.Second)
		take(6) // a new period begins, and one of these images is in the other organization
		now = start.Add(105 * time.Second)
		want("in the second period, with 15 images left", now.Add(105*time.Second), org)
		now = start.Add(10 * time.Minute)
		want("long after the last image", none, org)
		take(10)
		now = now.Add(10 * time.Second)
		want("after a pause, with 5 images left", now.Add(5*time.Second), org)
		testkit.Must(t, s.SweepCosts(t.Context()))
		want("after a sweep", now.Add(5*time.Second), org)
		now = start.Add(2 * time.Hour)
		testkit.Must(t, s.SweepCosts(t.Context()))
		var left int
		testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM inspection_rates`, nil, &left))
		if left != 0 {
			t.Errorf("%d old rates are left", left)
		}
	},
	"no two organizations share a chunk": func(t *testing.T, s *vulntest.Store) {
		chunks := map[resource.UID]int64{}
		for _, word := range []string{"1", "2", "3"} {
			for _, name := range []string{"one", "two"} {
				var r registry.Repo
				if word == "1" {
					r = registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", name).UID, "app")
				} else {
					r = repoNamed(t, s, name)
				}
				registrytest.PushRunnable(t, s.RegistryStore, r, word+name)
				number, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil))
				testkit.Must(t, err)
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
	"what is left of images is swept up when all of a chunk are gone": func(t *testing.T, s *vulntest.Store) {
		r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "app")
		p, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left", Version: "1"}})
		testkit.Must(t, err)
		d := registrytest.PushRunnable(t, s.RegistryStore, r, "1")
		_, err = vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil), p...)
		testkit.Must(t, err)
		testkit.Must(t, s.DeleteManifest(t.Context(), r.UID, d, nil))
		_, err = s.SweepChunks(t.Context())
		testkit.Must(t, err)
		var rows int
		testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM package_images`, nil, &rows))
		if rows != 0 {
			t.Errorf("%d bitmaps are left", rows)
		}
	},
	"very many versions that others have change no answer": func(t *testing.T, s *vulntest.Store) {
		var crowd []registry.Package
		for i := range 1100 {
			crowd = append(crowd, registry.Package{Ecosystem: "npm", Name: "left", Version: strconv.Itoa(i)})
		}
		all, err := s.AddPackages(t.Context(), crowd)
		testkit.Must(t, err)
		orgs := map[string]resource.UID{}
		for name, has := range map[string][]int64{"many": all, "few": all[7:9]} {
			r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", name).UID, "app")
			orgs[name] = r.UID.Root()
			registrytest.PushRunnable(t, s.RegistryStore, r, name)
			_, err = vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil), has...)
			testkit.Must(t, err)
		}
		want := findingdb.NewMatches()
		for _, id := range all[8:] {
			want.Ratings[findingdb.Match{Package: id, Root: 1, Advisory: 2}] = findingdb.Rating{}
		}
		testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			return findingdb.In(tx).MatchAdvisories(t.Context(), []int64{2}, want, nil, func(findingdb.Change) error {
				return nil
			})
		}))
		for name, n := range map[string]int{"many": len(all), "few": 2} {
			known, err := s.PackagesNamed(t.Context(), []resource.UID{orgs[name]}, "left", 2000)
			testkit.Must(t, err)
			if len(known) != n {
				t.Errorf("%s have %d versions, want %d", name, len(known), n)
			}
			if known, err = s.PackagesNamed(t.Context(), []resource.UID{orgs[name]}, "left", 2); err != nil || len(known) != 2 {
				t.Errorf("%d of two versions, and %v", len(known), err)
			}
		}
		got, err := s.AffectedBy(t.Context(), []resource.UID{orgs["few"]}, []int64{2})
		testkit.Must(t, err)
		if diff := cmp.Diff(all[8:9], got); diff != "" {
			t.Error(diff)
		}
		got, err = s.AffectedBy(t.Context(), []resource.UID{orgs["many"]}, []int64{2})
		testkit.Must(t, err)
		slices.Sort(got)
		if diff := cmp.Diff(slices.Sorted(slices.Values(all[8:])), got); diff != "" {
			t.Error(diff)
		}
	},
	"what is not an image does not wait": func(t *testing.T, s *vulntest.Store) {
		r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "app")
		registrytest.AddImage(t, s.RegistryStore, r, "", "a chart")
		if got := registrytest.TakeImage(t, s.ImageStore, nil); got != nil {
			t.Errorf("took %v", got)
		}
	},
	"an image that is deleted is not inspected, and counted nowhere": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		r := registrytest.AddRepo(t, s.RegistryStore, org.UID, "app")
		for _, word := range []string{"1", "2", "3"} {
			registrytest.PushRunnable(t, s.RegistryStore, r, word)
		}
		p, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left", Version: "1"}})
		testkit.Must(t, err)
		for range 2 {
			_, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil), p...)
			testkit.Must(t, err)
		}
		wantHaving(t, s, p, []resource.UID{org.UID}, 2)
		q := registrytest.TakeImage(t, s.ImageStore, nil)
		testkit.Must(t, s.DeleteManifest(t.Context(), r.UID, q.Digest, nil))
		_, err = vulntest.SettleImage(t.Context(), s.DB, *q, p...)
		testkit.Must(t, err)
		wantHaving(t, s, p, []resource.UID{org.UID}, 2)
		wantHaving(t, s, p, []resource.UID{r.UID}, 2)
		testkit.Must(t, s.DeleteRepo(t.Context(), r.UID))
		wantHaving(t, s, p, []resource.UID{org.UID}, 0)
		if again := registrytest.TakeImage(t, s.ImageStore, nil); again != nil {
			t.Errorf("took %v of a repo that is gone", again)
		}
	},
	"an image is read again when more can be read": func(t *testing.T, s *vulntest.Store) {
		registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore,
			iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "app"), "1")
		_, err := vulntest.SettleImage(t.Context(), s.DB, *registrytest.TakeImage(t, s.ImageStore, nil))
		testkit.Must(t, err)
		_, err = s.SweepImages(t.Context(), 1)
		testkit.Must(t, err)
		if got := registrytest.TakeImage(t, s.ImageStore, nil); got != nil {
			t.Errorf("took %v, which was read by this version", got)
		}
		_, err = s.SweepImages(t.Context(), 2)
		testkit.Must(t, err)
		if registrytest.TakeImage(t, s.ImageStore, nil) == nil {
			t.Error("the next version does not read it again")
		}
	},
	"what SBOMs list counts for one image in one repo": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		repos := []registry.Repo{registrytest.AddRepo(t, s.RegistryStore, org.UID, "with"), registrytest.AddRepo(t,
			s.RegistryStore, org.UID, "without")}
		numbers := map[resource.UID]int64{}
		d := registrytest.PushRunnable(t, s.RegistryStore, repos[0], "1")
		registrytest.PushRunnable(t, s.RegistryStore, repos[1], "1")
		p, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left"},
			{Ecosystem: "npm", Name: "right"}})
		testkit.Must(t, err)
		slices.Sort(p)
		for range repos {
			q := registrytest.TakeImage(t, s.ImageStore, nil)
			numbers[q.Repo], err = vulntest.SettleImage(t.Context(), s.DB, *q, p[0])
			testkit.Must(t, err)
		}
		testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			_, _, err := findingdb.In(tx).SaveSBOMs(t.Context(), repos[0].UID, d, []registry.SBOM{
				{Origin: registry.Origin{Manifest: registrytest.Digest("a"), Time: time.UnixMilli(7)}, IDs: p},
				{Origin: registry.Origin{Manifest: registrytest.Digest("b"), Time: time.UnixMilli(5)}, IDs: p[1:]}})
			return err
		}))
		have, err := s.HaveSBOMs(t.Context(), []resource.UID{repos[0].UID, repos[1].UID})
		testkit.Must(t, err)
		claims, err := s.Claims(t.Context(), []int64{numbers[repos[0].UID], numbers[repos[1].UID]})
		testkit.Must(t, err)
		want := map[int64][]findingdb.Claim{numbers[repos[0].UID]: {{Package: p[0], Since: 7}, {Package: p[1], Since: 5}}}
		if diff := cmp.Diff(want, claims); diff != "" || len(have) != 1 || !have[repos[0].UID] {
			t.Errorf("SBOMs in %v: %s", have, diff)
		}
		each, err := s.HavingEach(t.Context(), []int64{numbers[repos[0].UID], numbers[repos[1].UID]}, p)
		testkit.Must(t, err)
		if got := each[p[0]]; len(got) != 2 || got[0] < got[1] || len(each[p[1]]) != 0 {
			t.Errorf("images by package: %v", each)
		}
		_, err = s.PutTag(t.Context(), registry.Tag{UID: repos[1].UID.NewChild(), Name: "v1", Digest: d}, nil)
		testkit.Must(t, err)
		tagged, err := s.TaggedImages(t.Context(), []resource.UID{org.UID}, 10)
		testkit.Must(t, err)
		if diff := cmp.Diff([]imagedb.TaggedImage{{Repo: repos[1].UID, Digest: d, State: registry.ImageIndexed,
			Number: numbers[repos[1].UID]}}, tagged); diff != "" {
			t.Error(diff)
		}
	},
	"packages are numbered once, whoever has them": func(t *testing.T, s *vulntest.Store) {
		all := []registry.Package{
			{Ecosystem: "npm", Name: "left", Version: "1"}, {Ecosystem: "npm", Name: "left", Version: "1", Owned: true},
			{Ecosystem: "Debian:12", Name: "left", Version: "1", SourceName: "l", SourceVersion: "2"},
		}
		first, err := s.AddPackages(t.Context(), all)
		testkit.Must(t, err)
		again, err := s.AddPackages(t.Context(), slices.Repeat(all, 2))
		testkit.Must(t, err)
		if diff := cmp.Diff(slices.Repeat(first, 2), again); diff != "" ||
			len(slices.Compact(slices.Sorted(slices.Values(first)))) != 3 {
			t.Errorf("numbers %v: %s", first, diff)
		}
		known, err := s.ByID(t.Context(), first)
		testkit.Must(t, err)
		for i, p := range all {
			if known[first[i]] != p {
				t.Errorf("%v, want %v", known[first[i]], p)
			}
		}
	},
	"an inspection is kept as it was": func(t *testing.T, s *vulntest.Store) {
		want := registry.Inspection{Digest: registrytest.Digest("x"), Extractors: 3,
			Distribution: registry.Distribution{ID: "debian", Version: "12", Name: "D"},
			Warnings:     []string{"ü"}, Packages: []registry.ImagePackage{
				{Package: registry.Package{Ecosystem: "a", Name: "n", Version: "1"}, Place: "x\ny", Layer: 7},
				{Package: registry.Package{Ecosystem: "b", Name: "n", Version: "1"}, Place: "", Layer: 0},
			}}
		ids, err := s.AddPackages(t.Context(), []registry.Package{want.Packages[0].Package, want.Packages[1].Package})
		testkit.Must(t, err)
		want.Packages[0].ID, want.Packages[1].ID = ids[0], ids[1]
		testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			_, err := findingdb.In(tx).SaveInspection(t.Context(), want, ids)
			return err
		}))
		got, ok, err := s.Inspection(t.Context(), want.Digest)
		testkit.Must(t, err)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(registry.Inspection{}, "UpdateTime")); !ok || diff != "" {
			t.Errorf("found: %v, %s", ok, diff)
		}
		_, err = s.SweepChunks(t.Context()) // removes the inspection, because no image has the digest
		testkit.Must(t, err)
		if _, ok, err := s.Inspection(t.Context(), want.Digest); ok || err != nil {
			t.Errorf("it is still there: %v, %v", ok, err)
		}
	},
}

func wantHaving(t *testing.T, s *vulntest.Store, packages []int64, groups []resource.UID, want int) {
	t.Helper()
	got, err := s.Having(t.Context(), groups, packages)
	testkit.Must(t, err)
	if len(got) != want {
		t.Errorf("%d images have it, want %d", len(got), want)
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	for name, promise := range imagePromises {
		t.Run(name, func(t *testing.T) { vulntest.Each(t, promise) })
	}
}

// TestImagesAtOnce: several replicas number images in one chunk while others are
// deleted. The test checks that no bit is lost.
func TestImagesAtOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	s := vulntest.Open(t, url)
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := registrytest.AddRepo(t, s.RegistryStore, org.UID, "app")
	p, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "left", Version: "1"}})
	testkit.Must(t, err)
	const each = 15
	for i := range 3 * each {
		registrytest.PushRunnable(t, s.RegistryStore, r, string(rune('a'+i)))
	}
	var all sync.WaitGroup
	for range 3 {
		replica := vulntest.Open(t, url)
		all.Go(func() {
			for i := range each {
				q, ok, err := replica.ReserveImage(t.Context(), nil, time.Minute)
				for err == nil && !ok {
					q, ok, err = replica.ReserveImage(t.Context(), nil, time.Minute)
				}
				if err == nil {
					_, err = vulntest.SettleImage(t.Context(), replica.DB, q, p...)
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
