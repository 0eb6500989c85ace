package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// badPaths are update masks with invalid paths.
var badPaths = map[string][]string{
	"an unknown path":         {"nmae"},
	"an empty path":           {"name", ""},
	"a path into a string":    {"name.first"},
	"a dot at the end":        {"name."},
	"a dot at the start":      {".name"},
	"everything and more":     {"*", "name"},
	"a star inside":           {"name.*"},
	"a NUL":                   {"na\x00me"},
	"an endless path":         {strings.Repeat("a", 257)},
	"a deep path":             {strings.Repeat("a.", 100) + "a"},
	"too many paths":          slices.Repeat([]string{"name"}, 65),
	"a path of another thing": {"capabilities.name"},
}

func badMasks(x things) map[string]badRequest {
	table := map[string]badRequest{}
	for name, p := range badPaths {
		table["group: "+name] = badRequest{
			"update_mask", &iampb.UpdateGroupRequest{Group: &iampb.Group{Uid: x.folder, Name: "x"}, UpdateMask: mask(p...)},
		}
		table["identity: "+name] = badRequest{
			"update_mask",
			&iampb.UpdateIdentityRequest{Identity: &iampb.Identity{Uid: x.identity, Name: "x"}, UpdateMask: mask(p...)},
		}
		table["role: "+name] = badRequest{
			"update_mask", &iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: x.role, Name: "x"}, UpdateMask: mask(p...)},
		}
		table["binding: "+name] = badRequest{"update_mask", &iampb.UpdateRoleBindingRequest{
			RoleBinding: &iampb.RoleBinding{Uid: x.binding, RoleUid: x.role}, UpdateMask: mask(p...),
		}}
	}
	table["identity: a path into a map"] = badRequest{"update_mask", &iampb.UpdateIdentityRequest{
		Identity: &iampb.Identity{Uid: x.identity}, UpdateMask: mask("claim_match.claims.ref"),
	}}
	return table
}

// A badPage is a list request with one invalid field.
type badPage struct {
	field        string
	size, skip   int32
	token, order string
}

// badPages are list requests that must be refused.
var badPages = map[string]badPage{
	"a negative size":      {field: "page_size", size: -1},
	"the least size":       {field: "page_size", size: -1 << 31},
	"a negative skip":      {field: "skip", skip: -1},
	"a forged token":       {field: "page_token", token: "Zm9yZ2Vk"},
	"a token of no base64": {field: "page_token", token: "not base64 !"},
	"an endless token":     {field: "page_token", token: strings.Repeat("A", 5000)},
	"a NUL for a token":    {field: "page_token", token: "\x00"},
	"an unknown order":     {field: "order_by", order: "size"},
	"an injected order":    {field: "order_by", order: "name; DROP TABLE groups"},
	"a clause as an order": {field: "order_by", order: "name,uid"},
	"no direction":         {field: "order_by", order: "name sideways"},
	"capitals":             {field: "order_by", order: "name DESC"},
	"three words":          {field: "order_by", order: "name desc desc"},
	"only spaces":          {field: "order_by", order: "  "},
	"a NUL for an order":   {field: "order_by", order: "name\x00"},
}

