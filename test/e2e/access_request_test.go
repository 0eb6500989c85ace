package e2e_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// requestable adds a rule that lets people request the viewer role on a group. It returns the UID of the group.
func (w *world) requestable(t *testing.T, group string) string {
	t.Helper()
	must[*accesspb.AccessRule](t, w.overGRPC, w.Token, &accesspb.CreateAccessRuleRequest{
		Parent: group, AccessRule: &accesspb.AccessRule{RoleUid: viewer, MaxDuration: durationpb.New(time.Hour)},
	})
	return group
}

// robotIn returns a token for a new workload that has a role in a group.
func (w *world) robotIn(t *testing.T, group string) string {
	t.Helper()
	robot := w.robot(t, group, "asks"+rand8())
	w.bind(t, group, robot, string(resource.ManagedRoleUID("console_viewer")))
	return w.mint(t, resource.UID(robot), token.Claims{})
}

func rand8() string { uid := string(resource.NewRoot()); return uid[:8] }

// asked lets a new workload request the viewer role on a group, and returns the UID of the access request.
func (w *world) asked(t *testing.T, group string) string {
	t.Helper()
	return must[*accesspb.AccessRequest](t, w.overGRPC, w.robotIn(t, group), &accesspb.CreateAccessRequestRequest{
		Parent:        group,
		AccessRequest: &accesspb.AccessRequest{RoleUid: viewer, Duration: durationpb.New(time.Hour), Reason: "r"},
	}).GetUid()
}

// requestAccesses returns, by name, the methods that act on one access rule or access request.
func (h *hierarchy) requestAccesses() map[string]access {
	folder := func(*testing.T) string { return h.folder }
	rule := func(t *testing.T) string {
		return must[*accesspb.AccessRule](t, h.overGRPC, h.Token, &accesspb.CreateAccessRuleRequest{
			Parent: h.folder, AccessRule: &accesspb.AccessRule{RoleUid: h.viewer(), MaxDuration: durationpb.New(time.Hour)},
		}).GetUid()
	}
	request := func(t *testing.T) string {
		uid := rule(t)
		in := &accesspb.AccessRequest{RoleUid: h.viewer(), Duration: durationpb.New(time.Hour)}
		made := must[*accesspb.AccessRequest](t, h.overGRPC, h.robotIn(t, h.folder), &accesspb.CreateAccessRequestRequest{
			Parent: h.folder, AccessRequest: in,
		})
		must[proto.Message](t, h.overGRPC, h.Token, &accesspb.DeleteAccessRuleRequest{Uid: uid})
		return made.GetUid()
	}
	return map[string]access{
		"CreateAccessRule": {"role_bindings.create", folder, func(uid string) proto.Message {
			return &accesspb.CreateAccessRuleRequest{
				Parent:       uid,
				AccessRule:   &accesspb.AccessRule{RoleUid: h.viewer(), MaxDuration: durationpb.New(time.Hour)},
				ValidateOnly: true,
			}
		}},
		"DeleteAccessRule": {"role_bindings.delete", rule, func(uid string) proto.Message {
			return &accesspb.DeleteAccessRuleRequest{Uid: uid}
		}},
		"GetAccessRequest": {"role_bindings.list", request, func(uid string) proto.Message {
			return &accesspb.GetAccessRequestRequest{Uid: uid}
		}},
		"ApproveAccessRequest": {"role_bindings.create", request, func(uid string) proto.Message {
			return &accesspb.ApproveAccessRequestRequest{Uid: uid}
		}},
		"DenyAccessRequest": {"role_bindings.create", request, func(uid string) proto.Message {
			return &accesspb.DenyAccessRequestRequest{Uid: uid}
		}},
		"HandBackAccessRequest": {"role_bindings.delete", request, func(uid string) proto.Message {
			return &accesspb.HandBackAccessRequestRequest{Uid: uid}
		}},
	}
}

// requestExamples returns example calls for access rules and access requests.
func requestExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	group := w.requestable(t, w.child(t, x.org, "requestable"))
	rule := must[*accesspb.AccessRule](t, w.overGRPC, w.Token, &accesspb.CreateAccessRuleRequest{
		Parent: x.org, AccessRule: &accesspb.AccessRule{RoleUid: viewer, MaxDuration: durationpb.New(time.Hour)},
	}).GetUid()
	body := `{"roleUid":"` + viewer + `","maxDuration":"3600s","approvers":2,"reasonRequired":true}`
	ask := `{"roleUid":"` + viewer + `","duration":"60s","reason":"incident 7"}`
	return map[string][]example{
		"AccessRequestsService_CreateAccessRule": {
			{uid: x.org, body: body}, {uid: x.org, body: `{"approvers":3}`, fails: true},
		},
		"AccessRequestsService_ListAccessRules":     {{query: "page_size=1"}, {query: "page_size=-1", fails: true}},
		"AccessRequestsService_DeleteAccessRule":    {{uid: rule}, {uid: "x", fails: true}},
		"AccessRequestsService_CreateAccessRequest": {{uid: group, body: ask}, {uid: group, body: `{}`, fails: true}},
		"AccessRequestsService_GetAccessRequest":    {{uid: w.asked(t, group)}, {uid: "x", fails: true}},
		"AccessRequestsService_ListAccessRequests":  {{query: "page_size=1&mine=true"}, {query: "page_size=-1", fails: true}},
		"AccessRequestsService_ApproveAccessRequest": {
			{uid: w.asked(t, group), body: `{}`}, {uid: "x", body: `{}`, fails: true},
		},
		"AccessRequestsService_DenyAccessRequest": {
			{uid: w.asked(t, group), body: `{}`}, {uid: "x", body: `{}`, fails: true},
		},
		"AccessRequestsService_HandBackAccessRequest": {
			{uid: w.asked(t, group), body: `{}`}, {uid: "x", body: `{}`, fails: true},
		},
	}
}

