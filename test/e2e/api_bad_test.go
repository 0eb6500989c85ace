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
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const domain = "iam.127.0.0.1"

// maxError is the largest size that an error may have, in bytes. gRPC clients accept only a few kilobytes of headers,
// and a gRPC response contains the error in two headers.
const maxError = 8 << 10

// checkInvalid fails the test unless st is the error for an invalid request and names the field.
func checkInvalid(t *testing.T, st *status.Status, field string) {
	t.Helper()
	if st.Code() != codes.InvalidArgument {
		t.Errorf("%v, want code 3 about %s", st, field)
		return
	}
	if prefix := "Invalid argument: " + field + ": "; !strings.HasPrefix(st.Message(), prefix) {
		t.Errorf("message %q, want it to begin with %q", st.Message(), prefix)
	}
	checkInfo(t, st)
	if len(st.Details()) != 2 {
		t.Errorf("details %v, want two", st.Details())
		return
	}
	if size := proto.Size(st.Proto()); size > maxError {
		t.Errorf("the error has %d bytes, want at most %d", size, maxError)
	}
	bad, ok := st.Details()[1].(*errdetails.BadRequest)
	if !ok || len(bad.GetFieldViolations()) == 0 || bad.GetFieldViolations()[0].GetField() != field {
		t.Errorf("second detail %v, want a BadRequest about %s", st.Details()[1], field)
	}
}

// checkInfo fails the test unless the first detail is the ErrorInfo for the code.
func checkInfo(t *testing.T, st *status.Status) {
	t.Helper()
	reasons := map[codes.Code]string{
		codes.InvalidArgument:    "INVALID_ARGUMENT",
		codes.NotFound:           "NOT_FOUND",
		codes.AlreadyExists:      "ALREADY_EXISTS",
		codes.PermissionDenied:   "PERMISSION_DENIED",
		codes.FailedPrecondition: "FAILED_PRECONDITION",
		codes.Unauthenticated:    "UNAUTHENTICATED",
		codes.Unimplemented:      "UNIMPLEMENTED",
		codes.ResourceExhausted:  "RESOURCE_EXHAUSTED",
	}
	if len(st.Details()) == 0 {
		t.Errorf("%v has no details", st)
		return
	}
	info, ok := st.Details()[0].(*errdetails.ErrorInfo)
	if !ok || info.GetReason() != reasons[st.Code()] || info.GetDomain() != domain {
		t.Errorf("first detail %v, want an ErrorInfo of %s and %s", st.Details()[0], reasons[st.Code()], domain)
	}
}

// things contains the UID of one resource of each kind. The method federate creates the last four resources, and an
// account association for the folder.
type things struct {
	org, folder, identity, role, binding string
	service, provider, mapping, invite   string
}

// makeThings creates one resource of each kind and returns their UIDs. Invalid requests must leave these resources
// unchanged.
func (w *world) makeThings(t *testing.T) things {
	t.Helper()
	org := string(w.Organization)
	folder := w.child(t, org, "folder")
	robot, role := w.robot(t, folder, "robot"), w.role(t, folder, "custom", someCapabilities...)
	return things{org: org, folder: folder, identity: robot, role: role, binding: w.bind(t, folder, robot, role)}
}

// snapshot returns a text with everything that the owner can see.
func (w *world) snapshot(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, in := range []proto.Message{
		&iampb.ListGroupsRequest{PageSize: 200}, &iampb.ListIdentitiesRequest{PageSize: 200},
		&iampb.ListRolesRequest{PageSize: 200}, &iampb.ListRoleBindingsRequest{PageSize: 200},
		&iampb.ListIdentityProvidersRequest{PageSize: 200}, &iampb.ListAccountAssociationsRequest{PageSize: 200},
		&iampb.ListGroupInvitesRequest{PageSize: 200}, &iampb.ListExternalGroupRoleMappingsRequest{PageSize: 200},
	} {
		b.WriteString(protojson.MarshalOptions{Multiline: true}.Format(must[proto.Message](t, w.overGRPC, w.Token, in)))
	}
	return b.String()
}

