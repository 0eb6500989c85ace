package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // registers the types of error details
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	operatorpb "github.com/holdfast-dev/holdfast/gen/operator/v1"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// methods contains the methods of the API, by the name of their request type. No two methods share a request type.
var methods = apiMethods()

func apiMethods() map[protoreflect.FullName]protoreflect.MethodDescriptor {
	byRequest := map[protoreflect.FullName]protoreflect.MethodDescriptor{}
	for _, file := range []protoreflect.FileDescriptor{
		iampb.File_holdfast_iam_v2beta1_groups_proto, iampb.File_holdfast_iam_v2beta1_identities_proto,
		iampb.File_holdfast_iam_v2beta1_roles_proto, iampb.File_holdfast_iam_v2beta1_role_bindings_proto,
		iampb.File_holdfast_iam_v2beta1_identity_providers_proto, iampb.File_holdfast_iam_v2beta1_account_associations_proto,
		iampb.File_holdfast_iam_v2beta1_group_invites_proto,
		iampb.File_holdfast_iam_v2beta1_external_group_role_mappings_proto,
		registrypb.File_holdfast_registry_v2beta1_repos_proto, registrypb.File_holdfast_registry_v2beta1_tags_proto,
		registrypb.File_holdfast_registry_v2beta1_images_proto, ocipb.File_holdfast_oci_v1_oci_proto,
		ocipb.File_holdfast_oci_v1_trash_proto, organizationpb.File_holdfast_organization_v1_organization_proto,
		ocipb.File_holdfast_oci_v1_retention_proto, ocipb.File_holdfast_oci_v1_copy_proto,
		ocipb.File_holdfast_oci_v1_upstream_proto,
		ocipb.File_holdfast_oci_v1_replications_proto,
		ocipb.File_holdfast_oci_v1_signers_proto, ocipb.File_holdfast_oci_v1_syncs_proto,
		eventspb.File_holdfast_events_v2beta1_subscriptions_proto, deliveriespb.File_holdfast_deliveries_v1_deliveries_proto,
		auditpb.File_holdfast_audit_v1_audit_proto, operatorpb.File_holdfast_operator_v1_operator_proto,
		accesspb.File_holdfast_access_v1_access_proto, accesspb.File_holdfast_access_v1_requests_proto,
		accesspb.File_holdfast_access_v1_history_proto, accesspb.File_holdfast_access_v1_simulate_proto,
		accesspb.File_holdfast_access_v1_use_proto, accesspb.File_holdfast_access_v1_directories_proto,
		budgetspb.File_holdfast_budgets_v1_budgets_proto,
		findingspb.File_holdfast_findings_v1_findings_proto, findingspb.File_holdfast_findings_v1_exceptions_proto,
		findingspb.File_holdfast_findings_v1_rules_proto, findingspb.File_holdfast_findings_v1_admission_proto,
		findingspb.File_holdfast_findings_v1_slas_proto, findingspb.File_holdfast_findings_v1_reports_proto,
		findingspb.File_holdfast_findings_v1_vex_proto, pingpb.File_holdfast_ping_v2beta1_ping_proto,
		findingspb.File_holdfast_findings_v1_compare_proto, findingspb.File_holdfast_findings_v1_inventory_proto,
		findingspb.File_holdfast_findings_v1_blast_proto,
		findingspb.File_holdfast_findings_v1_exploited_proto,
		findingspb.File_holdfast_findings_v1_groups_proto,
		vulnpb.File_holdfast_vulnerabilities_v2beta1_advisories_proto,
		advisoriespb.File_holdfast_advisories_v1_advisories_proto,
		authpb.File_holdfast_auth_auth_proto, signinpb.File_holdfast_signin_v1_signin_proto,
	} {
		for s := range file.Services().Len() {
			ms := file.Services().Get(s).Methods()
			for m := range ms.Len() {
				if m := ms.Get(m); !m.IsStreamingClient() && !m.IsStreamingServer() {
					byRequest[m.Input().FullName()] = m
				}
			}
		}
	}
	return byRequest
}