func badLists(x things) map[string]badRequest {
	table := map[string]badRequest{}
	for name, b := range badPages {
		table["groups: "+name] = badRequest{
			b.field, &iampb.ListGroupsRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["identities: "+name] = badRequest{
			b.field, &iampb.ListIdentitiesRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["roles: "+name] = badRequest{
			b.field, &iampb.ListRolesRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["bindings: "+name] = badRequest{
			b.field, &iampb.ListRoleBindingsRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
	}
	table["bindings: by name"] = badRequest{"order_by", &iampb.ListRoleBindingsRequest{OrderBy: "name"}}
	table["too many ids"] = badRequest{
		"uidp.ids", &iampb.ListGroupsRequest{Uidp: &commonpb.UIDPFilter{Ids: slices.Repeat([]string{x.org}, 1001)}},
	}
	for value, name := range badTexts {
		table["groups of name of "+value] = badRequest{"name", &iampb.ListGroupsRequest{Name: name}}
		table["identities of name of "+value] = badRequest{"name", &iampb.ListIdentitiesRequest{Name: name}}
		table["roles of name of "+value] = badRequest{"name", &iampb.ListRolesRequest{Name: name}}
	}
	return table
}

// A rawRequest is an HTTP request that must be refused because of the given field.
type rawRequest struct{ field, verb, target, body string }

// refusesRaw sends invalid requests that only HTTP can express, and checks that each is refused.
func (w *world) refusesRaw(t *testing.T, x things) {
	groups, folder, robots := "/iam/v2beta1/groups", "/iam/v2beta1/groups/"+x.folder, "/iam/v2beta1/identities/"+x.folder
	deep := strings.Repeat(`{"claimMatch":`, 20_000)
	tests := map[string]rawRequest{
		"half an object":        {"body", "POST", folder, `{`},
		"a list":                {"body", "POST", folder, `[]`},
		"a string":              {"body", "POST", folder, `"x"`},
		"a number":              {"body", "POST", folder, `1`},
		"two objects":           {"body", "POST", folder, `{"name":"x"} {}`},
		"no JSON":               {"body", "POST", folder, `name=x`},
		"a comment":             {"body", "POST", folder, `{"name":"x" /* */}`},
		"invalid UTF-8":         {"name", "POST", folder, "{\"name\":\"x\xff\"}"},
		"half a surrogate pair": {"body", "POST", folder, `{"name":"x","description":"\ud800"}`},
		"a number for a name":   {"name", "POST", folder, `{"name":1}`},
		"a list for a name":     {"name", "POST", folder, `{"name":["x"]}`},
		"a word for a flag":     {"verified", "POST", folder, `{"name":"x","verified":"yes"}`},
		"a kind there is not":   {"kind", "POST", folder, `{"name":"x","kind":"NOPE"}`},
		"a kind too large":      {"kind", "POST", folder, `{"name":"x","kind":99999999999}`},
		"an unknown key":        {"nmae", "POST", folder, `{"nmae":"x"}`},
		"an unknown key, deep":  {"isuser", "POST", robots, `{"name":"x","claimMatch":{"isuser":"https://x.example"}}`},
		"a key twice":           {"name", "POST", folder, `{"name":"x","name":"y"}`},
		"an object for a map":   {"claims", "POST", robots, `{"name":"x","claimMatch":{"claims":[]}}`},
		"two issuers": {
			"issuerPattern", "POST", robots,
			`{"name":"x","claimMatch":{"issuer":"https://x.example","issuerPattern":"x","subject":"x"}}`,
		},
		"two relationships": {
			"awsIdentity", "POST", robots, `{"name":"x","servicePrincipal":"SERVICE_PRINCIPAL_INGESTER","awsIdentity":{}}`,
		},
		"a limit that is none": {"clusters", "POST", folder, `{"name":"x","resourceLimits":{"repos":1,"clusters":"many"}}`},
		"a time that is none": {
			"expirationTime", "POST", robots, `{"name":"x","staticKeys":{"expirationTime":"tomorrow"}}`,
		},
		"endless nesting":      {"claimMatch", "POST", robots, deep},
		"an endless body":      {"body", "POST", folder, `{"name":"` + strings.Repeat("x", 5<<20) + `"}`},
		"a patch of a list":    {"body", "PATCH", folder, `[]`},
		"a patch of no key":    {"nmae", "PATCH", folder + "?updateMask=name", `{"name":"x","nmae":"y"}`},
		"a patch of two words": {"update_mask", "PATCH", folder + "?updateMask=name%20description", `{"name":"x"}`},
		"two masks": {
			"update_mask", "PATCH", folder + "?updateMask=name&update_mask=description", `{"name":"x"}`,
		},
		"a word for a size":     {"page_size", "GET", groups + "?page_size=many", ""},
		"a fraction for a size": {"page_size", "GET", groups + "?pageSize=1.5", ""},
		"a size too large":      {"page_size", "GET", groups + "?page_size=99999999999", ""},
		"two sizes":             {"page_size", "GET", groups + "?page_size=1&page_size=2", ""},
		"two spellings":         {"page_size", "GET", groups + "?page_size=1&pageSize=2", ""},
		"a word for a skip":     {"skip", "GET", groups + "?skip=some", ""},
		"a skip too large":      {"skip", "GET", groups + "?skip=2147483648", ""},
		"a word for in_root":    {"uidp.in_root", "GET", groups + "?uidp.in_root=maybe", ""},
		"a broken escape":       {"query", "GET", groups + "?name=%zz", ""},
		"a semicolon":           {"query", "GET", groups + "?name=a;b", ""},
		"a name of no UTF-8":    {"name", "GET", groups + "?name=%ff", ""},
		"no known relationship": {"relationship_type", "GET", "/iam/v2beta1/identities?relationship_type=NOPE", ""},
		"a uid of no UTF-8":     {"uid", "GET", groups + "/%ff", ""},
		"a parent of no UTF-8":  {"parent", "POST", groups + "/%ff", `{"name":"x"}`},
		"a batch of words": {
			"requests", "POST", "/iam/v2beta1/roleBindings:batchCreate", `{"parent":"` + x.folder + `","requests":["x"]}`,
		},
		"a capability of a word": {
			"capabilities", "POST", "/iam/v2beta1/roles/" + x.folder, `{"name":"x","capabilities":["groups.list"]}`,
		},
	}
	w.refusesAsSent(t, tests)
	w.refusesBodyOf(t, folder, "Content-Type", "application/x-www-form-urlencoded", "is not the JSON")
	w.refusesBodyOf(t, folder, "Content-Encoding", "gzip", "must not be compressed")
	w.refusesPaths(t, x)
}

// refusesBodyOf sends a body that is not JSON, with a header that declares another format, and checks that it is
// refused.
func (w *world) refusesBodyOf(t *testing.T, target, header, value, why string) {
	t.Helper()
	t.Run("a body of "+value, func(t *testing.T) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.BaseURL+target, strings.NewReader("name=x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+w.Token)
		r.Header.Set(header, value)
		st := w.roundTrip(t, r).fault(t)
		checkInvalid(t, st, "body")
		if !strings.Contains(st.Message(), why) {
			t.Errorf("%v, want a message with %q", st, why)
		}
	})
}

func (w *world) refusesAsSent(t *testing.T, tests map[string]rawRequest) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		tt := tests[name]
		t.Run(name, func(t *testing.T) {
			r := w.send(t, w.Token, tt.verb, tt.target, tt.body)
			if r.status == http.StatusOK {
				t.Fatalf("succeeded: %.200s", r.body)
			}
			checkInvalid(t, r.fault(t), tt.field)
		})
	}
}

// refusesPaths requests paths that do not exist, and checks the errors.
func (w *world) refusesPaths(t *testing.T, x things) {
	tests := map[string]struct {
		verb, target string
		code         uint32
	}{
		"the root":            {"GET", "/", 5},
		"an unknown path":     {"GET", "/iam/v2beta1/nothing", 5},
		"an unknown version":  {"GET", "/iam/v3/groups", 5},
		"a path with dots":    {"GET", "/iam/v2beta1/%2e%2e/%2e%2e/etc/passwd", 5},
		"a method too many":   {"PUT", "/iam/v2beta1/groups", 12},
		"delete of all":       {"DELETE", "/iam/v2beta1/groups:lookupGroup", 12},
		"an overriding verb":  {"POST", "/ping/v2beta1/ping", 12},
		"an unknown verb":     {"GET", "/iam/v2beta1/groups:everything", 5},
		"another's unknown":   {"POST", "/iam/v2beta1/roleBindings:everything", 5},
		"a page of the model": {"GET", "/openapi.yaml", 5},
		"two slashes first":   {"GET", "//iam/v2beta1/groups", 5},
		"two slashes inside":  {"GET", "/iam//v2beta1/groups", 5},
		"an empty segment":    {"DELETE", "/iam/v2beta1/groups//" + x.folder, 3},
		"an empty uid":        {"DELETE", "/iam/v2beta1/groups/" + x.org + "//", 3},
		"no name of a child":  {"DELETE", "/iam/v2beta1/groups/" + x.folder + "/", 3},
		"a child to change":   {"PATCH", "/iam/v2beta1/groups/" + x.folder + "/", 3},
		"a dot":               {"DELETE", "/iam/v2beta1/groups/./" + x.folder, 3},
		"a way around":        {"DELETE", "/iam/v2beta1/roles/../groups/" + x.folder, 3},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			st := w.send(t, w.Token, tt.verb, tt.target, "").fault(t)
			if uint32(st.Code()) != tt.code {
				t.Errorf("%v, want code %d", st, tt.code)
			}
			checkInfo(t, st)
		})
	}
}

