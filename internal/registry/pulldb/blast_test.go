package pulldb_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// numbered pushes images to a repo and returns their digests and numbers.
func numbered(t *testing.T, s *vulntest.Store, r registry.Repo, n int) (digests []string, numbers []int64) {
	t.Helper()
	for i := range n {
		digests = append(digests, registrytest.PushRunnable(t, s.RegistryStore, r, fmt.Sprint(r.Name, i)))
		q := registrytest.TakeImage(t, s.ImageStore, nil)
		number, err := vulntest.SettleImage(t.Context(), s.DB, *q)
		testkit.Must(t, err)
		numbers = append(numbers, number)
	}
	return digests, numbers
}

// blastPromises contains the tests for identities and places that many images concern.
var blastPromises = map[string]func(t *testing.T, s *vulntest.Store){
	"pulls of images are found from either side": func(t *testing.T, s *vulntest.Store) {
		rng := rand.New(rand.NewPCG(1, 2))
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		app, other := registrytest.AddRepo(t, s.RegistryStore, org, "app"), registrytest.AddRepo(t, s.RegistryStore,
			iamtest.AddGroup(t, s.IAMStore, "", "other").UID, "app")
		digests, numbers := numbered(t, s, app, 12)
		theirs, _ := numbered(t, s, other, 12) // images with the same digests in another organization
		if digests[0] != theirs[0] {
			t.Fatal("the digests differ")
		}
		wanted := numbers[:5]
		since := s.Time().Add(-time.Hour)
		want := map[resource.UID]time.Time{}
		var all []registry.Pull
		for i := range 400 {
			at := s.Time().Add(-time.Duration(rng.IntN(7200)) * time.Second)
			p := registry.Pull{Time: at, Push: rng.IntN(5) == 0, Digest: digests[rng.IntN(12)],
				Identity: resource.UID(fmt.Sprintf("id%d", rng.IntN(9)))}
			repo := app.UID
			if i%4 == 0 {
				repo, p.Identity = other.UID, "them"
			}
			if i%20 == 3 {
				p.Identity, p.Digest = "frequent", digests[11]
			}
			p.UID = repo.NewRisingChild(at)
			if all = append(all, p); repo == app.UID && !p.Push && !at.Before(since) &&
				slices.Contains(digests[:5], p.Digest) && at.After(want[p.Identity]) {
				want[p.Identity] = at
			}
		}
		testkit.Must(t, s.InsertPulls(t.Context(), all))
		got, err := s.Pullers(t.Context(), wanted, since)
		testkit.Must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("image by image: %s", diff)
		}
		f := pulldb.PullerSearch{Root: org, Since: since, Most: 1000, Has: func(n int64) bool {
			return slices.Contains(wanted, n)
		}}
		got, done, err := s.SearchPullers(t.Context(), f)
		testkit.Must(t, err)
		if diff := cmp.Diff(want, got); diff != "" || !done {
			t.Errorf("identity by identity, done %t: %s", done, diff)
		}
		f.Most = 10
		if _, done, err := s.SearchPullers(t.Context(), f); err != nil || done {
			t.Errorf("with ten records at most: %t, %v", done, err)
		}
	},
	"an identity with many pulls is looked at to the end": func(t *testing.T, s *vulntest.Store) {
		app := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "app")
		digests, numbers := numbered(t, s, app, 2)
		var all []registry.Pull
		for i := range 60 {
			p := registry.Pull{Time: s.Time().Add(time.Duration(i-100) * time.Second), Digest: digests[min(i, 1)],
				Identity: "id"}
			p.UID = app.UID.NewRisingChild(p.Time)
			all = append(all, p)
		}
		testkit.Must(t, s.InsertPulls(t.Context(), all))
		got, done, err := s.SearchPullers(t.Context(), pulldb.PullerSearch{Root: app.UID.Root(), Most: 1000,
			Has: func(n int64) bool { return n == numbers[0] }})
		testkit.Must(t, err)
		if diff := cmp.Diff(map[resource.UID]time.Time{"id": all[0].Time}, got); diff != "" || !done {
			t.Errorf("done %t: %s", done, diff)
		}
	},
	"images are counted by repo, whether few or many of a chunk": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		one, two := registrytest.AddRepo(t, s.RegistryStore, org, "one"), registrytest.AddRepo(t, s.RegistryStore, org, "two")
		_, a := numbered(t, s, one, 3)
		_, b := numbered(t, s, two, 4)
		got, err := s.RepoImages(t.Context(), slices.Concat(a[1:], b))
		testkit.Must(t, err)
		if diff := cmp.Diff(map[resource.UID]int{one.UID: 2, two.UID: 4}, got); diff != "" {
			t.Error(diff)
		}
		_, err = s.Exec(t.Context(), `INSERT INTO images
			(repo, digest, root, uid, number, state, reason, extractors, tries, rank, update_ms)
			SELECT repo, digest || ':' || n.x, root, uid, n.x, state, reason, extractors, tries, rank, update_ms FROM images,
			(WITH RECURSIVE r (x) AS (SELECT 10 UNION ALL SELECT x + 1 FROM r WHERE x < 1200)
				SELECT x FROM r) AS n WHERE number = 0`)
		testkit.Must(t, err)
		many := slices.Concat(a, b)
		for n := int64(10); n <= 1200; n += 2 {
			many = append(many, n)
		}
		got, err = s.RepoImages(t.Context(), many)
		testkit.Must(t, err)
		if diff := cmp.Diff(map[resource.UID]int{one.UID: 3 + 596, two.UID: 4}, got); diff != "" {
			t.Error(diff)
		}
	},
	"images that are not known are counted in reach": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		folder := iamtest.AddGroup(t, s.IAMStore, org, "folder").UID
		registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore, org, "app"), "1")
		registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore, folder, "app"), "2")
		registrytest.PushRunnable(t, s.RegistryStore, registrytest.AddRepo(t, s.RegistryStore,
			iamtest.AddGroup(t, s.IAMStore, "", "other").UID, "app"), "3")
		for _, tt := range []struct {
			reach []resource.UID
			want  int
		}{{[]resource.UID{org}, 2}, {[]resource.UID{folder}, 1}, {nil, 0}} {
			c, err := s.UnknownImages(t.Context(), tt.reach)
			if err != nil || c.Waiting != tt.want || c.NotUnderstood != 0 {
				t.Errorf("in %v: %+v, %v, want %d that wait", tt.reach, c, err, tt.want)
			}
		}
	},
	"that records were lost is known": func(t *testing.T, s *vulntest.Store) {
		if _, lost, err := s.PullsLost(t.Context(), s.Time().Add(-time.Hour)); err != nil || lost {
			t.Errorf("before: %t, %v", lost, err)
		}
		testkit.Must(t, s.NoteLostPulls(t.Context(), 7))
		if at, lost, err := s.PullsLost(t.Context(), s.Time().Add(-time.Hour)); err != nil || !lost || at.IsZero() {
			t.Errorf("after: %s, %t, %v", at, lost, err)
		}
		if _, lost, err := s.PullsLost(t.Context(), s.Time().Add(time.Hour)); err != nil || lost {
			t.Errorf("later: %t, %v", lost, err)
		}
	},
}

func TestBlastPromises(t *testing.T) {
	t.Parallel()
	for name, promise := range blastPromises {
		t.Run(name, func(t *testing.T) { vulntest.Each(t, promise) })
	}
}
