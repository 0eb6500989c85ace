package api_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func TestProviderOverJSON(t *testing.T) {
	w := newWorld(t)
	viewer, editor := string(resource.ManagedRoleUID("viewer")), string(resource.ManagedRoleUID("editor"))
	made := w.do(t, "POST /iam/v2beta1/identityProviders/"+string(w.org),
		`{"name":"idp","defaultRole":"`+viewer+`","oidc":{"issuer":"https://idp.example.com","clientId":"c",`+
			`"clientSecret":"hush","additionalScopes":["email","groups"],"groupsClaim":"groups",`+
			`"correlationRule":"CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID"}}`)
	at, _ := made.field("createTime").(string)
	uid, _ := made.field("uid").(string)
	want := `{"uid":"` + uid + `","name":"idp","description":"","createTime":"` + at + `","updateTime":"` + at +
		`","defaultRole":"` + viewer + `",` +
		`"oidc":{"issuer":"https://idp.example.com","clientId":"c","additionalScopes":["email","groups"],` +
		`"groupsClaim":"groups",` +
		`"correlationRule":"CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID","pkceEnabled":false},"sharedRedirect":true}`
	if made.text != want {
		t.Fatalf("create: %s\nwant %s", made.text, want)
	}
	// Only Get returns the state of the directory.
	scim := `,"scim":{"enabled":false,"endpointUrl":"https://here.test/scim/v2/` + uid[len(uid)-16:] +
		`","credentialState":"CREDENTIAL_STATE_NOT_ISSUED","etag":"0"}`
	want = strings.Replace(made.text, `,"sharedRedirect"`, scim+`,"sharedRedirect"`, 1)
	if got := w.do(t, "GET /iam/v2/identityProviders/"+uid, ""); got.text != want {
		t.Errorf("get: %s\nwant %s", got.text, want)
	}
	list := w.do(t, "GET /iam/v2beta1/identityProviders?name=idp&uidp.children_of="+string(w.org), "")
	if want := `{"identityProviders":[` + made.text +
		`],"nextPageToken":"","totalCount":"1","skipped":0}`; list.text != want {
		t.Errorf("list: %s\nwant %s", list.text, want)
	}
	path := "PATCH /iam/v2beta1/identityProviders/" + uid
	steps := []struct{ query, body, want string }{
		{"", `{"description":"d"}`, `"description":"d"`},
		{"", `{"defaultRole":"` + editor + `"}`, `"defaultRole":"` + editor + `"`},
		{
			"", `{"oidc":{"clientId":"d","clientSecret":"hush"}}`,
			`"oidc":{"issuer":"https://idp.example.com","clientId":"d","additionalScopes":["email","groups"]`,
		},
		{"?updateMask=oidc.additionalScopes", `{"oidc":{"clientId":"ignored"}}`, `"clientId":"d","additionalScopes":[]`},
		// The correlation rule keeps its value.
		{
			"?updateMask=oidc.correlation_rule", `{"oidc":{"correlationRule":2}}`,
			`"correlationRule":"CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID"`,
		},
		// shared_redirect cannot be unset once it is true.
		{"?updateMask=shared_redirect", `{}`, `"sharedRedirect":true`},
		{"?updateMask=scim,uid", `{"scim":{"enabled":true},"uid":"x"}`, `"uid":"` + uid + `"`},
	}
	for _, s := range steps {
		if got := w.do(t, path+s.query, s.body); got.status != 200 || !strings.Contains(got.text, s.want) ||
			got.field("scim") != nil {
			t.Errorf("%s %s: %s\nwant %s", s.query, s.body, got.text, s.want)
		}
	}
	refused := map[string]string{
		`{"oidc":{"correlationRule":"CORRELATION_RULE_SUB_EQUALS_EXTERNAL_ID"}}`: "oidc.correlation_rule",
		`{"oidc":{"correlationRule":7}}`:                                         "oidc.correlation_rule",
		`{"oidc":null}`:                                                          "oidc",
		`{"oidc":{"issuer":"ftp://x","clientId":""},"name":"A"}`:                 "name oidc.issuer oidc.client_id",
		`{"defaultRole":"x"}`:                                                    "default_role",
	}
	for body, fields := range refused {
		if got := w.do(t, path, body); strings.Join(got.violations(), " ") != fields {
			t.Errorf("%s: %s, want complaints about %s", body, got.text, fields)
		}
	}
	if got := w.do(t, "DELETE /iam/v2beta1/identityProviders/"+uid, ""); got.status != 200 || got.text != "" {
		t.Errorf("delete: %d %s", got.status, got.text)
	}
	if got := w.do(t, "DELETE /iam/v2beta1/identityProviders/"+uid, ""); got.status != 404 {
		t.Errorf("delete again: %d %s", got.status, got.text)
	}
}