// refusesEmpty sends invalid requests that only gRPC can express: a call of an unknown method, and updates without a
// resource.
func (w *world) refusesEmpty(t *testing.T) {
	t.Run("no such method", func(t *testing.T) {
		_, st := invoke(t, w.conn, "/holdfast.iam.v2beta1.GroupsService/Nothing", w.Token, &iampb.ListGroupsRequest{})
		if st.Code() != codes.Unimplemented {
			t.Errorf("%v, want code 12", st)
		}
		checkInfo(t, st)
	})
	for _, in := range []proto.Message{
		&iampb.UpdateGroupRequest{}, &iampb.UpdateIdentityRequest{},
		&iampb.UpdateRoleRequest{}, &iampb.UpdateRoleBindingRequest{},
		&iampb.UpdateIdentityProviderRequest{}, &iampb.UpdateAccountAssociationRequest{},
	} {
		t.Run(fmt.Sprintf("%s of nothing", methodOf(in).Name()), func(t *testing.T) {
			_, st := w.overGRPC(t, w.Token, in)
			checkInvalid(t, st, string(in.ProtoReflect().Descriptor().Fields().Get(0).Name()))
		})
	}
}

// refusesDurations creates invites with durations that JSON cannot express, and checks that each is refused.
func (w *world) refusesDurations(t *testing.T, x things) {
	for name, ttl := range map[string]*durationpb.Duration{
		"two signs":            {Seconds: 3600, Nanos: -1},
		"too many nanoseconds": {Seconds: 60, Nanos: 2e9},
		"too many seconds":     {Seconds: 1<<63 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			out, st := w.overGRPC(t, w.Token, &iampb.CreateGroupInviteRequest{
				Parent: x.folder, GroupInvite: &iampb.GroupInvite{RoleUid: consoleViewer, Ttl: ttl},
			})
			if st == nil {
				t.Fatalf("succeeded: %v", out)
			}
			checkInvalid(t, st, "ttl")
		})
	}
}

