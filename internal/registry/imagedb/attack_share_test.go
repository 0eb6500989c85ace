package imagedb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// takeNext takes the next image, and charges its tenant with a cost. It returns the organization of the image.
func takeNext(t *testing.T, s *vulntest.Store, last **imagedb.QueuedImage, cost time.Duration) resource.UID {
	t.Helper()
	q := registrytest.TakeImage(t, s.ImageStore, *last)
	if q == nil {
		t.Fatal("no image is due")
	}
	testkit.Must(t, s.ImageStore.Charge(t.Context(), *q, cost))
	*last = q
	return q.Repo.Root()
}

// TestAttackInspectionQueue: eight organizations push many images that take long to inspect. The image of another
// organization that comes later is the next one, whether one tenant pays for the eight or each for itself.
func TestAttackInspectionQueue(t *testing.T) {
	for name, paid := range map[string]bool{"one payer": true, "eight payers": false} {
		t.Run(name, func(t *testing.T) {
			vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
				newRepo := func(name string) registry.Repo {
					return registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", name).UID, "app")
				}
				var attackers []registry.Repo
				for i := range 8 {
					r := newRepo(fmt.Sprint("attacker-", i))
					attackers = append(attackers, r)
					if paid && i > 0 {
						testkit.Must(t, s.SetPayer(t.Context(), r.UID.Root(), attackers[0].UID.Root()))
					}
					for n := range 4 {
						registrytest.PushRunnable(t, s.RegistryStore, r, fmt.Sprint("bomb-", i, "-", n))
					}
				}
				const long, short = 1500 * time.Millisecond, 100 * time.Millisecond
				var last *imagedb.QueuedImage
				for range 10 {
					takeNext(t, s, &last, long)
				}
				victim := newRepo("victim")
				for n := range 3 {
					registrytest.PushRunnable(t, s.RegistryStore, victim, fmt.Sprint("image-", n))
				}
				for n := range 3 { // three short inspections cost less than one long inspection
					if org := takeNext(t, s, &last, short); org != victim.UID.Root() {
						t.Fatalf("image %d of the victim waits for an image of %s", n+1, org)
					}
				}
				if org := takeNext(t, s, &last, long); org == victim.UID.Root() {
					t.Error("the victim has a fourth image")
				}
				testkit.Must(t, s.SweepCosts(t.Context()))
			})
		})
	}
}

// TestAttackLongInspection: during a long inspection, the queue passes the position of its tenant, which is therefore
// removed. The tenant still pays for the inspection: the images of the other tenant come first.
func TestAttackLongInspection(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		push := func(name string, images int) resource.UID {
			r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", name).UID, "app")
			for n := range images {
				registrytest.PushRunnable(t, s.RegistryStore, r, fmt.Sprint(name, n))
			}
			return r.UID.Root()
		}
		attacker := push("attacker", 1)
		bomb := registrytest.TakeImage(t, s.ImageStore, nil)
		last := bomb
		other := push("other", 40)
		for range 20 { // the queue passes the position of the attacker
			if org := takeNext(t, s, &last, time.Second); org != other {
				t.Fatalf("an image of %s", org)
			}
		}
		testkit.Must(t, s.SweepCosts(t.Context()))
		testkit.Must(t, s.ImageStore.Charge(t.Context(), *bomb, 10*time.Minute))
		r := registrytest.AddRepo(t, s.RegistryStore, attacker, "next")
		for n := range 3 {
			registrytest.PushRunnable(t, s.RegistryStore, r, fmt.Sprint("next", n))
		}
		for range 15 {
			if org := takeNext(t, s, &last, time.Second); org != other {
				t.Fatal("the cost of the long inspection is forgotten")
			}
		}
	})
}

// TestInspectionShares checks that tenants with equal costs take turns, that a tenant gets no time for the past, and
// that nobody pays for time that no other tenant needed.
func TestInspectionShares(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		repos := map[resource.UID]registry.Repo{}
		push := func(name string, images int) resource.UID {
			r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", name).UID, "app")
			for n := range images {
				registrytest.PushRunnable(t, s.RegistryStore, r, fmt.Sprint(name, n))
			}
			repos[r.UID.Root()] = r
			return r.UID.Root()
		}
		early := push("early", 20)
		var last *imagedb.QueuedImage
		for range 5 {
			takeNext(t, s, &last, time.Minute)
		}
		late := push("late", 20)
		if org := takeNext(t, s, &last, time.Second); org != late {
			t.Error("the tenant that used less is not the next one")
		}
		taken := map[resource.UID]int{}
		for range 66 { // early has the five minutes of its last image, not of all
			if taken[late] == 19 {
				break
			}
			taken[takeNext(t, s, &last, 10*time.Second)]++
		}
		if taken[early] == 0 || taken[late] == 0 {
			t.Errorf("the tenants have %d and %d images", taken[early], taken[late])
		}
	})
}

// TestLayerCosts checks that costs of layers are remembered for one tenant and one version of the extractors only.
func TestLayerCosts(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		take := func(name string) imagedb.QueuedImage {
			r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", name).UID, "app")
			registrytest.PushRunnable(t, s.RegistryStore, r, name)
			return *registrytest.TakeImage(t, s.ImageStore, nil)
		}
		one, other := take("one"), take("other")
		cost := imagedb.LayerCost{Digest: "sha256:a", Bytes: 1 << 40, Processor: time.Second}
		testkit.Must(t, s.RememberCosts(t.Context(), one, 2, []imagedb.LayerCost{cost, {Digest: "sha256:b"}}))
		cost.Bytes = 7
		testkit.Must(t, s.RememberCosts(t.Context(), one, 2, []imagedb.LayerCost{cost}))
		for name, tt := range map[string]struct {
			image   imagedb.QueuedImage
			version int
			want    int
		}{
			"the tenant":      {one, 2, 1},
			"another tenant":  {other, 2, 0},
			"a newer version": {one, 3, 0},
		} {
			got, err := s.LayerCosts(t.Context(), tt.image, tt.version, []string{"sha256:a", "sha256:c"})
			if err != nil || len(got) != tt.want || tt.want == 1 && got["sha256:a"] != cost {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	})
}
