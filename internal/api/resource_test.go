package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestRelationshipsOverJSON: a relationship of any kind is returned unchanged. An update
// with a mask can change a part of it or replace it by another kind.
func TestRelationshipsOverJSON(t *testing.T) {
	const keySet = `"{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",` +
		`\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}"`
	end := time.Now().Add(30 * 24 * time.Hour).UTC().Format("2006-01-02T15:04:05.000Z")
	tests := map[string]struct{ body, patch, query, want string }{
		"claims": {
			`"claimMatch":{"issuer":"https://ci.example.com","subjectPattern":"repo:acme/.*","audience":"x",` +
				`"claims":{"a":"b"},"claimPatterns":{"c":"d.*"}}`,
			`{"claimMatch":{"subject":"repo:acme/x"}}`, "",
			`"claimMatch":{"issuer":"https://ci.example.com","subject":"repo:acme/x","audience":"x","claims":{"a":"b"},` +
				`"claimPatterns":{"c":"d.*"}}`,
		},
		"keys": {
			`"staticKeys":{"issuer":"https://ci.example.com","subject":"s","issuerKeys":` + keySet +
				`,"expirationTime":"` + end + `","audiences":["x"]}`,
			`{"staticKeys":{"subject":"t","audiences":[]}}`, "",
			`"staticKeys":{"issuer":"https://ci.example.com","subject":"t","issuerKeys":` + keySet +
				`,"expirationTime":"` + end + `","audiences":[]}`,
		},
		"aws": {
			`"awsIdentity":{"awsAccount":"123456789012","arn":"arn:aws:iam::123456789012:role/x","userIdPattern":"AROA.*:ci"}`,
			`{"awsIdentity":{"arnPattern":"arn:aws:iam::123456789012:role/.*x","awsAccount":"ignored"}}`,
			"?updateMask=awsIdentity.arnPattern",
			`"awsIdentity":{"awsAccount":"123456789012","arnPattern":"arn:aws:iam::123456789012:role/.*x",` +
				`"userIdPattern":"AROA.*:ci"}`,
		},
		"a service principal": {
			`"servicePrincipal":"SERVICE_PRINCIPAL_INGESTER"`,
			`{"claimMatch":{"issuer":"https://ci.example.com","subject":"s"}}`, "?updateMask=claim_match",
			`"claimMatch":{"issuer":"https://ci.example.com","subject":"s","claims":{},"claimPatterns":{}}`,
		},
	}
	w := newWorld(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			made := w.do(t, "POST /iam/v2beta1/identities/"+string(w.org), `{"name":"ci",`+tt.body+`}`)
			if made.status != 200 || !strings.Contains(made.text, tt.body) {
				t.Fatalf("create: %d %s\nwant %s", made.status, made.text, tt.body)
			}
			uid := made.field("uid").(string)
			if got := w.do(t, "GET /iam/v2beta1/identities/"+uid, ""); got.text != made.text {
				t.Errorf("get: %s\nwant %s", got.text, made.text)
			}
			if got := w.do(t, "PATCH /iam/v2beta1/identities/"+uid+tt.query, tt.patch); !strings.Contains(got.text, tt.want) {
				t.Errorf("update: %s\nwant %s", got.text, tt.want)
			}
		})
	}
}

func TestRoleOverJSON(t *testing.T) {
	w := newWorld(t)
	made := w.do(t, "POST /iam/v2beta1/roles/"+string(w.org),
		`{"name":"r","capabilities":["CAP_IAM_GROUPS_LIST",101,"CAP_IAM_GROUPS_LIST"]}`)
	if want := `"capabilities":["CAP_IAM_GROUPS_CREATE","CAP_IAM_GROUPS_LIST"]`; !strings.Contains(made.text, want) {
		t.Fatalf("create: %s\nwant %s", made.text, want)
	}
	uid := made.field("uid").(string)
	got := w.do(t, "PATCH /iam/v2beta1/roles/"+uid, `{"capabilities":["CAP_IAM_ROLES_LIST"]}`)
	if !strings.Contains(got.text, `"capabilities":["CAP_IAM_ROLES_LIST"]`) || got.field("name") != "r" {
		t.Errorf("update: %s", got.text)
	}
	if got := w.do(t, "PATCH /iam/v2beta1/roles/"+uid,
		`{"capabilities":[101,1]}`); strings.Join(got.violations(), " ") != "capabilities" {
		t.Errorf("update with a number there is none of: %s", got.text)
	}
}

