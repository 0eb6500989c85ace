package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// v1Examples returns example calls for version 1 of the IAM API.
func v1Examples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	const base = "/iam/v1/"
	made := func(target, body string) string {
		r := w.send(t, w.Token, "POST", base+target, body)
		var m struct{ ID string }
		if err := json.Unmarshal([]byte(r.body), &m); err != nil || r.status != http.StatusOK {
			t.Fatalf("POST %s: %d %s", target, r.status, r.body)
		}
		return m.ID
	}
	viewer, nothing := string(resource.ManagedRoleUID("viewer")), x.org+"/0123456789abcdef"
	adas := w.mint(t, ada, token.Claims{Voucher: peopleProvider})
	folder := made("groups/"+x.org, `{"name":"old","description":"d"}`)
	robot := made("identities/"+folder, `{"name":"r","claimMatch":{"issuer":"https://x.example","subject":"s"}}`)
	role := made("roles/"+folder, `{"name":"r","capabilities":["groups.list"]}`)
	binding := made("rolebindings/"+folder, `{"identity":"`+robot+`","role":"`+viewer+`"}`)
	provider := func(name string) string {
		return `{"name":"` + name + `","defaultRole":"` + viewer + `","oidc":{"issuer":"https://` + name +
			`.example","clientId":"c","clientSecret":"s"}}`
	}
	idp := made("identityProviders/"+x.org, provider("old"))
	var directories [4]string
	for i := range directories {
		directories[i] = made("identityProviders/"+x.org, provider(fmt.Sprint("directory", i)))
	}
	withToken := w.send(t, w.Token, "POST", base+"identityProviders/"+directories[1]+":generateScimToken", `{}`)
	if withToken.status != http.StatusOK {
		t.Fatal(withToken.body)
	}
	mapping := func(group string) string {
		return `{"externalGroupId":"` + group + `","roleUidp":"` + viewer + `","scope":"` + x.org + `"}`
	}
	mapped, batched := made("externalGroupRoleMappings/"+idp,
		mapping("a")), made("externalGroupRoleMappings/"+idp, mapping("b"))
	invite := made("group_invites/"+folder, `{"role":"`+viewer+`","ttl":"3600s"}`)
	account := `{"name":"account","amazon":{"account":"123456789012"},` +
		`"github":{"appInstallations":{"7":{"installations":[{"installationId":"1","name":"n"}]}}}}`
	tied := w.child(t, folder, "tied")
	w.send(t, w.Token, "POST", base+"account_associations/"+tied, account)
	byID := func(id string) []example {
		return []example{{}, {query: "id=" + id}, {query: "uidp.descendants_of=nonsense", fails: true}}
	}
	gone := func(uid string) []example { return []example{{uid: uid}, {uid: "nonsense", fails: true}} }
	return map[string][]example{
		"V1_PingService_Ping": {{}},
		"V1_Groups_List": {
			{},
			{query: "id=" + folder},
			{query: "name=old"},
			{query: "uidp.children_of=" + x.org},
			{query: "uidp.ids=x", fails: true},
		},
		"V1_Groups_Create": {
			{uid: folder, body: `{"name":"n"}`},
			{uid: folder, body: `{}`, fails: true},
			{uid: nothing, body: `{"name":"n"}`, fails: true},
		},
		"V1_Groups_Update": {
			{uid: folder, body: `{"name":"old","description":"new"}`}, {uid: folder, body: `{}`, fails: true},
		},
		"V1_Groups_LookupGroup":      {{as: adas}, {fails: true}},
		"V1_Groups_CheckEligibility": {{}, {as: "nonsense", fails: true}},
		"V1_Groups_RequestGroupAccess": {
			// fails, because it is the second request within a short time
			{uid: string(resource.DerivedUID("people")), body: `{}`, as: adas, fails: true},
		},
		"V1_Groups_Delete": {{uid: w.child(t, folder, "gone")}, {uid: folder, fails: true}, {uid: nothing, fails: true}},

		"V1_Identities_List": byID(robot),
		"V1_Identities_Create": {
			{uid: folder, body: `{"name":"n","awsIdentity":{"awsAccount":"123456789012","arn":"a"}}`},
			{uid: folder, body: `{"name":"n"}`, fails: true},
		},
		"V1_Identities_Update": {
			{uid: robot, body: `{"name":"n","claimMatch":{"issuer":"https://x.example","subjectPattern":"s+"}}`},
			{uid: robot, body: `{"name":"n"}`, fails: true},
		},
		"V1_Identities_Lookup": {{query: "issuer=https://x.example&subject=s"}, {fails: true}},
		"V1_Identities_Delete": gone(robot),

		"V1_Roles_List": {
			{}, {query: "name=viewer"}, {query: "parent=" + folder}, {query: "uidp.descendants_of=nonsense", fails: true},
		},
		"V1_Roles_Create": {
			{uid: folder, body: `{"name":"n","capabilities":["groups.list"]}`},
			{uid: folder, body: `{"name":"n","capabilities":["nothing"]}`, fails: true},
		},
		"V1_Roles_Update": {
			{uid: role, body: `{"name":"r","capabilities":["roles.list"]}`}, {uid: role, body: `{"name":"r"}`, fails: true},
		},
		"V1_Roles_Delete": {{uid: role}, {uid: role, fails: true}},

		"V1_RoleBindings_List": byID(binding),
		"V1_RoleBindings_Create": {
			{uid: x.org, body: `{"identity":"` + robot + `","role":"` + viewer + `"}`}, {uid: folder, body: `{}`, fails: true},
		},
		"V1_RoleBindings_CreateBatch": {
			{uid: folder, body: `[{"identity":"` + robot + `","role":"` + role + `"}]`}, {uid: folder, body: `[]`, fails: true},
			{uid: folder, body: `{}`, fails: true}, {uid: folder, body: `[],"parent":"` + x.org + `"`, fails: true},
		},
		"V1_RoleBindings_Update": {
			{uid: binding, body: `{"identity":"` + robot + `","role":"` + viewer + `"}`},
			{uid: binding, body: `{"role":"` + viewer + `"}`, fails: true},
		},
		"V1_RoleBindings_Delete": gone(binding),

		"V1_IdentityProviders_List": byID(idp),
		"V1_IdentityProviders_Create": {
			{uid: x.org, body: provider("another")}, {uid: x.org, body: `{"name":"n"}`, fails: true},
		},
		"V1_IdentityProviders_Update": {{uid: idp, body: provider("old")}, {uid: idp, body: `{}`, fails: true}},
		// Fails, because the provider has mappings.
		"V1_IdentityProviders_Delete": {{uid: idp, fails: true}, {uid: "nonsense", fails: true}},

		"V1_IdentityProviders_GenerateScimToken": {
			{uid: directories[0], body: `{}`}, {uid: directories[0], body: `{}`, fails: true},
		},
		"V1_IdentityProviders_RegenerateScimToken": {
			{uid: directories[1], body: `{"etag":"1"}`}, {uid: directories[1], body: `{"etag":"0"}`, fails: true},
		},
		"V1_IdentityProviders_RevokeScimToken": {{uid: directories[2], body: `{}`}, {uid: nothing, body: `{}`, fails: true}},
		"V1_IdentityProviders_SetScimEnabled": {
			{uid: directories[3], body: `{"etag":"0"}`}, {uid: directories[3], body: `{"enabled":true}`, fails: true},
		},

		"V1_ExternalGroupRoleMappings_List": {
			{}, {query: "identity_provider_uidp=" + idp}, {query: "identity_provider_uidp=x", fails: true},
		},
		"V1_ExternalGroupRoleMappings_Get":    {{uid: mapped}, {uid: nothing, fails: true}},
		"V1_ExternalGroupRoleMappings_Create": {{uid: idp, body: mapping("c")}, {uid: idp, body: `{}`, fails: true}},
		"V1_ExternalGroupRoleMappings_BatchDelete": {
			{body: `{"parentId":"` + idp + `","ids":["` + batched + `"]}`},
			{body: `{"parentId":"` + idp + `","ids":["x"]}`, fails: true},
		},
		"V1_ExternalGroupRoleMappings_Delete": gone(mapped),

		"V1_GroupInvites_List": {
			{}, {query: "id=" + invite}, {query: "group=" + folder}, {query: "group=nonsense", fails: true},
		},
		"V1_GroupInvites_Create": {
			{uid: folder, body: `{"role":"` + viewer + `","ttl":"60s","singleUse":true}`},
			{uid: folder, body: `{}`, fails: true},
		},
		"V1_GroupInvites_Delete": gone(invite),

		"V1_GroupAccountAssociations_List":   {{}, {query: "group=" + folder}, {query: "group=x", fails: true}},
		"V1_GroupAccountAssociations_Create": {{uid: folder, body: account}, {uid: folder, body: account, fails: true}},
		"V1_GroupAccountAssociations_Update": {
			{uid: folder, body: account}, {uid: folder, body: `{"name":"A"}`, fails: true},
		},
		"V1_GroupAccountAssociations_Check": {
			{uid: tied, body: `{"accountType":"GOOGLE"}`}, {uid: folder, body: `{}`, fails: true},
		},
		"V1_GroupAccountAssociations_Delete": gone(folder),
	}
}

