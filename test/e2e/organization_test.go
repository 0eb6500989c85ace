package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// changeList returns changes with the ids 0, 1, 2, and so on.
func changeList(requests ...proto.Message) (changes []*organizationpb.Change) {
	for i, r := range requests {
		a, err := anypb.New(r)
		if err != nil {
			panic(err)
		}
		changes = append(changes, &organizationpb.Change{
			Id: fmt.Sprint(i), Request: a, Source: fmt.Sprintf("org.yaml:%d", i+1),
		})
	}
	return changes
}

// applyTo returns a request that applies changes to the current state of a group.
func applyTo(
	t *testing.T, call caller, bearer, parent string, requests ...proto.Message,
) *organizationpb.ApplyOrganizationRequest {
	t.Helper()
	state := must[*organizationpb.OrganizationState](t, call, bearer,
		&organizationpb.GetOrganizationStateRequest{Parent: parent})
	return &organizationpb.ApplyOrganizationRequest{
		Parent: parent, Revision: state.GetRevision(), Changes: changeList(requests...), Commit: "3f6c1d0", By: "anna",
	}
}

// organizationAccesses describes the methods of the organization service.
func (h *hierarchy) organizationAccesses(t *testing.T) map[string]access {
	folder := func(*testing.T) string { return h.folder }
	return map[string]access{
		"GetOrganizationState": {"groups.list", folder, func(uid string) proto.Message {
			return &organizationpb.GetOrganizationStateRequest{Parent: uid}
		}},
		"ApplyOrganization": {"groups.list", folder, func(uid string) proto.Message {
			state, _ := h.overGRPC(t, h.Token, &organizationpb.GetOrganizationStateRequest{Parent: uid})
			revision := ""
			if state, ok := state.(*organizationpb.OrganizationState); ok {
				revision = state.GetRevision()
			}
			return &organizationpb.ApplyOrganizationRequest{Parent: uid, Revision: revision, Changes: changeList(
				&iampb.CreateGroupRequest{Parent: uid, Group: &iampb.Group{Name: h.name()}})}
		}},
	}
}

// organizationExamples returns example requests for the methods of the organization service.
func organizationExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	folder := w.child(t, x.org, "filed")
	state := must[*organizationpb.OrganizationState](t, w.overGRPC, w.Token,
		&organizationpb.GetOrganizationStateRequest{Parent: folder})
	body := func(parent string) string {
		return fmt.Sprintf(`{"revision":%q,"commit":"3f6c1d0","validateOnly":true,"changes":[{"id":"a",`+
			`"source":"org.yaml:1","request":{"@type":"type.googleapis.com/holdfast.iam.v2beta1.CreateGroupRequest",`+
			`"parent":%q,"group":{"name":"team"}}}]}`, state.GetRevision(), parent)
	}
	return map[string][]example{
		"OrganizationService_GetOrganizationState": {{uid: folder}, {uid: folder + "/0123456789abcdef", fails: true}},
		"OrganizationService_ApplyOrganization": {
			{uid: folder, body: body(folder)}, {uid: folder, body: body(x.org), fails: true},
		},
	}
}

// organizationSteps are the steps of the organization service.
func organizationSteps() []step {
	apply := func(s *story) proto.Message {
		return &organizationpb.ApplyOrganizationRequest{
			Parent: s.org(), Revision: s.answers["state"].(*organizationpb.OrganizationState).GetRevision(),
			Changes: changeList(&iampb.UpdateGroupRequest{Group: &iampb.Group{Uid: s.org(), Description: "applied"},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"description"}}}),
		}
	}
	return []step{
		{name: "state", in: func(s *story) proto.Message {
			return &organizationpb.GetOrganizationStateRequest{Parent: s.org()}
		}},
		{name: "state for a stranger", code: codes.PermissionDenied, as: "stranger", in: func(s *story) proto.Message {
			return &organizationpb.GetOrganizationStateRequest{Parent: s.org()}
		}},
		{name: "apply as a stranger", code: codes.PermissionDenied, as: "stranger", in: apply},
		{name: "apply", in: apply},
		{name: "apply again", code: codes.FailedPrecondition, in: apply},
	}
}

