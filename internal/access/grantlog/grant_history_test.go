package grantlog_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestGrantHistory checks the recorded history of a binding, and of the names of the resources that
// it refers to.
func TestGrantHistory(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		folder := iamtest.AddGroup(t, s.IAMStore, org.UID, "before")
		robot := iamtest.AddIdentity(t, s.IAMStore, org.UID, "robot")
		role := iamtest.AddRole(t, s.IAMStore, org.UID, "one")
		ann := resource.WithActor(t.Context(), resource.Actor{Subject: "ann"})
		b := iamtest.NewBinding(folder.UID, robot.UID, role.UID)
		_, err := s.InsertBinding(ann, b)
		testkit.Must(t, err)
		made := dbtest.LastChange(t, s.DB)

		after := folder
		after.Name = "after"
		_, err = s.UpdateGroup(t.Context(), folder, after)
		testkit.Must(t, err)
		changed := role
		changed.Name, changed.Capabilities = "two", resource.NewCapabilities(resource.RepoList)
		_, err = s.UpdateRole(t.Context(), role, changed)
		testkit.Must(t, err)
		bob := resource.WithActor(t.Context(), resource.Actor{Subject: "bob"})
		testkit.Must(t, s.Write(bob, func(x *store.Tx) error {
			_, err := iamdb.In(x).DeleteIdentity(bob, robot.UID, org.UID)
			return err
		}))
		ended := dbtest.LastChange(t, s.DB)
		testkit.Must(t, s.DeleteGroup(t.Context(), folder.UID, ""))

		if got := iamtest.PastOn(t, s.GrantLog, folder.UID, made.Add(-time.Millisecond)); len(got) != 0 {
			t.Errorf("before it was made: %v", got)
		}
		if got := iamtest.PastOn(t, s.GrantLog, folder.UID, ended); len(got) != 0 {
			t.Errorf("when it was gone: %v", got)
		}
		for at, names := range map[time.Time][2]string{made: {"before", "one"},
			ended.Add(-time.Millisecond): {"after", "two"}} {
			got := iamtest.PastOn(t, s.GrantLog, folder.UID, at)
			if len(got) != 1 || got[0].UID != b.UID || got[0].Role != role.UID || got[0].IdentityInfo.Name != "robot" {
				t.Fatalf("as of %s: %+v", at, got)
			}
			if got[0].RoleInfo.Name != names[1] {
				t.Errorf("as of %s the role is called %s, want %s", at, got[0].RoleInfo.Name, names[1])
			}
		}
		var by, until string
		testkit.Must(t, s.Row(t.Context(), `SELECT made_by, ended_by FROM binding_history WHERE uid = $1`,
			[]any{string(b.UID)},
			&by, &until))
		if by != "ann" || until != "bob" {
			t.Errorf("made by %q, ended by %q", by, until)
		}
		names, err := s.GroupNamesAt(t.Context(), made,
			[]resource.UID{folder.UID, resource.UID(string(org.UID) + "/0123456789abcdef")})
		if testkit.Must(t, err); len(names) != 1 || names[folder.UID] == "" {
			t.Errorf("names of groups: %v", names)
		}
	})
}

// TestGrantHistoryOfVersionBefore checks that writes by a program that does not know the history
// are recorded, without an actor.
func TestGrantHistoryOfVersionBefore(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		role := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
		ann := resource.WithActor(t.Context(), resource.Actor{Subject: "ann"})
		_, err := s.InsertBinding(ann, iamtest.NewBinding(org.UID, resource.NewRoot(), role.UID))
		testkit.Must(t, err)
		uid := org.UID.NewChild()
		before := dbtest.LastChange(t, s.DB)
		old := func(statements ...string) {
			testkit.Must(t, s.Write(t.Context(), func(x *store.Tx) error {
				for _, text := range statements {
					if _, err := x.Exec(t.Context(), text); err != nil {
						return err
					}
				}
				var rev int64
				return x.Row(t.Context(), `UPDATE revision SET rev = rev + $1 WHERE id = 1 RETURNING rev`, []any{1}, &rev)
			}))
		}
		testkit.Must(t, s.Write(t.Context(), func(x *store.Tx) error {
			args := append(store.TreeColumns(uid), string(iamtest.Alice), store.Segment(role.UID))
			_, err := x.Exec(t.Context(), `INSERT INTO role_bindings (seg, uid, parent, a1, a2, a3, identity, role, create_ms)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`, args...)
			if err != nil {
				return err
			}
			var rev int64
			return x.Row(t.Context(), `UPDATE revision SET rev = rev + $1 WHERE id = 1 RETURNING rev`, []any{1}, &rev)
		}))
		made := dbtest.LastChange(t, s.DB)
		old(`DELETE FROM role_bindings WHERE uid = '` + string(uid) + `'`)
		var from, to int64
		var by, until string
		testkit.Must(t, s.Row(t.Context(), `SELECT from_ms, to_ms, made_by, ended_by FROM binding_history WHERE uid = $1`,
			[]any{string(uid)},
			&from, &to, &by, &until))
		if from != made.UnixMilli() || from <= before.UnixMilli() || to != dbtest.LastChange(t,
			s.DB).UnixMilli() || to <= from ||
			by != "" || until != "" {
			t.Errorf("from %d to %d, by %q and %q", from, to, by, until)
		}
		if n := dbtest.CountRows(t, s.DB, "binding_history",
			"from_ms = 9223372036854775807 OR to_ms = 9223372036854775806"); n != 0 {
			t.Errorf("%d rows have no date", n)
		}
	})
}