// TestApiV1 checks the special properties of version 1: other versions can read the resources that it creates, an
// update resets the fields that it omits, and the answers have a deprecation header.
func TestApiV1(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, database string) {
		w := serve(t, database, server.Config{}, nil)
		org := string(w.Organization)
		made := w.send(t, w.Token, "POST", "/iam/v1/groups/"+org, `{"name":"old","description":"d"}`)
		var g struct{ ID string }
		if err := json.Unmarshal([]byte(made.body), &g); err != nil {
			t.Fatal(err)
		}
		want := `{"id":"` + g.ID + `","name":"old","description":"d","resourceLimits":{},"verified":false,` +
			`"kind":"ORG_KIND_DEV","status":"ORG_STATUS_READY"}`
		if made.body != want {
			t.Errorf("created\n%s\nwant\n%s", made.body, want)
		}
		if made.header.Get("Deprecation") == "" || !strings.Contains(made.header.Get("Link"), "migrating-v1") {
			t.Errorf("headers %v", made.header)
		}
		r := w.send(t, w.Token, "GET", "/iam/v2beta1/groups/"+g.ID, "")
		if !strings.Contains(r.body, `"description":"d"`) || r.header.Get("Deprecation") != "" {
			t.Errorf("in v2beta1: %s %v", r.body, r.header)
		}
		r = w.send(t, w.Token, "PUT", "/iam/v1/groups/"+g.ID, `{"name":"old"}`)
		if !strings.Contains(r.body, `"description":""`) {
			t.Errorf("after an update without a description: %s", r.body)
		}
		r = w.send(t, w.Token, "GET", "/iam/v1/groups?id="+g.ID, "")
		if !strings.HasPrefix(r.body, `{"items":[{"id":"`+g.ID) {
			t.Errorf("list: %s", r.body)
		}
		w.tryV1OverGRPC(t, g.ID)
	})
}