// TestApplyOrganization plans and applies changes that refer to each other, and checks the result, the consequences and
// the events.
func TestApplyOrganization(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		for name, call := range map[string]caller{"grpc": w.overGRPC, "json": w.overHTTP} {
			t.Run(name, func(t *testing.T) { applyAll(t, w, call, name) })
		}
		wantAppliedEvent(t, w)
	})
}

func applyAll(t *testing.T, w *world, call caller, name string) {
	parent := w.child(t, string(w.Organization), name)
	in := applyTo(t, call, w.Token, parent,
		&iampb.CreateGroupRequest{Parent: parent, Group: &iampb.Group{Name: "team"}},
		&iampb.CreateRoleRequest{Parent: parent, Role: &iampb.Role{Name: "reader", Capabilities: someCapabilities}},
		&iampb.CreateIdentityRequest{Parent: "change:0", Identity: workload("robot")},
		&iampb.CreateRoleBindingRequest{Parent: "change:0", RoleBinding: &iampb.RoleBinding{
			IdentityUid: "change:2", RoleUid: "change:1"}},
		&registrypb.CreateRepoRequest{Parent: "change:0", Repo: &registrypb.Repo{Name: "app"}},
		&registrypb.UpdateRepoReadmeRequest{RepoReadme: &registrypb.RepoReadme{Uid: "change:4", Content: "change:x"}},
		&ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: "change:0", Public: true},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"public"}}},
		&ocipb.SetRetentionRequest{Retention: &ocipb.Retention{Uid: "change:0", KeepMatching: []string{"v*"}}},
	)
	before := w.snapshot(t)
	plan := proto.Clone(in).(*organizationpb.ApplyOrganizationRequest)
	plan.ValidateOnly = true
	planned := must[*organizationpb.ApplyOrganizationResponse](t, call, w.Token, plan)
	if diff := cmp.Diff(before, w.snapshot(t)); diff != "" {
		t.Errorf("a plan changes something:\n%s", diff)
	}
	c := planned.GetConsequences()
	if c.GetGainedTotal() == 0 || c.GetGained()[0].GetIdentity().GetName() != "robot" || c.GetOwners() != 1 ||
		!c.GetComplete() || !slices.Equal(c.GetNotComputed(), []string{"RETENTION"}) || len(planned.GetPlan()) == 0 {
		t.Errorf("the plan: %v", planned)
	}
	other := proto.Clone(in).(*organizationpb.ApplyOrganizationRequest)
	other.Plan, other.Changes = planned.GetPlan(), other.Changes[:4]
	if _, st := call(t, w.Token, other); st.Code() != codes.FailedPrecondition || !strings.Contains(st.Message(), "plan") {
		t.Errorf("a plan for other changes: %v", st)
	}
	in.Plan = planned.GetPlan()
	applied := must[*organizationpb.ApplyOrganizationResponse](t, call, w.Token, in)
	if len(applied.GetResults()) != 8 || applied.GetRevision() == "" {
		t.Fatalf("applied: %v", applied)
	}
	bound := must[*iampb.RoleBinding](t, call, w.Token,
		&iampb.GetRoleBindingRequest{Uid: applied.GetResults()[3].GetUid()})
	if bound.GetIdentity().GetName() != "robot" || bound.GetRole().GetName() != "reader" {
		t.Errorf("the binding: %v", bound)
	}
	if _, st := call(t, w.Token, in); st.Code() != codes.FailedPrecondition ||
		!strings.Contains(st.Message(), "stale: ") || !strings.Contains(st.Message(), "changes since, by ") {
		t.Errorf("the same revision again: %v", st)
	}
	again := applyTo(t, call, w.Token, parent, &iampb.DeleteRoleBindingRequest{Uid: bound.GetUid()})
	again.Revision = applied.GetRevision()
	must[proto.Message](t, call, w.Token, again)
	strangers(t, w, call, parent)
}