// TestGrantHistoryBegins checks that the history begins with the installation, and that requests for an earlier or
// a future time are refused.
func TestGrantHistoryBegins(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		var since int64
		testkit.Must(t, s.Row(t.Context(), `SELECT since_ms FROM access_history`, nil, &since))
		begin := store.FromMS(since)
		testkit.Must(t, s.RequirePast(t.Context(), "as_of", begin))
		err := s.RequirePast(t.Context(), "as_of", begin.Add(-time.Millisecond))
		if f := fault.From(err); f.Code != fault.FailedPrecondition || len(f.Unmet) != 1 ||
			f.Unmet[0].Subject != "HISTORY_NOT_KEPT" {
			t.Errorf("before the installation: %v", err)
		}
		if err := s.RequirePast(t.Context(), "as_of", time.Now().Add(time.Hour)); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("in the future: %v", err)
		}
	})
}

// TestPruneGrantHistory checks that ended records are deleted when they are old enough, in parts,
// and that valid ones are never deleted.
func TestPruneGrantHistory(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		role := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
		var gone []resource.RoleBinding
		for range 5 {
			b := iamtest.NewBinding(org.UID, resource.NewRoot(), role.UID)
			_, err := s.InsertBinding(t.Context(), b)
			testkit.Must(t, err)
			testkit.Must(t, s.DeleteBinding(t.Context(), b.UID))
			gone = append(gone, b)
		}
		folder := iamtest.AddGroup(t, s.IAMStore, org.UID, "folder")
		testkit.Must(t, s.DeleteGroup(t.Context(), folder.UID, ""))
		valid := map[string]int{}
		for _, table := range []string{"binding_history", "role_history", "group_history", "identity_history"} {
			valid[table] = dbtest.CountRows(t, s.DB, table, "to_ms = 9223372036854775807")
		}
		pruned := time.Now()
		n, err := s.PruneHistory(t.Context(), pruned, 3)
		if testkit.Must(t, err); n != 0 {
			t.Errorf("deleted %d rows that requests may be asking for", n)
		}
		err = s.RequirePast(t.Context(), "as_of", pruned.Truncate(time.Millisecond).Add(-time.Millisecond))
		if !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("as of before history: %v", err)
		}
		later := time.Now().Add(time.Hour)
		for i, want := range []int{3, 3, 0} { // five bindings and a group have ended
			if n, err = s.PruneHistory(t.Context(), later, 3); err != nil || n != want {
				t.Errorf("part %d: deleted %d, %v, want %d", i, n, err, want)
			}
		}
		for table, want := range valid {
			if got := dbtest.CountRows(t, s.DB, table, "to_ms = 9223372036854775807"); got != want || dbtest.CountRows(t, s.DB,
				table, "1 = 1") != want {
				t.Errorf("%s has %d valid rows, want %d", table, got, want)
			}
		}
		if i := slices.IndexFunc(gone, func(b resource.RoleBinding) bool {
			return dbtest.CountRows(t, s.DB, "binding_history", "uid = '"+string(b.UID)+"'") > 0
		}); i >= 0 {
			t.Errorf("binding %d is still there", i)
		}
	})
}

