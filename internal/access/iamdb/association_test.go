package iamdb_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

func associationKeeps(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	a := resource.AccountAssociation{
		UID: org.UID, Name: "a", Description: "ünï", CreateTime: iamtest.Epoch,
		UpdateTime: iamtest.Epoch.Add(time.Millisecond),
		Amazon:     &resource.AmazonAccount{Account: "123456789012"},
		Google:     &resource.GoogleProject{ProjectID: "project", ProjectNumber: "7"},
		Azure:      &resource.AzureTenant{TenantID: "t", ClientIDs: map[string]string{"a": "b"}},
		GitHub: &resource.GitHubAccount{Installations: map[int64][]resource.GitHubInstallation{5: {{ID: 6,
			Name: "n"}, {ID: 7}}}},
		ServiceBindings: map[string]resource.UID{"INGESTER": org.UID.NewChild()}, HasBindings: true,
	}
	testkit.Must(t, s.InsertAssociation(t.Context(), a))
	testkit.WantSame(t, s.Association, org.UID, a)
	now := iamtest.Epoch.Add(time.Hour)
	s.Now = func() time.Time { return now }
	got, err := store.Edit(t.Context(), org.UID, s.Association, s.UpdateAssociation,
		func(a *resource.AccountAssociation) error {
			a.Name, a.Google, a.Amazon.Account = "b", nil, "210987654321"
			return nil
		})
	testkit.Must(t, err)
	before := a
	a.Name, a.Google, a.Amazon, a.UpdateTime = "b", nil, &resource.AmazonAccount{Account: "210987654321"}, now
	if diff := cmp.Diff(a, got); diff != "" {
		t.Error(diff)
	}
	testkit.WantSame(t, s.Association, org.UID, a)
	all := dbtest.Events(t, s.DB)
	var told resource.AccountAssociation
	testkit.Must(t, json.Unmarshal(all[len(all)-1].Before, &told))
	if diff := cmp.Diff(before, told); diff != "" {
		t.Errorf("the event's before: %s", diff)
	}
}

func associationOnce(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	g := iamtest.AddGroup(t, s.IAMStore, org.UID, "g")
	iamtest.AddAssociation(t, s.IAMStore, org.UID, "a")
	a := iamtest.AddAssociation(t, s.IAMStore, g.UID, "a") // another group may use the same name
	taken := fault.Resource{Type: "account association", Name: string(g.UID)}
	testkit.WantFault(t, s.InsertAssociation(t.Context(), iamtest.NewAssociation(g.UID, "b")), fault.AlreadyExists, taken)
	testkit.WantSame(t, s.Association, g.UID, a)
	testkit.WantFault(t, s.DeleteGroup(t.Context(), g.UID, ""), fault.FailedPrecondition, fault.Resource{})
	testkit.Must(t, s.DeleteAssociation(t.Context(), g.UID))
	testkit.Must(t, s.DeleteAssociation(t.Context(), g.UID)) // the association is already deleted
	iamtest.AddAssociation(t, s.IAMStore, g.UID, "b")
	testkit.Must(t, s.DeleteAssociation(t.Context(), g.UID))
	testkit.Must(t, s.DeleteGroup(t.Context(), g.UID, ""))
}

func associationByGroup(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	want := []resource.AccountAssociation{iamtest.AddAssociation(t, s.IAMStore, org.UID, "z")}
	want = append(want, iamtest.AddAssociation(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, org.UID, "g").UID, "a"))
	p := page.Request{Size: 1, Order: page.Order{Field: "group"}}
	for _, a := range want { // a grant on a group includes the association of the group itself
		got, err := s.Associations(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{}, p)
		testkit.Must(t, err)
		if diff := cmp.Diff([]resource.AccountAssociation{a}, got.Items); diff != "" || got.Total != 2 {
			t.Errorf("total %d\n%s", got.Total, diff)
		}
		p.After = got.Last
	}
}

// associationInside checks that filters treat an association as a child of its
// group, although it has the same UID as the group.
func associationInside(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	above := iamtest.AddGroup(t, s.IAMStore, org.UID, "above")
	below := iamtest.AddGroup(t, s.IAMStore, above.UID, "below")
	for i, g := range []resource.Group{org, above, below} {
		iamtest.AddAssociation(t, s.IAMStore, g.UID, string(rune('a'+i)))
	}
	// the segment of the group below, at a path where no group is
	astray := org.UID + "/" + below.UID[len(below.UID)-16:]
	for name, tt := range map[string]struct {
		reach resource.UID
		f     resource.UIDFilter
		want  string
	}{
		"descendants":               {org.UID, resource.UIDFilter{DescendantsOf: above.UID}, "bc"},
		"descendants of everything": {org.UID, resource.UIDFilter{DescendantsOf: org.UID}, "abc"},
		"children":                  {org.UID, resource.UIDFilter{ChildrenOf: above.UID}, "b"},
		"children of a descendant": {org.UID, resource.UIDFilter{DescendantsOf: above.UID, ChildrenOf: below.UID},
			"c"},
		"children of what is elsewhere": {org.UID, resource.UIDFilter{DescendantsOf: below.UID, ChildrenOf: above.UID}, ""},
		"one of the descendants": {org.UID,
			resource.UIDFilter{DescendantsOf: above.UID, IDs: []resource.UID{above.UID, org.UID}}, "b"},
		"descendants for those below":     {below.UID, resource.UIDFilter{DescendantsOf: above.UID}, "c"},
		"children for those below":        {below.UID, resource.UIDFilter{ChildrenOf: above.UID}, ""},
		"children in reach":               {below.UID, resource.UIDFilter{ChildrenOf: below.UID}, "c"},
		"roots among the descendants":     {org.UID, resource.UIDFilter{DescendantsOf: org.UID, InRoot: true}, "a"},
		"children of a group that is not": {org.UID, resource.UIDFilter{ChildrenOf: astray}, ""},
		"descendants of none":             {org.UID, resource.UIDFilter{DescendantsOf: astray}, ""},
	} {
		for _, order := range []string{"group", "name"} {
			p := page.Request{Size: 5, Order: page.Order{Field: order}}
			got, err := s.Associations(t.Context(), store.Reach{Under: []resource.UID{tt.reach}}, resource.Filter{UIDs: tt.f}, p)
			testkit.Must(t, err)
			var names string
			for _, a := range got.Items {
				names += a.Name
			}
			if names != tt.want || got.Total != int64(len(tt.want)) {
				t.Errorf("%s by %s: %q of %d, want %q", name, order, names, got.Total, tt.want)
			}
		}
	}
}
