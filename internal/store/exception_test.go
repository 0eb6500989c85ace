package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

func newException(group, target resource.UID) vuln.Exception {
	return vuln.Exception{UID: group.NewChild(), Target: target, Advisory: "CVE-1", Reason: "not used",
		CreateTime: epoch, UpdateTime: epoch}
}

func addException(t *testing.T, s *storetest.Store, group, target resource.UID) vuln.Exception {
	t.Helper()
	e := newException(group, target)
	must(t, s.InsertExceptions(t.Context(), group, []vuln.Exception{e}))
	return e
}

func newRule(group resource.UID) vuln.PullRule {
	return vuln.PullRule{UID: group.NewChild(), Target: group, CreateTime: epoch, UpdateTime: epoch}
}

func addRule(t *testing.T, s *storetest.Store, group resource.UID) vuln.PullRule {
	t.Helper()
	r := newRule(group)
	must(t, s.InsertPullRule(t.Context(), r))
	return r
}

// actsOnFindings returns calls of the methods that write exceptions, rules and inventories.
func (st stage) actsOnFindings() map[string]act {
	none := st.org.UID.NewChild()
	e, r := newException(st.org.UID, st.repo.UID), newRule(st.org.UID)
	place, entries := newPlace(st.Store, st.org.UID, "new", 2)
	return map[string]act{
		"InsertExceptions": {
			func(ctx context.Context) error {
				return st.InsertExceptions(ctx, st.org.UID, []vuln.Exception{e})
			},
			func(ctx context.Context) error {
				return st.InsertExceptions(ctx, st.org.UID, []vuln.Exception{newException(st.org.UID, none)})
			},
		},
		"ApproveException": {
			func(ctx context.Context) error {
				_, err := st.ApproveException(ctx, st.exception.UID, alice)
				return err
			},
			func(ctx context.Context) error { _, err := st.ApproveException(ctx, none, alice); return err },
		},
		"DeleteException": {
			func(ctx context.Context) error { return st.DeleteException(ctx, st.exception.UID, alice) },
			func(ctx context.Context) error { return st.DeleteException(ctx, none, alice) },
		},
		"InsertPullRule": {
			func(ctx context.Context) error { return st.InsertPullRule(ctx, r) },
			func(ctx context.Context) error { return st.InsertPullRule(ctx, newRule(none)) },
		},
		"UpdatePullRule": {
			func(ctx context.Context) error {
				_, err := store.Edit(ctx, st.rule.UID, st.PullRule, st.UpdatePullRule, func(r *vuln.PullRule) error {
					r.Fixable = true
					return nil
				})
				return err
			},
			func(ctx context.Context) error {
				_, err := store.Edit(ctx, st.rule.UID, st.PullRule, st.UpdatePullRule, func(r *vuln.PullRule) error {
					r.Target = none
					return nil
				})
				return err
			},
		},
		"DeletePullRule": {
			func(ctx context.Context) error { return st.DeletePullRule(ctx, st.rule.UID) },
			func(ctx context.Context) error { return st.DeletePullRule(ctx, none) },
		},
		"ReplaceInventory": {
			func(ctx context.Context) error { return st.ReplaceInventory(ctx, place, entries) },
			func(ctx context.Context) error {
				return st.ReplaceInventory(ctx, vuln.InventoryPlace{Group: none, Name: "new"}, nil)
			},
		},
		"DeleteInventory": {
			func(ctx context.Context) error { return st.DeleteInventory(ctx, st.org.UID, "cluster") },
			func(ctx context.Context) error { return st.DeleteInventory(ctx, st.org.UID, "none") },
		},
	}
}

// heldUIDs returns the exceptions that are valid for targets at a time.
func heldUIDs(t *testing.T, s *storetest.Store, at time.Time, targets ...resource.UID) (all []resource.UID) {
	t.Helper()
	held, err := s.ExceptionsOn(t.Context(), targets, at, at)
	must(t, err)
	for _, e := range held {
		if !e.ActiveAt(at) {
			t.Errorf("%+v does not hold at %s", e, at)
		}
		all = append(all, e.UID)
	}
	slices.Sort(all)
	return all
}

