package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A stage is a folder that contains one resource of every kind.
type stage struct {
	folder, empty                string // empty is a group without resources
	identity, binding            string
	role, spare                  string // spare has no bindings
	provider, unused             string // unused has no mapping
	association, invite, mapping string
}

// make creates a resource over JSON and returns its uid.
func (w *world) make(t *testing.T, path, body string) string {
	t.Helper()
	made := w.do(t, "POST /iam/v2beta1/"+path, body)
	uid, _ := made.field("uid").(string)
	if uid == "" {
		t.Fatalf("POST %s %s: %s", path, body, made.text)
	}
	return uid
}

const oidc = `"oidc":{"issuer":"https://idp.example.com","clientId":"c","clientSecret":"hush","pkceEnabled":true}`

// stage creates a folder with a name, and its resources. They are newer than all earlier
// resources.
func (w *world) stage(t *testing.T, name string) (s stage) {
	t.Helper()
	w.now = w.now.Add(time.Second)
	viewer := string(resource.ManagedRoleUID("viewer"))
	s.folder = w.make(t, "groups/"+string(w.org), `{"name":"`+name+`"}`)
	s.empty = w.make(t, "groups/"+s.folder, `{"name":"empty"}`)
	s.identity = w.make(t, "identities/"+s.folder,
		`{"name":"ci","claimMatch":{"issuer":"https://ci.example.com","subject":"`+name+`"}}`)
	s.role = w.make(t, "roles/"+s.folder, `{"name":"reader","capabilities":["CAP_IAM_GROUPS_LIST"]}`)
	s.spare = w.make(t, "roles/"+s.folder, `{"name":"spare","capabilities":["CAP_IAM_GROUPS_LIST"]}`)
	s.binding = w.make(t, "roleBindings/"+s.folder, `{"identityUid":"`+s.identity+`","roleUid":"`+s.role+`"}`)
	s.provider = w.make(t, "identityProviders/"+s.folder, `{"name":"idp","defaultRole":"`+viewer+`",`+oidc+`}`)
	s.unused = w.make(t, "identityProviders/"+s.folder, `{"name":"unused","defaultRole":"`+viewer+`",`+oidc+`}`)
	s.association = w.make(t, "accountAssociations/"+s.folder, `{"name":"clouds","amazon":{"account":"123456789012"}}`)
	s.invite = w.make(t, "groupInvites/"+s.folder, `{"roleUid":"`+viewer+`","ttl":"3600s"}`)
	s.mapping = w.make(t, "externalGroupRoleMappings/"+s.provider, `{"externalGroupId":"staff","roleUid":"`+viewer+`"}`)
	return s
}

