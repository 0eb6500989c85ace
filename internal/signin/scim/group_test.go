package scim_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// byDirectory lets the mappings of the world's provider apply to teams.
func (w *world) byDirectory() {
	w.t.Helper()
	d, err := w.Directory(w.owner, w.provider.UID)
	testkit.Must(w.t, err)
	_, err = w.Update(w.owner, w.provider.UID, scim.Settings{RolesFromTeams: new(true)}, d.ETag())
	testkit.Must(w.t, err)
}

// addTeam creates a group with members, and returns its id.
func (w *world) addTeam(name string, members ...string) string {
	w.t.Helper()
	id, _ := w.want(http.StatusCreated, "POST /Groups", fmt.Sprintf(`{"displayName":%q,"members":[%s]}`, name,
		memberList(members))).body["id"].(string)
	return id
}

func memberList(members []string) string {
	texts := make([]string, len(members))
	for i, m := range members {
		texts[i] = fmt.Sprintf(`{"value":%q}`, m)
	}
	return strings.Join(texts, ",")
}

// person returns the person of a user that add has created.
func (w *world) personOf(userName string) resource.UID {
	return resource.UserUID(w.provider.Realm, "x-"+userName)
}

// reads reports whether a person may read the world's organization, on another replica.
func (w *world) reads(c *authz.Checker, userName string) bool {
	w.t.Helper()
	testkit.Must(w.t, c.EnsureCurrent(w.t.Context()))
	return c.Holds(w.personOf(userName), resource.GroupsList, w.org.UID)
}

// TestTeamRoles checks that a mapping gives its role to the members of a team at the next request, on every replica,
// and that each end of the membership takes it away.
func TestTeamRoles(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		iamtest.AddMapping(t, w.store.IAMStore, w.provider.UID, resource.ManagedRoleUID("viewer"), "Crew")
		other := w.replica()
		ben, cyd := w.add("ben"), w.add("cyd")
		team := w.addTeam("Crew", ben)
		check := func(when string, want bool) {
			t.Helper()
			for _, c := range []*authz.Checker{w.checker, other} {
				if got := w.reads(c, "ben"); got != want {
					t.Errorf("%s: ben reads %v, want %v", when, got, want)
				}
				if w.reads(c, "cyd") {
					t.Errorf("%s: cyd reads", when)
				}
			}
		}
		check("mappings apply to claims", false)
		w.byDirectory()
		check("mappings apply to teams", true)
		steps := []struct {
			when, target, body string
			want               bool
		}{
			{"removed with a list", "PATCH /Groups/" + team,
				`{"Operations":[{"op":"Remove","path":"members","value":[{"value":"` + ben + `"}]}]}`, false},
			{"added", "PATCH /Groups/" + team,
				`{"Operations":[{"op":"Add","path":"members","value":[{"value":"` + ben + `"}]}]}`, true},
			{"added again", "PATCH /Groups/" + team,
				`{"Operations":[{"op":"Add","path":"members","value":[{"value":"` + ben + `"}]}]}`, true},
			{"removed with a filter", "PATCH /Groups/" + team,
				`{"Operations":[{"op":"remove","path":"members[value eq \"` + ben + `\"]"}]}`, false},
			{"replaced", "PUT /Groups/" + team, `{"displayName":"Crew","members":[{"value":"` + ben + `"}]}`, true},
			{"renamed", "PATCH /Groups/" + team, `{"Operations":[{"op":"replace","value":{"displayName":"Else"}}]}`, false},
			{"with the external id", "PATCH /Groups/" + team,
				`{"Operations":[{"op":"add","path":"externalId","value":"Crew"}]}`, true},
			{"PUT without members", "PUT /Groups/" + team, `{"displayName":"Crew"}`, true},
			{"emptied", "PUT /Groups/" + team, `{"displayName":"Crew","members":[]}`, false},
			{"without a path", "PATCH /Groups/" + team,
				`{"Operations":[{"op":"add","value":{"members":[{"value":"` + ben + `"}]}}]}`, true},
			{"externalId of the user removed", "PATCH /Users/" + ben,
				`{"Operations":[{"op":"remove","path":"externalId"}]}`, false},
			{"externalId of the user added", "PATCH /Users/" + ben,
				`{"Operations":[{"op":"add","path":"externalId","value":"x-ben"}]}`, true},
			{"deleted", "DELETE /Groups/" + team, "", false},
		}
		for _, s := range steps {
			if got := w.send(s.target, s.body); got.status >= 300 {
				t.Fatalf("%s: %d %s", s.when, got.status, got.text)
			}
			check(s.when, s.want)
		}
		w.addTeam("Crew", ben, cyd)
		w.want(http.StatusNoContent, "DELETE /Users/"+cyd, "")
		check("another team", true)
		if m := w.mapping(); w.store.DeleteMapping(t.Context(), m) != nil {
			t.Error("the mapping is not deleted")
		}
		check("mapping deleted", false)
		iamtest.AddMapping(t, w.store.IAMStore, w.provider.UID, resource.ManagedRoleUID("viewer"), "Crew")
		check("mapping created", true)
	})
}

