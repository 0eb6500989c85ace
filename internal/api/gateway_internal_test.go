package api

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	v1 "github.com/holdfast-dev/holdfast/internal/api/v1"
	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// whereTo returns a gateway that only reports the method that a request reaches.
func whereTo() (http.Handler, *string) {
	var reached string
	l := newLocal(func(_ context.Context, _ any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		reached = info.FullMethod
		return nil, status.Error(codes.Aborted, "far enough")
	}, func(_ any, _ grpc.ServerStream, info *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		reached = info.FullMethod
		return status.Error(codes.Aborted, "far enough")
	})
	v2.Register(l, Services{}, v2.Config{})
	v1.Register(l, Services{}, nil, "")
	return newGateway(Config{MaxBody: 1 << 20}, l, nil), &reached
}

// TestRetryAfter checks that the header Retry-After has the wait in the details of an error.
func TestRetryAfter(t *testing.T) {
	st, err := status.New(codes.ResourceExhausted, "later").
		WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	l := newLocal(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, st.Err()
	}, nil)
	v2.Register(l, Services{}, v2.Config{})
	w := httptest.NewRecorder()
	newGateway(Config{MaxBody: 1 << 20}, l, nil).ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/iam/v2beta1/groups", nil))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" {
		t.Errorf("%d with Retry-After %q, want 429 with 2\n%s", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
}

var (
	variable = regexp.MustCompile(`\{[^}]*\}`)
	segment  = regexp.MustCompile(`\{[^}=]*\}`) // a variable that does not match a slash
)

// TestRoutes checks that the paths of every binding reach its method, even if other
// templates match these paths, too.
func TestRoutes(t *testing.T) {
	const root, child = "0123456789abcdef0123456789abcdef01234567", "/0123456789abcdef"
	h, reached := whereTo()
	all := bindings()
	if len(all) < 127 {
		t.Errorf("there are %d bindings, fewer than the definition has", len(all))
	}
	for _, b := range all {
		template := segment.ReplaceAllString(b.path, "sha256:12ab")
		paths := []string{variable.ReplaceAllString(template, root)}
		if strings.Contains(template, "=**}") {
			paths = append(paths,
				variable.ReplaceAllString(template, root+child+child),
				variable.ReplaceAllString(template, root+strings.Repeat("%2F0123456789abcdef", 2)),
				variable.ReplaceAllString(template, root+"%2f0123456789abcdef"))
		}
		for _, p := range paths {
			for _, path := range []string{p, p + "/", strings.Replace(p, "/v2beta1/", "/v2/", 1)} {
				// PATCH, DELETE and paths with a verb do not accept a trailing slash.
				exact := b.verb == http.MethodPatch || b.verb == http.MethodDelete || strings.Contains(path, ":")
				if strings.HasSuffix(path, "/") && exact {
					continue
				}
				*reached = ""
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), b.verb, path, nil))
				if *reached != b.method {
					t.Errorf("%s %s reached %q, want %q", b.verb, path, *reached, b.method)
				}
			}
		}
	}
}

func TestRoutesOfCollections(t *testing.T) {
	tests := map[string]string{
		"GET /iam/v2beta1/groups":                              "GroupsService/ListGroups",
		"GET /iam/v2beta1/groups/":                             "GroupsService/ListGroups",
		"POST /iam/v2beta1/groups":                             "GroupsService/CreateGroup",
		"POST /iam/v2beta1/groups/":                            "GroupsService/CreateGroup",
		"GET /iam/v2beta1/groups:lookupGroup":                  "GroupsService/LookupGroup",
		"POST /iam/v2beta1/groups/a:requestGroupAccess":        "GroupsService/RequestGroupAccess",
		"POST /iam/v2beta1/roleBindings:batchCreate":           "RoleBindingsService/BatchCreateRoleBindings",
		"PATCH /iam/v2beta1/identities:updateIdentityMetadata": "IdentitiesService/UpdateIdentityMetadata",
		"GET /iam/v2/roles":                                    "RolesService/ListRoles",
		"GET /iam/v2beta1/identityProviders":                   "IdentityProvidersService/ListIdentityProviders",
		"GET /iam/v2beta1/accountAssociations/":                "AccountAssociationsService/ListAccountAssociations",
		"POST /iam/v2/externalGroupRoleMappings:batchDelete": "ExternalGroupRoleMappingsService/" +
			"BatchDeleteExternalGroupRoleMappings",
	}
	h, reached := whereTo()
	for request, want := range tests {
		verb, path, _ := strings.Cut(request, " ")
		*reached = ""
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), verb, path, nil))
		if *reached != "/holdfast.iam.v2beta1."+want {
			t.Errorf("%s reached %q, want %s", request, *reached, want)
		}
	}
}