// TestApiAccessRequests checks which callers may request access, and which rules and requests each caller sees.
func TestApiAccessRequests(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		h.requestable(t, h.folder)
		h.requestable(t, h.org)
		caps := resource.NewCapabilities(resource.GroupsList, resource.RoleBindingsCreate)
		narrowed := h.mint(t, h.Owner, token.Claims{Caps: &caps})
		ask := func(parent string, dry bool) proto.Message {
			r := &accesspb.AccessRequest{RoleUid: viewer, Duration: durationpb.New(time.Hour)}
			return &accesspb.CreateAccessRequestRequest{Parent: parent, AccessRequest: r, ValidateOnly: dry}
		}
		asker := h.robotIn(t, h.folder)
		made := must[*accesspb.AccessRequest](t, h.overHTTP, asker, ask(h.folder, false))
		for protocol, call := range h.protocols() {
			for who, tt := range map[string]struct{ bearer, on string }{
				"another organization":          {h.full["other"], h.folder},
				"a narrowed token":              {narrowed, h.folder},
				"somebody with nothing":         {h.mint(t, resource.UID(h.person()), token.Claims{}), h.folder},
				"without a rule":                {h.full["org"], h.sibling},
				"for a group that is not there": {h.full["org"], h.org + "/0123456789abcdef"},
			} {
				if _, st := call(t, tt.bearer, ask(tt.on, true)); st.Code() != codes.PermissionDenied {
					t.Errorf("%s over %s: %v", who, protocol, st)
				}
			}
			for _, in := range []proto.Message{
				ask(h.folder, true), &accesspb.ListAccessRulesRequest{},
				&accesspb.ListAccessRequestsRequest{}, &accesspb.ListAccessRequestsRequest{Mine: true},
			} {
				if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
					t.Errorf("%T without a token: %v", in, st)
				}
			}
			must[proto.Message](t, call, asker, &accesspb.GetAccessRequestRequest{Uid: made.GetUid()})
			for bearer, want := range map[string][2]int{
				h.full["org"]:     {2, 1},
				h.full["folder"]:  {1, 1},
				h.full["sibling"]: {0, 0},
				h.full["other"]:   {0, 0},
				narrowed:          {2, 0},
			} {
				for i, in := range []proto.Message{&accesspb.ListAccessRulesRequest{}, &accesspb.ListAccessRequestsRequest{}} {
					if uids, total := listed(must[proto.Message](t, call, bearer, in)); len(uids) != want[i] || int(total) != want[i] {
						t.Errorf("%T over %s: %d results and a total of %d, want %d", in, protocol, len(uids), total, want[i])
					}
				}
			}
			uids, _ := listed(must[proto.Message](t, call, asker, &accesspb.ListAccessRequestsRequest{Mine: true}))
			if len(uids) != 1 {
				t.Errorf("the caller's own requests over %s: %v, want one", protocol, uids)
			}
			if _, st := call(t, narrowed, &accesspb.ListAccessRequestsRequest{Mine: true}); st.Code() != codes.PermissionDenied {
				t.Errorf("a narrowed token lists its own over %s: %v", protocol, st)
			}
		}
	})
}