func (w *world) tryV1OverGRPC(t *testing.T, group string) {
	t.Helper()
	// The token is sent without a scheme.
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", w.Token)
	for _, name := range []string{"holdfast.iam.v1", "chainguard.platform.iam"} {
		out := &iamv1pb.GroupList{}
		err := w.conn.Invoke(ctx, "/"+name+".Groups/List", &iamv1pb.GroupFilter{Id: group}, out)
		if err != nil || len(out.GetItems()) != 1 || out.GetItems()[0].GetId() != group {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	_, err := iamv1pb.NewGroupsClient(w.conn).Delete(ctx, &iamv1pb.DeleteGroupRequest{Id: string(w.Organization)})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("deletion of a group with children: %v", err)
	}
}

// registryV1Examples returns example calls for version 1 of the registry API.
func registryV1Examples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	shelf := w.child(t, x.org, "oldshelf")
	repo, spare := w.repo(t, shelf, "app"), w.repo(t, shelf, "spare")
	digest := w.pushImage(t, "dev/oldshelf/app", "pushed", "amd64", "layer")
	other := w.pushImage(t, "dev/oldshelf/app", "moved", "amd64", "other")
	tag, old := w.tag(t, repo, "stable", digest), w.tag(t, repo, "old", digest)
	nothing := x.org + "/0123456789abcdef"
	return map[string][]example{
		"V1_Registry_ListRepos": {
			{},
			{query: "id=" + repo},
			{query: "name=app"},
			{query: "uidp.children_of=" + shelf},
			{query: "uidp.ids=x", fails: true},
		},
		"V1_Registry_CreateRepo": {
			{uid: shelf, body: `{"name":"new","catalogTier":"AI","bundles":["ai"],"readme":"# New"}`},
			{uid: shelf, body: `{"name":"app","readme":"# App"}`},
			{uid: shelf, query: "prevent_existing=true", body: `{"name":"app"}`, fails: true},
			{uid: shelf, body: `{}`, fails: true},
			{uid: shelf, body: `{"name":"x","customOverlay":{}}`, fails: true},
		},
		"V1_Registry_UpdateRepo": {
			{uid: repo, body: `{"name":"app","description":"d","catalogTier":"COMMERCIAL"}`},
			{uid: repo, body: `{}`, fails: true},
		},
		"V1_Registry_DeleteRepo": {{uid: spare}, {uid: spare, fails: true}},

		"V1_Registry_ListTags": {
			{},
			{query: "uidp.children_of=" + repo + "&exclude_referrers=true&exclude_dates=true&exclude_epochs=true"},
			{query: "id=" + tag},
			{query: "digest=x", fails: true},
		},
		"V1_Registry_CreateTag": {
			{uid: repo, body: `{"name":"x","digest":"` + digest + `"}`},
			{uid: repo, body: `{"name":"x","bundles":["base"]}`},
			{uid: repo, body: `{"name":"y"}`, fails: true},
		},
		"V1_Registry_UpdateTag": {
			{uid: tag, body: `{"digest":"` + other + `"}`},
			{uid: tag, body: `{"name":"another","digest":"` + other + `"}`, fails: true},
			{uid: nothing, body: `{}`, fails: true},
		},
		"V1_Registry_DeleteTag":          {{uid: old}, {uid: old, fails: true}},
		"V1_Registry_GetRepoTagsSummary": {{uid: repo}, {uid: nothing, fails: true}},
		"V1_Registry_ListTagHistory": {
			{uid: tag}, {uid: tag, query: "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z"}, {uid: nothing, fails: true},
		},
		"V1_Registry_GetArchs": {{uid: repo, digest: digest}, {uid: repo, digest: "sha256:abc", fails: true}},
		"V1_Registry_GetSize": {
			{uid: repo, digest: digest, query: "arch=amd64"}, {uid: repo, digest: digest, query: "arch=z80", fails: true},
		},
	}
}

