package api_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// A call is the same call in both protocols: an HTTP request, and a gRPC method with its
// messages.
type call struct {
	request, body string
	method        string // SERVICE/METHOD; its package is the package of in
	in, out       proto.Message
}

// TestBothProtocols: a request over JSON and the same request over gRPC have the same
// answer or the same error.
func TestBothProtocols(t *testing.T) {
	w := newWorld(t)
	org, missing := string(w.org), string(w.org.NewChild())
	elsewhere := string(resource.NewRoot())
	owner, viewer := string(w.owner.UID), string(resource.ManagedRoleUID("viewer"))
	identity := w.do(t, "POST /iam/v2beta1/identities/"+org,
		`{"name":"ci","claimMatch":{"issuer":"https://ci.example.com","subjectPattern":"repo:acme/.*",`+
			`"claims":{"ref":"main"}}}`)
	bot, _ := identity.field("uid").(string)
	role := w.do(t, "POST /iam/v2beta1/roles/"+org, `{"name":"reader","capabilities":["CAP_IAM_GROUPS_LIST"]}`)
	reader, _ := role.field("uid").(string)
	bound := w.do(t, "POST /iam/v2beta1/roleBindings/"+org, `{"identityUid":"`+bot+`","roleUid":"`+reader+`"}`)
	binding, _ := bound.field("uid").(string)
	if bot == "" || reader == "" || binding == "" {
		t.Fatalf("%s\n%s\n%s", identity.text, role.text, bound.text)
	}
	tests := map[string]call{
		"get a group": {
			"GET /iam/v2beta1/groups/" + org, "", "GroupsService/GetGroup", &iampb.GetGroupRequest{Uid: org}, &iampb.Group{},
		},
		"get a missing group": {
			"GET /iam/v2beta1/groups/" + missing, "", "GroupsService/GetGroup", &iampb.GetGroupRequest{Uid: missing},
			&iampb.Group{},
		},
		"get another's group": {
			"GET /iam/v2beta1/groups/" + elsewhere, "", "GroupsService/GetGroup", &iampb.GetGroupRequest{Uid: elsewhere},
			&iampb.Group{},
		},
		"get what is no uid": {
			"GET /iam/v2beta1/groups/x", "", "GroupsService/GetGroup", &iampb.GetGroupRequest{Uid: "x"}, &iampb.Group{},
		},
		"create without a name": {
			"POST /iam/v2beta1/groups/" + org, "", "GroupsService/CreateGroup", &iampb.CreateGroupRequest{Parent: org},
			&iampb.Group{},
		},
		"create what exists": {
			"POST /iam/v2beta1/groups", `{"name":"acme"}`, "GroupsService/CreateGroup",
			&iampb.CreateGroupRequest{Group: &iampb.Group{Name: "acme"}}, &iampb.Group{},
		},
		"delete what has children": {
			"DELETE /iam/v2beta1/groups/" + org, "", "GroupsService/DeleteGroup", &iampb.DeleteGroupRequest{Uid: org},
			&emptypb.Empty{},
		},
		"update with a bad mask": {
			"PATCH /iam/v2beta1/groups/" + org + "?updateMask=x", "{}", "GroupsService/UpdateGroup",
			&iampb.UpdateGroupRequest{Group: &iampb.Group{Uid: org}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"x"}}},
			&iampb.Group{},
		},
		"list groups": {
			"GET /iam/v2beta1/groups?order_by=name%20desc&skip=1", "", "GroupsService/ListGroups",
			&iampb.ListGroupsRequest{OrderBy: "name desc", Skip: 1}, &iampb.ListGroupsResponse{},
		},
		"list by uid": {
			"GET /iam/v2beta1/groups?uidp.ids=" + org + "&uidp.ids=" + missing, "", "GroupsService/ListGroups",
			&iampb.ListGroupsRequest{Uidp: &commonpb.UIDPFilter{Ids: []string{org, missing}}}, &iampb.ListGroupsResponse{},
		},
		"list with a bad order": {
			"GET /iam/v2beta1/groups?orderBy=x", "", "GroupsService/ListGroups", &iampb.ListGroupsRequest{OrderBy: "x"},
			&iampb.ListGroupsResponse{},
		},
		"look a group up": {
			"GET /iam/v2beta1/groups:lookupGroup", "", "GroupsService/LookupGroup", &iampb.LookupGroupRequest{},
			&iampb.LookupGroupResponse{},
		},
		"check eligibility": {
			"GET /iam/v2beta1/groups:checkEligibility", "", "GroupsService/CheckEligibility", &iampb.CheckEligibilityRequest{},
			&iampb.CheckEligibilityResponse{},
		},
		"ask for access": {
			"POST /iam/v2beta1/groups/" + org + ":requestGroupAccess", "", "GroupsService/RequestGroupAccess",
			&iampb.RequestGroupAccessRequest{GroupUid: org}, &iampb.RequestGroupAccessResponse{},
		},
		"get an identity": {
			"GET /iam/v2beta1/identities/" + bot, "", "IdentitiesService/GetIdentity", &iampb.GetIdentityRequest{Uid: bot},
			&iampb.Identity{},
		},
		"list identities": {
			"GET /iam/v2beta1/identities?relationship_type=RELATIONSHIP_TYPE_CLAIM_MATCH&name=ci", "",
			"IdentitiesService/ListIdentities",
			&iampb.ListIdentitiesRequest{RelationshipType: 1, Name: "ci"}, &iampb.ListIdentitiesResponse{},
		},
		"look an identity up": {
			"GET /iam/v2beta1/identities:lookupIdentity?issuer=https://i.example.com&subject=s", "",
			"IdentitiesService/LookupIdentity",
			&iampb.LookupIdentityRequest{Issuer: "https://i.example.com", Subject: "s"}, &iampb.LookupIdentityResponse{},
		},
		"look nobody up": {
			"GET /iam/v2beta1/identities:lookupIdentity", "", "IdentitiesService/LookupIdentity",
			&iampb.LookupIdentityRequest{}, &iampb.LookupIdentityResponse{},
		},
		"get a managed role": {
			"GET /iam/v2beta1/roles/" + viewer, "", "RolesService/GetRole", &iampb.GetRoleRequest{Uid: viewer}, &iampb.Role{},
		},
		"list roles": {
			"GET /iam/v2beta1/roles?page_size=3", "", "RolesService/ListRoles", &iampb.ListRolesRequest{PageSize: 3},
			&iampb.ListRolesResponse{},
		},
		"delete a role in use": {
			"DELETE /iam/v2beta1/roles/" + reader, "", "RolesService/DeleteRole", &iampb.DeleteRoleRequest{Uid: reader},
			&emptypb.Empty{},
		},
		"change a managed role": {
			"PATCH /iam/v2beta1/roles/" + viewer, `{"name":"x"}`, "RolesService/UpdateRole",
			&iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: viewer, Name: "x"}}, &iampb.Role{},
		},
		"get a binding": {
			"GET /iam/v2beta1/roleBindings/" + binding, "", "RoleBindingsService/GetRoleBinding",
			&iampb.GetRoleBindingRequest{Uid: binding}, &iampb.RoleBinding{},
		},
		"list bindings": {
			"GET /iam/v2beta1/roleBindings?identity=" + owner, "", "RoleBindingsService/ListRoleBindings",
			&iampb.ListRoleBindingsRequest{Identity: owner}, &iampb.ListRoleBindingsResponse{},
		},
		"delete a missing one": {
			"DELETE /iam/v2beta1/roleBindings/" + missing, "", "RoleBindingsService/DeleteRoleBinding",
			&iampb.DeleteRoleBindingRequest{Uid: missing}, &emptypb.Empty{},
		},
		"bind nothing": {
			"POST /iam/v2beta1/roleBindings/" + org, "{}", "RoleBindingsService/CreateRoleBinding",
			&iampb.CreateRoleBindingRequest{Parent: org}, &iampb.RoleBinding{},
		},
		"bind a role of nobody's": {
			"POST /iam/v2beta1/roleBindings/" + org, `{"identityUid":"` + bot + `","roleUid":"` + missing + `"}`,
			"RoleBindingsService/CreateRoleBinding",
			&iampb.CreateRoleBindingRequest{Parent: org, RoleBinding: &iampb.RoleBinding{IdentityUid: bot, RoleUid: missing}},
			&iampb.RoleBinding{},
		},
		"a contradictory batch": {
			"POST /iam/v2beta1/roleBindings:batchCreate",
			`{"parent":"` + org + `","roleUid":"` + viewer + `","requests":[{"parent":"x",` +
				`"roleBinding":{"roleUid":"` + reader + `"}},{}]}`,
			"RoleBindingsService/BatchCreateRoleBindings",
			&iampb.BatchCreateRoleBindingsRequest{Parent: org, RoleUid: viewer, Requests: []*iampb.CreateRoleBindingRequest{
				{Parent: "x", RoleBinding: &iampb.RoleBinding{RoleUid: reader}}, {},
			}}, &iampb.BatchCreateRoleBindingsResponse{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { w.compare(t, tt) })
	}
}

