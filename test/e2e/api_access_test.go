package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// iamCapabilities are the capabilities that the methods of the IAM API require.
var iamCapabilities = []string{
	"groups.create", "groups.update", "groups.list", "groups.delete",
	"roles.create", "roles.update", "roles.list", "roles.delete",
	"role_bindings.create", "role_bindings.update", "role_bindings.list", "role_bindings.delete",
	"identity.create", "identity.update", "identity.list", "identity.delete",
	"identity_providers.create", "identity_providers.update", "identity_providers.list", "identity_providers.delete",
	"identity_providers.scim.manage",
	"account_associations.create", "account_associations.update",
	"account_associations.list", "account_associations.delete",
	"group_invites.create", "group_invites.list", "group_invites.delete",
	"advisories.create", "advisories.update", "advisories.list", "advisories.delete", "advisories.approve",
}

func capabilities(names ...string) []capabilitiespb.Capability {
	var caps []capabilitiespb.Capability
	for _, c := range resource.CapabilitySet(names...).All() {
		caps = append(caps, capabilitiespb.Capability(c.Number()))
	}
	return caps
}

// A hierarchy is an organization with two folders, and a second organization. For each of these four places it has a
// caller with every capability on the place.
type hierarchy struct {
	*world
	org, folder, sibling, other string
	full                        map[string]string // by place, the token of a caller who holds every capability there
	lacking                     map[string]string // by capability, the token of a caller who holds all others in org
	n                           int               // number of names and people created so far
}

func newHierarchy(t *testing.T, w *world) *hierarchy {
	t.Helper()
	h := &hierarchy{world: w, org: string(w.Organization), full: map[string]string{}, lacking: map[string]string{}}
	h.folder, h.sibling = w.child(t, h.org, "folder"), w.child(t, h.org, "sibling")
	h.other = w.child(t, "", "other")
	for name, place := range map[string]string{"org": h.org, "folder": h.folder, "sibling": h.sibling, "other": h.other} {
		h.full[name] = h.caller(t, place, string(resource.OwnerRole))
	}
	names := slices.Concat(iamCapabilities, registryCapabilities, eventCapabilities, judgementCapabilities)
	for _, missing := range names {
		rest := slices.DeleteFunc(slices.Clone(names), func(c string) bool { return c == missing })
		h.lacking[missing] = h.caller(t, h.org, w.role(t, h.org, "without "+missing, capabilities(rest...)...))
	}
	return h
}

// caller creates a person with a role on a place and returns a token for that person.
func (h *hierarchy) caller(t *testing.T, place, role string) string {
	t.Helper()
	person := h.person()
	h.bind(t, place, person, role)
	return h.mint(t, resource.UID(person), token.Claims{})
}

// person returns the UID of a new person.
func (h *hierarchy) person() string {
	h.n++
	return string(resource.UserUID("https://people.example", fmt.Sprint(h.n)))
}

func (h *hierarchy) name() string {
	h.n++
	return fmt.Sprint("n", h.n)
}

// An access describes a method: the capability that it needs, and how to make a request for a place.
type access struct {
	capability string
	place      func(t *testing.T) string // returns the UID of a new target in the folder
	request    func(uid string) proto.Message
}

