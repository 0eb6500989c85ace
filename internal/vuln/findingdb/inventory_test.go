package findingdb_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// running returns what runs in a reach, as texts with the place and the workload. It reads pages
// with three items.
func running(t *testing.T, s *vulntest.Store, reach []resource.UID, f findingdb.InventoryFilter,
	desc bool) (all []string) {
	t.Helper()
	p := page.Request{Size: 3, Order: page.Order{Field: "place", Desc: desc}}
	for {
		got, err := s.Inventory(t.Context(), reach, f, s.Time(), p)
		testkit.Must(t, err)
		for _, e := range got.Items {
			all = append(all, e.Place.Name+" "+e.Workload)
		}
		if got.Last == nil {
			if int(got.Total) != len(all) {
				t.Errorf("the total is %d of %d", got.Total, len(all))
			}
			return all
		}
		p.After = got.Last
	}
}

// inventoryPromises contains the tests for the places where images run.
var inventoryPromises = map[string]func(t *testing.T, s *vulntest.Store){
	"a push replaces what was there, and nothing else": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		folder := iamtest.AddGroup(t, s.IAMStore, org, "folder").UID
		vulntest.PushPlace(t, s.FindingStore, org, "a", 5)
		vulntest.PushPlace(t, s.FindingStore, folder, "a", 1)
		vulntest.PushPlace(t, s.FindingStore, org, "b", 2)
		vulntest.PushPlace(t, s.FindingStore, org, "a", 1)
		want := []string{"a 0", "a 0", "b 0", "b 1"}
		if diff := cmp.Diff(want, running(t, s, []resource.UID{org}, findingdb.InventoryFilter{}, false)); diff != "" {
			t.Error(diff)
		}
		places, err := s.Places(t.Context(), []resource.UID{org})
		testkit.Must(t, err)
		if len(places) != 3 || places[0].Entries != 1 || places[2].Name != "b" {
			t.Errorf("the places are %v", places)
		}
		var told []string
		for _, e := range dbtest.Events(t, s.DB) {
			if e.Type == resource.InventoryPushed {
				told = append(told, fmt.Sprintf("%s %t", e.Subject, len(e.Before) > 0))
			}
		}
		if diff := cmp.Diff([]string{string(org) + " false", string(folder) + " false", string(org) + " false",
			string(org) + " true"}, told); diff != "" {
			t.Errorf("the events: %s", diff)
		}
	},
	"a workload replaces and deletes only what it reported": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		east, west, person := org.NewChild(), org.NewChild(), resource.NewRoot()
		started := s.Time().Add(-time.Hour)
		push := func(by resource.UID, entries int) error {
			p, running := vulntest.NewPlace(s.FindingStore, org, "prod-east", entries)
			p.Identity = by
			for i := range running {
				running[i].StartTime = started
			}
			return s.ReplaceInventory(t.Context(), p, running)
		}
		testkit.Must(t, push(east, 2))
		if err := push(west, 1); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("another workload replaces the inventory: %v, want PermissionDenied", err)
		}
		err := s.DeleteInventory(t.Context(), org, "prod-east", west)
		if !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("another workload deletes the inventory: %v, want PermissionDenied", err)
		}
		got, err := s.Inventory(t.Context(), []resource.UID{org}, findingdb.InventoryFilter{}, s.Time(),
			page.Request{Size: 3, Order: page.Order{Field: "place"}})
		testkit.Must(t, err)
		if len(got.Items) != 2 || got.Items[0].Place.Identity != east || !got.Items[0].StartTime.Equal(started) {
			t.Errorf("what runs is %+v, want two images since %v", got.Items, started)
		}
		testkit.Must(t, push(east, 1))
		testkit.Must(t, push(person, 1))
		testkit.Must(t, push(west, 1)) // a person has taken the place over
		testkit.Must(t, s.DeleteInventory(t.Context(), org, "prod-east", person))
		testkit.Must(t, push(east, 1))
	},
	"pages, orders and filters of what runs": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		folder, other := iamtest.AddGroup(t, s.IAMStore, org, "folder").UID, iamtest.AddGroup(t, s.IAMStore, "", "other").UID
		vulntest.PushPlace(t, s.FindingStore, org, "a", 5)
		vulntest.PushPlace(t, s.FindingStore, folder, "b", 4)
		vulntest.PushPlace(t, s.FindingStore, other, "c", 2)
		repo := registrytest.AddRepo(t, s.RegistryStore, org, "app")
		digest := registrytest.PushRunnable(t, s.RegistryStore, repo, "1")
		p, all := vulntest.NewPlace(s.FindingStore, org, "d", 2)
		all[1].Digest = digest
		testkit.Must(t, s.ReplaceInventory(t.Context(), p, all))
		of := func(name string, n int) (some []string) {
			for i := range n {
				some = append(some, fmt.Sprint(name, " ", i))
			}
			return some
		}
		for name, tt := range map[string]struct {
			reach []resource.UID
			f     findingdb.InventoryFilter
			desc  bool
			want  []string
		}{
			"all": {[]resource.UID{org}, findingdb.InventoryFilter{}, false,
				slices.Concat(of("a", 5), of("b", 4), of("d", 2))},
			"backwards": {[]resource.UID{org}, findingdb.InventoryFilter{}, true,
				slices.Concat(of("d", 2), of("b", 4), of("a", 5))},
			"a folder":          {[]resource.UID{folder}, findingdb.InventoryFilter{}, false, of("b", 4)},
			"below a group":     {[]resource.UID{org, other}, findingdb.InventoryFilter{Group: folder}, false, of("b", 4)},
			"a place":           {[]resource.UID{org, other}, findingdb.InventoryFilter{Place: "c"}, false, of("c", 2)},
			"a place elsewhere": {[]resource.UID{org}, findingdb.InventoryFilter{Place: "c"}, false, nil},
			"a digest": {[]resource.UID{org, other}, findingdb.InventoryFilter{Digest: all[0].Digest}, false,
				[]string{"a 0", "b 0", "c 0", "d 0"}},
			"a repo":  {[]resource.UID{org, other}, findingdb.InventoryFilter{Repo: repo.UID}, false, []string{"d 1"}},
			"nothing": {nil, findingdb.InventoryFilter{}, false, nil},
		} {
			if diff := cmp.Diff(tt.want, running(t, s, tt.reach, tt.f, tt.desc), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		got, err := s.Inventory(t.Context(), []resource.UID{org}, findingdb.InventoryFilter{}, s.Time(),
			page.Request{Size: 2, Skip: 6})
		testkit.Must(t, err)
		if len(got.Items) != 2 || got.Items[0].Place.Name != "b" || got.Items[0].Workload != "1" || got.Total != 11 ||
			got.Items[0].Copies != 2 {
			t.Errorf("after six: %v", got)
		}
	},
	"what is out of date is not told, and forgotten after a month": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		for name, ago := range map[string]time.Duration{"new": -time.Hour, "old": time.Second,
			"ancient": 31 * 24 * time.Hour} {
			p, all := vulntest.NewPlace(s.FindingStore, org, name, 1)
			p.PushTime, p.ExpireTime = s.Time().Add(-40*24*time.Hour), s.Time().Add(-ago)
			testkit.Must(t, s.ReplaceInventory(t.Context(), p, all))
		}
		if diff := cmp.Diff([]string{"new 0"}, running(t, s, []resource.UID{org}, findingdb.InventoryFilter{},
			false)); diff != "" {
			t.Error(diff)
		}
		vulntest.PushPlace(t, s.FindingStore, org, "other", 1)
		places, err := s.Places(t.Context(), []resource.UID{org})
		testkit.Must(t, err)
		var names []string
		for _, p := range places {
			names = append(names, p.Name)
		}
		if diff := cmp.Diff([]string{"new", "old", "other"}, names); diff != "" {
			t.Error(diff)
		}
	},
	"an organization has so many places, whoever pushes at the same time": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		for i := range vuln.MaxInventoryPlaces - 2 {
			p, entries := vulntest.NewPlace(s.FindingStore, org, fmt.Sprint(i), 1)
			p.Identity = resource.DerivedUID(fmt.Sprint("author ", i%2))
			testkit.Must(t, s.ReplaceInventory(t.Context(), p, entries))
		}
		var mu sync.Mutex
		var refused int
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				p, entries := vulntest.NewPlace(s.FindingStore, org, fmt.Sprint("more", i), 1)
				err := s.ReplaceInventory(t.Context(), p, entries)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, fault.FailedPrecondition) {
					refused++
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if places, err := s.Places(t.Context(), []resource.UID{org}); err != nil || refused != 4 ||
			len(places) != vuln.MaxInventoryPlaces {
			t.Errorf("%d refused, %d places, %v", refused, len(places), err)
		}
		vulntest.PushPlace(t, s.FindingStore, org, "0", 2) // this place exists already, so it is accepted
		vulntest.PushPlace(t, s.FindingStore, iamtest.AddGroup(t, s.IAMStore, "", "other").UID, "a", 1)
	},
	"an identity has so many places, and others can still report": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		folder := iamtest.AddGroup(t, s.IAMStore, org, "folder").UID
		push := func(group resource.UID, name, author string) error {
			p, entries := vulntest.NewPlace(s.FindingStore, group, name, 1)
			p.Identity = resource.DerivedUID(author)
			return s.ReplaceInventory(t.Context(), p, entries)
		}
		for i := range vuln.MaxPlacesOfIdentity {
			testkit.Must(t, push(folder, fmt.Sprint(i), "ann"))
		}
		if err := push(folder, "more", "ann"); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("one more place: %v", err)
		}
		testkit.Must(t, push(folder, "0", "ann")) // exists already
		testkit.Must(t, push(org, "more", "ben"))
		testkit.Must(t, push(folder, "0", "ben"))
		testkit.Must(t, push(folder, "more", "ann")) // instead of the place that is now reported by another identity
	},
	"an inventory is deleted, alone or with its group": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		folder := iamtest.AddGroup(t, s.IAMStore, org, "folder").UID
		vulntest.PushPlace(t, s.FindingStore, org, "a", 1)
		vulntest.PushPlace(t, s.FindingStore, folder, "b", 1)
		testkit.Must(t, s.DeleteInventory(t.Context(), org, "a", "a1"))
		if err := s.DeleteInventory(t.Context(), org, "a", "a1"); !errors.Is(err, fault.NotFound) {
			t.Errorf("twice: %v", err)
		}
		err := s.DeleteInventory(t.Context(), resource.UID("b1/"+string(folder)[len(folder)-16:]), "b", "a1")
		if !errors.Is(err, fault.NotFound) {
			t.Errorf("below another group: %v", err)
		}
		testkit.Must(t, s.DeleteGroup(t.Context(), folder, ""))
		var n int
		testkit.Must(t,
			s.Row(t.Context(), `SELECT (SELECT count(*) FROM inventory_places) + (SELECT count(*) FROM inventory_entries)`,
				nil, &n))
		if n != 0 {
			t.Errorf("%d rows are left", n)
		}
		p, all := vulntest.NewPlace(s.FindingStore, folder, "b", 1)
		if err := s.ReplaceInventory(t.Context(), p, all); !errors.Is(err, fault.NotFound) {
			t.Errorf("of a group that is gone: %v", err)
		}
	},
}

func TestInventoryPromises(t *testing.T) {
	t.Parallel()
	for name, promise := range inventoryPromises {
		t.Run(name, func(t *testing.T) { vulntest.Each(t, promise) })
	}
}
