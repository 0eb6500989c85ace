package findingdb_test

import (
	"errors"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// TestSLA checks that the SLA of the nearest group applies, on both engines.
func TestSLA(t *testing.T) {
	t.Parallel()
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		ctx := t.Context()
		org, rival := iamtest.AddGroup(t, s.IAMStore, "", "org").UID, iamtest.AddGroup(t, s.IAMStore, "", "rival").UID
		folder := iamtest.AddGroup(t, s.IAMStore, org, "folder").UID
		deep, sibling := iamtest.AddGroup(t, s.IAMStore, folder, "deep").UID, iamtest.AddGroup(t, s.IAMStore, org, "b").UID
		set := func(group resource.UID, days int32) vuln.SLA {
			t.Helper()
			v, err := s.SetSLA(ctx, vuln.SLA{UID: group, Critical: days})
			testkit.Must(t, err)
			return v
		}
		applies := func(group, source resource.UID, days int32) {
			t.Helper()
			v, err := s.SLA(ctx, group)
			if err != nil || v.UID != source || v.Critical != days {
				t.Errorf("the SLA of %s is %+v, %v; want %d days from %s", group, v, err, days, source)
			}
		}
		missing := func(err error) {
			t.Helper()
			if !errors.Is(err, fault.NotFound) {
				t.Errorf("error = %v, want NotFound", err)
			}
		}
		missing(testkit.Ignore(s.SLA(ctx, deep)))
		missing(testkit.Ignore(s.SetSLA(ctx, vuln.SLA{UID: org.NewChild(), Critical: 1})))
		missing(testkit.Ignore(s.SetSLA(ctx, vuln.SLA{UID: rival + folder[len(org):], Critical: 1})))
		first := set(org, 7)
		if again := set(org, 7); again != first {
			t.Errorf("an unchanged SLA was written: %+v, before %+v", again, first)
		}
		set(folder, 30)
		applies(org, org, 7)
		applies(sibling, org, 7)
		applies(folder, folder, 30)
		applies(deep, folder, 30)
		missing(testkit.Ignore(s.SLA(ctx, rival)))
		for group, want := range map[resource.UID]int{org: 2, folder: 2, deep: 2, sibling: 1, rival: 0} {
			if found, err := s.SLAsFor(ctx, group); err != nil || len(found) != want {
				t.Errorf("%d SLAs concern %s, want %d: %v, %v", len(found), group, want, found, err)
			}
		}
		testkit.Must(t, s.DeleteSLA(ctx, folder))
		missing(s.DeleteSLA(ctx, folder))
		missing(s.DeleteSLA(ctx, deep))
		applies(deep, org, 7)
		set(deep, 1)
		testkit.Must(t, s.DeleteGroup(ctx, deep, ""))
		if found, err := s.SLAsFor(ctx, org); err != nil || len(found) != 1 {
			t.Errorf("after a group was deleted, the SLAs are %v, %v", found, err)
		}
	})
}