// mapping returns the only mapping of the world's provider.
func (w *world) mapping() (uid resource.UID) {
	w.t.Helper()
	testkit.Must(w.t, w.store.Row(w.t.Context(), `SELECT uid FROM external_group_role_mappings`, nil, &uid))
	return uid
}

// TestGroupsProtocol checks the answers about groups.
func TestGroupsProtocol(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ben := w.add("ben")
		got := w.want(http.StatusCreated, "POST /Groups", `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group"],
			"displayName":"Crew","externalId":"g-1","Members":[{"Value":"`+strings.ToUpper(ben)+`","display":"Ben"}],"x":1}`)
		id, _ := got.body["id"].(string)
		if got.header.Get("Location") != w.Endpoint(w.provider.UID)+"/Groups/"+id ||
			!strings.Contains(got.text, `"value":"`+ben+`"`) || !strings.Contains(got.text, `"resourceType":"Group"`) ||
			!strings.Contains(got.text, `"x":1`) {
			t.Errorf("%v %s", got.header, got.text)
		}
		etag := got.header.Get("ETag")
		w.want(http.StatusConflict, "POST /Groups", `{"displayName":"CREW"}`)
		w.want(http.StatusConflict, "POST /Groups", `{"displayName":"Other","externalId":"g-1"}`)
		w.want(http.StatusNotModified, "GET /Groups/"+id, "", "If-None-Match", etag)
		w.want(http.StatusPreconditionFailed, "DELETE /Groups/"+id, "", "If-Match", `W/"9"`)
		again := w.want(http.StatusOK, "PUT /Groups/"+id,
			`{"displayName":"Crew","externalId":"g-1","x":1,"members":[{"value":"`+ben+`"}]}`)
		if again.header.Get("ETag") != etag {
			t.Errorf("a repeated sync changes the group: %s", again.text)
		}
		got = w.want(http.StatusOK, "GET /Groups/"+id+"?excludedAttributes=members", "")
		if strings.Contains(got.text, ben) {
			t.Errorf("members are not excluded: %s", got.text)
		}
		w.addTeam("Second")
		for filter, want := range map[string]float64{
			`displayName eq "crew"`: 1, `externalId eq "g-1"`: 1, `id eq "` + id + `"`: 1, `displayName sw "S"`: 1,
			`members.value eq "` + ben + `"`: 1, `members[value eq "` + ben + `"]`: 1, `id eq "x"`: 0,
			`displayName eq "crew" and externalId eq "g-2"`: 0, `x eq 1`: 1, `meta.resourceType eq "Group"`: 2,
			`members.value eq "` + ben + `" and displayName eq "Second"`: 0,
		} {
			got := w.want(http.StatusOK, "GET /Groups?filter="+filter, "")
			if got.body["totalResults"] != want {
				t.Errorf("%s: %s", filter, got.text)
			}
		}
		for _, filter := range []string{`members pr`, `not (members.value eq "x")`, `members.value ne "x"`} {
			w.want(http.StatusBadRequest, "GET /Groups?filter="+filter, "")
		}
		first := w.want(http.StatusOK, "GET /Groups?startIndex=1&count=1", "")
		page := w.want(http.StatusOK, "GET /Groups?startIndex=2&count=1", "")
		if page.body["totalResults"] != 2.0 || page.body["itemsPerPage"] != 1.0 ||
			strings.Contains(first.text, "Crew") == strings.Contains(page.text, "Crew") {
			t.Errorf("the first page: %s\nthe second page: %s", first.text, page.text)
		}
		w.want(http.StatusOK, "POST /Groups/.search", `{"filter":"displayName eq \"crew\"","count":1}`)
		w.want(http.StatusNotFound, "GET /Groups/0123456789abcdef", "")
		w.want(http.StatusNotFound, "GET /Groups/x", "")
		w.want(http.StatusNoContent, "DELETE /Groups/"+id, "")
		w.want(http.StatusNotFound, "DELETE /Groups/"+id, "")
	})
}