// TestMostSpecificPathWins: the most specific template wins. The order of the methods in
// the definition does not matter.
func TestMostSpecificPathWins(t *testing.T) {
	tests := map[string]string{
		"GET groups":                                             "ListGroups",
		"GET groups/a1/b2":                                       "GetGroup",
		"POST groups":                                            "CreateGroup",
		"POST groups/a1/b2":                                      "CreateGroup",
		"PATCH groups/a1/b2":                                     "UpdateGroup",
		"DELETE groups/a1/b2":                                    "DeleteGroup",
		"GET groups:lookupGroup":                                 "LookupGroup",
		"GET groups:checkEligibility":                            "CheckEligibility",
		"POST groups/a1:requestGroupAccess":                      "RequestGroupAccess",
		"GET identities":                                         "ListIdentities",
		"GET identities/a1/b2":                                   "GetIdentity",
		"POST identities/a1":                                     "CreateIdentity",
		"PATCH identities/a1/b2":                                 "UpdateIdentity",
		"DELETE identities/a1/b2":                                "DeleteIdentity",
		"GET identities:lookupIdentity":                          "LookupIdentity",
		"PATCH identities:updateIdentityMetadata":                "UpdateIdentityMetadata",
		"GET roles":                                              "ListRoles",
		"GET roles/c3":                                           "GetRole",
		"POST roles/a1":                                          "CreateRole",
		"PATCH roles/a1/c3":                                      "UpdateRole",
		"DELETE roles/a1/c3":                                     "DeleteRole",
		"GET roleBindings":                                       "ListRoleBindings",
		"GET roleBindings/a1/d4":                                 "GetRoleBinding",
		"POST roleBindings/a1":                                   "CreateRoleBinding",
		"POST roleBindings:batchCreate":                          "BatchCreateRoleBindings",
		"PATCH roleBindings/a1/d4":                               "UpdateRoleBinding",
		"DELETE roleBindings/a1/d4":                              "DeleteRoleBinding",
		"GET identityProviders":                                  "ListIdentityProviders",
		"GET identityProviders/a1/e5":                            "GetIdentityProvider",
		"POST identityProviders/a1":                              "CreateIdentityProvider",
		"PATCH identityProviders/a1/e5":                          "UpdateIdentityProvider",
		"DELETE identityProviders/a1/e5":                         "DeleteIdentityProvider",
		"GET accountAssociations":                                "ListAccountAssociations",
		"GET accountAssociations/a1":                             "GetAccountAssociation",
		"POST accountAssociations/a1":                            "CreateAccountAssociation",
		"PATCH accountAssociations/a1":                           "UpdateAccountAssociation",
		"DELETE accountAssociations/a1":                          "DeleteAccountAssociation",
		"POST accountAssociations/a1/b2:checkAccountAssociation": "CheckAccountAssociation",
		"GET groupInvites":                                       "ListGroupInvites",
		"GET groupInvites/a1/f6":                                 "GetGroupInvite",
		"POST groupInvites/a1":                                   "CreateGroupInvite",
		"DELETE groupInvites/a1/f6":                              "DeleteGroupInvite",
		"GET externalGroupRoleMappings":                          "ListExternalGroupRoleMappings",
		"GET externalGroupRoleMappings/a1/e5/07":                 "GetExternalGroupRoleMapping",
		"POST externalGroupRoleMappings/a1/e5":                   "CreateExternalGroupRoleMapping",
		"DELETE externalGroupRoleMappings/a1/e5/07":              "DeleteExternalGroupRoleMapping",
		"POST externalGroupRoleMappings:batchDelete":             "BatchDeleteExternalGroupRoleMappings",
		"GET /registry/v2beta1/repos":                            "ListRepos",
		"GET /registry/v2beta1/repos/a1/b2":                      "GetRepo",
		"POST /registry/v2beta1/repos/a1":                        "CreateRepo",
		"PATCH /registry/v2beta1/repos/a1/b2":                    "UpdateRepo",
		"DELETE /registry/v2beta1/repos/a1/b2":                   "DeleteRepo",
		"GET /registry/v2beta1/repos/a1/b2/readme":               "GetRepoReadme",
		"PATCH /registry/v2beta1/repos/a1/b2/readme":             "UpdateRepoReadme",
		"GET /registry/v2beta1/repos/a1/b2/digests/sha256:c3/architectures": "GetArchitectures",
		"GET /registry/v2beta1/repos/a1/b2/digests/sha256:c3/size":          "GetSize",
		"GET /registry/v2beta1/tags":                                        "ListTags",
		"GET /registry/v2beta1/tags/a1/b2/c3":                               "GetTag",
		"POST /registry/v2beta1/tags/a1/b2":                                 "CreateTag",
		"DELETE /registry/v2beta1/tags/a1/b2/c3":                            "DeleteTag",
		"GET /oci/v1/settings/a1":                                           "GetSettings",
		"PATCH /oci/v1/settings/a1":                                         "UpdateSettings",
		"DELETE /oci/v1/settings/a1":                                        "DeleteSettings",
		"GET /oci/v1/repos/a1/b2/images/sha256:c3":                          "GetImage",
		"GET /oci/v1/repos/a1/b2/summaries":                                 "SummarizeImages",
		"GET /oci/v1/repos/a1/b2/referrers/sha256:c3":                       "GetReferrers",
		"GET /oci/v1/repos/a1/b2/tagHistory":                                "ListTagHistory",
		"GET /oci/v1/pulls":                                                 "ListPulls",
		"GET /oci/v1/registry":                                              "GetRegistry",
		"GET /access/v1/check":                                              "CheckAccess",
		"GET /access/v1/grants":                                             "ListAccess",
		"GET /access/v1/past/grants":                                        "ListPastGrants",
		"GET /access/v1/past/groups":                                        "ListPastGroups",
		"GET /access/v1/past/diff":                                          "DiffAccess",
		"GET /access/v1/resolve":                                            "ResolvePath",
		"POST /access/v1/names":                                             "LookupNames",
		"GET /access/v1/unused":                                             "ListUnusedAccess",
		"GET /access/v1/directories/a1/b2":                                  "GetDirectory",
		"PATCH /access/v1/directories/a1/b2":                                "UpdateDirectory",
		"GET /access/v1/ending":                                             "ListEndingGrants",
		"POST /access/v1/simulate":                                          "Simulate",
		"GET /access/v1/search":                                             "Search",
		"GET /access/v1/children":                                           "CountChildren",
		"GET /access/v1/people":                                             "ListPeople",
		"GET /operator/v1/installation":                                     "GetInstallation",
		"GET /access/v1/capabilities":                                       "ListCapabilities",
		"GET /access/v1/version":                                            "GetVersion",
	}
	h, reached := whereTo()
	for request, want := range tests {
		verb, path, _ := strings.Cut(request, " ")
		if !strings.HasPrefix(path, "/") {
			path = "/iam/v2beta1/" + path
		}
		*reached = ""
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), verb, path, nil))
		if !strings.HasSuffix(*reached, "/"+want) {
			t.Errorf("%s reached %q, want %s", request, *reached, want)
		}
	}
}

