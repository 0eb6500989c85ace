package iamdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// heldRoles checks the roles of a person who got them from a provider, from an
// invite, and from other people.
func heldRoles(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	web := iamtest.AddGroup(t, s.IAMStore, org.UID, "web")
	var roles []resource.Role
	for i := range 5 {
		roles = append(roles, iamtest.AddRole(t, s.IAMStore, org.UID, fmt.Sprintf("role%d", i)))
	}
	p := iamtest.AddProvider(t, s.IAMStore, org.UID, roles[0].UID, "okta")
	iamtest.AddMapping(t, s.IAMStore, p.UID, roles[1].UID, "eng")
	iamtest.AddMapping(t, s.IAMStore, p.UID, roles[2].UID, "ops")
	iamtest.AddMapping(t, s.IAMStore, p.UID, roles[2].UID, "sre") // a second group that gives the same role
	arrival := resource.SignIn{
		Issuer: p.OIDC.Issuer, Subject: "ann", Realm: p.Realm, Voucher: p.Voucher(), UpdateRoles: true, Register: true,
		Groups: []string{"eng", "ops"},
	}
	in, err := s.SignIn(t.Context(), arrival)
	testkit.Must(t, err)
	ann := in.Identity.UID
	now = now.Add(time.Minute)
	invite := iamtest.AddInvite(t, s.IAMStore, web.UID, roles[3].UID)
	arrival.Invite = &resource.Presented{UID: invite.UID, Digest: invite.Digest}
	_, err = s.SignIn(t.Context(), arrival)
	testkit.Must(t, err)
	now = now.Add(time.Minute)
	late := iamtest.NewMapping(p.UID, roles[1].UID, "late") // this mapping has not given a role yet
	late.CreateTime = now
	testkit.Must(t, s.InsertMapping(t.Context(), late))
	byHand := iamtest.NewBinding(web.UID, ann, roles[4].UID)
	byHand.CreateTime = now
	_, err = s.InsertBinding(t.Context(), byHand)
	testkit.Must(t, err)

	type source struct {
		role     string
		group    resource.UID
		invite   bool
		provider string
		mapped   bool
		external string
	}
	got := map[source]bool{}
	held, total, err := s.HeldRoles(t.Context(), ann)
	testkit.Must(t, err)
	for _, h := range held {
		got[source{h.RoleInfo.Name, h.Group(), h.ByInvite, h.Provider, h.Mapped, h.ExternalGroup}] = true
		if !h.Joined || h.Capabilities != roles[0].Capabilities || h.RoleInfo.UID != h.Role ||
			h.Identity != "" && h.Identity != ann {
			t.Errorf("held: %+v", h)
		}
	}
	want := map[source]bool{
		{"role0", org.UID, false, "okta", false, ""}:   true,
		{"role1", org.UID, false, "okta", true, "eng"}: true,
		{"role2", org.UID, false, "okta", true, ""}:    true,
		{"role3", web.UID, true, "", false, ""}:        true,
		{"role4", web.UID, false, "", false, ""}:       true,
	}
	if diff := cmp.Diff(want, got); diff != "" || total != len(want) {
		t.Errorf("%d roles: %s", total, diff)
	}
	if held[len(held)-1].UID != byHand.UID {
		t.Errorf("the newest is not the last: %+v", held)
	}
	names, err := s.NamesOfGroups(t.Context(), []resource.UID{org.UID, web.UID, org.UID.NewChild()})
	if diff := cmp.Diff(map[resource.UID]string{org.UID: "org", web.UID: "web"}, names); diff != "" || err != nil {
		t.Errorf("names: %v %s", err, diff)
	}
}

// heldRolesOfStrangers lets another organization give a person more roles than
// are shown, and checks that the role in the person's own organization is still
// shown, as the first one.
func heldRolesOfStrangers(t *testing.T, s *iamtest.Store) {
	rival := iamtest.AddGroup(t, s.IAMStore, "", "rival")
	for i := range resource.HeldRolesShown + 1 {
		iamtest.AddBinding(t, s.IAMStore, rival.UID, iamtest.Alice, iamtest.AddRole(t, s.IAMStore, rival.UID,
			fmt.Sprintf("role%d", i)).UID)
	}
	org, own := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
	held, total, err := s.HeldRoles(t.Context(), iamtest.Alice)
	testkit.Must(t, err)
	if len(held) != resource.HeldRolesShown || total != resource.HeldRolesShown+2 {
		t.Fatalf("%d of %d are returned", len(held), total)
	}
	if held[0].UID != own.UID || held[0].Group() != org.UID || !held[0].Joined || held[1].Joined {
		t.Errorf("first: %+v, then %+v", held[0], held[1])
	}
	if held, total, err := s.HeldRoles(t.Context(), iamtest.Bob); len(held) != 0 || total != 0 || err != nil {
		t.Errorf("of nobody: %v %d %v", held, total, err)
	}
}