// A badRequest must be refused because of the value in one of its fields.
type badRequest struct {
	field string
	in    proto.Message
}

// TestApiBadInput puts invalid values into every field, over both protocols. Each must be refused with the typed
// error for an invalid field, and nothing may change.
func TestApiBadInput(t *testing.T) {
	t.Parallel()
	tables := map[string]func(things) map[string]badRequest{
		"uids":                       badUIDs,
		"groups":                     badGroups,
		"identities":                 badIdentities,
		"claims":                     badClaims,
		"keys and accounts":          badKeys,
		"roles":                      badRoles,
		"bindings":                   badBindings,
		"masks":                      badMasks,
		"lists":                      badLists,
		"metadata":                   badMetadata,
		"federated uids":             badFederatedUIDs,
		"providers":                  badProviders,
		"OIDC":                       badOIDC,
		"associations":               badAssociations,
		"installations and services": badInstallations,
		"invites":                    badInvites,
		"mappings":                   badMappings,
		"federated masks":            badFederatedMasks,
		"federated lists":            badFederatedLists,
		"access":                     badAccess,
		"sign-in":                    badSignIn,
		"advisories":                 badAdvisories,
		"advisory events":            badAdvisoryEvents,
		"advisory lists":             badAdvisoryLists,
		"feeds":                      badFeeds,
		"questions":                  badQuestions,
	}
	storyWorld(t, func(t *testing.T, w *world) {
		x := w.federate(t, w.makeThings(t))
		before := w.snapshot(t)
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			t.Run(name, func(t *testing.T) {
				w.refuses(t, tables[name](x))
				if diff := cmp.Diff(before, w.snapshot(t)); diff != "" {
					t.Errorf("something changed:\n%s", diff)
				}
			})
		}
		t.Run("bodies and queries", func(t *testing.T) { w.refusesRaw(t, x) })
		t.Run("federated bodies and queries", func(t *testing.T) { w.refusesFederatedRaw(t, x) })
		t.Run("bytes", func(t *testing.T) { w.refusesBytes(t, x) })
		t.Run("what only gRPC can say", func(t *testing.T) { w.refusesEmpty(t) })
		t.Run("durations", func(t *testing.T) { w.refusesDurations(t, x) })
		t.Run("nothing changed", func(t *testing.T) {
			if diff := cmp.Diff(before, w.snapshot(t)); diff != "" {
				t.Errorf("something changed:\n%s", diff)
			}
			events := w.events(t)
			// Four events are for the first organization, its owner, the owner's binding and the owner's account. The
			// others are for one resource of each kind.
			if len(events) != 4+4+5 {
				t.Errorf("%d events, want only those of the setup: %v", len(events), events)
			}
		})
	})
}

func (w *world) refuses(t *testing.T, table map[string]badRequest) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		tt := table[name]
		for protocol, call := range w.protocols() {
			t.Run(fmt.Sprintf("%s over %s", name, protocol), func(t *testing.T) {
				switch verb, target, _ := asHTTPOrSkip(t, protocol, tt.in); {
				case verb == "GET" && strings.HasSuffix(target, "/"):
					t.Skip("without a UID this path is the list method")
				case strings.Contains(target, "/:"):
					t.Skip("without a UID there is no such path")
				}
				out, st := call(t, w.Token, tt.in)
				if st == nil {
					t.Fatalf("succeeded: %v", out)
				}
				checkInvalid(t, st, tt.field)
			})
		}
	}
}

// asHTTPOrSkip is like asHTTP, but returns empty strings if the protocol is gRPC.
func asHTTPOrSkip(t *testing.T, protocol string, in proto.Message) (verb, target, body string) {
	t.Helper()
	if protocol == "gRPC" {
		return "", "", ""
	}
	return asHTTP(t, in)
}