// TestEarlierPaths: a path of IAM in version 1 also works if a client replaces v1 by
// v2beta1 or v2. Only the HTTP method of updates differs.
func TestEarlierPaths(t *testing.T) {
	const root, child = "0123456789abcdef0123456789abcdef01234567", "/0123456789abcdef"
	h, reached := whereTo()
	tried := 0
	for _, b := range bindings() {
		rest, old := strings.CutPrefix(variable.ReplaceAllString(b.path, root+child), "/iam/v1/")
		if !old {
			continue
		}
		verb := strings.Replace(b.verb, "PUT", "PATCH", 1)
		for _, version := range []string{"v2beta1", "v2"} {
			*reached = ""
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), verb, "/iam/"+version+"/"+rest, nil))
			if !strings.HasPrefix(*reached, "/holdfast.iam.v2beta1.") {
				t.Errorf("%s /iam/%s/%s reached %q; in version 1 it is %s", verb, version, rest, *reached, b.method)
			}
		}
		tried++
	}
	if tried < 30 {
		t.Errorf("tried %d paths", tried)
	}
	for request, want := range map[string]string{
		"POST rolebindings/batch/" + root:              "BatchCreateRoleBindings",
		"POST rolebindings/" + root:                    "CreateRoleBinding",
		"POST account_associations/" + root + ":check": "CheckAccountAssociation",
		"GET identities/lookup":                        "LookupIdentity",
		"GET identities/" + root:                       "GetIdentity",
		"PATCH identities/metadata":                    "UpdateIdentityMetadata",
		"PATCH identities/" + root:                     "UpdateIdentity",
		"DELETE group_invites/" + root + child:         "DeleteGroupInvite",
	} {
		verb, path, _ := strings.Cut(request, " ")
		*reached = ""
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), verb, "/iam/v2beta1/"+path, nil))
		if !strings.HasSuffix(*reached, "/"+want) {
			t.Errorf("%s reached %q, want %s", request, *reached, want)
		}
	}
}

