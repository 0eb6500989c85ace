package iamdb_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

func mappingOnce(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r, q := iamtest.AddRole(t, s.IAMStore, org.UID, "r"), iamtest.AddRole(t, s.IAMStore, org.UID, "q")
	p, o := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p"), iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID,
		"o")
	m := iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID, "m")
	testkit.WantSame(t, s.Mapping, m.UID, m)
	taken := fault.Resource{Type: "external group role mapping", Name: "m"}
	testkit.WantFault(t, s.InsertMapping(t.Context(), iamtest.NewMapping(p.UID, r.UID, "m")), fault.AlreadyExists, taken)
	iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID, "n")
	iamtest.AddMapping(t, s.IAMStore, p.UID, q.UID, "m")
	iamtest.AddMapping(t, s.IAMStore, o.UID, r.UID, "m")
	testkit.Must(t, s.DeleteMapping(t.Context(), m.UID))
	iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID, "m")
}

func mappingRole(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	p := iamtest.AddProvider(t, s.IAMStore, org.UID, iamtest.AddRole(t, s.IAMStore, org.UID, "r").UID, "p")
	none := org.UID.NewChild()
	testkit.WantFault(t, s.InsertMapping(t.Context(), iamtest.NewMapping(p.UID, none, "m")), fault.NotFound,
		fault.Resource{Type: "role", Name: string(none)})
	testkit.WantFault(t, s.InsertMapping(t.Context(), iamtest.NewMapping(org.UID, p.DefaultRole, "m")), fault.NotFound,
		fault.Resource{Type: "identity provider", Name: string(org.UID)})
}

func mappingBatch(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	p := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p")
	a, b, c := iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID, "a"), iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID,
		"b"), iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID,
		"c")
	before := len(dbtest.Events(t, s.DB))
	got, err := s.DeleteMappings(t.Context(), p.UID, []resource.UID{b.UID, p.UID.NewChild(), a.UID, b.UID})
	testkit.Must(t, err)
	want := []resource.ExternalGroupRoleMapping{b, a}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	fresh := dbtest.Events(t, s.DB)[before:]
	if len(fresh) != 1 || fresh[0].Type != resource.MappingsDeleted || fresh[0].Subject != p.UID ||
		fresh[0].Group != org.UID {
		t.Fatalf("events = %v", fresh)
	}
	var told []resource.ExternalGroupRoleMapping
	testkit.Must(t, json.Unmarshal(fresh[0].Before, &told))
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	testkit.WantSame(t, s.Mapping, c.UID, c)
	got, err = s.DeleteMappings(t.Context(), p.UID, []resource.UID{b.UID})
	if err != nil || len(got) != 0 || len(dbtest.Events(t, s.DB)) != before+1 {
		t.Errorf("of what is gone: %v, %v", got, err)
	}
}

func mappingBatchElsewhere(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	p, o := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p"), iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID,
		"o")
	m := iamtest.AddMapping(t, s.IAMStore, o.UID, r.UID, "m")
	got, err := s.DeleteMappings(t.Context(), p.UID, []resource.UID{m.UID})
	if err != nil || len(got) != 0 {
		t.Errorf("of another provider: %v, %v", got, err)
	}
	testkit.WantSame(t, s.Mapping, m.UID, m)
}
