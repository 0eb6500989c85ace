package api_test

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func TestAccessOverJSON(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t, "dev")
	bound := w.do(t, "GET /iam/v2beta1/roleBindings/"+s.binding, "")
	at, _ := bound.field("createTime").(string)
	grant := `{"bindingUid":"` + s.binding + `","identity":{"uid":"` + s.identity + `","name":"ci","description":"",` +
		`"subject":"dev","issuer":"https://ci.example.com","email":""},` +
		`"group":{"uid":"` + s.folder + `","name":"dev","description":""},"role":{"uid":"` + s.role +
		`","name":"reader","description":""},"createTime":"` + at + `","deactivated":false}`
	for query, want := range map[string]string{
		"capability=groups.list&place_uid=" + s.empty:         `{"allowed":true,"grants":[` + grant + `],"incomplete":false}`,
		"capability=CAP_IAM_GROUPS_LIST&placeUid=" + s.folder: `{"allowed":true,"grants":[` + grant + `],"incomplete":false}`,
		"capability=groups.create&place_uid=" + s.empty: `{"allowed":false,"grants":[],` +
			`"incomplete":false}`,
		"capability=groups.list&place_uid=" + string(w.org): `{"allowed":false,"grants":[],` +
			`"incomplete":false}`,
		"capability=groups.list&place_uid=" + s.empty + "/" + "0123456789abcdef": `{"allowed":true,"grants":[` + grant +
			`],"incomplete":false}`,
	} {
		if got := w.do(t, "GET /access/v1/check?identity_uid="+s.identity+"&"+query, ""); got.text != want {
			t.Errorf("%s: %s\nwant %s", query, got.text, want)
		}
	}
	first := w.do(t, "GET /access/v1/grants?capability=groups.list&order_by=create_time&page_size=1&place_uid="+s.empty,
		"")
	next, _ := first.field("nextPageToken").(string)
	if first.field("totalCount") != "2" || next == "" || first.field("skipped") != json.Number("0") ||
		first.field("incomplete") != false || !strings.Contains(first.text, string(w.owner.UID)) {
		t.Fatalf("first page: %s", first.text)
	}
	second := w.do(t,
		"GET /access/v1/grants?capability=groups.list&order_by=create_time&page_size=1&place_uid="+s.empty+
			"&page_token="+next,
		"")
	if want := `{"grants":[` + grant + `],"nextPageToken":"","totalCount":"2","skipped":0,` +
		`"incomplete":false}`; second.text != want {
		t.Errorf("second page: %s\nwant %s", second.text, want)
	}
	if got := w.do(t,
		"GET /access/v1/grants?capability=groups.create&order_by=create_time&page_token="+next+"&place_uid="+s.empty,
		""); strings.Join(got.violations(), " ") != "page_token" {
		t.Errorf("the token of another question: %s", got.text)
	}
}

// TestAccessOfOthers: a caller sees only the bindings in groups in which it may list
// bindings. The answer says that there are other bindings.
func TestAccessOfOthers(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t, "dev")
	ask := func(path string) answer {
		ci := w.mint(token.Claims{Subject: resource.UID(s.identity), Audience: []string{audience}, Life: time.Hour})
		return w.do(t, "GET /access/v1/"+path, "", "Authorization", "Bearer "+ci)
	}
	owners := "check?capability=groups.list&identity_uid=" + string(w.owner.UID) + "&place_uid=" + s.folder
	for path, code := range map[string]string{
		owners: "7",
		"grants?capability=groups.list&place_uid=" + s.folder:                                "7",
		"check?capability=groups.list&identity_uid=" + s.identity + "&place_uid=" + s.folder: "",
		"capabilities": "",
		"version":      "",
	} {
		if got := ask(path); (got.field("code") == json.Number("7")) != (code == "7") {
			t.Errorf("%s: %s, want code %s", path, got.text, code)
		}
	}
	role := w.make(t, "roles/"+s.folder, `{"name":"auditor","capabilities":["CAP_IAM_ROLE_BINDINGS_LIST"]}`)
	w.make(t, "roleBindings/"+s.folder, `{"identityUid":"`+s.identity+`","roleUid":"`+role+`"}`)
	if got := ask(owners); got.text != `{"allowed":true,"grants":[],"incomplete":true}` {
		t.Errorf("as an auditor: %s", got.text)
	}
	if got := ask("grants?capability=groups.list&place_uid=" + s.folder); got.field("totalCount") != "1" ||
		got.field("incomplete") != true {
		t.Errorf("as an auditor: %s", got.text)
	}
}