// badUIDValues returns invalid UIDs. The keys are their descriptions.
func badUIDValues(x things) map[string]string {
	hex40 := strings.Repeat("0123456789", 4)
	return map[string]string{
		"none":               "",
		"a word":             "folder",
		"39 digits":          hex40[1:],
		"41 digits":          hex40 + "a",
		"capitals":           strings.Repeat("A", 40),
		"not hexadecimal":    strings.Repeat("g", 40),
		"a slash at the end": x.org + "/x/",
		"a short segment":    x.org + "/0123456789abcde",
		"a long segment":     x.org + "/0123456789abcdef0",
		"an empty segment":   x.org + "//0123456789abcdef",
		"dots":               "../../../etc/passwd",
		"dots inside":        x.org + "/../" + x.org,
		"a space":            x.org + " ",
		"a NUL":              x.org[:39] + "\x00",
		"a line break":       x.org + "\n",
		"full-width digits":  strings.Repeat("０", 40),
		"a quote":            "' OR '1'='1",
		"a per cent sign":    x.org[:39] + "%",
		"too many levels":    x.org + strings.Repeat("/0123456789abcdef", resource.MaxDepth),
		"too long":           strings.Repeat("a", 10_000),
	}
}

func badUIDs(x things) map[string]badRequest {
	values := badUIDValues(x)
	requests := map[string]func(uid string) badRequest{
		"get group":    func(uid string) badRequest { return badRequest{"uid", &iampb.GetGroupRequest{Uid: uid}} },
		"delete group": func(uid string) badRequest { return badRequest{"uid", &iampb.DeleteGroupRequest{Uid: uid}} },
		"update group": func(uid string) badRequest {
			return badRequest{"uid", &iampb.UpdateGroupRequest{Group: &iampb.Group{Uid: uid, Name: "x"}}}
		},
		"get identity": func(uid string) badRequest { return badRequest{"uid", &iampb.GetIdentityRequest{Uid: uid}} },
		"create identity": func(uid string) badRequest {
			return badRequest{"parent", &iampb.CreateIdentityRequest{Parent: uid, Identity: workload("x")}}
		},
		"delete identity": func(uid string) badRequest { return badRequest{"uid", &iampb.DeleteIdentityRequest{Uid: uid}} },
		"update identity": func(uid string) badRequest {
			return badRequest{"uid", &iampb.UpdateIdentityRequest{Identity: &iampb.Identity{Uid: uid, Name: "x"}}}
		},
		"get role": func(uid string) badRequest { return badRequest{"uid", &iampb.GetRoleRequest{Uid: uid}} },
		"create role": func(uid string) badRequest {
			return badRequest{
				"parent", &iampb.CreateRoleRequest{Parent: uid, Role: &iampb.Role{Name: "x", Capabilities: someCapabilities}},
			}
		},
		"delete role": func(uid string) badRequest { return badRequest{"uid", &iampb.DeleteRoleRequest{Uid: uid}} },
		"update role": func(uid string) badRequest {
			return badRequest{"uid", &iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: uid, Name: "x"}}}
		},
		"get binding":    func(uid string) badRequest { return badRequest{"uid", &iampb.GetRoleBindingRequest{Uid: uid}} },
		"delete binding": func(uid string) badRequest { return badRequest{"uid", &iampb.DeleteRoleBindingRequest{Uid: uid}} },
		"update binding": func(uid string) badRequest {
			return badRequest{"uid", &iampb.UpdateRoleBindingRequest{RoleBinding: &iampb.RoleBinding{Uid: uid, RoleUid: x.role}}}
		},
		"create binding": func(uid string) badRequest {
			return badRequest{
				"parent",
				&iampb.CreateRoleBindingRequest{
					Parent: uid, RoleBinding: &iampb.RoleBinding{IdentityUid: x.identity, RoleUid: x.role},
				},
			}
		},
		"bound identity": func(uid string) badRequest {
			return badRequest{
				"identity_uid",
				&iampb.CreateRoleBindingRequest{
					Parent: x.folder, RoleBinding: &iampb.RoleBinding{IdentityUid: uid, RoleUid: x.role},
				},
			}
		},
		"bound role": func(uid string) badRequest {
			return badRequest{
				"role_uid",
				&iampb.CreateRoleBindingRequest{
					Parent: x.folder, RoleBinding: &iampb.RoleBinding{IdentityUid: x.identity, RoleUid: uid},
				},
			}
		},
		"batch": func(uid string) badRequest {
			return badRequest{
				"parent", &iampb.BatchCreateRoleBindingsRequest{Parent: uid, Requests: []*iampb.CreateRoleBindingRequest{{}}},
			}
		},
		"batch of identities": func(uid string) badRequest {
			return badRequest{"requests[0].role_binding.identity_uid", &iampb.BatchCreateRoleBindingsRequest{
				Parent:   x.folder,
				Requests: []*iampb.CreateRoleBindingRequest{{RoleBinding: &iampb.RoleBinding{IdentityUid: uid, RoleUid: x.role}}},
			}}
		},
	}
	table := map[string]badRequest{}
	for request, with := range requests {
		for value, uid := range values {
			// Over HTTP, the parent is part of the path, and only a group can be created without one.
			if uid == "" && strings.HasPrefix(request, "create") {
				table[request+" with no parent"] = with("")
				continue
			}
			table[request+" with "+value] = with(uid)
		}
	}
	for value, uid := range values {
		if uid != "" && value != "a word" {
			list := func(u *commonpb.UIDPFilter) *iampb.ListGroupsRequest { return &iampb.ListGroupsRequest{Uidp: u} }
			table["list below "+value] = badRequest{"uidp.descendants_of", list(&commonpb.UIDPFilter{DescendantsOf: uid})}
			table["list in "+value] = badRequest{"uidp.children_of", list(&commonpb.UIDPFilter{ChildrenOf: uid})}
			table["list above "+value] = badRequest{"uidp.ancestors_of", list(&commonpb.UIDPFilter{AncestorsOf: uid})}
			table["list id of "+value] = badRequest{"uidp.ids", list(&commonpb.UIDPFilter{Ids: []string{x.org, uid}})}
			table["list bindings of identity of "+value] = badRequest{"identity", &iampb.ListRoleBindingsRequest{Identity: uid}}
			table["list bindings of role of "+value] = badRequest{"role", &iampb.ListRoleBindingsRequest{Role: uid}}
			table["list bindings of group of "+value] = badRequest{"group", &iampb.ListRoleBindingsRequest{Group: uid}}
		}
	}
	return table
}