// wantAppliedEvent checks that the events of an apply have one request id, and that the last one has the commit.
func wantAppliedEvent(t *testing.T, w *world) {
	t.Helper()
	events := w.events(t)
	i := slices.IndexFunc(events, func(e resource.Event) bool { return e.Type == resource.OrganizationApplied })
	if i < 8 || !strings.Contains(string(events[i].After), `"changes":8,"commit":"3f6c1d0","by":"anna","planned":true`) {
		t.Fatalf("event %d: %s", i, events[max(i, 0)].After)
	}
	for _, e := range events[i-8 : i] {
		if e.Actor.RequestID != events[i].Actor.RequestID {
			t.Errorf("%s has another request id", e.Type)
		}
	}
}

// strangers checks that others learn and change nothing.
func strangers(t *testing.T, w *world, call caller, parent string) {
	t.Helper()
	in := applyTo(t, call, w.Token, parent, &iampb.CreateGroupRequest{Parent: parent, Group: &iampb.Group{Name: "x"}})
	_, owner := w.ownedOrg(t, "other"+parent[len(parent)-8:])
	stranger := w.mint(t, resource.UserUID("https://people.example", "stranger"), token.Claims{})
	for who, bearer := range map[string]string{"a stranger": stranger, "the owner of another organization": owner} {
		for _, r := range []proto.Message{in, &organizationpb.GetOrganizationStateRequest{Parent: parent}} {
			if _, st := call(t, bearer, r); st.Code() != codes.PermissionDenied {
				t.Errorf("%s: %v", who, st)
			}
		}
	}
	caps := resource.CapabilitySet("groups.list")
	narrow := w.mint(t, w.Owner, token.Claims{Caps: &caps})
	_, st := call(t, narrow, in)
	if st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), "groups.create") {
		t.Errorf("with a narrowed token: %v", st)
	}
	outside := applyTo(t, call, w.Token, parent,
		&iampb.CreateGroupRequest{Parent: string(w.Organization), Group: &iampb.Group{Name: "outside"}})
	_, st = call(t, w.Token, outside)
	if st.Code() != codes.InvalidArgument || !strings.Contains(st.Message(), "org.yaml:1") {
		t.Errorf("a change outside of the group: %v", st)
	}
}