// accesses returns, by name, the methods that act on one place.
func (h *hierarchy) accesses() map[string]access {
	folder := func(*testing.T) string { return h.folder }
	group := func(t *testing.T) string { return h.child(t, h.folder, h.name()) }
	robot := func(t *testing.T) string { return h.robot(t, h.folder, h.name()) }
	role := func(t *testing.T) string { return h.role(t, h.folder, h.name(), someCapabilities...) }
	binding := func(t *testing.T) string { return h.bind(t, h.folder, h.person(), h.viewer()) }
	bound := func() *iampb.RoleBinding { return &iampb.RoleBinding{IdentityUid: h.person(), RoleUid: h.viewer()} }
	return map[string]access{
		"GetGroup":  {"groups.list", folder, func(uid string) proto.Message { return &iampb.GetGroupRequest{Uid: uid} }},
		"GetBudget": {"groups.list", folder, func(uid string) proto.Message { return &budgetspb.GetBudgetRequest{Uid: uid} }},
		"CreateGroup": {"groups.create", folder, func(uid string) proto.Message {
			return &iampb.CreateGroupRequest{Parent: uid, Group: &iampb.Group{Name: h.name()}}
		}},
		"UpdateGroup": {"groups.update", folder, func(uid string) proto.Message {
			return &iampb.UpdateGroupRequest{Group: &iampb.Group{Uid: uid, Description: h.name()}}
		}},
		"DeleteGroup": {"groups.delete", group, func(uid string) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: uid}
		}},
		"GetIdentity": {"identity.list", robot, func(uid string) proto.Message {
			return &iampb.GetIdentityRequest{Uid: uid}
		}},
		"CreateIdentity": {"identity.create", folder, func(uid string) proto.Message {
			return &iampb.CreateIdentityRequest{Parent: uid, Identity: workload(h.name())}
		}},
		"UpdateIdentity": {"identity.update", robot, func(uid string) proto.Message {
			return &iampb.UpdateIdentityRequest{Identity: &iampb.Identity{Uid: uid, Name: h.name()}}
		}},
		"DeleteIdentity": {"identity.delete", robot, func(uid string) proto.Message {
			return &iampb.DeleteIdentityRequest{Uid: uid}
		}},
		"GetRole": {"roles.list", role, func(uid string) proto.Message { return &iampb.GetRoleRequest{Uid: uid} }},
		"CreateRole": {"roles.create", folder, func(uid string) proto.Message {
			return &iampb.CreateRoleRequest{Parent: uid, Role: &iampb.Role{Name: h.name(), Capabilities: someCapabilities}}
		}},
		"UpdateRole": {"roles.update", role, func(uid string) proto.Message {
			return &iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: uid, Name: h.name()}}
		}},
		"DeleteRole": {"roles.delete", role, func(uid string) proto.Message { return &iampb.DeleteRoleRequest{Uid: uid} }},
		"GetRoleBinding": {"role_bindings.list", binding, func(uid string) proto.Message {
			return &iampb.GetRoleBindingRequest{Uid: uid}
		}},
		"CreateRoleBinding": {"role_bindings.create", folder, func(uid string) proto.Message {
			return &iampb.CreateRoleBindingRequest{Parent: uid, RoleBinding: bound()}
		}},
		"BatchCreateRoleBindings": {"role_bindings.create", folder, func(uid string) proto.Message {
			return &iampb.BatchCreateRoleBindingsRequest{
				Parent: uid, Requests: []*iampb.CreateRoleBindingRequest{{RoleBinding: bound()}, {RoleBinding: bound()}},
			}
		}},
		"UpdateRoleBinding": {"role_bindings.update", binding, func(uid string) proto.Message {
			return &iampb.UpdateRoleBindingRequest{
				RoleBinding: &iampb.RoleBinding{Uid: uid, RoleUid: string(resource.ManagedRoleUID("apk.pull"))},
			}
		}},
		"DeleteRoleBinding": {"role_bindings.delete", binding, func(uid string) proto.Message {
			return &iampb.DeleteRoleBindingRequest{Uid: uid}
		}},
	}
}

// viewer returns the UID of a role that every caller of the hierarchy may grant.
func (h *hierarchy) viewer() string { return string(resource.ManagedRoleUID("console_viewer")) }