// advisoryV1Examples returns example calls for version 1 of the advisories API.
func advisoryV1Examples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	made := func(target, body string) string {
		r := w.send(t, w.Token, "POST", "/vulnerabilities/v1/advisories"+target, body)
		var m struct{ ID string }
		if err := json.Unmarshal([]byte(r.body), &m); err != nil || r.status != http.StatusOK {
			t.Fatalf("POST %s: %d %s", target, r.status, r.body)
		}
		return m.ID
	}
	text := func(name string) string {
		return `{"parentId":"` + x.org + `","advisory":{"artifactName":"` + name +
			`","artifactType":"apk","componentName":"c","aliases":["CVE-2026-1"]}}`
	}
	first, spare := made("", text("one")), made("", text("spare"))
	event := made("/"+first+"/events", `{"advisoryEvent":{"status":"PENDING","detection":{"manual":{}}}}`)
	nothing := x.org + "/0123456789abcdef"
	return map[string][]example{
		"V1_Advisories_Create": {{body: text("new")}, {body: `{"parentId":"` + x.org + `"}`, fails: true}},
		"V1_Advisories_List": {
			{},
			{query: "id=" + first},
			{
				query: "artifact_name=one&artifact_name=two&page_size=1&order_by=UPDATED_AT_DESC&event_statuses=PENDING&" +
					"latest_event_type=EVENT_TYPE_FILTER_FIXED",
			},
			{query: "order_by=ALIASES_ASC", fails: true}, {query: "page_size=-5", fails: true},
		},
		"V1_Advisories_Update": {
			{uid: first, body: `{"artifactName":"one","artifactType":"apk"}`}, {uid: first, body: `{}`, fails: true},
		},
		"V1_Advisories_Delete": {{uid: spare}, {uid: spare, fails: true}},
		"V1_Advisories_CreateAdvisoryEvent": {
			{uid: first, body: `{"advisoryEvent":{"status":"PENDING","fixed":{"fixedVersion":"1.2"}}}`},
			{uid: first, body: `{"advisoryEvent":{"status":"PENDING","componentLocationChanged":{}}}`, fails: true},
		},
		"V1_Advisories_ListAdvisoryEvents": {{uid: first}, {uid: nothing, fails: true}},
		"V1_Advisories_UpdateAdvisoryEvent": {
			{uid: event, body: `{"status":"PENDING","truePositiveDetermination":{"note":"n"}}`},
			{uid: nothing, body: `{}`, fails: true},
		},
	}
}