// TestDiffGrants checks the differences for bindings that began or ended by their time limits, that
// were created or deleted, and that had no effect in the end.
func TestDiffGrants(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		other, _ := iamtest.AddOrganization(t, s.IAMStore, "other", iamtest.Alice)
		folder := iamtest.AddGroup(t, s.IAMStore, org.UID, "folder")
		role, second := iamtest.AddRole(t, s.IAMStore, org.UID, "r"), iamtest.AddRole(t, s.IAMStore, org.UID, "s")
		at := func(d time.Duration) time.Time { return dbtest.LastChange(t, s.DB).Truncate(time.Second).Add(d) }
		add := func(group, role resource.UID, start, end time.Time) resource.RoleBinding {
			b := iamtest.NewBinding(group, resource.NewRoot(), role)
			b.StartTime, b.ExpireTime = start, end
			_, err := s.InsertBinding(t.Context(), b)
			testkit.Must(t, err)
			return b
		}
		var none time.Time
		stays, taken, moved := add(org.UID, role.UID, none, none), add(folder.UID, role.UID, none, none), add(folder.UID,
			role.UID, none, none)
		expires, begins := add(org.UID, role.UID, none, at(time.Hour)), add(org.UID, role.UID, at(time.Hour), none)
		again := add(org.UID, role.UID, none, none)
		from := dbtest.LastChange(t, s.DB)
		given := add(org.UID, second.UID, none, none)
		testkit.Must(t, s.DeleteBinding(t.Context(), taken.UID))
		brief := add(org.UID, role.UID, none, none)
		testkit.Must(t, s.DeleteBinding(t.Context(), brief.UID))
		b := iamtest.NewBinding(org.UID, again.Identity, role.UID)
		b.ExpireTime = at(10 * time.Hour)
		_, err := s.InsertBinding(t.Context(), b)
		testkit.Must(t, err)
		testkit.Must(t, s.DeleteBinding(t.Context(), again.UID))
		_, err = s.UpdateBinding(t.Context(), moved.UID, func(b *resource.RoleBinding) error {
			b.Role = second.UID
			return nil
		})
		testkit.Must(t, err)
		add(other.UID, role.UID, none, none)
		_, err = s.Exec(t.Context(), `UPDATE revision SET at_ms = at_ms + 7200000 WHERE id = 1`)
		testkit.Must(t, err)
		to := dbtest.LastChange(t, s.DB)

		type change struct {
			uid resource.UID
			how grantlog.Change
		}
		read := func(q grantlog.DiffQuery, r page.Request) (all []change) {
			for {
				got, err := s.DiffGrants(t.Context(), q, r)
				testkit.Must(t, err)
				for _, d := range got.Items {
					all = append(all, change{d.UID, d.Change})
				}
				if r.After = got.Last; r.After == nil {
					if int64(len(all)) != got.Total {
						t.Errorf("%d changes of %d", len(all), got.Total)
					}
					return all
				}
			}
		}
		inOrder := page.Request{Size: 2, Order: page.Order{Field: "time"}}
		want := []change{{given.UID, grantlog.Granted}, {taken.UID, grantlog.Revoked}, {moved.UID, grantlog.Revoked},
			{moved.UID, grantlog.Granted},
			{expires.UID, grantlog.Expired}, {begins.UID, grantlog.Begun}}
		all := grantlog.DiffQuery{From: from, To: to, Under: []resource.UID{org.UID}}
		if got := read(all, inOrder); !sameChanges(got, want) {
			t.Errorf("in the organization: %v, want %v; %s stays", got, want, stays.UID)
		}
		backwards := inOrder
		backwards.Order.Desc = true
		got := read(all, backwards)
		slices.Reverse(got)
		if !sameChanges(got, want) {
			t.Errorf("backwards: %v", got)
		}
		inFolder := grantlog.DiffQuery{From: from, To: to, Under: []resource.UID{folder.UID}}
		if got := read(inFolder, inOrder); !sameChanges(got, want[1:4]) {
			t.Errorf("in the folder: %v, want %v", got, want[1:4])
		}
		inFolder.Groups = []resource.UID{org.UID, folder.UID}
		if got := read(inFolder, inOrder); !sameChanges(got, want) {
			t.Errorf("for the folder: %v, want %v", got, want)
		}
		roles, err := s.DiffRoles(t.Context(), from, to, []resource.UID{org.UID})
		if testkit.Must(t, err); len(roles) != 0 {
			t.Errorf("roles: %v", roles)
		}
	})
}

// sameChanges compares two lists of changes that are sorted by time. Changes with equal times may
// be in any order.
func sameChanges[T comparable](got, want []T) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		near := want[max(0, i-1):min(len(want), i+2)]
		if !slices.Contains(near, got[i]) {
			return false
		}
	}
	return true
}

// TestDiffRoles checks the differences for roles whose capabilities changed, both in an
// organization and in the service.
func TestDiffRoles(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		other, _ := iamtest.AddOrganization(t, s.IAMStore, "other", iamtest.Alice)
		mine, renamed, others := iamtest.AddRole(t, s.IAMStore, org.UID, "mine"), iamtest.AddRole(t, s.IAMStore, org.UID,
			"renamed"), iamtest.AddRole(t, s.IAMStore, other.UID,
			"others")
		from := dbtest.LastChange(t, s.DB)
		for _, r := range []resource.Role{mine, others} {
			after := r
			after.Capabilities = resource.NewCapabilities(resource.RepoList)
			_, err := s.UpdateRole(resource.WithActor(t.Context(), resource.Actor{Subject: "ann"}), r, after)
			testkit.Must(t, err)
		}
		after := renamed
		after.Name = "called so"
		_, err := s.UpdateRole(t.Context(), renamed, after)
		testkit.Must(t, err)
		managed := iamtest.OwnerRole
		managed.Capabilities = managed.Capabilities.Union(resource.NewCapabilities(resource.RepoList))
		testkit.Must(t, s.SetManagedRoles(t.Context(), []resource.Role{managed}))
		got, err := s.DiffRoles(t.Context(), from, dbtest.LastChange(t, s.DB), []resource.UID{org.UID})
		testkit.Must(t, err)
		if len(got) != 2 || got[0].UID != mine.UID || got[0].By != "ann" || !got[0].Gained.Has(resource.RepoList) ||
			got[0].Lost != mine.Capabilities.Without(resource.NewCapabilities(resource.RepoList)) ||
			got[1].UID != iamtest.OwnerRole.UID || !got[1].Gained.Has(resource.RepoList) {
			t.Errorf("%+v", got)
		}
	})
}