// TestMembersRefused checks members that are not users.
func TestMembersRefused(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		inner := w.addTeam("Inner")
		outer := w.addTeam("Outer")
		for name, body := range map[string]string{
			"a group":            `{"op":"add","path":"members","value":[{"value":"` + inner + `"}]}`,
			"the type of groups": `{"op":"add","path":"members","value":[{"value":"any","type":"Group"}]}`,
			"no value":           `{"op":"add","path":"members","value":[{"display":"x"}]}`,
			"a part":             `{"op":"replace","path":"members.display","value":"x"}`,
			"another filter":     `{"op":"remove","path":"members[display eq \"x\"]"}`,
		} {
			got := w.want(http.StatusBadRequest, "PATCH /Groups/"+outer, `{"Operations":[`+body+`]}`)
			if name == "a group" && !strings.Contains(got.text, "groups within groups") {
				t.Errorf("%s: %s", name, got.text)
			}
		}
	})
}

// TestGroupBeforeMembers checks that a group may name users whom the directory creates later.
func TestGroupBeforeMembers(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		iamtest.AddMapping(t, w.store.IAMStore, w.provider.UID, resource.ManagedRoleUID("viewer"), "Crew")
		w.byDirectory()
		w.addTeam("Crew", "x-ben", "x-nobody")
		if w.reads(w.checker, "ben") {
			t.Error("nobody has a role")
		}
		ben := w.add("ben")
		if !w.reads(w.checker, "ben") {
			t.Error("the new user has no role")
		}
		got := w.want(http.StatusOK, "GET /Groups?filter=members.value eq \""+ben+"\"", "")
		if got.body["totalResults"] != 1.0 || !strings.Contains(got.text, ben) || !strings.Contains(got.text, "x-nobody") {
			t.Errorf("%s", got.text)
		}
	})
}

// TestTeamsOfOthers checks that a directory cannot see or change the groups of another one.
func TestTeamsOfOthers(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ben := w.add("ben")
		team := w.addTeam("Crew", ben)
		org, owner := w.found("evil")
		p, token := w.directory(org.UID, owner)
		for _, target := range []string{
			"GET /Groups/" + team, "DELETE /Groups/" + team, "PATCH /Groups/" + team, "PUT /Groups/" + team,
		} {
			body := ""
			if strings.HasPrefix(target, "P") {
				body = `{"displayName":"x","Operations":[{"op":"remove","path":"members"}]}`
			}
			if got := w.sendTo(w.Endpoint(p.UID), token, target, body); got.status != http.StatusNotFound {
				t.Errorf("%s: %d %s", target, got.status, got.text)
			}
		}
		// A group of another provider whose id is known, and a user of another provider, give nothing.
		iamtest.AddMapping(t, w.store.IAMStore, p.UID, resource.ManagedRoleUID("viewer"), "Crew")
		d, err := w.Directory(owner, p.UID)
		testkit.Must(t, err)
		_, err = w.Update(owner, p.UID, scim.Settings{RolesFromTeams: new(true)}, d.ETag())
		testkit.Must(t, err)
		got := w.sendTo(w.Endpoint(p.UID), token, "POST /Groups", `{"displayName":"Crew","members":[{"value":"`+ben+`"},
			{"value":"`+team+`"}]}`)
		if got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.text)
		}
		testkit.Must(t, w.checker.EnsureCurrent(t.Context()))
		if w.checker.Holds(w.personOf("ben"), resource.GroupsList, org.UID) {
			t.Error("a user of another directory has got a role")
		}
	})
}

// TestLargeTeam checks that one PUT with 20,000 members is complete or has no effect, and that later changes write one
// row.
func TestLargeTeam(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		members := make([]string, 20_000)
		for i := range members {
			members[i] = fmt.Sprintf("%026d", i)
			members[i] = strings.NewReplacer("0", "a", "1", "b", "8", "c", "9", "d").Replace(members[i])
		}
		team := w.addTeam("Crew")
		got := w.send("PUT /Groups/"+team, `{"displayName":"Crew","members":[`+memberList(members)+`]}`)
		if got.status != http.StatusOK {
			t.Fatalf("%d %.200s", got.status, got.text)
		}
		count := func() (n int) {
			testkit.Must(t, w.store.Row(t.Context(), `SELECT count(*) FROM team_members`, nil, &n))
			return n
		}
		if n := count(); n != len(members) {
			t.Fatalf("%d members", n)
		}
		w.want(http.StatusNoContent, "PATCH /Groups/"+team,
			`{"Operations":[{"op":"remove","path":"members","value":[{"value":"`+members[7]+`"}]}]}`)
		got = w.want(http.StatusOK, "GET /Groups/"+team, "")
		if list, _ := got.body["members"].([]any); len(list) != len(members)-1 || count() != len(members)-1 {
			t.Errorf("%d members", len(list))
		}
	})
}