// compare sends c over both protocols and compares the answers.
func (w *world) compare(t *testing.T, c call) {
	t.Helper()
	got := w.do(t, c.request, c.body)
	err := w.conn.Invoke(w.ctx(t), "/"+string(c.in.ProtoReflect().Descriptor().ParentFile().Package())+"."+c.method,
		c.in, c.out)
	if err != nil {
		if diff := cmp.Diff(plain(t, status.Convert(err).Proto()), any(got.json)); diff != "" {
			t.Errorf("the error over gRPC (-) and over JSON (+):\n%s", diff)
		}
		return
	}
	if got.status != 200 {
		t.Fatalf("over JSON %d %s; over gRPC %v", got.status, got.text, c.out)
	}
	back := c.out.ProtoReflect().New().Interface()
	if got.text != "" {
		must(t, protojson.Unmarshal([]byte(got.text), back))
	}
	if diff := cmp.Diff(plain(t, c.out), plain(t, back)); diff != "" {
		t.Errorf("the answer over gRPC (-) and over JSON (+):\n%s", diff)
	}
}

// plain returns a message as decoded JSON.
func plain(t *testing.T, m proto.Message) any {
	t.Helper()
	b := check(protojson.Marshal(m))(t)
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var v any
	must(t, d.Decode(&v))
	if m, ok := v.(map[string]any); ok {
		delete(m, "nextPageToken") // contains the time at which it was created
	}
	return v
}

