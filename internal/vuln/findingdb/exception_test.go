package findingdb_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// heldUIDs returns the exceptions that are valid for targets at a time.
func heldUIDs(t *testing.T, s *vulntest.Store, at time.Time, targets ...resource.UID) (all []resource.UID) {
	t.Helper()
	held, err := s.ExceptionsOn(t.Context(), targets, at, at)
	testkit.Must(t, err)
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
var exceptionPromises = map[string]func(t *testing.T, s *vulntest.Store){
	"an exception needs its group and its target, the whole of it": func(t *testing.T, s *vulntest.Store) {
		org, rival := iamtest.AddGroup(t, s.IAMStore, "", "org").UID, iamtest.AddGroup(t, s.IAMStore, "", "rival").UID
		repo := registrytest.AddRepo(t, s.RegistryStore, rival, "repo").UID
		stolen := org + "/" + repo[len(rival)+1:]
		for _, target := range []resource.UID{stolen, org.NewChild()} {
			testkit.WantFault(t, s.InsertExceptions(t.Context(), org, []vuln.Exception{vulntest.NewException(org, target)}),
				fault.NotFound,
				fault.Resource{Type: "repo", Name: string(target)})
		}
		none := org.NewChild()
		testkit.WantFault(t, s.InsertExceptions(t.Context(), none, []vuln.Exception{vulntest.NewException(none, none)}),
			fault.NotFound,
			fault.Resource{Type: "group", Name: string(none)})
		r := vulntest.NewPullRule(org)
		r.Target = stolen
		testkit.WantFault(t, s.InsertPullRule(t.Context(), r), fault.NotFound, fault.Resource{Type: "repo",
			Name: string(stolen)})
		dbtest.WantExact(t, s.DB)
	},
	"all exceptions are added, or none, and no more than a group may have": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		var all []vuln.Exception
		for range vuln.MaxExceptions {
			all = append(all, vulntest.NewException(org, org))
		}
		bad := append(slices.Clone(all[1:]), vulntest.NewException(org, org.NewChild()))
		testkit.WantFault(t, s.InsertExceptions(t.Context(), org, bad), fault.NotFound,
			fault.Resource{Type: "repo", Name: string(bad[len(bad)-1].Target)})
		testkit.Must(t, s.InsertExceptions(t.Context(), org, all))
		testkit.WantFault(t, s.InsertExceptions(t.Context(), org, []vuln.Exception{vulntest.NewException(org, org)}),
			fault.FailedPrecondition, fault.Resource{})
		dbtest.WantExact(t, s.DB)
	},
	"an exception holds from its approval until it ends": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		e := vulntest.NewException(org, org)
		e.ExpireTime = iamtest.Epoch.Add(time.Hour)
		testkit.Must(t, s.InsertExceptions(t.Context(), org, []vuln.Exception{e}))
		if got := heldUIDs(t, s, iamtest.Epoch, org); got != nil {
			t.Errorf("before it is approved: %v", got)
		}
		approved := iamtest.Epoch.Add(time.Minute)
		s.Now = func() time.Time { return approved }
		got, err := s.ApproveException(t.Context(), e.UID, iamtest.Alice)
		testkit.Must(t, err)
		if got.Approver != iamtest.Alice || !got.ApproveTime.Equal(approved) {
			t.Errorf("approved by %s at %s", got.Approver, got.ApproveTime)
		}
		again, err := s.ApproveException(t.Context(), e.UID, iamtest.Bob)
		testkit.Must(t, err)
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
	"an exception that had an effect is kept": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		proposed, e := vulntest.AddException(t, s.FindingStore, org, org), vulntest.AddException(t, s.FindingStore, org, org)
		s.Now = func() time.Time { return iamtest.Epoch.Add(time.Minute) }
		_, err := s.ApproveException(t.Context(), e.UID, iamtest.Alice)
		testkit.Must(t, err)
		s.Now = func() time.Time { return iamtest.Epoch.Add(time.Hour) }
		testkit.Must(t, s.DeleteException(t.Context(), proposed.UID, iamtest.Bob))
		testkit.Must(t, s.DeleteException(t.Context(), e.UID, iamtest.Bob))
		_, err = s.Exception(t.Context(), proposed.UID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "exception", Name: string(proposed.UID)})
		got, err := s.Exception(t.Context(), e.UID)
		testkit.Must(t, err)
		if got.Deleter != iamtest.Bob || !got.DeleteTime.Equal(iamtest.Epoch.Add(time.Hour)) || got.Reason != e.Reason {
			t.Errorf("kept is %+v", got)
		}
		for at, want := range map[time.Duration]int{0: 0, time.Minute: 1, time.Hour - time.Millisecond: 1, time.Hour: 0} {
			if got := heldUIDs(t, s, iamtest.Epoch.Add(at), org); len(got) != want {
				t.Errorf("at %s: %v", at, got)
			}
		}
		all, err := s.Exceptions(t.Context(), store.Reach{Under: []resource.UID{org}}, resource.Filter{}, iamtest.ByUID)
		testkit.Must(t, err)
		if len(all.Items) != 0 || all.Total != 0 {
			t.Errorf("listed: %v", all)
		}
		testkit.WantFault(t, s.DeleteException(t.Context(), e.UID, iamtest.Bob), fault.NotFound,
			fault.Resource{Type: "exception", Name: string(e.UID)})
		dbtest.WantExact(t, s.DB)
	},
	"exceptions of a period": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		e := vulntest.NewException(org, org)
		e.ApproveTime, e.ExpireTime = iamtest.Epoch.Add(time.Hour), iamtest.Epoch.Add(2*time.Hour)
		testkit.Must(t, s.InsertExceptions(t.Context(), org, []vuln.Exception{e}))
		for _, tt := range []struct {
			from, to time.Duration
			want     int
		}{{0, time.Hour - time.Millisecond, 0}, {0, time.Hour, 1}, {0, 9 * time.Hour, 1}, {2*time.Hour - time.Millisecond,
			9 * time.Hour, 1}, {2 * time.Hour, 9 * time.Hour, 0}} {
			got, err := s.ExceptionsOn(t.Context(), []resource.UID{org}, iamtest.Epoch.Add(tt.from), iamtest.Epoch.Add(tt.to))
			testkit.Must(t, err)
			if len(got) != tt.want {
				t.Errorf("%s to %s: %d", tt.from, tt.to, len(got))
			}
		}
	},
	"a group takes its exceptions and rules along": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		folder := iamtest.AddGroup(t, s.IAMStore, org, "folder").UID
		vulntest.AddPullRule(t, s.FindingStore, folder)
		e := vulntest.AddException(t, s.FindingStore, folder, folder)
		_, err := s.ApproveException(t.Context(), e.UID, iamtest.Alice)
		testkit.Must(t, err)
		gone := vulntest.AddException(t, s.FindingStore, folder, folder)
		_, err = s.ApproveException(t.Context(), gone.UID, iamtest.Alice)
		testkit.Must(t, err)
		testkit.Must(t, s.DeleteException(t.Context(), gone.UID, iamtest.Alice))
		testkit.Must(t, s.DeleteGroup(t.Context(), folder, iamtest.Alice))
		for _, uid := range []resource.UID{e.UID, gone.UID} {
			_, err = s.Exception(t.Context(), uid)
			testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "exception", Name: string(uid)})
		}
		dbtest.WantExact(t, s.DB)
	},
	"a group has no more rules than it may": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		for range vuln.MaxPullRules {
			vulntest.AddPullRule(t, s.FindingStore, org)
		}
		testkit.WantFault(t, s.InsertPullRule(t.Context(), vulntest.NewPullRule(org)), fault.FailedPrecondition,
			fault.Resource{})
	},
	"the cache of rules follows every change": func(t *testing.T, s *vulntest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		repo := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, org, "folder").UID, "repo").UID
		cache := findingdb.NewRuleCache(findingdb.New(s.DB))
		over := func() (all []bool) {
			set, err := cache.Get(t.Context())
			testkit.Must(t, err)
			for _, r := range set.Over(repo) {
				all = append(all, r.Enforce)
			}
			return all
		}
		if got := over(); got != nil {
			t.Errorf("without any: %v", got)
		}
		r := vulntest.AddPullRule(t, s.FindingStore, org)
		if got := over(); !slices.Equal(got, []bool{false}) {
			t.Errorf("with one: %v", got)
		}
		after := r
		after.Enforce = true
		_, err := s.UpdatePullRule(t.Context(), r, after)
		testkit.Must(t, err)
		if got := over(); !slices.Equal(got, []bool{true}) {
			t.Errorf("enforced: %v", got)
		}
		testkit.Must(t, s.DeletePullRule(t.Context(), r.UID))
		if got := over(); got != nil {
			t.Errorf("deleted: %v", got)
		}
	},
}

func TestExceptionPromises(t *testing.T) {
	for name, promise := range exceptionPromises {
		t.Run(name, func(t *testing.T) { vulntest.Each(t, promise) })
	}
}