// TestApiAccess calls every method as every caller, over both protocols, and checks who is allowed.
func TestApiAccess(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		accesses := h.accesses()
		maps.Copy(accesses, h.federatedAccesses())
		maps.Copy(accesses, h.registryAccesses(t))
		maps.Copy(accesses, h.advisoryAccesses())
		maps.Copy(accesses, h.exploitedAccesses())
		maps.Copy(accesses, h.signInAccesses())
		maps.Copy(accesses, h.eventAccesses())
		maps.Copy(accesses, h.judgementAccesses())
		maps.Copy(accesses, h.signerAccesses(t))
		maps.Copy(accesses, h.requestAccesses())
		maps.Copy(accesses, h.pastAccesses())
		maps.Copy(accesses, h.organizationAccesses(t))
		for _, name := range slices.Sorted(maps.Keys(accesses)) {
			for protocol, call := range w.protocols() {
				t.Run(name+" over "+protocol, func(t *testing.T) { h.allows(t, call, accesses[name]) })
			}
		}
		for protocol, call := range w.protocols() {
			t.Run("two capabilities over "+protocol, func(t *testing.T) { h.needsBoth(t, call, accesses) })
			t.Run("mappings over "+protocol, func(t *testing.T) { h.maps(t, call) })
			t.Run("questions over "+protocol, func(t *testing.T) { h.answers(t, call) })
			t.Run("lists over "+protocol, func(t *testing.T) { h.lists(t, call) })
			t.Run("accounts over "+protocol, func(t *testing.T) { h.signsIn(t, call) })
		}
		t.Run("every method is here", func(t *testing.T) {
			elsewhere := "ListGroups ListIdentities ListRoles ListRoleBindings Ping LookupGroup CheckEligibility " +
				"RequestGroupAccess LookupIdentity UpdateIdentityMetadata " +
				"ListIdentityProviders ListAccountAssociations ListGroupInvites ListExternalGroupRoleMappings " +
				"CreateExternalGroupRoleMapping ListCapabilities GetVersion ResolvePath LookupNames ListPeople " +
				"Search " + // tested in TestApiSearch
				"Simulate " + // tested in TestSimulateAccess
				"ListUnusedAccess ListEndingGrants " + // tested in TestApiUnused
				"GetInstallation " + // tested in TestOperator
				"ListRepos ListTags ListPulls GetRegistry ListTrashEntries ListUpstreams ListReplications " +
				// Tested in TestImageFindings.
				"GetInspection ListPackages ListFindings ListAffectedImages SearchPackages " +
				"CreateAccessRequest ListAccessRules ListAccessRequests " + // tested in TestApiAccessRequests
				"ListExceptions ListRules ListSigners ExportVex " + // tested in TestJudgementLists
				"CompareImages " + // tested in TestCompareImages
				// tested in TestInventory and TestBlastRadius
				"PushInventory ListInventory ListInventoryPlaces DeleteInventory GetBlast ListBlastStage " +
				"ListExploitLists QueryExploits " + // tested in TestExploited
				"CheckImages " + // tested in TestCheckImages
				"ListGroupFindings GetSummary ListFindingTotals " + // tested in TestGroupFindings
				"GetTrend GetReport " + // tested in TestTrend
				// tested in TestSubscriptionAccess and TestMailReport
				"ListReportSubscriptions CreateReportSubscription DeleteReportSubscription " +
				"ListAdvisories ListAdvisoryFeeds QueryAdvisories BatchQueryAdvisories " +
				"Validate Register GetHeadlessSession Delete ListSessions EndSession CreateAccount CreateAccountLink " +
				"DeleteAccount ListAccounts UpdateSignInRules TestIdentityProvider " +
				"UpdateBudget DeleteBudget ListBudgets " + // tested in TestAttackRaiseBudget and TestAttackBudgetUsage
				"ListSubscriptions ListDeliveries GetDelivery ListEntries"
			for _, m := range methods {
				if _, ok := accesses[string(m.Name())]; !ok && !slices.Contains(strings.Fields(elsewhere), string(m.Name())) {
					t.Errorf("%s has no access test", m.Name())
				}
			}
		})
	})
}

// allows checks that a method refuses callers without the capability, and accepts callers who hold it.
func (h *hierarchy) allows(t *testing.T, call caller, a access) {
	h.denies(t, call, a)
	h.strays(t, call, a)
	for _, who := range []string{"folder", "org"} {
		if _, st := call(t, h.full[who], a.request(a.place(t))); st != nil {
			t.Errorf("with the capability on the %s: %v", who, st)
		}
	}
}

// denies checks that a method refuses callers without the capability, both for an existing and for a missing target.
func (h *hierarchy) denies(t *testing.T, call caller, a access) {
	target := a.place(t)
	gone := h.folder + "/0123456789abcdef"
	denied := map[string]string{
		"without the capability": h.lacking[a.capability], "with it on another organization": h.full["other"],
		"with it on a sibling": h.full["sibling"], "with nothing": h.mint(t, resource.UID(h.person()), token.Claims{}),
	}
	for who, bearer := range denied {
		_, existing := call(t, bearer, a.request(target))
		_, missing := call(t, bearer, a.request(gone))
		checkDenied(t, who, existing, a.capability, target)
		checkDenied(t, who, missing, a.capability, gone)
	}
}