var someCapabilities = []capabilitiespb.Capability{capabilitiespb.Capability_CAP_IAM_GROUPS_LIST}

// Invalid names and descriptions.
var (
	badNames = map[string]string{
		"no name":              "",
		"capitals":             "Folder",
		"umlauts":              "földer",
		"a slash":              "a/b",
		"a line break":         "a\n",
		"a tab":                "a\tb",
		"a NUL":                "a\x00",
		"a control character":  "a\x1f",
		"a quote":              "a'--",
		"too long a name":      strings.Repeat("a", 1025),
		"much too long a name": strings.Repeat("a", 1<<20),
	}
	badDescriptions = map[string]string{
		"two lines":         "a\nb",
		"a tab":             "a\tb",
		"a carriage return": "a\r",
		"a NUL":             "a\x00b",
		"too long":          strings.Repeat("é", 513),
	}
	badTexts = map[string]string{"a NUL": "a\x00b", "too long": strings.Repeat("x", 2049)}
)

func badGroups(x things) map[string]badRequest {
	create := func(g *iampb.Group) proto.Message { return &iampb.CreateGroupRequest{Parent: x.folder, Group: g} }
	update := func(g *iampb.Group, paths ...string) proto.Message {
		g.Uid = x.folder
		return &iampb.UpdateGroupRequest{Group: g, UpdateMask: mask(paths...)}
	}
	table := map[string]badRequest{
		"create with no group":      {"name", &iampb.CreateGroupRequest{Parent: x.folder}},
		"create of a kind":          {"kind", create(&iampb.Group{Name: "x", Kind: iampb.OrgKind_ORG_KIND_DEV})},
		"create of no known kind":   {"kind", create(&iampb.Group{Name: "x", Kind: 99})},
		"create of a negative kind": {"kind", create(&iampb.Group{Name: "x", Kind: -1})},
		"create verified":           {"verified", create(&iampb.Group{Name: "x", Verified: true})},
		"organization of no kind":   {"kind", &iampb.CreateGroupRequest{Group: &iampb.Group{Name: "x", Kind: 99}}},
		"organization verified": {
			"verified", &iampb.CreateGroupRequest{Group: &iampb.Group{Name: "x", Verified: true}},
		},
		"organization without a name": {"name", &iampb.CreateGroupRequest{Group: &iampb.Group{}}},
		"create in no group": {
			"parent", &iampb.CreateGroupRequest{Parent: "no such group", Group: &iampb.Group{Name: "x"}},
		},
		"create in half a uid": {
			"parent", &iampb.CreateGroupRequest{Parent: x.org[:39], Group: &iampb.Group{Name: "x"}},
		},
		"create in no segment": {
			"parent", &iampb.CreateGroupRequest{Parent: "0123456789abcdef", Group: &iampb.Group{Name: "x"}},
		},
		"create in a long name": {
			"parent", &iampb.CreateGroupRequest{Parent: strings.Repeat("a", 5000), Group: &iampb.Group{Name: "x"}},
		},
		"create in a NUL": {"parent", &iampb.CreateGroupRequest{Parent: "a\x00", Group: &iampb.Group{Name: "x"}}},
		"create too deep": {
			"parent",
			&iampb.CreateGroupRequest{Parent: x.org + strings.Repeat("/0123456789abcdef", 15), Group: &iampb.Group{Name: "x"}},
		},
		"update of the kind":  {"kind", update(&iampb.Group{Kind: iampb.OrgKind_ORG_KIND_INFRA}, "kind")},
		"update to verified":  {"verified", update(&iampb.Group{Verified: true}, "verified")},
		"replaced by nothing": {"name", update(&iampb.Group{Kind: iampb.OrgKind_ORG_KIND_DEV}, "*")},
		"access to a word":    {"group_uid", &iampb.RequestGroupAccessRequest{GroupUid: "x"}},
	}
	table["create with too long a name for a path"] = badRequest{
		"name", create(&iampb.Group{Name: strings.Repeat("a", 129)}),
	}
	for value, name := range badNames {
		table["create with "+value] = badRequest{"name", create(&iampb.Group{Name: name})}
		table["update to "+value] = badRequest{"name", update(&iampb.Group{Name: name}, "name")}
	}
	for value, text := range badDescriptions {
		table["create described by "+value] = badRequest{"description", create(&iampb.Group{Name: "x", Description: text})}
		table["update to description of "+value] = badRequest{
			"description", update(&iampb.Group{Description: text}, "description"),
		}
	}
	return table
}