// TestApiBadAccessRequests sends invalid values. Each must be refused with an error that names the field.
func TestApiBadAccessRequests(t *testing.T) {
	t.Parallel()
	h := newHierarchy(t, serve(t, storetest.SQLite(t), server.Config{}, nil))
	h.requestable(t, h.folder)
	rule := func(change func(*accesspb.AccessRule)) proto.Message {
		r := &accesspb.AccessRule{RoleUid: viewer, MaxDuration: durationpb.New(time.Hour)}
		change(r)
		return &accesspb.CreateAccessRuleRequest{Parent: h.folder, AccessRule: r}
	}
	request := func(change func(*accesspb.AccessRequest)) proto.Message {
		r := &accesspb.AccessRequest{RoleUid: viewer, Duration: durationpb.New(time.Hour)}
		change(r)
		return &accesspb.CreateAccessRequestRequest{Parent: h.folder, AccessRequest: r}
	}
	h.refuses(t, map[string]badRequest{
		"no parent":     {"parent", &accesspb.CreateAccessRuleRequest{}},
		"no role":       {"role_uid", rule(func(r *accesspb.AccessRule) { r.RoleUid = "" })},
		"bad requester": {"requester_role_uid", rule(func(r *accesspb.AccessRule) { r.RequesterRoleUid = "x" })},
		"no time":       {"max_duration", rule(func(r *accesspb.AccessRule) { r.MaxDuration = nil })},
		"long time": {"max_duration", rule(func(r *accesspb.AccessRule) {
			r.MaxDuration = durationpb.New(1000 * time.Hour)
		})},
		"approvers":       {"approvers", rule(func(r *accesspb.AccessRule) { r.Approvers = 3 })},
		"request no role": {"role_uid", request(func(r *accesspb.AccessRequest) { r.RoleUid = "" })},
		"request no time": {"duration", request(func(r *accesspb.AccessRequest) { r.Duration = nil })},
		"too long": {"duration", request(func(r *accesspb.AccessRequest) {
			r.Duration = durationpb.New(2 * time.Hour)
		})},
		"long reason":    {"reason", request(func(r *accesspb.AccessRequest) { r.Reason = strings.Repeat("x", 1001) })},
		"no uid":         {"uid", &accesspb.ApproveAccessRequestRequest{}},
		"no uid to deny": {"uid", &accesspb.DenyAccessRequestRequest{}},
		"no uid to end":  {"uid", &accesspb.HandBackAccessRequestRequest{}},
		"no uid to get":  {"uid", &accesspb.GetAccessRequestRequest{}},
	})
}

// requestSteps returns the steps of TestApiBothProtocols that are about access requests. ada, who owns the group,
// requests access and gives it back, and the owner of the organization decides.
func requestSteps() []step {
	group := func(s *story) string { return s.uid("requestable") }
	ask := func(reason string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &accesspb.CreateAccessRequestRequest{Parent: group(s), AccessRequest: &accesspb.AccessRequest{
				RoleUid: viewer, Duration: durationpb.New(time.Minute), Reason: reason,
			}}
		}
	}
	on := func(step string, f func(uid string) proto.Message) func(*story) proto.Message {
		return func(s *story) proto.Message { return f(s.uid(step)) }
	}
	approve := func(uid string) proto.Message { return &accesspb.ApproveAccessRequestRequest{Uid: uid} }
	deny := func(uid string) proto.Message { return &accesspb.DenyAccessRequestRequest{Uid: uid} }
	handBack := func(uid string) proto.Message { return &accesspb.HandBackAccessRequestRequest{Uid: uid} }
	return []step{
		{name: "requestable", in: func(s *story) proto.Message {
			return &iampb.CreateGroupRequest{Parent: s.org(), Group: &iampb.Group{Name: "requestable"}}
		}},
		{name: "ada of requestable", in: func(s *story) proto.Message {
			return &iampb.CreateRoleBindingRequest{
				Parent: group(s), RoleBinding: &iampb.RoleBinding{IdentityUid: string(ada), RoleUid: string(resource.OwnerRole)},
			}
		}},
		{name: "access rule", in: func(s *story) proto.Message {
			return &accesspb.CreateAccessRuleRequest{Parent: group(s), AccessRule: &accesspb.AccessRule{
				RoleUid: viewer, MaxDuration: durationpb.New(time.Hour), ReasonRequired: true,
			}}
		}},
		{name: "list access rules", in: func(s *story) proto.Message {
			return &accesspb.ListAccessRulesRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: group(s)}}
		}},
		{name: "request without a reason", code: codes.InvalidArgument, in: ask(""), as: "ada"},
		{name: "request of a stranger", code: codes.PermissionDenied, in: ask("why not"), as: "stranger"},
		{name: "request", in: ask("incident 7"), as: "ada"},
		{name: "get request", in: on("request", func(uid string) proto.Message {
			return &accesspb.GetAccessRequestRequest{Uid: uid}
		})},
		{name: "list requests", in: func(*story) proto.Message {
			return &accesspb.ListAccessRequestsRequest{Mine: true}
		}, as: "ada"},
		{name: "approve one's own", code: codes.FailedPrecondition, in: on("request", approve), as: "ada"},
		{name: "approve", in: on("request", approve)},
		{name: "approve it again", code: codes.FailedPrecondition, in: on("request", approve)},
		{name: "hand back", in: on("request", handBack), as: "ada"},
		{name: "another request", in: ask("incident 8"), as: "ada"},
		{name: "deny", in: on("another request", deny)},
		{name: "delete access rule", in: on("access rule", func(uid string) proto.Message {
			return &accesspb.DeleteAccessRuleRequest{Uid: uid}
		})},
	}
}
