package api_test

import (
	"strings"
	"testing"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// bindingsKey is the JSON key of service bindings, which clients depend on.
var bindingsKey = (&iampb.AccountAssociation{}).ProtoReflect().Descriptor().Fields().ByNumber(7).JSONName()

// TestAssociationOverJSON: an association with any kind of account is returned unchanged,
// and an update with a mask can change or remove parts of it.
func TestAssociationOverJSON(t *testing.T) {
	w := newWorld(t)
	const tenant, client = "0a1b2c3d-0000-1111-2222-333344445555", "ffffffff-0000-1111-2222-333344445555"
	tests := map[string]struct{ body, query, patch, want string }{
		"amazon": {
			`"amazon":{"account":"123456789012"}`, "", `{"amazon":{"account":"210987654321"}}`,
			`"amazon":{"account":"210987654321"}`,
		},
		"google": {
			`"google":{"projectId":"acme-prod","projectNumber":"12"}`, "?updateMask=google.projectNumber",
			`{"google":{"projectId":"ignored","projectNumber":"34"}}`,
			`"google":{"projectId":"acme-prod","projectNumber":"34"}`,
		},
		"azure": {
			`"azure":{"tenantId":"` + tenant + `","clientIds":{"a":"` + client + `","b":"` + client + `"}}`, "",
			`{"azure":{"clientIds":{"c":"` + tenant + `"}}}`,
			`"azure":{"tenantId":"` + tenant + `","clientIds":{"c":"` + tenant + `"}}`,
		},
		"github": {
			`"github":{"appInstallations":{"7":{"installations":[{"installationId":"9007199254740993","name":"acme"},` +
				`{"installationId":"2","name":""}]},"30":{"installations":[]}}}`,
			"?updateMask=github", `{"github":{"appInstallations":{"7":{"installations":[]}}}}`,
			`"github":{"appInstallations":{"7":{"installations":[]}}}`,
		},
		"no installation": {
			`"github":{"appInstallations":{}}`, "", `{"description":"d"}`, `"github":{"appInstallations":{}}`,
		},
		"no binding": {
			`"` + bindingsKey + `":{"serviceBindings":{}}`, "", `{"description":"d"}`,
			`"` + bindingsKey + `":{"serviceBindings":{}}`,
		},
		"one goes, one comes": {
			`"amazon":{"account":"123456789012"}`, "?updateMask=amazon,google",
			`{"google":{"projectId":"acme-prod","projectNumber":"12"}}`,
			`"description":"","google":{"projectId":"acme-prod","projectNumber":"12"},"createTime"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			group := w.make(t, "groups/"+string(w.org), `{"name":"`+name[:5]+`"}`)
			made := w.do(t, "POST /iam/v2beta1/accountAssociations/"+group, `{"name":"a",`+tt.body+`}`)
			if made.field("uid") != group || !strings.Contains(made.text, `"name":"a","description":"",`) ||
				!strings.Contains(made.text, tt.body) {
				t.Fatalf("create: %s\nwant %s", made.text, tt.body)
			}
			if got := w.do(t, "GET /iam/v2beta1/accountAssociations/"+group, ""); got.text != made.text {
				t.Errorf("get: %s\nwant %s", got.text, made.text)
			}
			if got := w.do(t, "GET /iam/v2beta1/accountAssociations?uidp.ids="+group,
				""); !strings.Contains(got.text, `"accountAssociations":[`+made.text+`]`) {
				t.Errorf("list: %s\nwant %s", got.text, made.text)
			}
			if got := w.do(t, "PATCH /iam/v2beta1/accountAssociations/"+group+tt.query,
				tt.patch); !strings.Contains(got.text, tt.want) || got.field("name") != "a" {
				t.Errorf("update: %s\nwant %s", got.text, tt.want)
			}
			for range 2 { // deleting a missing association is not an error
				if got := w.do(t, "DELETE /iam/v2beta1/accountAssociations/"+group, ""); got.status != 200 || got.text != "" {
					t.Errorf("delete: %d %s", got.status, got.text)
				}
			}
			w.do(t, "DELETE /iam/v2beta1/groups/"+group, "")
		})
	}
}

func TestServiceBindings(t *testing.T) {
	w := newWorld(t)
	org := string(w.org)
	robot := w.make(t, "identities/"+org, `{"name":"robot","servicePrincipal":"SERVICE_PRINCIPAL_INGESTER"}`)
	body := func(service, identity string) string {
		return `{"name":"a","` + bindingsKey + `":{"serviceBindings":{"` + service + `":"` + identity + `"}}}`
	}
	for field, given := range map[string][2]string{
		"service_bindings":           {"INGESTER", string(w.owner.UID)},
		"service_bindings[NOTHING]":  {"NOTHING", robot},
		"service_bindings[COSIGNED]": {"COSIGNED", robot},
		"service_bindings[INGESTER]": {"INGESTER", org + "/0123456789abcdef"},
	} {
		got := w.do(t, "POST /iam/v2beta1/accountAssociations/"+org, body(given[0], given[1]))
		if strings.Join(got.violations(), " ") != field {
			t.Errorf("%v: %s, want a complaint about %s", given, got.text, field)
		}
	}
	want := `"` + bindingsKey + `":{"serviceBindings":{"INGESTER":"` + robot + `"}}`
	if got := w.do(t, "POST /iam/v2beta1/accountAssociations/"+org,
		body("INGESTER", robot)); !strings.Contains(got.text, want) {
		t.Fatalf("create: %s\nwant %s", got.text, want)
	}
	if got := w.do(t, "GET /iam/v2beta1/accountAssociations/"+org, ""); !strings.Contains(got.text, want) {
		t.Errorf("get: %s\nwant %s", got.text, want)
	}
	if got := w.do(t, "PATCH /iam/v2beta1/accountAssociations/"+org+"?updateMask="+bindingsKey,
		`{}`); strings.Join(got.violations(), " ") != "account_association" {
		t.Errorf("taking the last account away: %s", got.text)
	}
}

func TestCheckAssociation(t *testing.T) {
	w := newWorld(t)
	org := string(w.org)
	w.make(t, "accountAssociations/"+org, `{"name":"a","amazon":{"account":"123456789012"}}`)
	check := func(body string) answer {
		return w.do(t, "POST /iam/v2beta1/accountAssociations/"+org+":checkAccountAssociation", body)
	}
	for cloud, reason := range map[string]string{
		"ACCOUNT_PROVIDER_TYPE_AMAZON": "UNREACHABLE", "ACCOUNT_PROVIDER_TYPE_GOOGLE": "NOT_CONFIGURED",
	} {
		got := check(`{"providerType":"` + cloud + `"}`)
		if got.field("status") != "CHECK_STATUS_NOT_READY" || got.field("reason") != reason || got.field("message") == "" {
			t.Errorf("%s: %s, want %s", cloud, got.text, reason)
		}
	}
	for _, body := range []string{"", `{"providerType":"ACCOUNT_PROVIDER_TYPE_UNSPECIFIED"}`, `{"providerType":9}`} {
		if got := check(body); strings.Join(got.violations(), " ") != "provider_type" {
			t.Errorf("%s: %s", body, got.text)
		}
	}
}

func TestInviteOverJSON(t *testing.T) {
	w := newWorld(t)
	org := string(w.org)
	role := w.make(t, "roles/"+org,
		`{"name":"reader","description":"reads","capabilities":["CAP_IAM_GROUPS_LIST","CAP_IAM_ROLES_LIST"]}`)
	made := w.do(t, "POST /iam/v2beta1/groupInvites/"+org,
		`{"roleUid":"`+role+`","email":"ann@example.com","ttl":"3600s","singleUse":true}`)
	code, _ := made.field("code").(string)
	uid, _ := made.field("uid").(string)
	key, _ := made.field("keyId").(string)
	at, _ := made.field("createTime").(string)
	expires, _ := made.field("expirationTime").(string)
	shown := func(code string) string {
		return `{"uid":"` + uid + `","roleUid":"` + role + `","email":"ann@example.com","expirationTime":"` + expires +
			`","singleUse":true,"code":"` + code +
			`","keyId":"` + key + `","createTime":"` + at + `","role":{"uid":"` + role + `","name":"reader",` +
			`"description":"reads",` +
			`"capabilities":["CAP_IAM_GROUPS_LIST","CAP_IAM_ROLES_LIST"]},"updateTime":"` + at + `"}`
	}
	if code == "" || key == "" || made.text != shown(code) {
		t.Fatalf("create: %s\nwant %s", made.text, shown(code))
	}
	if want := w.now.UTC().Truncate(1e6).Add(3600 * 1e9).Format("2006-01-02T15:04:05.000Z"); expires != want {
		t.Errorf("expirationTime = %s, want %s", expires, want)
	}
	if got := w.do(t, "GET /iam/v2beta1/groupInvites/"+uid, ""); got.text != shown("") {
		t.Errorf("get: %s\nwant %s", got.text, shown(""))
	}
	for query, want := range map[string]string{
		"key_id=" + key: `{"groupInvites":[` + shown("") + `],"nextPageToken":"","totalCount":"1","skipped":0}`,
		"keyId=nothing": `{"groupInvites":[],"nextPageToken":"","totalCount":"0","skipped":0}`,
	} {
		if got := w.do(t, "GET /iam/v2beta1/groupInvites?"+query, ""); got.text != want {
			t.Errorf("list by %s: %s\nwant %s", query, got.text, want)
		}
	}
	kept := w.log.String()
	for _, e := range check(outbox.Read(t.Context(), w.store.DB, 0, 1000))(t) {
		kept += string(e.After)
	}
	if strings.Contains(kept, code) {
		t.Error("the code is in an event or the log")
	}
	if got := w.do(t, "DELETE /iam/v2beta1/roles/"+role, ""); got.status != 400 || !strings.Contains(got.text, "invites") {
		t.Errorf("delete of a role that is promised: %s", got.text)
	}
	for range 2 {
		if got := w.do(t, "DELETE /iam/v2beta1/groupInvites/"+uid, ""); got.status != 200 || got.text != "" {
			t.Errorf("delete: %d %s", got.status, got.text)
		}
	}
	for body, fields := range map[string]string{
		`{}`:                                     "role_uid ttl",
		`{"roleUid":"` + role + `","ttl":"59s"}`: "ttl",
		`{"roleUid":"` + role + `","ttl":"-3600s"}`:                              "ttl",
		`{"roleUid":"` + role + `","ttl":"315576000000s"}`:                       "ttl",
		`{"roleUid":"` + role + `","ttl":"1h"}`:                                  "ttl",
		`{"roleUid":"` + role + `","ttl":"60s","email":"ann"}`:                   "email",
		`{"roleUid":"` + role + `","ttl":"60s","email":"Ann <ann@example.com>"}`: "email",
	} {
		if got := w.do(t, "POST /iam/v2beta1/groupInvites/"+org, body); strings.Join(got.violations(), " ") != fields {
			t.Errorf("%s: %s, want complaints about %s", body, got.text, fields)
		}
	}
}

func TestMappingOverJSON(t *testing.T) {
	w := newWorld(t)
	org := string(w.org)
	s := w.stage(t, "dev")
	viewer, editor := string(resource.ManagedRoleUID("viewer")), string(resource.ManagedRoleUID("editor"))
	made := w.do(t, "POST /iam/v2beta1/externalGroupRoleMappings/"+s.provider,
		`{"externalGroupId":"staff","roleUid":"`+editor+`"}`)
	uid, _ := made.field("uid").(string)
	at, _ := made.field("createTime").(string)
	if want := `{"uid":"` + uid + `","identityProviderUid":"` + s.provider + `","externalGroupId":"staff",` +
		`"roleUid":"` + editor + `","scope":"` + org + `","createTime":"` + at + `"}`; made.text != want {
		t.Fatalf("create: %s\nwant %s", made.text, want)
	}
	if got := w.do(t, "GET /iam/v2beta1/externalGroupRoleMappings/"+uid, ""); got.text != made.text {
		t.Errorf("get: %s\nwant %s", got.text, made.text)
	}
	for provider, total := range map[string]string{s.provider: "2", s.unused: "0", "": "2"} {
		if got := w.do(t, "GET /iam/v2beta1/externalGroupRoleMappings?identity_provider_uid="+provider,
			""); got.field("totalCount") != total {
			t.Errorf("list of %q: %s, want %s", provider, got.text, total)
		}
	}
	const batch = "POST /iam/v2beta1/externalGroupRoleMappings:batchDelete"
	names := func(parent string, uids ...string) string {
		return `{"parent":"` + parent + `","names":["` + strings.Join(uids, `","`) + `"]}`
	}
	many := strings.Split(strings.Repeat(uid+",", resource.MaxBatchDelete)+uid, ",")
	for _, tt := range []struct{ request, body, fields string }{
		{
			"POST /iam/v2beta1/externalGroupRoleMappings/" + s.provider, `{"scope":"` + s.folder + `"}`,
			"external_group_id role_uid scope",
		},
		{
			"POST /iam/v2beta1/externalGroupRoleMappings/" + s.provider,
			`{"externalGroupId":"x","roleUid":"` + viewer + `","scope":"x"}`, "scope scope",
		},
		{"GET /iam/v2beta1/externalGroupRoleMappings?identity_provider_uid=x", "", "identity_provider_uid"},
		{batch, `{"parent":"` + s.provider + `"}`, "names"},
		{batch, names("x"), "parent"},
		{batch, names(s.provider, uid, "x", ""), "names[1] names[2]"},
		{batch, names(s.provider, uid, s.unused), "names[1]"},
		{batch, names(s.provider, many...), "names"},
	} {
		if got := w.do(t, tt.request, tt.body); strings.Join(got.violations(), " ") != tt.fields {
			t.Errorf("%s %.200s: %s, want complaints about %s", tt.request, tt.body, got.text, tt.fields)
		}
	}
	if got := w.do(t, "PATCH /iam/v2beta1/externalGroupRoleMappings/"+uid, `{}`); got.status != 405 {
		t.Errorf("update: %d %s", got.status, got.text)
	}
	got := w.do(t, batch, names(s.provider, uid, s.provider+"/0123456789abcdef"))
	if want := `{"parent":"` + s.provider + `","externalGroupRoleMappings":[` + made.text + `]}`; got.text != want {
		t.Errorf("batch: %s\nwant %s", got.text, want)
	}
	if got := w.do(t, batch,
		names(s.provider, uid)); got.text != `{"parent":"`+s.provider+`","externalGroupRoleMappings":[]}` {
		t.Errorf("batch again: %s", got.text)
	}
	if got := w.do(t, "DELETE /iam/v2beta1/identityProviders/"+s.provider, ""); got.status != 400 ||
		!strings.Contains(got.text, "mappings") {
		t.Errorf("delete of a provider with mappings: %s", got.text)
	}
	for _, status := range []int{200, 404} {
		if got := w.do(t, "DELETE /iam/v2beta1/externalGroupRoleMappings/"+s.mapping, ""); got.status != status {
			t.Errorf("delete: %d %s, want %d", got.status, got.text, status)
		}
	}
}