func methodOf(in proto.Message) protoreflect.MethodDescriptor {
	return methods[in.ProtoReflect().Descriptor().FullName()]
}

// A caller sends one request over one of the protocols. It returns the response, or the status of the error.
type caller func(t *testing.T, bearer string, in proto.Message) (proto.Message, *status.Status)

// protocols returns a caller for each protocol.
func (w *world) protocols() map[string]caller {
	return map[string]caller{"gRPC": w.overGRPC, "HTTP": w.overHTTP}
}

func (w *world) overGRPC(t *testing.T, bearer string, in proto.Message) (proto.Message, *status.Status) {
	t.Helper()
	m := methodOf(in)
	return invoke(t, w.conn, fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()), bearer, in)
}

func invoke(
	t *testing.T, conn *grpc.ClientConn, method, bearer string, in proto.Message, more ...grpc.CallOption,
) (proto.Message, *status.Status) {
	t.Helper()
	out := newOutput(t, methodOf(in))
	if err := conn.Invoke(bearing(t, bearer), method, in, out, more...); err != nil {
		return nil, status.Convert(err)
	}
	return out, nil
}

// bearing returns a context for gRPC calls with a token. If bearer is empty, the calls are made without a token.
func bearing(t *testing.T, bearer string) context.Context {
	if bearer == "" {
		return t.Context()
	}
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+bearer)
}

func newOutput(t *testing.T, m protoreflect.MethodDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}

func (w *world) overHTTP(t *testing.T, bearer string, in proto.Message) (proto.Message, *status.Status) {
	t.Helper()
	verb, target, body := asHTTP(t, in)
	r := w.send(t, bearer, verb, target, body)
	if r.status != http.StatusOK {
		return nil, r.fault(t)
	}
	out := newOutput(t, methodOf(in))
	if verb == http.MethodDelete {
		if r.body != "" {
			t.Errorf("%s %s: body %q, want an empty body", verb, target, r.body)
		}
		return out, nil
	}
	if err := protojson.Unmarshal([]byte(r.body), out); err != nil {
		t.Fatalf("%s %s: cannot decode the answer: %v\n%s", verb, target, err, r.body)
	}
	return out, nil
}

// httpStatus maps each gRPC code to its HTTP status.
var httpStatus = map[codes.Code]int{
	codes.InvalidArgument: 400, codes.FailedPrecondition: 400, codes.Unauthenticated: 401, codes.PermissionDenied: 403,
	codes.NotFound: 404, codes.AlreadyExists: 409, codes.Aborted: 409, codes.ResourceExhausted: 429,
	codes.Unimplemented: 405, codes.Internal: 500, codes.Unavailable: 503,
}

// fault decodes the body as an error. It fails the test if the body is not a well-formed error.
func (r reply) fault(t *testing.T) *status.Status {
	t.Helper()
	st := &statuspb.Status{}
	if err := protojson.Unmarshal([]byte(r.body), st); err != nil {
		t.Fatalf("HTTP status %d, and the body is not an error: %v\n%.300s", r.status, err, r.body)
	}
	if want := httpStatus[codes.Code(st.GetCode())]; r.status != want {
		t.Errorf("HTTP status %d with code %d, want %d", r.status, st.GetCode(), want)
	}
	if got := r.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("an error with content type %q", got)
	}
	if challenge := r.header.Get("WWW-Authenticate"); (challenge != "") != (r.status == http.StatusUnauthorized) {
		t.Errorf("HTTP status %d with WWW-Authenticate %q", r.status, challenge)
	}
	return status.FromProto(st)
}

var pathVariable = regexp.MustCompile(`\{([a-z_.]+)(=\*\*?)?\}`)

