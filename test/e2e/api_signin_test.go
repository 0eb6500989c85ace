package e2e_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// signInExamples returns example calls for the sign-in methods.
func signInExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	account := func(email string) string {
		r := w.send(t, w.Token, "POST", "/signin/v1/accounts/"+x.org, `{"email":"`+email+`","name":"N"}`)
		var made struct {
			Account struct{ UID, IdentityUID string }
		}
		if err := json.Unmarshal([]byte(r.body), &made); err != nil || r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
		return made.Account.UID
	}
	kept, spare := account("kept@example.test"), account("spare@example.test")
	viewer, nothing := string(resource.ManagedRoleUID("viewer")), x.org+"/0123456789abcdef"
	var invite struct{ Code string }
	r := w.send(t, w.Token, "POST", "/iam/v2beta1/groupInvites/"+x.folder, `{"roleUid":"`+viewer+`","ttl":"3600s"}`)
	if err := json.Unmarshal([]byte(r.body), &invite); err != nil {
		t.Fatal(err)
	}
	leaver := w.mint(t, ada, token.Claims{Act: &resource.Upstream{Issuer: "https://issuer.test", Subject: "x"}})
	idp := w.post(t, "/iam/v2beta1/identityProviders/"+x.org,
		`{"name":"tried","defaultRole":"`+viewer+`","disabled":true,"oidc":{"issuer":"https://127.0.0.1:1",`+
			`"clientId":"c","clientSecret":"s"}}`)
	key := base64.RawURLEncoding.EncodeToString(make([]byte, sha256.Size))
	return map[string][]example{
		"Auth_Validate": {{}, {as: "nonsense", fails: true}},
		"Auth_Register": {
			{body: `{"code":"` + invite.Code + `"}`}, {body: `{"code":"x"}`, fails: true}, {body: `{}`, fails: true},
		},
		"Auth_GetHeadlessSession": {{query: "code=" + key, fails: true}, {query: "code=x", fails: true}},
		"Auth_Delete":             {{uid: string(ada), as: leaver}, {uid: x.org, fails: true}},

		"SignInService_ListSessions": {{}, {query: "identity_uid=" + x.identity}, {query: "identity_uid=x", fails: true}},
		"SignInService_EndSession":   {{uid: "-"}, {uid: "current", fails: true}, {uid: "x", fails: true}},
		"SignInService_CreateAccount": {
			{uid: x.org, body: `{"email":"new@example.test","roleUid":"` + viewer + `"}`},
			{uid: x.org, body: `{}`, fails: true},
			{uid: x.org, body: `{"email":"new@example.test"}`, fails: true},
		},
		"SignInService_CreateAccountLink": {
			{uid: kept, body: `{"resetFactors":true}`}, {uid: nothing, body: `{}`, fails: true},
		},
		"SignInService_ListAccounts":   {{}, {all: true}, {query: "page_size=-1", fails: true}},
		"SignInService_DeleteAccount":  {{uid: spare}, {uid: spare, fails: true}},
		"SignInService_GetSignInRules": {{uid: x.org}, {uid: "x", fails: true}},
		"SignInService_UpdateSignInRules": {
			{uid: x.org, body: `{"localAccounts":true}`}, {uid: x.org, body: `{"localAccounts":false}`, fails: true},
		},
		"SignInService_TestIdentityProvider": {{body: `{"uid":"` + idp + `"}`}, {body: `{}`, fails: true}},
		"SignInService_ListJoins":            {{query: "parent=" + x.folder}, {fails: true}},
	}
}

func badSignIn(x things) map[string]badRequest {
	create := func(email, name string) *signinpb.CreateAccountRequest {
		return &signinpb.CreateAccountRequest{Parent: x.org, Account: &signinpb.Account{Email: email, Name: name}}
	}
	table := map[string]badRequest{
		"an account of nothing": {"email", &signinpb.CreateAccountRequest{Parent: x.org}},
		"an account in a folder": {
			"parent", &signinpb.CreateAccountRequest{Parent: x.folder, Account: &signinpb.Account{Email: "a@b.test"}},
		},
		"an account with a bad role": {
			"role_uid",
			&signinpb.CreateAccountRequest{Parent: x.org, Account: &signinpb.Account{Email: "a@b.test", RoleUid: "viewer"}},
		},
		"an account with a low role": {
			"role_uid",
			&signinpb.CreateAccountRequest{Parent: x.org, Account: &signinpb.Account{Email: "a@b.test", RoleUid: x.role}},
		},
		"a name with a line break":  {"name", create("a@b.test", "a\nb")},
		"a name without end":        {"name", create("a@b.test", strings.Repeat("x", 129))},
		"sessions of a word":        {"identity_uid", &signinpb.ListSessionsRequest{IdentityUid: "x"}},
		"the end of too long an id": {"id", &signinpb.EndSessionRequest{Id: strings.Repeat("x", 65)}},
		"the end of an id with NUL": {"id", &signinpb.EndSessionRequest{Id: "a\x00b"}},
		"accounts of a NUL":         {"email", &signinpb.ListAccountsRequest{Email: "a\x00b"}},
		"the end of whose":          {"identity_uid", &signinpb.EndSessionRequest{Id: "-", IdentityUid: "x"}},
		"rules of nothing":          {"uid", &signinpb.GetSignInRulesRequest{Uid: "x"}},
		"rules of a folder": {
			"uid", &signinpb.UpdateSignInRulesRequest{Uid: x.folder, Rules: &signinpb.SignInRules{LocalAccounts: true}},
		},
		"a test of nothing": {"uid", &signinpb.TestIdentityProviderRequest{}},
		"a test of two": {
			"uid", &signinpb.TestIdentityProviderRequest{Uid: x.provider, IdentityProvider: provider("x")},
		},
		"a test without a group": {"parent", &signinpb.TestIdentityProviderRequest{IdentityProvider: provider("x")}},
		"a test of a bad one": {
			"name", &signinpb.TestIdentityProviderRequest{Parent: x.org, IdentityProvider: &iampb.IdentityProvider{}},
		},
		"joins of nothing":          {"parent", &signinpb.ListJoinsRequest{}},
		"accounts by nothing":       {"order_by", &signinpb.ListAccountsRequest{OrderBy: "password"}},
		"accounts, fewer than none": {"page_size", &signinpb.ListAccountsRequest{PageSize: -1}},
		"oneself by a word":         {"id", &authpb.DeletionRequest{Id: "x"}},
	}
	for name, email := range map[string]string{
		"none":                  "",
		"a word":                "x",
		"two":                   "a@b.test, c@d.test",
		"a name and an address": "A <a@b.test>",
		"a NUL":                 "a\x00@b.test",
		"a line break":          "a@b.test\nx",
		"without end":           strings.Repeat("x", 300) + "@b.test",
	} {
		table["an account with an address that is "+name] = badRequest{"email", create(email, "")}
	}
	for name, uid := range badUIDValues(x) {
		table["a link of "+name] = badRequest{"uid", &signinpb.CreateAccountLinkRequest{Uid: uid}}
		table["deleting "+name] = badRequest{"uid", &signinpb.DeleteAccountRequest{Uid: uid}}
	}
	return table
}