// TestEveryNameOfAService: each service answers under four names, with the same rules.
func TestEveryNameOfAService(t *testing.T) {
	w := newWorld(t)
	names := w.services(t)
	groups, pings := 0, 0
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, ".GroupsService"):
			groups++
			in, out := &iampb.GetGroupRequest{Uid: string(w.org)}, &iampb.Group{}
			if err := w.conn.Invoke(w.ctx(t), "/"+name+"/GetGroup", in, out); err != nil || out.Name != "acme" {
				t.Errorf("%s: %v, %v", name, out, err)
			}
			if err := w.conn.Invoke(t.Context(), "/"+name+"/GetGroup", in, out); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s without a token: %v", name, err)
			}
		case strings.HasSuffix(name, ".PingService"):
			pings++
			if err := w.conn.Invoke(t.Context(), "/"+name+"/Ping", &pingpb.PingRequest{}, &pingpb.PingResponse{}); err != nil {
				t.Errorf("%s without a token: %v", name, err)
			}
		}
	}
	if groups != 4 || pings != 6 { // PingService also exists in version 1
		t.Errorf("%d names for groups and %d for ping, want 4 and 6, in %v", groups, pings, names)
	}
	err := w.conn.Invoke(w.ctx(t), "/holdfast.iam.v2beta1.GroupsService/Nothing", &pingpb.PingRequest{},
		&pingpb.PingResponse{})
	if st := status.Convert(err); st.Code() != codes.Unimplemented || len(st.Details()) != 1 {
		t.Errorf("a method there is none of: %v, details %v", err, st.Details())
	}
}

func TestHealth(t *testing.T) {
	c := healthpb.NewHealthClient(newWorld(t).conn)
	for _, service := range []string{
		"", "holdfast.iam.v2beta1.GroupsService", "holdfast.iam.v2.GroupsService", "holdfast.access.v1.AccessService",
	} {
		got, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || got.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, got, err)
		}
	}
	_, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "holdfast.iam.v2beta1.Groups"})
	if st := status.Convert(err); st.Code() != codes.NotFound || len(st.Details()) != 1 {
		t.Errorf("health of a service there is none of: %v, details %v", err, st.Details())
	}
}

