package store_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func mappingOnce(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r, q := addRole(t, s, org.UID, "r"), addRole(t, s, org.UID, "q")
	p, o := addProvider(t, s, org.UID, r.UID, "p"), addProvider(t, s, org.UID, r.UID, "o")
	m := addMapping(t, s, p.UID, r.UID, "m")
	wantSame(t, s.Mapping, m.UID, m)
	taken := fault.Resource{Type: "external group role mapping", Name: "m"}
	wantFault(t, s.InsertMapping(t.Context(), newMapping(p.UID, r.UID, "m")), fault.AlreadyExists, taken)
	addMapping(t, s, p.UID, r.UID, "n")
	addMapping(t, s, p.UID, q.UID, "m")
	addMapping(t, s, o.UID, r.UID, "m")
	must(t, s.DeleteMapping(t.Context(), m.UID))
	addMapping(t, s, p.UID, r.UID, "m")
}

func mappingRole(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	p := addProvider(t, s, org.UID, addRole(t, s, org.UID, "r").UID, "p")
	none := org.UID.NewChild()
	wantFault(t, s.InsertMapping(t.Context(), newMapping(p.UID, none, "m")), fault.NotFound,
		fault.Resource{Type: "role", Name: string(none)})
	wantFault(t, s.InsertMapping(t.Context(), newMapping(org.UID, p.DefaultRole, "m")), fault.NotFound,
		fault.Resource{Type: "identity provider", Name: string(org.UID)})
}

func mappingBatch(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r := addRole(t, s, org.UID, "r")
	p := addProvider(t, s, org.UID, r.UID, "p")
	a, b, c := addMapping(t, s, p.UID, r.UID, "a"), addMapping(t, s, p.UID, r.UID, "b"), addMapping(t, s, p.UID, r.UID,
		"c")
	before := len(events(t, s))
	got, err := s.DeleteMappings(t.Context(), p.UID, []resource.UID{b.UID, p.UID.NewChild(), a.UID, b.UID})
	must(t, err)
	want := []resource.ExternalGroupRoleMapping{b, a}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	fresh := events(t, s)[before:]
	if len(fresh) != 1 || fresh[0].Type != resource.MappingsDeleted || fresh[0].Subject != p.UID ||
		fresh[0].Group != org.UID {
		t.Fatalf("events = %v", fresh)
	}
	var told []resource.ExternalGroupRoleMapping
	must(t, json.Unmarshal(fresh[0].Before, &told))
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	wantSame(t, s.Mapping, c.UID, c)
	got, err = s.DeleteMappings(t.Context(), p.UID, []resource.UID{b.UID})
	if err != nil || len(got) != 0 || len(events(t, s)) != before+1 {
		t.Errorf("of what is gone: %v, %v", got, err)
	}
}

func mappingBatchElsewhere(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r := addRole(t, s, org.UID, "r")
	p, o := addProvider(t, s, org.UID, r.UID, "p"), addProvider(t, s, org.UID, r.UID, "o")
	m := addMapping(t, s, o.UID, r.UID, "m")
	got, err := s.DeleteMappings(t.Context(), p.UID, []resource.UID{m.UID})
	if err != nil || len(got) != 0 {
		t.Errorf("of another provider: %v, %v", got, err)
	}
	wantSame(t, s.Mapping, m.UID, m)
}