// strays calls a method with a UID that consists of the caller's own organization and the last segment of a resource
// in another organization. The answer must be the same as for a segment that does not exist.
func (h *hierarchy) strays(t *testing.T, call caller, a access) {
	target := a.place(t)
	answer := func(uid string) string {
		out, st := call(t, h.full["other"], a.request(uid))
		return strings.ReplaceAll(fmt.Sprintf("%v %v %v", out, st.Code(), st.Message()), uid, "UID")
	}
	astray, gone := answer(h.other+target[len(target)-17:]), answer(h.other+"/0123456789abcdef")
	// strings.Fields removes the white space, because protobuf varies it.
	if diff := cmp.Diff(strings.Fields(gone), strings.Fields(astray)); diff != "" {
		t.Errorf("the answer for a foreign segment differs from the answer for a missing one:\n%s", diff)
	}
}

// checkDenied fails the test unless st denies exactly one capability on one place and reveals
// nothing else.
func checkDenied(t *testing.T, who string, st *status.Status, capability, place string) {
	t.Helper()
	message := "Permission denied: " + capability + " on " + place
	if st.Code() != codes.PermissionDenied || st.Message() != message {
		t.Errorf("%s: %v, want %q", who, st, message)
		return
	}
	checkInfo(t, st)
	want := map[string]string{"capability": capability, "scope": place}
	if info := st.Details()[0].(*errdetails.ErrorInfo); len(st.Details()) != 1 || !maps.Equal(info.GetMetadata(), want) {
		t.Errorf("%s: details %v, want only the metadata %v", who, st.Details(), want)
	}
}

// lists calls every list method as every caller. The lists and the counts must include only resources that the caller
// may list.
func (h *hierarchy) lists(t *testing.T, call caller) {
	places := map[string]string{"org": h.org, "folder": h.folder, "sibling": h.sibling, "other": h.other}
	for _, place := range places {
		h.robot(t, place, h.name())
		h.role(t, place, h.name(), someCapabilities...)
		h.federateIn(t, place)
	}
	tests := map[string]struct {
		capability string
		in         proto.Message
	}{
		"groups":       {"groups.list", &iampb.ListGroupsRequest{PageSize: 200}},
		"identities":   {"identity.list", &iampb.ListIdentitiesRequest{PageSize: 200}},
		"roles":        {"roles.list", &iampb.ListRolesRequest{PageSize: 200}},
		"bindings":     {"role_bindings.list", &iampb.ListRoleBindingsRequest{PageSize: 200}},
		"providers":    {"identity_providers.list", &iampb.ListIdentityProvidersRequest{PageSize: 200}},
		"mappings":     {"identity_providers.list", &iampb.ListExternalGroupRoleMappingsRequest{PageSize: 200}},
		"associations": {"account_associations.list", &iampb.ListAccountAssociationsRequest{PageSize: 200}},
		"invites":      {"group_invites.list", &iampb.ListGroupInvitesRequest{PageSize: 200}},
	}
	for name, tt := range tests {
		for who, place := range places {
			uids, total := listed(must[proto.Message](t, call, h.full[who], tt.in))
			seen := 0
			for _, uid := range uids {
				switch managed := name == "roles" && uid.IsRoot(); {
				case managed:
				case !resource.UID(place).Covers(uid):
					t.Errorf("%s: with a grant on %s the list holds %s", name, place, uid)
				default:
					seen++
				}
			}
			if seen == 0 || total != int64(len(uids)) {
				t.Errorf("%s: with a grant on %s the list holds %d visible resources, total %d, items %d",
					name, place, seen, total, len(uids))
			}
		}
		uids, total := listed(must[proto.Message](t, call, h.lacking[tt.capability], tt.in))
		if len(uids) != 0 || total != 0 {
			t.Errorf("%s: without the capability the list holds %q, total %d", name, uids, total)
		}
	}
}

// listed returns the UIDs in the response of a list method, and the total count in it.
func listed(m proto.Message) (uids []resource.UID, total int64) {
	r := m.ProtoReflect()
	items := r.Get(r.Descriptor().Fields().ByNumber(1)).List()
	for i := range items.Len() {
		uids = append(uids, resource.UID(items.Get(i).Message().Interface().(interface{ GetUid() string }).GetUid()))
	}
	return uids, m.(interface{ GetTotalCount() int64 }).GetTotalCount()
}