// exceptionPromises contains a test for each promise in the comments about exceptions and rules.
var exceptionPromises = map[string]func(t *testing.T, s *storetest.Store){
	"an exception needs its group and its target, the whole of it": func(t *testing.T, s *storetest.Store) {
		org, rival := addGroup(t, s, "", "org").UID, addGroup(t, s, "", "rival").UID
		repo := addRepo(t, s, rival, "repo").UID
		stolen := org + "/" + repo[len(rival)+1:]
		for _, target := range []resource.UID{stolen, org.NewChild()} {
			wantFault(t, s.InsertExceptions(t.Context(), org, []vuln.Exception{newException(org, target)}), fault.NotFound,
				fault.Resource{Type: "repo", Name: string(target)})
		}
		none := org.NewChild()
		wantFault(t, s.InsertExceptions(t.Context(), none, []vuln.Exception{newException(none, none)}), fault.NotFound,
			fault.Resource{Type: "group", Name: string(none)})
		r := newRule(org)
		r.Target = stolen
		wantFault(t, s.InsertPullRule(t.Context(), r), fault.NotFound, fault.Resource{Type: "repo", Name: string(stolen)})
		wantExact(t, s)
	},
	"all exceptions are added, or none, and no more than a group may have": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		var all []vuln.Exception
		for range vuln.MaxExceptions {
			all = append(all, newException(org, org))
		}
		bad := append(slices.Clone(all[1:]), newException(org, org.NewChild()))
		wantFault(t, s.InsertExceptions(t.Context(), org, bad), fault.NotFound,
			fault.Resource{Type: "repo", Name: string(bad[len(bad)-1].Target)})
		must(t, s.InsertExceptions(t.Context(), org, all))
		wantFault(t, s.InsertExceptions(t.Context(), org, []vuln.Exception{newException(org, org)}),
			fault.FailedPrecondition, fault.Resource{})
		wantExact(t, s)
	},
	"an exception holds from its approval until it ends": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		e := newException(org, org)
		e.ExpireTime = epoch.Add(time.Hour)
		must(t, s.InsertExceptions(t.Context(), org, []vuln.Exception{e}))
		if got := heldUIDs(t, s, epoch, org); got != nil {
			t.Errorf("before it is approved: %v", got)
		}
		approved := epoch.Add(time.Minute)
		s.Now = func() time.Time { return approved }
		got, err := s.ApproveException(t.Context(), e.UID, alice)
		must(t, err)
		if got.Approver != alice || !got.ApproveTime.Equal(approved) {
			t.Errorf("approved by %s at %s", got.Approver, got.ApproveTime)
		}
		again, err := s.ApproveException(t.Context(), e.UID, bob)
		must(t, err)
		if diff := cmp.Diff(got, again); diff != "" {
			t.Errorf("it was approved twice: %s", diff)
		}
		for at, want := range map[time.Time]int{approved.Add(-time.Millisecond): 0, approved: 1,
			e.ExpireTime.Add(-time.Millisecond): 1, e.ExpireTime: 0} {
			if got := heldUIDs(t, s, at, org); len(got) != want {
				t.Errorf("at %s: %v", at, got)
			}
		}
	},
	"an exception that had an effect is kept": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		proposed, e := addException(t, s, org, org), addException(t, s, org, org)
		s.Now = func() time.Time { return epoch.Add(time.Minute) }
		_, err := s.ApproveException(t.Context(), e.UID, alice)
		must(t, err)
		s.Now = func() time.Time { return epoch.Add(time.Hour) }
		must(t, s.DeleteException(t.Context(), proposed.UID, bob))
		must(t, s.DeleteException(t.Context(), e.UID, bob))
		_, err = s.Exception(t.Context(), proposed.UID)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "exception", Name: string(proposed.UID)})
		got, err := s.Exception(t.Context(), e.UID)
		must(t, err)
		if got.Deleter != bob || !got.DeleteTime.Equal(epoch.Add(time.Hour)) || got.Reason != e.Reason {
			t.Errorf("kept is %+v", got)
		}
		for at, want := range map[time.Duration]int{0: 0, time.Minute: 1, time.Hour - time.Millisecond: 1, time.Hour: 0} {
			if got := heldUIDs(t, s, epoch.Add(at), org); len(got) != want {
				t.Errorf("at %s: %v", at, got)
			}
		}
		all, err := s.Exceptions(t.Context(), store.Reach{Under: []resource.UID{org}}, resource.Filter{}, byUID)
		must(t, err)
		if len(all.Items) != 0 || all.Total != 0 {
			t.Errorf("listed: %v", all)
		}
		wantFault(t, s.DeleteException(t.Context(), e.UID, bob), fault.NotFound,
			fault.Resource{Type: "exception", Name: string(e.UID)})
		wantExact(t, s)
	},
	"exceptions of a period": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		e := newException(org, org)
		e.ApproveTime, e.ExpireTime = epoch.Add(time.Hour), epoch.Add(2*time.Hour)
		must(t, s.InsertExceptions(t.Context(), org, []vuln.Exception{e}))
		for _, tt := range []struct {
			from, to time.Duration
			want     int
		}{{0, time.Hour - time.Millisecond, 0}, {0, time.Hour, 1}, {0, 9 * time.Hour, 1}, {2*time.Hour - time.Millisecond,
			9 * time.Hour, 1}, {2 * time.Hour, 9 * time.Hour, 0}} {
			got, err := s.ExceptionsOn(t.Context(), []resource.UID{org}, epoch.Add(tt.from), epoch.Add(tt.to))
			must(t, err)
			if len(got) != tt.want {
				t.Errorf("%s to %s: %d", tt.from, tt.to, len(got))
			}
		}
	},
	"a group takes its exceptions and rules along": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		folder := addGroup(t, s, org, "folder").UID
		addRule(t, s, folder)
		e := addException(t, s, folder, folder)
		_, err := s.ApproveException(t.Context(), e.UID, alice)
		must(t, err)
		gone := addException(t, s, folder, folder)
		_, err = s.ApproveException(t.Context(), gone.UID, alice)
		must(t, err)
		must(t, s.DeleteException(t.Context(), gone.UID, alice))
		must(t, s.DeleteGroup(t.Context(), folder, alice))
		for _, uid := range []resource.UID{e.UID, gone.UID} {
			_, err = s.Exception(t.Context(), uid)
			wantFault(t, err, fault.NotFound, fault.Resource{Type: "exception", Name: string(uid)})
		}
		wantExact(t, s)
	},
	"a group has no more rules than it may": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		for range vuln.MaxPullRules {
			addRule(t, s, org)
		}
		wantFault(t, s.InsertPullRule(t.Context(), newRule(org)), fault.FailedPrecondition, fault.Resource{})
	},
	"the cache of rules follows every change": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		repo := addRepo(t, s, addGroup(t, s, org, "folder").UID, "repo").UID
		cache := findingdb.NewRuleCache(findingdb.New(s.DB))
		over := func() (all []bool) {
			set, err := cache.Get(t.Context())
			must(t, err)
			for _, r := range set.Over(repo) {
				all = append(all, r.Enforce)
			}
			return all
		}
		if got := over(); got != nil {
			t.Errorf("without any: %v", got)
		}
		r := addRule(t, s, org)
		if got := over(); !slices.Equal(got, []bool{false}) {
			t.Errorf("with one: %v", got)
		}
		after := r
		after.Enforce = true
		_, err := s.UpdatePullRule(t.Context(), r, after)
		must(t, err)
		if got := over(); !slices.Equal(got, []bool{true}) {
			t.Errorf("enforced: %v", got)
		}
		must(t, s.DeletePullRule(t.Context(), r.UID))
		if got := over(); got != nil {
			t.Errorf("deleted: %v", got)
		}
	},
}

func TestExceptionPromises(t *testing.T) {
	for name, promise := range exceptionPromises {
		t.Run(name, func(t *testing.T) { storetest.Each(t, promise) })
	}
}