// TestClientSecret: the client secret changes only if an update contains it. It is stored
// sealed, and no answer contains it.
func TestClientSecret(t *testing.T) {
	const basis = `"issuer":"https://idp.example.com","clientId":"c","pkceEnabled":true`
	whole := func(secret string) string {
		return `{"name":"idp","defaultRole":"` + string(resource.ManagedRoleUID("viewer")) +
			`","oidc":{` + basis + secret + `}}`
	}
	steps := map[string]struct{ query, body, want string }{
		"something else changes":             {"", `{"description":"x"}`, "hush-old"},
		"another field of the configuration": {"", `{"oidc":{"groupsClaim":"g"}}`, "hush-old"},
		"sent, and not in the mask": {
			"?updateMask=oidc.issuer,name", whole(`,"clientSecret":"hush-new"`), "hush-old",
		},
		"an answer sent back": {"", whole(""), "hush-old"},
		"sent":                {"", `{"oidc":{"clientSecret":"hush-new"}}`, "hush-new"},
		"sent and in the mask": {
			"?updateMask=oidc.clientSecret", `{"oidc":{"clientSecret":"hush-new"}}`, "hush-new",
		},
		"the configuration in the mask": {"?updateMask=oidc", whole(`,"clientSecret":"hush-new"`), "hush-new"},
		"everything in the mask":        {"?updateMask=*", whole(`,"clientSecret":"hush-new"`), "hush-new"},
		"sent empty":                    {"", `{"oidc":{"clientSecret":""}}`, ""},
		"in the mask and not sent":      {"?updateMask=oidc.client_secret", `{}`, ""},
		"the configuration, without it": {"?updateMask=oidc", whole(""), ""},
		"everything, without it":        {"?updateMask=*", whole(""), ""},
	}
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		w := newWorldOn(t, s)
		answers := ""
		for name, tt := range steps {
			t.Run(name, func(t *testing.T) {
				uid := w.make(t, "identityProviders/"+string(w.org), whole(`,"clientSecret":"hush-old"`))
				got := w.do(t, "PATCH /iam/v2beta1/identityProviders/"+uid+tt.query, tt.body)
				if secret := w.secret(t, uid); got.status != 200 || secret != tt.want {
					t.Errorf("stored %q, want %q: %d %s", secret, tt.want, got.status, got.text)
				}
				answers += got.text + w.do(t, "GET /iam/v2beta1/identityProviders/"+uid, "").text
				w.do(t, "DELETE /iam/v2beta1/identityProviders/"+uid, "")
			})
		}
		uid := w.make(t, "identityProviders/"+string(w.org), whole(`,"clientSecret":"hush-old"`))
		for _, bad := range []string{
			`{"oidc":{"clientSecret":"hush-x","pkceEnabled":7}}`, `{"oidc":{"clientSecret":"","pkceEnabled":false}}`,
			`{"oidc":{"clientSecret":"hush-x"},"name":"A"}`,
		} {
			got := w.do(t, "PATCH /iam/v2beta1/identityProviders/"+uid, bad)
			if got.status != 400 || w.secret(t, uid) != "hush-old" {
				t.Errorf("%s: %d, stored %q", bad, got.status, w.secret(t, uid))
			}
			answers += got.text
		}
		answers += w.do(t, "GET /iam/v2beta1/identityProviders", "").text + w.log.String()
		for _, e := range check(outbox.Read(t.Context(), s.DB, 0, 1000))(t) {
			answers += string(e.Before) + string(e.After) + fmt.Sprintf("%+v", e)
		}
		if strings.Contains(answers, "hush") || strings.Contains(answers, "lientSecret\"") {
			t.Errorf("the secret is in an answer, an event or the log: %s", answers)
		}
	})
}

// secret returns the client secret of a provider from the database, in plain text, or ""
// if it has none.
func (w *world) secret(t *testing.T, uid string) string {
	t.Helper()
	sealed := check(w.store.Provider(t.Context(), resource.UID(uid)))(t).OIDC.ClientSecret.Sealed
	if len(sealed) == 0 {
		return ""
	}
	return string(check(w.key.Open("client secret", sealed))(t))
}

// TestClientSecretOverGRPC: over gRPC, only the mask can clear the secret, because an
// empty field and a field that was not sent look the same.
func TestClientSecretOverGRPC(t *testing.T) {
	w := newWorld(t)
	uid := w.make(t, "identityProviders/"+string(w.org),
		`{"name":"idp","defaultRole":"`+string(resource.ManagedRoleUID("viewer"))+`",`+oidc+`}`)
	steps := []struct {
		secret string
		mask   []string
		want   string
	}{
		{"", nil, "hush"},
		{"", []string{"oidc.groups_claim"}, "hush"},
		{"ignored", []string{"oidc.groups_claim"}, "hush"},
		{"other", nil, "other"},
		{"third", []string{"oidc.client_secret"}, "third"},
		{"", []string{"oidc.client_secret"}, ""},
	}
	for _, s := range steps {
		p := &iampb.IdentityProvider{
			Uid: uid,
			Configuration: &iampb.IdentityProvider_Oidc{
				Oidc: &iampb.IdentityProvider_OIDC{ClientSecret: s.secret, GroupsClaim: "g"},
			},
		}
		got, err := iampb.NewIdentityProvidersServiceClient(w.conn).UpdateIdentityProvider(w.ctx(t),
			&iampb.UpdateIdentityProviderRequest{IdentityProvider: p, UpdateMask: &fieldmaskpb.FieldMask{Paths: s.mask}})
		if err != nil || got.GetOidc().GetClientSecret() != "" || w.secret(t, uid) != s.want {
			t.Errorf("%q with mask %v: stored %q, want %q; answer %v, error %v", s.secret, s.mask, w.secret(t, uid), s.want,
				got, err)
		}
	}
}