func badRoles(x things) map[string]badRequest {
	create := func(name string, caps ...capabilitiespb.Capability) proto.Message {
		return &iampb.CreateRoleRequest{Parent: x.folder, Role: &iampb.Role{Name: name, Capabilities: caps}}
	}
	update := func(caps ...capabilitiespb.Capability) proto.Message {
		return &iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: x.role, Capabilities: caps}, UpdateMask: mask("capabilities")}
	}
	table := map[string]badRequest{
		"create with no role": {"name", &iampb.CreateRoleRequest{Parent: x.folder}},
		"create of nothing":   {"capabilities", create("x")},
		"create of UNKNOWN":   {"capabilities", create("x", capabilitiespb.Capability_UNKNOWN)},
		"create of UNKNOWN beside another": {
			"capabilities", create("x", someCapabilities[0], capabilitiespb.Capability_UNKNOWN),
		},
		"create of no known number":   {"capabilities", create("x", 99_999)},
		"create of a negative number": {"capabilities", create("x", -1)},
		"create of an internal one":   {"capabilities", create("x", capabilitiespb.Capability_CAP_REPO_INTERNAL_ADMIN)},
		"update to nothing":           {"capabilities", update()},
		"update to UNKNOWN":           {"capabilities", update(capabilitiespb.Capability_UNKNOWN)},
		"update to no known number":   {"capabilities", update(99_999)},
	}
	for value, name := range badNames {
		table["create with "+value] = badRequest{"name", create(name, someCapabilities...)}
		table["update to "+value] = badRequest{
			"name", &iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: x.role, Name: name}, UpdateMask: mask("name")},
		}
	}
	for value, text := range badDescriptions {
		table["update to description of "+value] = badRequest{"description", &iampb.UpdateRoleRequest{
			Role: &iampb.Role{Uid: x.role, Description: text}, UpdateMask: mask("description"),
		}}
	}
	return table
}