// changes returns a request for every method that makes a change.
func (s stage) changes() map[protoreflect.Name]proto.Message {
	viewer, editor := string(resource.ManagedRoleUID("viewer")), string(resource.ManagedRoleUID("editor"))
	only := func(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }
	robot := &iampb.Identity{Name: "robot", Relationship: &iampb.Identity_ServicePrincipal{ServicePrincipal: 2}}
	oidc := &iampb.IdentityProvider_OIDC{Issuer: "https://idp.example.com", ClientId: "c", ClientSecret: "hush"}
	idp := &iampb.IdentityProvider{
		Name: "new", DefaultRole: viewer, Configuration: &iampb.IdentityProvider_Oidc{Oidc: oidc},
	}
	google := &iampb.AccountAssociation_Google{ProjectId: "acme-prod", ProjectNumber: "1"}
	caps := []capabilitiespb.Capability{capabilitiespb.Capability_CAP_IAM_ROLES_LIST}
	return map[protoreflect.Name]proto.Message{
		"CreateGroup": &iampb.CreateGroupRequest{Parent: s.folder, Group: &iampb.Group{Name: "new"}},
		"UpdateGroup": &iampb.UpdateGroupRequest{
			Group: &iampb.Group{Uid: s.empty, Name: "new"}, UpdateMask: only("name"),
		},
		"DeleteGroup":    &iampb.DeleteGroupRequest{Uid: s.empty},
		"CreateIdentity": &iampb.CreateIdentityRequest{Parent: s.folder, Identity: robot},
		"UpdateIdentity": &iampb.UpdateIdentityRequest{
			Identity: &iampb.Identity{Uid: s.identity, Name: "new"}, UpdateMask: only("name"),
		},
		"DeleteIdentity": &iampb.DeleteIdentityRequest{Uid: s.identity},
		"UpdateIdentityMetadata": &iampb.UpdateIdentityMetadataRequest{
			IdentityMetadata: &iampb.IdentityMetadata{Company: "new"},
		},
		"CreateRole": &iampb.CreateRoleRequest{
			Parent: s.folder, Role: &iampb.Role{Name: "new", Capabilities: caps},
		},
		"UpdateRole": &iampb.UpdateRoleRequest{
			Role: &iampb.Role{Uid: s.role, Capabilities: caps}, UpdateMask: only("capabilities"),
		},
		"DeleteRole": &iampb.DeleteRoleRequest{Uid: s.spare},
		"CreateRoleBinding": &iampb.CreateRoleBindingRequest{
			Parent: s.folder, RoleBinding: &iampb.RoleBinding{IdentityUid: s.identity, RoleUid: viewer},
		},
		"UpdateRoleBinding": &iampb.UpdateRoleBindingRequest{
			RoleBinding: &iampb.RoleBinding{Uid: s.binding, RoleUid: editor}, UpdateMask: only("role_uid"),
		},
		"DeleteRoleBinding": &iampb.DeleteRoleBindingRequest{Uid: s.binding},
		"BatchCreateRoleBindings": &iampb.BatchCreateRoleBindingsRequest{
			Parent: s.folder, RoleUid: viewer,
			Requests: []*iampb.CreateRoleBindingRequest{{RoleBinding: &iampb.RoleBinding{IdentityUid: s.identity}}},
		},
		"CreateIdentityProvider": &iampb.CreateIdentityProviderRequest{Parent: s.folder, IdentityProvider: idp},
		"UpdateIdentityProvider": &iampb.UpdateIdentityProviderRequest{
			IdentityProvider: &iampb.IdentityProvider{Uid: s.provider, Name: "new"}, UpdateMask: only("name"),
		},
		"DeleteIdentityProvider": &iampb.DeleteIdentityProviderRequest{Uid: s.unused},
		"CreateAccountAssociation": &iampb.CreateAccountAssociationRequest{
			Parent: s.empty, AccountAssociation: &iampb.AccountAssociation{Name: "new", Google: google},
		},
		"UpdateAccountAssociation": &iampb.UpdateAccountAssociationRequest{
			AccountAssociation: &iampb.AccountAssociation{Uid: s.association, Google: google}, UpdateMask: only("google"),
		},
		"DeleteAccountAssociation": &iampb.DeleteAccountAssociationRequest{Uid: s.association},
		"CreateGroupInvite": &iampb.CreateGroupInviteRequest{
			Parent: s.folder, GroupInvite: &iampb.GroupInvite{RoleUid: viewer, Ttl: &durationpb.Duration{Seconds: 3600}},
		},
		"UpdateGroupInvite": &iampb.UpdateGroupInviteRequest{
			GroupInvite: &iampb.GroupInvite{Uid: s.invite, Email: "new@example.com"}, UpdateMask: only("email"),
		},
		"DeleteGroupInvite": &iampb.DeleteGroupInviteRequest{Uid: s.invite},
		"CreateExternalGroupRoleMapping": &iampb.CreateExternalGroupRoleMappingRequest{
			Parent:                   s.provider,
			ExternalGroupRoleMapping: &iampb.ExternalGroupRoleMapping{ExternalGroupId: "new", RoleUid: viewer},
		},
		"DeleteExternalGroupRoleMapping": &iampb.DeleteExternalGroupRoleMappingRequest{Uid: s.mapping},
		"BatchDeleteExternalGroupRoleMappings": &iampb.BatchDeleteExternalGroupRoleMappingsRequest{
			Parent: s.provider, Names: []string{s.mapping},
		},
	}
}

// methods calls f for each method of IAM.
func methods(f func(protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.iam.v2beta1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				f(file.Services().Get(i).Methods().Get(j))
			}
		}
		return true
	})
}

var changing = regexp.MustCompile(`^(Batch)?(Create|Update|Delete)`)

