package main_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
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
	)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"GET groups":                              "ListGroups",
		"GET groups/a1/b2":                        "GetGroup",
		"POST groups":                             "CreateGroup",
		"POST groups/a1/b2":                       "CreateGroup",
		"PATCH groups/a1/b2":                      "UpdateGroup",
		"DELETE groups/a1/b2":                     "DeleteGroup",
		"GET groups:lookupGroup":                  "LookupGroup",
		"GET groups:checkEligibility":             "CheckEligibility",
		"POST groups/a1:requestGroupAccess":       "RequestGroupAccess",
		"GET identities":                          "ListIdentities",
		"GET identities/a1/b2":                    "GetIdentity",
		"POST identities/a1":                      "CreateIdentity",
		"PATCH identities/a1/b2":                  "UpdateIdentity",
		"DELETE identities/a1/b2":                 "DeleteIdentity",
		"GET identities:lookupIdentity":           "LookupIdentity",
		"PATCH identities:updateIdentityMetadata": "UpdateIdentityMetadata",
		"GET roles":                               "ListRoles",
		"GET roles/c3":                            "GetRole",
		"POST roles/a1":                           "CreateRole",
		"PATCH roles/a1/c3":                       "UpdateRole",
		"DELETE roles/a1/c3":                      "DeleteRole",
		"GET roleBindings":                        "ListRoleBindings",
		"GET roleBindings/a1/d4":                  "GetRoleBinding",
		"POST roleBindings/a1":                    "CreateRoleBinding",
		"POST roleBindings:batchCreate":           "BatchCreateRoleBindings",
		"PATCH roleBindings/a1/d4":                "UpdateRoleBinding",
		"DELETE roleBindings/a1/d4":               "DeleteRoleBinding",
	}
	for call, want := range tests {
		t.Run(call, func(t *testing.T) {
			method, path, _ := strings.Cut(call, " ")
			r := httptest.NewRequest(method, "/iam/v2beta1/"+path, strings.NewReader("{}"))
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			if w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "method "+want+" not implemented") {
				t.Errorf("answer %d %s, want one from %s", w.Code, w.Body, want)
			}
		})
	}
}