func TestBindingOverJSON(t *testing.T) {
	w := newWorld(t)
	viewer, editor := string(resource.ManagedRoleUID("viewer")), string(resource.ManagedRoleUID("editor"))
	owner := string(w.owner.UID)
	sub := w.do(t, "POST /iam/v2beta1/groups/"+string(w.org), `{"name":"dev"}`).field("uid").(string)
	made := w.do(t, "POST /iam/v2beta1/roleBindings/"+sub, `{"identityUid":"`+owner+`","roleUid":"`+viewer+`"}`)
	for path, want := range map[string]string{
		"identity.uid": owner, "identity.name": "owner", "identity.issuer": "https://issuer.example.com",
		"identity.subject": "owner",
		"group.uid":        sub, "group.name": "dev", "role.uid": viewer, "role.name": "viewer",
	} {
		if got := made.field(path); got != want {
			t.Errorf("%s = %v, want %s: %s", path, got, want, made.text)
		}
	}
	if made.field("identityUid") != nil || made.field("roleUid") != nil {
		t.Errorf("the answer has what clients send: %s", made.text)
	}
	got := w.do(t, "PATCH /iam/v2beta1/roleBindings/"+made.field("uid").(string), `{"roleUid":"`+editor+`"}`)
	if got.field("role.uid") != editor || got.field("identity.uid") != owner {
		t.Errorf("update: %s", got.text)
	}
	one := `{"roleBinding":{"identityUid":"` + owner + `"}}`
	batch := w.do(t, "POST /iam/v2beta1/roleBindings:batchCreate",
		`{"parent":"`+sub+`","roleUid":"`+viewer+`","requests":[`+one+`]}`)
	if list, _ := batch.field("roleBindings").([]any); len(list) != 1 || !strings.Contains(batch.text, viewer) {
		t.Errorf("batch: %d %s", batch.status, batch.text)
	}
	many := strings.TrimSuffix(strings.Repeat(one+",", resource.MaxBatch+1), ",")
	tooMany := `{"parent":"` + sub + `","roleUid":"` + viewer + `","requests":[` + many + `]}`
	if got := w.do(t, "POST /iam/v2beta1/roleBindings:batchCreate",
		tooMany); strings.Join(got.violations(), " ") != "requests" {
		t.Errorf("a batch of too many: %s", got.text)
	}
	bad := w.do(t, "POST /iam/v2beta1/roleBindings:batchCreate",
		`{"parent":"`+sub+`","roleUid":"`+viewer+`","requests":[`+one+`,{"parent":"x",`+
			`"roleBinding":{"roleUid":"`+editor+`"}}]}`)
	if got := strings.Join(bad.violations(), " "); got != "requests[1].parent requests[1].role_binding.role_uid "+
		"requests[1].role_binding.identity_uid" {
		t.Errorf("a batch that contradicts itself: %s", bad.text)
	}
}

// TestDisplayNameOverJSON: bindings and events contain display names. Both Unicode forms of
// a name are stored as the same name. Version 1 has no display names, so its updates
// do not change them.
func TestDisplayNameOverJSON(t *testing.T) {
	w := newWorld(t)
	g := w.do(t, "POST /iam/v2beta1/groups/"+string(w.org), `{"name":"web","displayName":"Zoe\u0308s La\u0308den"}`)
	uid, _ := g.field("uid").(string)
	if g.field("displayName") != "Zoës Läden" || g.field("name") != "web" {
		t.Fatalf("create: %s", g.text)
	}
	if got := w.do(t, "PATCH /iam/v2beta1/groups/"+uid,
		`{"description":"new"}`); got.field("displayName") != "Zoës Läden" {
		t.Errorf("an update of another field: %s", got.text)
	}
	i := w.do(t, "POST /iam/v2beta1/identities/"+uid,
		`{"name":"ci","displayName":"Die Pipeline","claimMatch":{"issuer":"https://ci.example.com","subject":"s"}}`)
	ci, _ := i.field("uid").(string)
	b := w.do(t, "POST /iam/v2beta1/roleBindings/"+uid,
		`{"identityUid":"`+ci+`","roleUid":"`+string(resource.ManagedRoleUID("viewer"))+`"}`)
	if b.field("identity.displayName") != "Die Pipeline" || b.field("group.displayName") != "Zoës Läden" {
		t.Errorf("a binding: %s", b.text)
	}
	for path, body := range map[string]string{
		"PUT /iam/v1/groups/" + uid:    `{"name":"shop"}`,
		"PUT /iam/v1/identities/" + ci: `{"name":"ci","claimMatch":{"issuer":"https://ci.example.com","subject":"t"}}`,
	} {
		if got := w.do(t, path, body); got.status != 200 || strings.Contains(got.text, "isplay") {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
	if got := w.do(t, "GET /iam/v2beta1/groups/"+uid, ""); got.field("displayName") != "Zoës Läden" ||
		got.field("name") != "shop" {
		t.Errorf("after version 1: %s", got.text)
	}
	if got := w.do(t, "GET /iam/v2beta1/identities/"+ci, ""); got.field("displayName") != "Die Pipeline" ||
		got.field("claimMatch.subject") != "t" {
		t.Errorf("after version 1: %s", got.text)
	}
	if got := w.do(t, "PATCH /iam/v2beta1/groups/"+uid+"?updateMask=displayName", `{}`); got.status != 200 ||
		strings.Contains(got.text, "isplay") {
		t.Errorf("taken away: %s", got.text)
	}
	if got := w.do(t, "PATCH /iam/v2beta1/groups/"+uid,
		`{"displayName":"a\u202eb"}`); strings.Join(got.violations(), " ") != "display_name" {
		t.Errorf("a character that turns the text: %s", got.text)
	}
}

func TestMetadataOverJSON(t *testing.T) {
	w := newWorld(t)
	const path = "PATCH /iam/v2beta1/identities:updateIdentityMetadata"
	got := w.do(t, path,
		`{"identityMetadata":{"company":"acme","jobTitle":"x","updatesOptIn":true,"uid":"other","givenName":"ignored"}}`)
	if got.field("company") != "acme" || got.field("jobTitle") != "x" || got.field("updatesOptIn") != true ||
		got.field("uid") != string(w.owner.UID) || got.field("givenName") != "" {
		t.Fatalf("%d %s", got.status, got.text)
	}
	got = w.do(t, path, `{"identityMetadata":{"jobTitle":"ignored"},"updateMask":"updatesOptIn"}`)
	if got.field("jobTitle") != "x" || got.field("updatesOptIn") != false || got.field("company") != "acme" {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := w.do(t, path, `{"identityMetadata":{"jobTitle":"`+strings.Repeat("x", 3000)+`"}}`); got.status != 400 {
		t.Errorf("%d %.200s", got.status, got.text)
	}
}
