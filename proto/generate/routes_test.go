package main_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/types/known/emptypb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// The order of methods in the .proto files decides which one a path reaches. A
// server that implements none of them says which it was.
func TestMostSpecificPathWins(t *testing.T) {
	mux := runtime.NewServeMux()
	err := errors.Join(
		iampb.RegisterGroupsServiceHandlerServer(t.Context(), mux, iampb.UnimplementedGroupsServiceServer{}),
		iampb.RegisterIdentitiesServiceHandlerServer(t.Context(), mux, iampb.UnimplementedIdentitiesServiceServer{}),
		iampb.RegisterRolesServiceHandlerServer(t.Context(), mux, iampb.UnimplementedRolesServiceServer{}),
		iampb.RegisterRoleBindingsServiceHandlerServer(t.Context(), mux, iampb.UnimplementedRoleBindingsServiceServer{}),
		iampb.RegisterIdentityProvidersServiceHandlerServer(t.Context(), mux, iampb.UnimplementedIdentityProvidersServiceServer{}),
		iampb.RegisterAccountAssociationsServiceHandlerServer(t.Context(), mux, iampb.UnimplementedAccountAssociationsServiceServer{}),
		iampb.RegisterGroupInvitesServiceHandlerServer(t.Context(), mux, iampb.UnimplementedGroupInvitesServiceServer{}),
		iampb.RegisterExternalGroupRoleMappingsServiceHandlerServer(t.Context(), mux, iampb.UnimplementedExternalGroupRoleMappingsServiceServer{}),
		registrypb.RegisterReposServiceHandlerServer(t.Context(), mux, registrypb.UnimplementedReposServiceServer{}),
		registrypb.RegisterTagsServiceHandlerServer(t.Context(), mux, registrypb.UnimplementedTagsServiceServer{}),
		registrypb.RegisterImagesServiceHandlerServer(t.Context(), mux, registrypb.UnimplementedImagesServiceServer{}),
		ocipb.RegisterOCIServiceHandlerServer(t.Context(), mux, ocipb.UnimplementedOCIServiceServer{}),
		accesspb.RegisterAccessServiceHandlerServer(t.Context(), mux, accesspb.UnimplementedAccessServiceServer{}),
	)
	if err != nil {
		t.Fatal(err)
	}
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
		"GET /oci/v1/repos/a1/b2/tagHistory":                                "ListTagHistory",
		"GET /oci/v1/pulls":                                                 "ListPulls",
		"GET /oci/v1/registry":                                              "GetRegistry",
		"GET /access/v1/check":                                              "CheckAccess",
		"GET /access/v1/grants":                                             "ListAccess",
		"GET /access/v1/capabilities":                                       "ListCapabilities",
		"GET /access/v1/version":                                            "GetVersion",
	}
	for call, want := range tests {
		t.Run(call, func(t *testing.T) {
			method, path, _ := strings.Cut(call, " ")
			if !strings.HasPrefix(path, "/") {
				path = "/iam/v2beta1/" + path
			}
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{}"))
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			if w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "method "+want+" not implemented") {
				t.Errorf("answer %d %s, want one from %s", w.Code, w.Body, want)
			}
		})
	}
}

// A providers server keeps the requests it gets.
type providers struct {
	iampb.UnimplementedIdentityProvidersServiceServer
	created *iampb.CreateIdentityProviderRequest
	updated *iampb.UpdateIdentityProviderRequest
	deleted *iampb.DeleteIdentityProviderRequest
}

func (p *providers) CreateIdentityProvider(_ context.Context, r *iampb.CreateIdentityProviderRequest) (*iampb.IdentityProvider, error) {
	p.created = r
	return r.GetIdentityProvider(), nil
}

func (p *providers) UpdateIdentityProvider(_ context.Context, r *iampb.UpdateIdentityProviderRequest) (*iampb.IdentityProvider, error) {
	p.updated = r
	return r.GetIdentityProvider(), nil
}

func (p *providers) DeleteIdentityProvider(_ context.Context, r *iampb.DeleteIdentityProviderRequest) (*emptypb.Empty, error) {
	p.deleted = r
	return &emptypb.Empty{}, nil
}

// Beside a body that is the resource, validate_only has only the query to
// travel in.
func TestValidateOnlyTravelsInTheQuery(t *testing.T) {
	for _, query := range []string{"", "?validate_only=true", "?validateOnly=true"} {
		t.Run(query, func(t *testing.T) {
			p := &providers{}
			mux := runtime.NewServeMux()
			if err := iampb.RegisterIdentityProvidersServiceHandlerServer(t.Context(), mux, p); err != nil {
				t.Fatal(err)
			}
			for _, method := range []string{"POST", "PATCH", "DELETE"} {
				r := httptest.NewRequestWithContext(t.Context(), method, "/iam/v2beta1/identityProviders/a1/e5"+query, strings.NewReader(`{"name": "okta"}`))
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, r)
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