func TestAccessRefuses(t *testing.T) {
	w := newWorld(t)
	org := string(w.org)
	for path, fields := range map[string]string{
		"check": "identity_uid capability place_uid",
		"check?identity_uid=x&capability=x.y&place_uid=x":                    "identity_uid capability place_uid",
		"check?capability=UNKNOWN&identity_uid=" + org + "&place_uid=" + org: "capability",
		"grants":                                 "capability place_uid",
		"grants?capability=101&place_uid=" + org: "capability",
		"grants?capability=CAP_IAM_GROUPS_NOTHING&place_uid=" + org:     "capability",
		"grants?capability=groups.list&page_size=-1&place_uid=" + org:   "page_size",
		"grants?capability=groups.list&order_by=name&place_uid=" + org:  "order_by",
		"grants?capability=groups.list&page_token=abc&place_uid=" + org: "page_token",

		"grants?capability=groups.list&as_of=yesterday&place_uid=" + org:                                    "as_of",
		"grants?capability=groups.list&as_of=1700000000&place_uid=" + org:                                   "as_of",
		"check?capability=groups.list&as_of=10000-01-01T00:00:00Z&identity_uid=x&place_uid=" + org:          "as_of",
		"check?capability=x.y&as_of=2999-01-01T00:00:00Z&identity_uid=" + org + "&place_uid=" + org:         "capability",
		"check?capability=groups.list&as_of=2999-01-01T00:00:00Z&identity_uid=" + org + "&place_uid=" + org: "as_of",
		"past/grants":                  "place_uid",
		"past/grants?place_uid=" + org: "as_of",
		"past/grants?place_uid=x":      "place_uid",
		"past/grants?as_of=2020-02-30T00:00:00Z&place_uid=" + org: "as_of",
		"past/groups":             "uid",
		"past/groups?uid=" + org:  "as_of",
		"past/diff":               "from_time to_time",
		"past/diff?order_by=name": "order_by",
		"past/diff?page_size=-1":  "page_size",
		"past/diff?from_time=2020-01-01T00:00:00Z&to_time=2020-01-01T00:00:00Z": "to_time",
	} {
		if got := w.do(t, "GET /access/v1/"+path, ""); got.status != 400 || strings.Join(got.violations(), " ") != fields {
			t.Errorf("%s: %s, want complaints about %s", path, got.text, fields)
		}
	}
	for _, path := range []string{"/access/v2/version", "/access/v2beta1/version", "/access/v1/nothing"} {
		if got := w.do(t, "GET "+path, ""); got.status != 404 {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
	for _, path := range []string{"check", "grants", "capabilities", "version"} {
		if got := w.do(t, "GET /access/v1/"+path, "", "Authorization", ""); got.status != 401 {
			t.Errorf("%s without a token: %d %s", path, got.status, got.text)
		}
	}
}

func TestCapabilitiesAndVersion(t *testing.T) {
	w := newWorld(t)
	got := w.do(t, "GET /access/v1/capabilities", "")
	for _, want := range []string{
		`{"name":"groups.list","capability":"CAP_IAM_GROUPS_LIST","family":"groups"}`,
		`"name":"repo.blobs.get","capability":"CAP_REPO_BLOBS_GET","family":"repo.blobs"}`,
		`"name":"internal","capability":"CAP_INTERNAL","family":"internal"}`,
	} {
		if !strings.Contains(got.text, want) {
			t.Errorf("no %s in %.2000s", want, got.text)
		}
	}
	if strings.Contains(got.text, `"UNKNOWN"`) || strings.Contains(got.text, `"name":"unknown"`) {
		t.Errorf("the unknown capability is one of them: %.200s", got.text)
	}
	version := w.do(t, "GET /access/v1/version", "")
	if want := `{"version":"v1.2.3","goVersion":"` + runtime.Version() + `","apiVersions":["access/v1",` +
		`"advisories/v1","audit/v1","auth","budgets/v1","deliveries/v1","events/v1","events/v2","events/v2beta1",` +
		`"federation/v1","findings/v1","iam/v1","iam/v2","iam/v2beta1","oci/v1","oidc","operator/v1","organization/v1",` +
		`"ping/v1","ping/v2","ping/v2beta1","registry/v1","registry/v2","registry/v2beta1","signin/v1",` +
		`"vulnerabilities/v1","vulnerabilities/v2","vulnerabilities/v2beta1"]}`; version.text != want {
		t.Errorf("version: %s\nwant %s", version.text, want)
	}
}

// TestBothProtocolsOfTheRest checks that the remaining methods of IAM, and the methods
// about access, answer alike over gRPC and JSON.
func TestBothProtocolsOfTheRest(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t, "dev")
	missing, elsewhere := s.folder+"/0123456789abcdef", string(resource.NewRoot())
	tests := map[string]call{
		"get a provider": {
			"GET /iam/v2beta1/identityProviders/" + s.provider, "", "IdentityProvidersService/GetIdentityProvider",
			&iampb.GetIdentityProviderRequest{Uid: s.provider}, &iampb.IdentityProvider{},
		},
		"get a missing provider": {
			"GET /iam/v2beta1/identityProviders/" + missing, "", "IdentityProvidersService/GetIdentityProvider",
			&iampb.GetIdentityProviderRequest{Uid: missing}, &iampb.IdentityProvider{},
		},
		"create an empty provider": {
			"POST /iam/v2beta1/identityProviders/" + s.folder, "", "IdentityProvidersService/CreateIdentityProvider",
			&iampb.CreateIdentityProviderRequest{Parent: s.folder}, &iampb.IdentityProvider{},
		},
		"delete a provider in use": {
			"DELETE /iam/v2beta1/identityProviders/" + s.provider, "", "IdentityProvidersService/DeleteIdentityProvider",
			&iampb.DeleteIdentityProviderRequest{Uid: s.provider}, &iampb.IdentityProvider{},
		},
		"list providers": {
			"GET /iam/v2beta1/identityProviders?order_by=name%20desc&page_size=1", "",
			"IdentityProvidersService/ListIdentityProviders",
			&iampb.ListIdentityProvidersRequest{OrderBy: "name desc", PageSize: 1}, &iampb.ListIdentityProvidersResponse{},
		},
		"get an association": {
			"GET /iam/v2beta1/accountAssociations/" + s.folder, "", "AccountAssociationsService/GetAccountAssociation",
			&iampb.GetAccountAssociationRequest{Uid: s.folder}, &iampb.AccountAssociation{},
		},
		"get another's association": {
			"GET /iam/v2beta1/accountAssociations/" + elsewhere, "", "AccountAssociationsService/GetAccountAssociation",
			&iampb.GetAccountAssociationRequest{Uid: elsewhere}, &iampb.AccountAssociation{},
		},
		"create an empty one": {
			"POST /iam/v2beta1/accountAssociations/" + s.empty, "", "AccountAssociationsService/CreateAccountAssociation",
			&iampb.CreateAccountAssociationRequest{Parent: s.empty}, &iampb.AccountAssociation{},
		},
		"list associations": {
			"GET /iam/v2beta1/accountAssociations?name=clouds", "", "AccountAssociationsService/ListAccountAssociations",
			&iampb.ListAccountAssociationsRequest{Name: "clouds"}, &iampb.ListAccountAssociationsResponse{},
		},
		"check an association": {
			"POST /iam/v2beta1/accountAssociations/" + s.folder + ":checkAccountAssociation", `{"providerType":2}`,
			"AccountAssociationsService/CheckAccountAssociation",
			&iampb.CheckAccountAssociationRequest{Uid: s.folder, ProviderType: 2}, &iampb.CheckAccountAssociationResponse{},
		},
		"check against nothing": {
			"POST /iam/v2beta1/accountAssociations/" + s.folder + ":checkAccountAssociation", "",
			"AccountAssociationsService/CheckAccountAssociation", &iampb.CheckAccountAssociationRequest{Uid: s.folder},
			&iampb.CheckAccountAssociationResponse{},
		},
		"get an invite": {
			"GET /iam/v2beta1/groupInvites/" + s.invite, "", "GroupInvitesService/GetGroupInvite",
			&iampb.GetGroupInviteRequest{Uid: s.invite}, &iampb.GroupInvite{},
		},
		"create an empty invite": {
			"POST /iam/v2beta1/groupInvites/" + s.folder, "", "GroupInvitesService/CreateGroupInvite",
			&iampb.CreateGroupInviteRequest{Parent: s.folder}, &iampb.GroupInvite{},
		},
		"list invites": {
			"GET /iam/v2beta1/groupInvites?skip=1", "", "GroupInvitesService/ListGroupInvites",
			&iampb.ListGroupInvitesRequest{Skip: 1}, &iampb.ListGroupInvitesResponse{},
		},
		"get a mapping": {
			"GET /iam/v2beta1/externalGroupRoleMappings/" + s.mapping, "",
			"ExternalGroupRoleMappingsService/GetExternalGroupRoleMapping",
			&iampb.GetExternalGroupRoleMappingRequest{Uid: s.mapping}, &iampb.ExternalGroupRoleMapping{},
		},
		"create an empty mapping": {
			"POST /iam/v2beta1/externalGroupRoleMappings/" + s.provider, "",
			"ExternalGroupRoleMappingsService/CreateExternalGroupRoleMapping",
			&iampb.CreateExternalGroupRoleMappingRequest{Parent: s.provider}, &iampb.ExternalGroupRoleMapping{},
		},
		"list mappings": {
			"GET /iam/v2beta1/externalGroupRoleMappings?identityProviderUid=" + s.provider, "",
			"ExternalGroupRoleMappingsService/ListExternalGroupRoleMappings",
			&iampb.ListExternalGroupRoleMappingsRequest{IdentityProviderUid: s.provider},
			&iampb.ListExternalGroupRoleMappingsResponse{},
		},
		"delete mappings of nothing": {
			"POST /iam/v2beta1/externalGroupRoleMappings:batchDelete", `{"parent":"` + s.provider + `","names":["x"]}`,
			"ExternalGroupRoleMappingsService/BatchDeleteExternalGroupRoleMappings",
			&iampb.BatchDeleteExternalGroupRoleMappingsRequest{Parent: s.provider, Names: []string{"x"}},
			&iampb.BatchDeleteExternalGroupRoleMappingsResponse{},
		},
		"check access": {
			"GET /access/v1/check?capability=groups.list&identityUid=" + s.identity + "&placeUid=" + s.empty, "",
			"AccessService/CheckAccess",
			&accesspb.CheckAccessRequest{Capability: "groups.list", IdentityUid: s.identity, PlaceUid: s.empty},
			&accesspb.CheckAccessResponse{},
		},
		"check nothing": {
			"GET /access/v1/check", "", "AccessService/CheckAccess", &accesspb.CheckAccessRequest{},
			&accesspb.CheckAccessResponse{},
		},
		"list access": {
			"GET /access/v1/grants?capability=groups.list&place_uid=" + s.empty, "", "AccessService/ListAccess",
			&accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: s.empty}, &accesspb.ListAccessResponse{},
		},
		"list another's access": {
			"GET /access/v1/grants?capability=groups.list&place_uid=" + elsewhere, "", "AccessService/ListAccess",
			&accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: elsewhere}, &accesspb.ListAccessResponse{},
		},
		"resolve a path": {
			"GET /access/v1/resolve?kind=groups&path=dev", "", "AccessService/ResolvePath",
			&accesspb.ResolvePathRequest{Kind: "groups", Path: "dev"}, &accesspb.ResolvePathResponse{},
		},
		"resolve another's path": {
			"GET /access/v1/resolve?kind=repos&path=other%2Fapp", "", "AccessService/ResolvePath",
			&accesspb.ResolvePathRequest{Kind: "repos", Path: "other/app"}, &accesspb.ResolvePathResponse{},
		},
		"resolve nothing": {
			"GET /access/v1/resolve", "", "AccessService/ResolvePath", &accesspb.ResolvePathRequest{},
			&accesspb.ResolvePathResponse{},
		},
		"look up names": {
			"POST /access/v1/names", `{"uids":["` + s.empty + `","` + elsewhere + `"]}`, "AccessService/LookupNames",
			&accesspb.LookupNamesRequest{Uids: []string{s.empty, elsewhere}}, &accesspb.LookupNamesResponse{},
		},
		"look up no names": {
			"POST /access/v1/names", `{"uids":["nonsense"]}`, "AccessService/LookupNames",
			&accesspb.LookupNamesRequest{Uids: []string{"nonsense"}}, &accesspb.LookupNamesResponse{},
		},
		"count what is in a group": {
			"GET /access/v1/children?pageSize=1&uid=" + s.folder, "", "AccessService/CountChildren",
			&accesspb.CountChildrenRequest{Uid: s.folder, PageSize: 1}, &accesspb.CountChildrenResponse{},
		},
		"count what another has": {
			"GET /access/v1/children?uid=" + elsewhere, "", "AccessService/CountChildren",
			&accesspb.CountChildrenRequest{Uid: elsewhere}, &accesspb.CountChildrenResponse{},
		},
		"count what is nowhere": {
			"GET /access/v1/children?uid=" + missing, "", "AccessService/CountChildren",
			&accesspb.CountChildrenRequest{Uid: missing}, &accesspb.CountChildrenResponse{},
		},
		"simulate a change": {
			"POST /access/v1/simulate", `{"changes":[{"deleteIdentity":{"uid":"` + s.identity + `"}}]}`,
			"SimulationService/Simulate",
			&accesspb.SimulateRequest{
				Changes: []*accesspb.SimulatedChange{
					{Change: &accesspb.SimulatedChange_DeleteIdentity{DeleteIdentity: &iampb.DeleteIdentityRequest{Uid: s.identity}}},
				},
			},
			&accesspb.SimulateResponse{},
		},
		"simulate another's": {
			"POST /access/v1/simulate", `{"changes":[{"deleteGroup":{"uid":"` + elsewhere + `"}}]}`,
			"SimulationService/Simulate",
			&accesspb.SimulateRequest{
				Changes: []*accesspb.SimulatedChange{
					{Change: &accesspb.SimulatedChange_DeleteGroup{DeleteGroup: &iampb.DeleteGroupRequest{Uid: elsewhere}}},
				},
			},
			&accesspb.SimulateResponse{},
		},
		"simulate nothing": {
			"POST /access/v1/simulate", `{}`, "SimulationService/Simulate", &accesspb.SimulateRequest{},
			&accesspb.SimulateResponse{},
		},
		"list capabilities": {
			"GET /access/v1/capabilities", "", "AccessService/ListCapabilities", &accesspb.ListCapabilitiesRequest{},
			&accesspb.ListCapabilitiesResponse{},
		},
		"ask for the version": {
			"GET /access/v1/version", "", "AccessService/GetVersion", &accesspb.GetVersionRequest{}, &accesspb.Version{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { w.compare(t, tt) })
	}
}

// A replica that has lost its database uses its cached grants for a second. After that
// callers get an error, even from methods that do not query the database.
func TestUnknownGrants(t *testing.T) {
	w := newWorldOn(t, storetest.Open(t, storetest.Postgres(t)))
	must(t, w.store.Close())
	got := answer{status: http.StatusOK}
	for start := time.Now(); got.status == http.StatusOK && time.Since(start) < time.Minute; {
		got = w.do(t, "GET /access/v1/version", "")
	}
	if got.status != http.StatusServiceUnavailable || got.field("code") != json.Number("14") {
		t.Errorf("over JSON: %d %s", got.status, got.text)
	}
	_, err := accesspb.NewAccessServiceClient(w.conn).GetVersion(w.ctx(t), &accesspb.GetVersionRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("over gRPC: %v", err)
	}
}
