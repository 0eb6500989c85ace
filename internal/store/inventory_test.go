package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// newPlace returns a place in a group, and the images that run there. The inventory is from now and
// valid for a day.
func newPlace(s *storetest.Store, group resource.UID, name string, entries int) (vuln.InventoryPlace,
	[]vuln.InventoryEntry) {
	now := s.Time()
	var all []vuln.InventoryEntry
	for i := range entries {
		all = append(all, vuln.InventoryEntry{Namespace: name, Workload: fmt.Sprint(i),
			Digest: fmt.Sprintf("sha256:%064d", i), Copies: i + 1})
	}
	return vuln.InventoryPlace{Group: group, Name: name, Identity: "a1", PushTime: now,
		ExpireTime: now.Add(24 * time.Hour), Entries: entries}, all
}

func pushPlace(t *testing.T, s *storetest.Store, group resource.UID, name string, entries int) {
	t.Helper()
	p, all := newPlace(s, group, name, entries)
	must(t, s.ReplaceInventory(t.Context(), p, all))
}

// running returns what runs in a reach, as texts with the place and the workload. It reads pages
// with three items.
func running(t *testing.T, s *storetest.Store, reach []resource.UID, f findingdb.InventoryFilter,
	desc bool) (all []string) {
	t.Helper()
	p := page.Request{Size: 3, Order: page.Order{Field: "place", Desc: desc}}
	for {
		got, err := s.Inventory(t.Context(), reach, f, s.Time(), p)
		must(t, err)
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
var inventoryPromises = map[string]func(t *testing.T, s *storetest.Store){
	"a push replaces what was there, and nothing else": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		folder := addGroup(t, s, org, "folder").UID
		pushPlace(t, s, org, "a", 5)
		pushPlace(t, s, folder, "a", 1)
		pushPlace(t, s, org, "b", 2)
		pushPlace(t, s, org, "a", 1)
		want := []string{"a 0", "a 0", "b 0", "b 1"}
		if diff := cmp.Diff(want, running(t, s, []resource.UID{org}, findingdb.InventoryFilter{}, false)); diff != "" {
			t.Error(diff)
		}
		places, err := s.Places(t.Context(), []resource.UID{org})
		must(t, err)
		if len(places) != 3 || places[0].Entries != 1 || places[2].Name != "b" {
			t.Errorf("the places are %v", places)
		}
		var told []string
		for _, e := range events(t, s) {
			if e.Type == resource.InventoryPushed {
				told = append(told, fmt.Sprintf("%s %t", e.Subject, len(e.Before) > 0))
			}
		}
		if diff := cmp.Diff([]string{string(org) + " false", string(folder) + " false", string(org) + " false",
			string(org) + " true"}, told); diff != "" {
			t.Errorf("the events: %s", diff)
		}
	},
	"pages, orders and filters of what runs": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		folder, other := addGroup(t, s, org, "folder").UID, addGroup(t, s, "", "other").UID
		pushPlace(t, s, org, "a", 5)
		pushPlace(t, s, folder, "b", 4)
		pushPlace(t, s, other, "c", 2)
		repo := addRepo(t, s, org, "app")
		digest := pushRunnable(t, s, repo, "1")
		p, all := newPlace(s, org, "d", 2)
		all[1].Digest = digest
		must(t, s.ReplaceInventory(t.Context(), p, all))
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
		must(t, err)
		if len(got.Items) != 2 || got.Items[0].Place.Name != "b" || got.Items[0].Workload != "1" || got.Total != 11 ||
			got.Items[0].Copies != 2 {
			t.Errorf("after six: %v", got)
		}
	},
	"what is out of date is not told, and forgotten after a month": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		for name, ago := range map[string]time.Duration{"new": -time.Hour, "old": time.Second,
			"ancient": 31 * 24 * time.Hour} {
			p, all := newPlace(s, org, name, 1)
			p.PushTime, p.ExpireTime = s.Time().Add(-40*24*time.Hour), s.Time().Add(-ago)
			must(t, s.ReplaceInventory(t.Context(), p, all))
		}
		if diff := cmp.Diff([]string{"new 0"}, running(t, s, []resource.UID{org}, findingdb.InventoryFilter{},
			false)); diff != "" {
			t.Error(diff)
		}
		pushPlace(t, s, org, "other", 1)
		places, err := s.Places(t.Context(), []resource.UID{org})
		must(t, err)
		var names []string
		for _, p := range places {
			names = append(names, p.Name)
		}
		if diff := cmp.Diff([]string{"new", "old", "other"}, names); diff != "" {
			t.Error(diff)
		}
	},
	"an organization has so many places, whoever pushes at the same time": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		for i := range vuln.MaxInventoryPlaces - 2 {
			pushPlace(t, s, org, fmt.Sprint(i), 1)
		}
		var mu sync.Mutex
		var refused int
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				p, entries := newPlace(s, org, fmt.Sprint("more", i), 1)
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
		pushPlace(t, s, org, "0", 2) // this place exists already, so it is accepted
		pushPlace(t, s, addGroup(t, s, "", "other").UID, "a", 1)
	},
	"an inventory is deleted, alone or with its group": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		folder := addGroup(t, s, org, "folder").UID
		pushPlace(t, s, org, "a", 1)
		pushPlace(t, s, folder, "b", 1)
		must(t, s.DeleteInventory(t.Context(), org, "a"))
		if err := s.DeleteInventory(t.Context(), org, "a"); !errors.Is(err, fault.NotFound) {
			t.Errorf("twice: %v", err)
		}
		if err := s.DeleteInventory(t.Context(), resource.UID("b1/"+string(folder)[len(folder)-16:]), "b"); !errors.Is(err,
			fault.NotFound) {
			t.Errorf("below another group: %v", err)
		}
		must(t, s.DeleteGroup(t.Context(), folder, ""))
		var n int
		must(t,
			s.Row(t.Context(), `SELECT (SELECT count(*) FROM inventory_places) + (SELECT count(*) FROM inventory_entries)`,
				nil, &n))
		if n != 0 {
			t.Errorf("%d rows are left", n)
		}
		p, all := newPlace(s, folder, "b", 1)
		if err := s.ReplaceInventory(t.Context(), p, all); !errors.Is(err, fault.NotFound) {
			t.Errorf("of a group that is gone: %v", err)
		}
	},
}

func TestInventoryPromises(t *testing.T) {
	t.Parallel()
	for name, promise := range inventoryPromises {
		t.Run(name, func(t *testing.T) { storetest.Each(t, promise) })
	}
}