// asHTTP encodes a request as the http option of its method says: some fields are in the path, some are in the body,
// and the others are in the query.
func asHTTP(t *testing.T, in proto.Message) (verb, target, body string) {
	t.Helper()
	rule, _ := proto.GetExtension(methodOf(in).Options(), annotations.E_Http).(*annotations.HttpRule)
	verb, template := verbAndPath(rule)
	rest := proto.Clone(in).ProtoReflect()
	path := pathVariable.ReplaceAllStringFunc(template, func(v string) string {
		names := strings.Split(pathVariable.FindStringSubmatch(v)[1], ".")
		m := rest
		for _, name := range names[:len(names)-1] {
			m = m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(name))).Message()
		}
		field := m.Descriptor().Fields().ByName(protoreflect.Name(names[len(names)-1]))
		value := m.Get(field).String()
		m.Clear(field)
		return escape(value)
	})
	switch name := rule.GetBody(); name {
	case "":
	case "*":
		return verb, path, marshal(t, rest.Interface())
	default:
		field := rest.Descriptor().Fields().ByName(protoreflect.Name(name))
		body = marshal(t, rest.Get(field).Message().Interface())
		rest.Clear(field)
	}
	query := url.Values{}
	field := rest.Descriptor().Fields().ByName("update_mask")
	// The paths in a mask are sent in their original spelling.
	if field != nil && rest.Has(field) {
		query.Set("updateMask", strings.Join(rest.Get(field).Message().Interface().(*fieldmaskpb.FieldMask).GetPaths(), ","))
		rest.Clear(field)
	}
	addQuery(t, query, rest.Interface())
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return verb, path, body
}

// escape escapes a value for a URL path. The slashes in a UID are not escaped.
func escape(value string) string {
	if strings.Contains(value, "..") || strings.Contains(value, "//") {
		return url.PathEscape(value)
	}
	return strings.ReplaceAll(url.PathEscape(value), "%2F", "/")
}

func verbAndPath(r *annotations.HttpRule) (verb, path string) {
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	}
	return "", ""
}

func marshal(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// addQuery adds the fields that are set in m to a query.
func addQuery(t *testing.T, query url.Values, m proto.Message) {
	t.Helper()
	var tree map[string]any
	dec := json.NewDecoder(strings.NewReader(marshal(t, m)))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	var add func(prefix string, v any)
	add = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				add(strings.TrimPrefix(name+"."+k, "."), e)
			}
		case []any:
			for _, e := range v {
				add(name, e)
			}
		default:
			query.Add(name, fmt.Sprint(v))
		}
	}
	add("", tree)
}

// must makes a call and returns the response. It fails the test if the call fails.
func must[T proto.Message](t *testing.T, call caller, bearer string, in proto.Message) T {
	t.Helper()
	out, st := call(t, bearer, in)
	if st != nil {
		t.Fatalf("%s: %v", methodOf(in).Name(), st)
	}
	return out.(T)
}

// child creates a group as the owner and returns its UID.
func (w *world) child(t *testing.T, parent, name string) string {
	t.Helper()
	return must[*iampb.Group](t, w.overGRPC, w.Token, &iampb.CreateGroupRequest{
		Parent: parent, Group: &iampb.Group{Name: name},
	}).GetUid()
}

// robot creates an identity as the owner and returns its UID.
func (w *world) robot(t *testing.T, parent, name string) string {
	t.Helper()
	return must[*iampb.Identity](t, w.overGRPC, w.Token, &iampb.CreateIdentityRequest{
		Parent: parent, Identity: workload(name),
	}).GetUid()
}

// role creates a role as the owner and returns its UID.
func (w *world) role(t *testing.T, parent, name string, capabilities ...capabilitiespb.Capability) string {
	t.Helper()
	return must[*iampb.Role](t, w.overGRPC, w.Token, &iampb.CreateRoleRequest{
		Parent: parent, Role: &iampb.Role{Name: name, Capabilities: capabilities},
	}).GetUid()
}

// bind gives an identity a role in a group, as the owner, and returns the UID of the role binding.
func (w *world) bind(t *testing.T, group, identity, role string) string {
	t.Helper()
	return must[*iampb.RoleBinding](t, w.overGRPC, w.Token, &iampb.CreateRoleBindingRequest{
		Parent: group, RoleBinding: &iampb.RoleBinding{IdentityUid: identity, RoleUid: role},
	}).GetUid()
}