// TestRoleSource checks who may let mappings apply to teams, and what happens to the roles from claims.
func TestRoleSource(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		iamtest.AddMapping(t, w.store.IAMStore, w.provider.UID, resource.OwnerRole, "Crew")
		editor := w.person("https://people.test", "editor")
		iamtest.AddBinding(t, w.store.IAMStore, w.org.UID, editor, resource.ManagedRoleUID("editor"))
		asEditor := authz.WithCaller(t.Context(), authz.Caller{Identity: editor})
		d, err := w.Directory(w.owner, w.provider.UID)
		testkit.Must(t, err)
		fromTeams, fromClaims := scim.Settings{RolesFromTeams: new(true)}, scim.Settings{RolesFromTeams: new(false)}
		_, err = w.Update(asEditor, w.provider.UID, fromTeams, d.ETag())
		if !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("an editor may give the role of an owner: %v", err)
		}
		if _, err := w.Update(w.owner, w.provider.UID, fromTeams, "z"); !errors.Is(err, fault.Aborted) {
			t.Errorf("another etag: %v", err)
		}
		w.byDirectory()
		d, err = w.Directory(w.owner, w.provider.UID)
		testkit.Must(t, err)
		_, _, err = w.RegenerateToken(asEditor, w.provider.UID, scim.Life{}, nil, d.ETag())
		if !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("an editor gets a token that makes owners: %v", err)
		}
		stranger := authz.WithCaller(context.Background(),
			authz.Caller{Identity: w.person("https://people.test", "stranger")})
		_, err = w.Update(stranger, w.provider.UID, fromClaims, d.ETag())
		if !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("a stranger: %v", err)
		}
	})
}

// TestHoldersThroughTeams checks the pages of the people who hold a role, of whom most hold it through a team.
func TestHoldersThroughTeams(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		viewer := resource.ManagedRoleUID("viewer")
		w.byDirectory()
		var members []string
		for i := range 5 {
			members = append(members, w.add(fmt.Sprint("user", i)))
		}
		team := w.addTeam("Crew", append(members, "nobody")...)
		iamtest.AddMapping(t, w.store.IAMStore, w.provider.UID, viewer, "Crew")
		iamtest.AddBinding(t, w.store.IAMStore, w.org.UID, w.person("https://people.test", "direct"), viewer)
		h := iamdb.HolderQuery{Now: time.Now().UnixMilli(), Groups: []resource.UID{w.org.UID}, Roles: []resource.UID{viewer}}
		for size := 1; size <= 7; size++ {
			seen := map[resource.UID]bool{}
			req := page.Request{Size: size, Order: iamdb.AccessList.Default}
			for pages := 0; ; pages++ {
				got, err := w.store.Holders(t.Context(), h, req)
				testkit.Must(t, err)
				if got.Total != 6 || len(got.Items) > size || pages > 6 {
					t.Fatalf("size %d, page %d: %d of %d", size, pages, len(got.Items), got.Total)
				}
				for _, b := range got.Items {
					if seen[b.Identity] || b.Group() != w.org.UID || (b.Team == nil) != (len(seen) == 0) {
						t.Errorf("size %d: %+v", size, b)
					}
					if b.Team != nil && (b.Team.TeamName != "Crew" || b.Team.ProviderName != "idp" ||
						b.Team.Team != w.provider.UID+"/"+resource.UID(team)) {
						t.Errorf("%+v", b.Team)
					}
					seen[b.Identity] = true
				}
				if req.After = got.Last; got.Last == nil {
					break
				}
			}
			if len(seen) != 6 {
				t.Errorf("size %d: %d people", size, len(seen))
			}
		}
		held, err := w.store.HeldBy(t.Context(), w.personOf("user0"), h.Groups)
		if err != nil || len(held) != 1 || held[0].Team == nil {
			t.Errorf("%+v, %v", held, err)
		}
		roles, err := w.store.RolesOn(t.Context(), h.Groups, 100)
		if err != nil || len(roles) != 8 { // and two owners
			t.Errorf("%+v, %v", roles, err)
		}
	})
}