// TestGRPCLimits: the server refuses messages above a size limit. The limit is lower for
// anonymous callers than for the owner.
func TestGRPCLimits(t *testing.T) {
	w := newWorld(t)
	c := iampb.NewGroupsServiceClient(w.conn)
	h := healthpb.NewHealthClient(w.conn)
	check := func(ctx context.Context, n int) error {
		_, err := h.Check(ctx, &healthpb.HealthCheckRequest{Service: strings.Repeat("x", n)})
		return err
	}
	list := func(ctx context.Context, n int) error {
		_, err := c.ListGroups(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.token),
			&iampb.ListGroupsRequest{PageToken: strings.Repeat("x", n)})
		return err
	}
	tests := map[string]struct {
		call              func(ctx context.Context, n int) error
		request, metadata int
		answer            codes.Code
	}{
		"a stranger's request that fits":     {check, 64<<10 - 100, 0, codes.NotFound},
		"a stranger's request that does not": {check, 64 << 10, 0, codes.InvalidArgument},
		// The size is within the limit, but the page token is invalid.
		"a request that fits":     {list, 4<<20 - 100, 0, codes.InvalidArgument},
		"a request that does not": {list, 4 << 20, 0, codes.ResourceExhausted},
		"headers that fit":        {check, 0, 60 << 10, codes.OK},
		"headers that do not":     {check, 0, 64 << 10, codes.Internal},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "padding", strings.Repeat("x", tt.metadata))
			if err := tt.call(ctx, tt.request); status.Code(err) != tt.answer {
				t.Errorf("%.200v, want %s", err, tt.answer)
			}
		})
	}
}

// services returns the names that reflection lists. Reflection must describe each of
// them.
func (w *world) services(t *testing.T) (names []string) {
	t.Helper()
	stream := check(reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(t.Context()))(t)
	ask := func(r *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		must(t, stream.Send(r))
		return check(stream.Recv())(t)
	}
	list := ask(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	})
	for _, s := range list.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
		symbol := &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: s.Name}
		r := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: symbol})
		if len(r.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s is listed and not described: %v", s.Name, r.GetErrorResponse())
		}
	}
	return names
}

func TestReflection(t *testing.T) {
	names := newWorld(t).services(t)
	for _, want := range []string{
		"holdfast.iam.v2beta1.GroupsService", "holdfast.iam.v2.RolesService", "holdfast.ping.v2beta1.PingService",
		"grpc.health.v1.Health",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	count := map[string]int{}
	for _, name := range names {
		count[name[strings.LastIndexByte(name, '.')+1:]]++
	}
	for service, want := range map[string]int{
		"IdentitiesService": 4, "RolesService": 4, "RoleBindingsService": 4, "IdentityProvidersService": 4,
		"AccountAssociationsService": 4,
		"GroupInvitesService":        4, "ExternalGroupRoleMappingsService": 4, "AccessService": 1,
	} {
		if count[service] != want {
			t.Errorf("%d names for %s, want %d, in %v", count[service], service, want, names)
		}
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t)
	good := token.Claims{Subject: w.owner.UID, Audience: []string{audience}, Life: time.Hour}
	other := good
	other.Audience = []string{"https://registry.example.com"}
	tests := map[string]struct {
		authorization []string
		code          codes.Code
	}{
		"with its scheme":    {[]string{"Bearer " + w.mint(good)}, codes.OK},
		"without its scheme": {[]string{w.mint(good)}, codes.OK},
		"for someone else":   {[]string{"Bearer " + w.mint(other)}, codes.Unauthenticated},
		"nonsense":           {[]string{"Bearer nonsense"}, codes.Unauthenticated},
		"two of them":        {[]string{w.mint(good), w.mint(good)}, codes.Unauthenticated},
		"none":               {nil, codes.Unauthenticated},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": tt.authorization})
			var header metadata.MD
			_, err := iampb.NewGroupsServiceClient(w.conn).GetGroup(ctx, &iampb.GetGroupRequest{Uid: string(w.org)},
				grpc.Header(&header))
			if status.Code(err) != tt.code {
				t.Errorf("error = %v, want code %v", err, tt.code)
			}
			if len(header.Get("x-request-id")) != 1 {
				t.Errorf("x-request-id = %q", header.Get("x-request-id"))
			}
		})
	}
}

// TestDeletedIdentity: the token of a deleted identity becomes invalid immediately.
func TestDeletedIdentity(t *testing.T) {
	w := newWorld(t)
	made := w.do(t, "POST /iam/v2beta1/identities/"+string(w.org),
		`{"name":"ci","claimMatch":{"issuer":"https://ci.example.com","subject":"s"}}`)
	uid, _ := made.field("uid").(string)
	bearer := "Bearer " + w.mint(token.Claims{Subject: resource.UID(uid), Audience: []string{audience}, Life: time.Hour})
	if got := w.do(t, "GET /iam/v2beta1/groups", "", "Authorization", bearer); got.status != 200 {
		t.Fatalf("before: %d %s", got.status, got.text)
	}
	w.do(t, "DELETE /iam/v2beta1/identities/"+uid, "")
	if got := w.do(t, "GET /iam/v2beta1/groups", "", "Authorization", bearer); got.status != 401 {
		t.Errorf("after: %d %s", got.status, got.text)
	}
}