// TestValidateOnly: over both protocols, a request with validate_only has the same answer
// as the real request, and changes nothing.
func TestValidateOnly(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		w := newWorldOn(t, s)
		methods(func(m protoreflect.MethodDescriptor) {
			if !changing.MatchString(string(m.Name())) {
				return
			}
			t.Run(string(m.Name()), func(t *testing.T) {
				in := w.stage(t, strings.ToLower(string(m.Name()))).changes()[m.Name()]
				field := m.Input().Fields().ByName("validate_only")
				if in == nil || field == nil {
					t.Fatalf("an example: %t, a field validate_only: %t", in != nil, field != nil)
				}
				try := proto.Clone(in)
				try.ProtoReflect().Set(field, protoreflect.ValueOfBool(true))
				before := w.everything(t)
				tried := [...]any{w.invoke(t, m, try), w.post(t, m, try)}
				if diff := cmp.Diff(before, w.everything(t)); diff != "" {
					t.Errorf("something came of it:\n%s", diff)
				}
				done := w.invoke(t, m, in)
				for i, protocol := range []string{"gRPC", "JSON"} {
					if diff := cmp.Diff(scrub(done), scrub(tried[i])); diff != "" {
						t.Errorf("the answer when it is done (-) and when it is tried over %s (+):\n%s", protocol, diff)
					}
				}
				if cmp.Equal(before, w.everything(t)) {
					t.Error("nothing came of what was to be done")
				}
			})
		})
	})
}

// invoke calls a method over gRPC.
func (w *world) invoke(t *testing.T, m protoreflect.MethodDescriptor, in proto.Message) any {
	t.Helper()
	out := outputOf(t, m)
	must(t, w.conn.Invoke(w.ctx(t), "/"+string(m.Parent().FullName())+"/"+string(m.Name()), in, out))
	return plain(t, out)
}

// post calls a method over JSON.
func (w *world) post(t *testing.T, m protoreflect.MethodDescriptor, in proto.Message) any {
	t.Helper()
	out := outputOf(t, m)
	request, body := asHTTP(t, m, in)
	got := w.do(t, request, body)
	if got.status != http.StatusOK {
		t.Fatalf("%s %s: %s", request, body, got.text)
	}
	if got.text != "" {
		must(t, protojson.Unmarshal([]byte(got.text), out))
	}
	return plain(t, out)
}

func outputOf(t *testing.T, m protoreflect.MethodDescriptor) proto.Message {
	t.Helper()
	return check(protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName()))(t).New().Interface()
}

var parameter = regexp.MustCompile(`\{([a-z_.]+)=\*\*\}`)

// asHTTP converts a request message to an HTTP request, by the http option of the method.
func asHTTP(t *testing.T, m protoreflect.MethodDescriptor, in proto.Message) (request, body string) {
	t.Helper()
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	verb, path := http.MethodDelete, rule.GetDelete()
	switch {
	case rule.GetPost() != "":
		verb, path = http.MethodPost, rule.GetPost()
	case rule.GetPatch() != "":
		verb, path = http.MethodPatch, rule.GetPatch()
	}
	value := func(name string) protoreflect.Value {
		v := protoreflect.ValueOfMessage(in.ProtoReflect())
		for word := range strings.SplitSeq(name, ".") {
			v = v.Message().Get(v.Message().Descriptor().Fields().ByName(protoreflect.Name(word)))
		}
		return v
	}
	path = parameter.ReplaceAllStringFunc(path,
		func(p string) string { return value(parameter.FindStringSubmatch(p)[1]).String() })
	switch rule.GetBody() {
	case "":
	case "*":
		return verb + " " + path, string(check(protojson.Marshal(in))(t))
	default:
		body = string(check(protojson.Marshal(value(rule.GetBody()).Message().Interface()))(t))
	}
	query := url.Values{"validate_only": {"true"}}
	if u, ok := in.(interface{ GetUpdateMask() *fieldmaskpb.FieldMask }); ok {
		query.Set("updateMask", strings.Join(u.GetUpdateMask().GetPaths(), ","))
	}
	return verb + " " + path + "?" + query.Encode(), body
}

// everything returns the state that a change could affect: the newest items of each list,
// the number of events, the revision of the database, and the owner's company.
func (w *world) everything(t *testing.T) map[string]any {
	t.Helper()
	all := map[string]any{
		"events":   len(check(outbox.Read(t.Context(), w.store.DB, 0, 10_000))(t)),
		"revision": check(w.store.Revision(t.Context()))(t),
		// No list contains the company, because the owner's identity is in no group.
		"company": check(w.store.Identity(t.Context(), w.owner.UID))(t).Company,
	}
	methods(func(m protoreflect.MethodDescriptor) {
		if rule, _ := proto.GetExtension(m.Options(),
			annotations.E_Http).(*annotations.HttpRule); strings.HasPrefix(string(m.Name()), "List") {
			list := w.do(t, "GET "+rule.GetGet()+"?page_size=20&order_by=create_time%20desc", "").json
			delete(list, "nextPageToken") // contains the time at which it was created
			all[string(m.Name())] = list
		}
	})
	return all
}