// signInAccesses returns, by name, the sign-in methods that act on one place.
func (h *hierarchy) signInAccesses() map[string]access {
	folder := func(*testing.T) string { return h.folder }
	return map[string]access{
		"GetSignInRules": {"identity_providers.list", folder, func(uid string) proto.Message {
			return &signinpb.GetSignInRulesRequest{Uid: uid}
		}},
		"ListJoins": {"group_invites.list", folder, func(uid string) proto.Message {
			return &signinpb.ListJoinsRequest{Parent: uid}
		}},
	}
}

// signsIn calls the sign-in methods for an organization. Callers with rights on only a part of the organization, or
// without the capability, must be denied, whether or not the resource exists.
func (h *hierarchy) signsIn(t *testing.T, call caller) {
	made := must[*signinpb.CreateAccountResponse](t, call, h.full["org"], &signinpb.CreateAccountRequest{
		Parent: h.org, Account: &signinpb.Account{Email: h.name() + "@example.test"},
	}).GetAccount()
	idp := h.idp(t, h.org, h.name())
	for capability, in := range map[string]proto.Message{
		"identity.create": &signinpb.CreateAccountRequest{
			Parent: h.org, Account: &signinpb.Account{Email: h.name() + "@example.test"},
		},
		"identity.update": &signinpb.CreateAccountLinkRequest{Uid: made.GetUid()},
		"identity.delete": &signinpb.DeleteAccountRequest{Uid: made.GetUid()},
		"identity_providers.update": &signinpb.UpdateSignInRulesRequest{
			Uid: h.org, Rules: &signinpb.SignInRules{LocalAccounts: true},
		},
		"identity_providers.list": &signinpb.TestIdentityProviderRequest{Uid: idp},
	} {
		for who, bearer := range map[string]string{
			"of a folder":  h.full["folder"],
			"of a sibling": h.full["sibling"],
			"of another":   h.full["other"],
			"lacking it":   h.lacking[capability],
		} {
			if _, st := call(t, bearer, in); st.Code() != codes.PermissionDenied {
				t.Errorf("%s, an owner %s: %v", capability, who, st)
			}
		}
		if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
			t.Errorf("%s without a token: %v", capability, st)
		}
	}
	for who, bearer := range map[string]string{"of another": h.full["other"], "lacking it": h.lacking["identity.update"]} {
		for _, in := range []proto.Message{
			&signinpb.ListSessionsRequest{IdentityUid: made.GetIdentityUid()},
			&signinpb.EndSessionRequest{Id: "-", IdentityUid: made.GetIdentityUid()},
		} {
			if _, st := call(t, bearer, in); st.Code() != codes.PermissionDenied {
				t.Errorf("sessions of another person, as an owner %s: %v", who, st)
			}
		}
	}
	must[*signinpb.ListSessionsResponse](t, call, h.full["org"], &signinpb.ListSessionsRequest{
		IdentityUid: made.GetIdentityUid(),
	})
	seen := must[*signinpb.ListAccountsResponse](t, call, h.full["other"], &signinpb.ListAccountsRequest{})
	if len(seen.GetAccounts()) > 0 {
		t.Errorf("an owner of another organization lists the accounts %v", seen)
	}
	if seen := must[*signinpb.ListAccountsResponse](t, call, h.full["org"], &signinpb.ListAccountsRequest{
		Email: made.GetEmail(),
	}); len(seen.GetAccounts()) != 1 ||
		seen.GetTotalCount() != 1 {
		t.Errorf("the owner lists %v, want one account", seen)
	}
}