// TestApplyOrganizationNeverRaises applies lists of changes in every order. A list would give its author more access if
// one change could use the access that another one gives. Every order is refused and changes nothing.
func TestApplyOrganizationNeverRaises(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		author := h.person()
		// The author administers access, but may not delete repos.
		role := h.role(t, h.org, "author", capabilitiesNamed(t, "groups.list", "groups.create", "roles.list",
			"roles.create", "roles.update", "roles.delete", "role_bindings.list", "role_bindings.create",
			"role_bindings.update", "role_bindings.delete", "identity.list", "identity.create", "identity.update",
			"identity.delete", "identity_providers.list", "identity_providers.create", "identity_providers.update",
			"identity_providers.delete")...)
		own := h.bind(t, h.folder, author, role)
		wanted := capabilitiesNamed(t, "repo.delete")
		weak := h.role(t, h.folder, "weak", capabilitiesNamed(t, "groups.list")...)
		strong := h.role(t, h.folder, "strong", wanted...)
		held := h.bind(t, h.folder, author, weak)
		mighty := h.robot(t, h.folder, "mighty")
		might := h.bind(t, h.folder, mighty, strong)
		bearer := w.mint(t, resource.UID(author), token.Claims{})
		bind := func(group, identity, role string) proto.Message {
			return &iampb.CreateRoleBindingRequest{Parent: group,
				RoleBinding: &iampb.RoleBinding{IdentityUid: identity, RoleUid: role}}
		}
		widen := func(role string) proto.Message {
			return &iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: role,
				Capabilities: capabilitiesNamed(t, "repo.delete", "repo.update")},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"capabilities"}}}
		}
		create := &iampb.CreateRoleRequest{Parent: h.folder, Role: &iampb.Role{Name: "made", Capabilities: wanted}}
		narrowRole := &iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: strong,
			Capabilities: capabilitiesNamed(t, "groups.list")},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"capabilities"}}}
		trust := &iampb.UpdateIdentityRequest{Identity: &iampb.Identity{Uid: mighty,
			Relationship: workload("attacker").GetRelationship()},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"claim_match"}}}
		group := &iampb.CreateGroupRequest{Parent: h.folder, Group: &iampb.Group{Name: "made"}}
		robot := &iampb.CreateIdentityRequest{Parent: h.folder, Identity: workload("made")}
		for name, list := range map[string][]proto.Message{
			"a new role is bound":                   {create, bind(h.folder, author, "change:0"), group},
			"a bound role is widened":               {widen(weak), bind(h.folder, mighty, weak), group},
			"a role is narrowed, bound and widened": {narrowRole, bind(h.folder, author, strong), widen(strong)},
			"a workload of the author is made an owner": {robot, bind(h.folder, "change:0", string(resource.OwnerRole)),
				group},
			"a new folder is owned": {group, bind("change:0", author, string(resource.OwnerRole)), robot},
			"a mighty workload is taken while its binding is away": {&iampb.DeleteRoleBindingRequest{Uid: might}, trust,
				bind(h.folder, mighty, strong)},
			"the limit of the author is removed": {&iampb.DeleteRoleBindingRequest{Uid: own}, widen(weak),
				bind(h.folder, author, string(resource.OwnerRole))},
			"a held binding is changed": {&iampb.UpdateRoleBindingRequest{RoleBinding: &iampb.RoleBinding{Uid: held,
				RoleUid: strong},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"role_uid"}}}, group, narrowRole, widen(strong)},
		} {
			t.Run(name, func(t *testing.T) {
				before := w.snapshot(t)
				state := must[*organizationpb.OrganizationState](t, w.overGRPC, bearer,
					&organizationpb.GetOrganizationStateRequest{Parent: h.folder})
				ordered := changeList(list...)
				permute(ordered, func(changes []*organizationpb.Change) {
					in := &organizationpb.ApplyOrganizationRequest{
						Parent: h.folder, Revision: state.GetRevision(), Changes: changes,
					}
					_, st := w.overGRPC(t, bearer, in)
					early := st.Code() == codes.InvalidArgument && strings.Contains(st.Message(), "earlier")
					if st.Code() != codes.PermissionDenied && !early {
						var order []string
						for _, c := range changes {
							order = append(order, c.GetId())
						}
						t.Errorf("order %v: %v", order, st)
					}
				})
				if diff := cmp.Diff(before, w.snapshot(t)); diff != "" {
					t.Errorf("something has changed:\n%s", diff)
				}
			})
		}
	})
}

// permute calls f with every order of a list.
func permute[T any](list []T, f func([]T)) {
	var from func(int)
	from = func(i int) {
		if i == len(list) {
			f(slices.Clone(list))
			return
		}
		for j := i; j < len(list); j++ {
			list[i], list[j] = list[j], list[i]
			from(i + 1)
			list[i], list[j] = list[j], list[i]
		}
	}
	from(0)
}

// capabilitiesNamed returns the capabilities with these names.
func capabilitiesNamed(t *testing.T, names ...string) (list []capabilitiespb.Capability) {
	t.Helper()
	for _, name := range names {
		full := "CAP_IAM_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
		if strings.HasPrefix(name, "repo.") {
			full = strings.Replace(full, "IAM_", "", 1)
		}
		c, ok := capabilitiespb.Capability_value[full]
		if !ok {
			t.Fatal(name)
		}
		list = append(list, capabilitiespb.Capability(c))
	}
	return list
}