// A rawCodec sends bytes without encoding them.
type rawCodec struct{ encoding.Codec }

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal([]byte, any) error   { return nil }
func (rawCodec) Name() string                  { return "proto" }

// refusesBytes sends bytes that are not a valid message, and checks that each request is refused.
func (w *world) refusesBytes(t *testing.T, x things) {
	group, err := proto.Marshal(&iampb.Group{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		method string
		bytes  []byte
	}{
		"invalid UTF-8 in a uid": {"GroupsService/GetGroup", []byte("\x0a\x02\xff\xfe")},
		"invalid UTF-8 in a name": {
			"GroupsService/CreateGroup", append([]byte("\x0a\x39"+x.folder+"\x12\x04"), "\x12\x02\xff\xfe"...),
		},
		"half a message":       {"GroupsService/CreateGroup", group[:len(group)-1]},
		"no message":           {"GroupsService/CreateGroup", []byte{0xff, 0xff, 0xff}},
		"a length without end": {"RolesService/GetRole", []byte("\x0a\xff\xff\xff\xff\x0f")},
		"a batch of nothing":   {"RoleBindingsService/BatchCreateRoleBindings", []byte{0x12, 0x05, 0x00}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := bearing(t, w.Token)
			err := w.conn.Invoke(ctx, "/holdfast.iam.v2beta1."+tt.method, &tt.bytes, nil, grpc.ForceCodec(rawCodec{}))
			if err == nil {
				t.Fatal("succeeded")
			}
			checkInvalid(t, status.Convert(err), "body")
		})
	}
}
