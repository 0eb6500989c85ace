package e2e_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// post creates a resource as the owner and returns its UID.
func (w *world) post(t *testing.T, target, body string) string {
	t.Helper()
	r := w.send(t, w.Token, "POST", target, body)
	if r.status != http.StatusOK {
		t.Fatalf("POST %s: HTTP status %d\n%s", target, r.status, r.body)
	}
	var made struct{ UID string }
	if err := json.Unmarshal([]byte(r.body), &made); err != nil {
		t.Fatal(err)
	}
	return made.UID
}

// federationExamples returns example calls for federated resources and for questions about access.
func federationExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	const base = "/iam/v2beta1/"
	viewer := string(resource.ManagedRoleUID("viewer"))
	nothing := x.org + "/0123456789abcdef"
	list := []example{{}, {all: true}, {query: "page_size=-1", fails: true}}
	get := func(uid string) []example { return []example{{uid: uid}, {uid: nothing, fails: true}} }
	provider := func(name string) string {
		return `{"name":"` + name + `","defaultRole":"` + viewer + `","oidc":{"issuer":"https://` + name +
			`.example","clientId":"c","clientSecret":"s"}}`
	}
	mapping := func(group string) string {
		return `{"externalGroupId":"` + group + `","roleUid":"` + viewer + `","scope":"` + x.org + `"}`
	}
	idp := w.post(t, base+"identityProviders/"+x.org, provider("idp"))
	spare := w.post(t, base+"identityProviders/"+x.org, provider("spare"))
	scimmed := w.post(t, base+"identityProviders/"+x.org, provider("scimmed"))
	enabled := w.post(t, base+"identityProviders/"+x.org, provider("enabled"))
	revoked := w.post(t, base+"identityProviders/"+x.org, provider("revoked"))
	teams := w.post(t, base+"identityProviders/"+x.org, provider("teams"))
	w.post(t, base+"identityProviders/"+scimmed+":generateScimToken", `{}`)
	mapped := w.post(t, base+"externalGroupRoleMappings/"+idp, mapping("admins"))
	batch := w.post(t, base+"externalGroupRoleMappings/"+idp, mapping("batch"))
	invite := w.post(t, base+"groupInvites/"+x.folder, `{"roleUid":"`+viewer+`","ttl":"3600s"}`)
	account := `{"name":"account","amazon":{"account":"123456789012"}}`
	w.post(t, base+"accountAssociations/"+x.folder, account)
	change := func(uid, body, bad string) []example {
		return []example{
			{uid: uid, body: body},
			{uid: uid, query: "updateMask=description&validate_only=true", body: body},
			{uid: uid, body: bad, fails: true},
		}
	}
	return map[string][]example{
		"IdentityProvidersService_ListIdentityProviders": list,
		"IdentityProvidersService_GetIdentityProvider":   get(idp),
		"IdentityProvidersService_CreateIdentityProvider": {
			{uid: x.org, body: provider("new")}, {uid: x.org, body: `{"name":"x"}`, fails: true},
		},
		"IdentityProvidersService_UpdateIdentityProvider": change(idp, `{"description":"new"}`, `{"name":"A"}`),
		"IdentityProvidersService_GenerateScimToken":      {{uid: idp, body: `{}`}, {uid: idp, body: `{}`, fails: true}},
		"IdentityProvidersService_RegenerateScimToken": {
			{uid: scimmed, body: `{"etag":"1"}`}, {uid: scimmed, body: `{"etag":"0"}`, fails: true},
		},
		"IdentityProvidersService_SetScimEnabled": {
			{uid: enabled, body: `{"etag":"0"}`}, {uid: enabled, body: `{"enabled":true}`, fails: true},
		},
		"IdentityProvidersService_RevokeScimToken": {
			{uid: revoked, body: `{}`}, {uid: nothing, body: `{}`, fails: true},
		},
		"IdentityProvidersService_DeleteIdentityProvider": {{uid: spare}, {uid: spare, fails: true}},

		"DirectoriesService_GetDirectory": get(idp),
		"DirectoriesService_UpdateDirectory": {
			{uid: teams, body: `{"etag":"0","roleSource":"ROLE_SOURCE_TEAMS"}`},
			{uid: teams, query: "validate_only=true", body: `{"etag":"1","roleSource":"ROLE_SOURCE_CLAIMS"}`},
			{uid: teams, body: `{"etag":"z","roleSource":"ROLE_SOURCE_TEAMS"}`, fails: true},
		},

		"ExternalGroupRoleMappingsService_ListExternalGroupRoleMappings": list,
		"ExternalGroupRoleMappingsService_GetExternalGroupRoleMapping":   get(mapped),
		"ExternalGroupRoleMappingsService_CreateExternalGroupRoleMapping": {
			{uid: idp, body: mapping("new")}, {uid: idp, body: `{}`, fails: true},
		},
		"ExternalGroupRoleMappingsService_BatchDeleteExternalGroupRoleMappings": {
			{body: `{"parent":"` + idp + `","names":["` + batch + `"]}`}, {body: `{"parent":"` + idp + `"}`, fails: true},
		},
		"ExternalGroupRoleMappingsService_DeleteExternalGroupRoleMapping": {{uid: mapped}, {uid: "nonsense", fails: true}},

		"GroupInvitesService_ListGroupInvites": list,
		"GroupInvitesService_GetGroupInvite":   get(invite),
		"GroupInvitesService_CreateGroupInvite": {
			{uid: x.folder, body: `{"roleUid":"` + viewer + `","ttl":"60s","singleUse":true}`},
			{uid: x.folder, body: `{}`, fails: true},
		},
		"GroupInvitesService_UpdateGroupInvite": {
			{uid: invite, body: `{"email":"a@b.example","ttl":"60s"}`}, {uid: invite, body: `{"email":"x"}`, fails: true},
		},
		"GroupInvitesService_DeleteGroupInvite": {{uid: invite}, {uid: "nonsense", fails: true}},

		"AccountAssociationsService_ListAccountAssociations": list,
		"AccountAssociationsService_GetAccountAssociation":   get(x.folder),
		"AccountAssociationsService_CreateAccountAssociation": {
			{uid: x.org, body: account}, {uid: x.org, body: account, fails: true},
		},
		"AccountAssociationsService_UpdateAccountAssociation": change(x.folder,
			`{"description":"new"}`, `{"amazon":{"account":"1"}}`),
		"AccountAssociationsService_CheckAccountAssociation": {
			{uid: x.folder, body: `{"providerType":"ACCOUNT_PROVIDER_TYPE_GOOGLE"}`}, {uid: x.folder, body: `{}`, fails: true},
		},
		"AccountAssociationsService_DeleteAccountAssociation": {{uid: x.folder}, {uid: "nonsense", fails: true}},

		"AccessService_CheckAccess": {
			{query: "identity_uid=" + x.identity + "&capability=CAP_IAM_GROUPS_LIST&place_uid=" + x.folder}, {fails: true},
		},
		"AccessService_ListAccess": {
			{query: "capability=CAP_IAM_GROUPS_LIST&place_uid=" + x.folder}, {fails: true},
		},
		"AccessHistoryService_ListPastGrants": {{query: "place_uid=" + x.folder + "&as_of=" + pastQuery()}, {fails: true}},
		"AccessHistoryService_ListPastGroups": {{query: "uid=" + x.org + "&as_of=" + pastQuery()}, {fails: true}},
		"AccessHistoryService_DiffAccess": {
			{query: "from_time=" + pastQuery() + "&to_time=" + pastQuery()}, {fails: true},
		},
		"AccessService_ResolvePath": {
			{query: "kind=roles&path=viewer"}, {query: "kind=groups&path=no/such", fails: true},
		},
		"AccessService_LookupNames":      {{body: `{"uids":["` + x.folder + `"]}`}, {body: `{}`, fails: true}},
		"AccessService_Search":           {{query: "query=" + x.folder}, {query: "query=viewer"}, {fails: true}},
		"AccessService_ListPeople":       {{}, {query: "query=ann"}, {query: "order_by=email", fails: true}},
		"AccessService_CountChildren":    {{query: "uid=" + x.org}, {fails: true}},
		"AccessService_ListCapabilities": {{}, {as: "nonsense", fails: true}},
		"AccessService_ListEndingGrants": {{query: "within=60s"}, {query: "within=-60s", fails: true}},
		"AccessService_GetVersion":       {{}, {as: "nonsense", fails: true}},
		"SimulationService_Simulate": {
			{body: `{"changes":[{"deleteIdentity":{"uid":"` + x.identity + `"}}]}`}, {body: `{"changes":[{}]}`, fails: true},
		},
		"AccessUseService_ListUnusedAccess": {
			{query: "kind=UNUSED_KIND_ROLE_BINDING&since=60s"}, {query: "kind=UNUSED_KIND_ROLE_BINDING&since=1s", fails: true},
		},

		"OperatorService_GetInstallation": {{}, {as: "nonsense", fails: true}},
	}
}