// A providers server records the requests that it receives.
type providers struct {
	iampb.UnimplementedIdentityProvidersServiceServer
	created *iampb.CreateIdentityProviderRequest
	updated *iampb.UpdateIdentityProviderRequest
	deleted *iampb.DeleteIdentityProviderRequest
}

func (p *providers) CreateIdentityProvider(
	_ context.Context, r *iampb.CreateIdentityProviderRequest,
) (*iampb.IdentityProvider, error) {
	p.created = r
	return r.GetIdentityProvider(), nil
}

func (p *providers) UpdateIdentityProvider(
	_ context.Context, r *iampb.UpdateIdentityProviderRequest,
) (*iampb.IdentityProvider, error) {
	p.updated = r
	return r.GetIdentityProvider(), nil
}

func (p *providers) DeleteIdentityProvider(
	_ context.Context, r *iampb.DeleteIdentityProviderRequest,
) (*emptypb.Empty, error) {
	p.deleted = r
	return &emptypb.Empty{}, nil
}

// TestValidateOnlyIsReadFromTheQuery: if the body is the resource, validate_only can be
// given only in the query.
func TestValidateOnlyIsReadFromTheQuery(t *testing.T) {
	for _, query := range []string{"", "?validate_only=true", "?validateOnly=true"} {
		t.Run(query, func(t *testing.T) {
			p, c := &providers{}, quietChain(&bytes.Buffer{})
			l := newLocal(c.unary, c.stream)
			iampb.RegisterIdentityProvidersServiceServer(l, p)
			g := newGateway(Config{MaxBody: 1 << 20}, l, c)
			for _, method := range []string{"POST", "PATCH", "DELETE"} {
				r := httptest.NewRequestWithContext(t.Context(), method, "/iam/v2beta1/identityProviders/a1/e5"+query,
					strings.NewReader(`{"name": "okta"}`))
				r.Header.Set("Authorization", "Bearer good")
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					t.Errorf("%s: answer %d %s", method, w.Code, w.Body)
				}
			}
			got := []bool{p.created.GetValidateOnly(), p.updated.GetValidateOnly(), p.deleted.GetValidateOnly()}
			want := query != ""
			if diff := cmp.Diff([]bool{want, want, want}, got); diff != "" {
				t.Errorf("validate_only on create, update, delete (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSpecificity: if two templates match one path, the more specific template wins,
// whatever the order in the definition.
func TestSpecificity(t *testing.T) {
	for winner, loser := range map[string]string{
		"/iam/v2beta1/groups":                                           "/iam/v2beta1/groups/{uid=**}",
		"/iam/v2beta1/groups:lookupGroup":                               "/iam/v2beta1/groups",
		"/iam/v2beta1/groups/{group_uid=**}:requestGroupAccess":         "/iam/v2beta1/groups/{parent=**}",
		"/iam/v2beta1/roleBindings:batchCreate":                         "/iam/v2beta1/roleBindings/{parent=**}",
		"/registry/v2beta1/repos/{uid=**}/readme":                       "/registry/v2beta1/repos/{uid=**}",
		"/registry/v2beta1/repos/{repo_uid=**}/digests/{digest=*}/size": "/registry/v2beta1/repos/{uid=**}",
		"/libraries/v2beta1/artifacts/count":                            "/libraries/v2beta1/artifacts/{artifact_id=*}",
		"/libraries/v2beta1/artifacts/{artifact_id=*}/versions":         "/libraries/v2beta1/artifacts/{uid=**}",
		"/libraries/v2beta1/requestGroups/{uid=**}:submit":              "/libraries/v2beta1/requestGroups/{uid=**}/items",
		"/vulnerabilities/v2beta1/advisories":                           "/vulnerabilities/v2beta1/advisories/{uid=**}",
	} {
		if specificity(winner) <= specificity(loser) {
			t.Errorf("%s does not win over %s", winner, loser)
		}
	}
	if all := bindings(); !slices.IsSortedFunc(all,
		func(x, y binding) int { return specificity(x.path) - specificity(y.path) }) {
		t.Error("bindings are not in the order of their specificity")
	}
}

// TestCapabilitiesAgree checks that every capability has the same number, name and bit in
// the definition and in the resource package, and is internal in both or in neither.
func TestCapabilitiesAgree(t *testing.T) {
	values := capabilitiespb.Capability(0).Descriptor().Values()
	named := 0
	for i := range values.Len() {
		v := values.Get(i)
		if v.Number() == 0 {
			continue
		}
		named++
		opts := v.Options().(*descriptorpb.EnumValueOptions)
		name := proto.GetExtension(opts, capabilitiespb.E_Name).(string)
		bit := proto.GetExtension(opts, capabilitiespb.E_Bit).(uint32)
		c, ok := resource.CapabilityNumbered(int32(v.Number()))
		if !ok {
			t.Errorf("%s (%d) is not in the resource package", v.Name(), v.Number())
			continue
		}
		if c.String() != name || uint32(c) != bit || c.Number() != int32(v.Number()) {
			t.Errorf("%s: %s, bit %d, number %d; want %s, bit %d, number %d", v.Name(), c, c, c.Number(), name, bit, v.Number())
		}
		internal := resource.Role{Name: "r", Capabilities: resource.CapabilitySet(name)}.Validate() != nil
		if want := proto.GetExtension(opts, capabilitiespb.E_InternalOnly).(bool); internal != want {
			t.Errorf("%s works only beside internal: %t, want %t", name, internal, want)
		}
	}
	var every resource.Capabilities
	for i := range every {
		every[i] = ^uint64(0)
	}
	if n := len(every.All()); n != named {
		t.Errorf("the resource package has %d capabilities, the definition %d", n, named)
	}
}

// TestAliasesDescribe checks that the copies of the definition under other names are
// complete: each has every service, with the same messages.
func TestAliasesDescribe(t *testing.T) {
	a := aliases{sync.OnceValue(newAliases)}
	wire.EachService(func(s protoreflect.ServiceDescriptor, in wire.Package) {
		for _, pkg := range in.Also {
			d, err := a.FindDescriptorByName(protoreflect.FullName(pkg + "." + string(s.Name())))
			if err != nil {
				t.Error(err)
				continue
			}
			for i := range s.Methods().Len() {
				m := d.(protoreflect.ServiceDescriptor).Methods().ByName(s.Methods().Get(i).Name())
				if in := s.Methods().Get(i).Input(); in.ParentFile().Package() != s.ParentFile().Package() {
					continue // the request type belongs to another package
				}
				if m == nil || m.Input().FullName().Parent() != protoreflect.FullName(pkg) {
					t.Errorf("%s lacks %s with a request of its own package", d.FullName(), s.Methods().Get(i).Name())
				}
			}
		}
	})
}

// secretField matches the names of fields that can hold a secret.
var secretField = regexp.MustCompile(`token|secret|password|code|credential|otp`)

// notSecret are fields whose names match secretField although answers of reads may
// contain them.
var notSecret = map[string]bool{
	"next_page_token":    true, // opaque, and useless without an API token
	"OIDC.client_secret": true, // occurs only in requests of version 1
	"GroupInvite.code":   true, // only the answer to the creation contains it
	"BlastGap.code":      true, // the code of a reason, not a secret
}

// TestCompressedAnswersHaveNoSecret fails if a method that only reads could return a
// secret, because its answers are compressed and their length would reveal the secret.
func TestCompressedAnswersHaveNoSecret(t *testing.T) {
	n := 0
	for _, b := range bindings() {
		if !b.compressible() {
			continue
		}
		n++
		name := protoreflect.FullName(strings.ReplaceAll(b.method[1:], "/", "."))
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range secretsIn(d.(protoreflect.MethodDescriptor).Output(), map[protoreflect.FullName]bool{}) {
			t.Errorf("%s %s answers with %s", b.verb, b.path, field)
		}
	}
	if n < 50 {
		t.Errorf("only %d methods are compressed", n)
	}
}

// secretsIn returns the fields of a message, and of the messages inside it, that may hold
// secrets.
func secretsIn(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) (found []string) {
	if seen[d.FullName()] {
		return nil
	}
	seen[d.FullName()] = true
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		short := string(d.Name()) + "." + string(f.Name())
		text := f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
		if text && secretField.MatchString(string(f.Name())) && !notSecret[string(f.Name())] && !notSecret[short] &&
			!wire.HasBehavior(f, annotations.FieldBehavior_INPUT_ONLY) {
			found = append(found, short)
		}
		if f.Message() != nil && f.Message().ParentFile().Package() != "google.protobuf" {
			found = append(found, secretsIn(f.Message(), seen)...)
		}
	}
	return found
}
