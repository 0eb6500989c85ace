package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// subset returns a random subset of uids.
func subset(r *rand.Rand, uids []resource.UID) []resource.UID {
	return slices.DeleteFunc(slices.Clone(uids), func(resource.UID) bool { return r.IntN(2) == 0 })
}

// holders checks random queries for the holders of roles, and all their
// following pages, against a search through all bindings.
func holders(t *testing.T, s *storetest.Store) {
	const questions = 150
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	groups := []resource.UID{iamtest.AddGroup(t, s.IAMStore, "", "org").UID}
	for i := range 3 {
		groups = append(groups, iamtest.AddGroup(t, s.IAMStore, groups[i], "g").UID)
	}
	who := []resource.UID{iamtest.Alice, iamtest.Bob, iamtest.AddIdentity(t, s.IAMStore, groups[0], "i").UID,
		iamtest.AddIdentity(t, s.IAMStore, groups[2], "j").UID}
	var roles []resource.UID
	var all []row
	for i := range 3 {
		roles = append(roles, iamtest.AddRole(t, s.IAMStore, groups[0], fmt.Sprint(i)).UID)
		for _, g := range groups {
			for _, identity := range subset(r, who) {
				b := iamtest.NewBinding(g, identity, roles[i])
				b.CreateTime = time.UnixMilli(int64(r.IntN(6))).UTC()
				_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{b})
				testkit.Must(t, err)
				all = append(all, row{uid: b.UID, created: b.CreateTime.UnixMilli(), identity: identity, role: b.Role})
			}
		}
	}
	for range questions {
		h := iamdb.HolderQuery{Groups: subset(r, groups), Roles: subset(r, roles)}
		if r.IntN(3) == 0 { // a group that does not exist
			h.Groups = append(h.Groups, groups[0]+groups[3][len(groups[3])-17:])
		}
		if r.IntN(3) == 0 {
			checkHeldBy(t, s, all, who[r.IntN(len(who))], h.Groups)
		}
		p := page.Request{Size: 1 + r.IntN(8), Order: page.Order{Field: []string{"uid", "create_time"}[r.IntN(2)],
			Desc: r.IntN(2) == 0}}
		if r.IntN(2) == 0 {
			p.Skip = r.IntN(6)
		}
		if r.IntN(3) == 0 && len(all) > 0 {
			c := all[r.IntN(len(all))].cursor(p.Order.Field)
			p.After = &c
		}
		walkHolders(t, s, all, h, p)
	}
}

// checkHeldBy checks the roles that one identity holds on groups.
func checkHeldBy(t *testing.T, s *storetest.Store, all []row, identity resource.UID, groups []resource.UID) {
	t.Helper()
	var got, want []resource.UID
	held, err := s.HeldBy(t.Context(), identity, groups)
	testkit.Must(t, err)
	for _, b := range held {
		got = append(got, b.UID)
	}
	for _, v := range all {
		if v.identity == identity && slices.Contains(groups, v.uid.Parent()) {
			want = append(want, v.uid)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %v on %v, want %v", identity, got, groups, want)
	}
}

// walkHolders reads a page and all following pages, and checks each.
func walkHolders(t *testing.T, s *storetest.Store, all []row, h iamdb.HolderQuery, p page.Request) {
	t.Helper()
	held := &kind{name: "holders", rows: slices.DeleteFunc(slices.Clone(all), func(v row) bool {
		return !slices.Contains(h.Groups, v.uid.Parent()) || !slices.Contains(h.Roles, v.role)
	})}
	for {
		want, more := held.brute(store.Reach{Under: h.Groups}, resource.Filter{}, p)
		got, err := s.Holders(t.Context(), h, p)
		testkit.Must(t, err)
		var uids []resource.UID
		for _, b := range got.Items {
			uids = append(uids, b.UID)
			if b.RoleInfo.UID != b.Role || b.GroupInfo.UID != b.Group() || b.RoleInfo.Name == "" {
				t.Errorf("holder without what it ties together: %+v", b)
			}
		}
		if !slices.Equal(uids, want.uids) || got.Total != want.total || (got.Last != nil) != more {
			t.Fatalf("holding %+v\nrequest %+v after %+v\ngot  %d, more %v: %v\nwant %d, more %v: %v", h, p, p.After,
				got.Total, got.Last != nil, uids, want.total, more, want.uids)
		}
		if !more {
			return
		}
		p.After, p.Skip = got.Last, 0
	}
}

func TestHolders(t *testing.T) {
	storetest.Each(t, holders)
}