// scrub removes the fields that differ in every answer, such as UIDs and times.
func scrub(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range []string{"uid", "createTime", "updateTime", "lastSeenTime", "expirationTime", "code", "keyId"} {
			delete(v, k)
		}
		for _, e := range v {
			scrub(e)
		}
	case []any:
		for _, e := range v {
			scrub(e)
		}
	}
	return v
}

// TestValidateOnlyRefuses: a request that would fail also fails with validate_only, with
// the same message.
func TestValidateOnlyRefuses(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t, "dev")
	viewer := string(resource.ManagedRoleUID("viewer"))
	tests := map[string]struct {
		request, body string
		code          string
	}{
		"a bad field":           {"POST /iam/v2beta1/groups/" + s.folder, `{"name":"A"}`, "3"},
		"what there is already": {"POST /iam/v2beta1/groups/" + s.folder, `{"name":"empty"}`, "6"},
		"another's":             {"POST /iam/v2beta1/groups/" + string(resource.NewRoot()), `{"name":"a"}`, "7"},
		"what is not there":     {"PATCH /iam/v2beta1/groups/" + s.folder + "/0123456789abcdef", `{"name":"a"}`, "5"},
		"what is not empty":     {"DELETE /iam/v2beta1/groups/" + s.folder, "", "9"},
		"a role in use":         {"DELETE /iam/v2beta1/roles/" + s.role, "", "9"},
		"a provider in use":     {"DELETE /iam/v2beta1/identityProviders/" + s.provider, "", "9"},
		"a second association": {
			"POST /iam/v2beta1/accountAssociations/" + s.folder, `{"name":"b","amazon":{"account":"123456789012"}}`, "6",
		},
		"a mapping again": {
			"POST /iam/v2beta1/externalGroupRoleMappings/" + s.provider,
			`{"externalGroupId":"staff","roleUid":"` + viewer + `"}`, "6",
		},
		"an invite to nothing": {
			"POST /iam/v2beta1/groupInvites/" + s.folder + "/0123456789abcdef", `{"roleUid":"` + viewer + `","ttl":"60s"}`,
			"5",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tried, done := w.do(t, tt.request+"?validateOnly=true", tt.body), w.do(t, tt.request, tt.body)
			if code, _ := done.field("code").(json.Number); code.String() != tt.code {
				t.Fatalf("done: %s, want code %s", done.text, tt.code)
			}
			if tried.text != done.text {
				t.Errorf("tried: %s\ndone: %s", tried.text, done.text)
			}
		})
	}
}

// TestValidateOnlyOfBatches: validate_only applies to a whole batch. A part of a batch
// cannot set it.
func TestValidateOnlyOfBatches(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t, "dev")
	batch := func(more string) string {
		return `{"parent":"` + s.folder + `","roleUid":"` + string(resource.ManagedRoleUID("viewer")) +
			`","requests":[{"roleBinding":{"identityUid":"` + s.identity + `"}` + more + `}]}`
	}
	const path = "POST /iam/v2beta1/roleBindings:batchCreate"
	before := w.everything(t)
	if got := w.do(t, path+"?validate_only=true", batch("")); got.status != 200 ||
		!strings.Contains(got.text, s.identity) {
		t.Errorf("in the query: %d %s", got.status, got.text)
	}
	if got := w.do(t, path,
		batch(`,"validateOnly":true`)); strings.Join(got.violations(), " ") != "requests[0].validate_only" {
		t.Errorf("for a part of it: %d %s", got.status, got.text)
	}
	if got := w.do(t, path+"?validate_only=maybe", batch("")); strings.Join(got.violations(), " ") != "validate_only" {
		t.Errorf("in a word there is none of: %d %s", got.status, got.text)
	}
	if diff := cmp.Diff(before, w.everything(t)); diff != "" {
		t.Errorf("something came of it:\n%s", diff)
	}
}