func badBindings(x things) map[string]badRequest {
	batch := func(n int) proto.Message {
		r := &iampb.BatchCreateRoleBindingsRequest{Parent: x.folder}
		for range n {
			r.Requests = append(r.Requests, &iampb.CreateRoleBindingRequest{
				RoleBinding: &iampb.RoleBinding{IdentityUid: x.identity, RoleUid: x.role},
			})
		}
		return r
	}
	update := func(b *iampb.RoleBinding, paths ...string) proto.Message {
		b.Uid = x.binding
		return &iampb.UpdateRoleBindingRequest{RoleBinding: b, UpdateMask: mask(paths...)}
	}
	single := func(b *iampb.RoleBinding, parent string) []*iampb.CreateRoleBindingRequest {
		return []*iampb.CreateRoleBindingRequest{{Parent: parent, RoleBinding: b}}
	}
	return map[string]badRequest{
		"create with no binding": {"identity_uid", &iampb.CreateRoleBindingRequest{Parent: x.folder}},
		"role of a group below": {"role_uid", &iampb.CreateRoleBindingRequest{
			Parent: x.org, RoleBinding: &iampb.RoleBinding{IdentityUid: x.identity, RoleUid: x.role},
		}},
		"update to no role":     {"role_uid", update(&iampb.RoleBinding{}, "role_uid")},
		"update to no identity": {"identity_uid", update(&iampb.RoleBinding{}, "identityUid")},
		"update to a word":      {"role_uid", update(&iampb.RoleBinding{RoleUid: "viewer"}, "role_uid")},
		"batch of none":         {"requests", batch(0)},
		"batch of 26":           {"requests", batch(26)},
		"batch of empty ones": {
			"requests[0].role_binding.identity_uid",
			&iampb.BatchCreateRoleBindingsRequest{Parent: x.folder, Requests: single(nil, "")},
		},
		"batch in two groups": {"requests[0].parent", &iampb.BatchCreateRoleBindingsRequest{
			Parent: x.folder, Requests: single(&iampb.RoleBinding{IdentityUid: x.identity, RoleUid: x.role}, x.org),
		}},
		"batch of two roles": {"requests[0].role_binding.role_uid", &iampb.BatchCreateRoleBindingsRequest{
			Parent:   x.folder,
			RoleUid:  string(resource.OwnerRole),
			Requests: single(&iampb.RoleBinding{IdentityUid: x.identity, RoleUid: x.role}, ""),
		}},
	}
}
