package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// TestAttackTakeover checks that a person who signs in through the identity provider of another organization cannot
// use the grants in this organization, whatever the issuer claims.
func TestAttackTakeover(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		admin := w.worker(t, w.folder, "folder admin", capabilitiespb.Capability_CAP_IAM_IDENTITY_PROVIDERS_CREATE,
			capabilitiespb.Capability_CAP_IAM_ROLE_BINDINGS_CREATE, capabilitiespb.Capability_CAP_IAM_GROUP_INVITES_CREATE)
		bare := w.role(t, w.folder, "bare", capabilitiespb.Capability_CAP_IAM_GROUP_INVITES_CREATE)
		byObject := func(p *iampb.IdentityProvider) {
			p.GetOidc().CorrelationRule = iampb.IdentityProvider_OIDC_CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID
		}
		inFolder := func(p *iampb.IdentityProvider) { p.DefaultRole = bare }
		w.child(t, w.folder, "below")
		providers := map[string]struct{ uid, idToken, group, bearer, role string }{
			"another organization": {
				w.provide(t, w.mallory, w.b, "client-b", nil), w.idToken("ann", "client-b"), w.b, w.mallory, viewer,
			},
			"another, by object": {
				w.provide(t, w.mallory, w.b, "client-o", byObject),
				w.idToken("x", "client-o", "oid", "ann"), w.b, w.mallory, viewer,
			},
			"another, with our name": {
				w.provide(t, w.mallory, w.b, w.AuthURL, nil), w.idToken("ann", w.AuthURL), w.b, w.mallory, viewer,
			},
			"another, the same client": {
				w.provide(t, w.mallory, w.b, "client-a", nil), w.idToken("ann", "client-a"), w.b, w.mallory, viewer,
			},
			"a folder's administrator": {
				w.provide(t, admin, w.folder, "client-f", inFolder), w.idToken("ann", "client-f"), w.folder, admin, bare,
			},
		}
		for name, p := range providers {
			for _, over := range []string{"HTTP", "gRPC"} {
				if got := w.through(t, over, p.uid, p.idToken); got != "" {
					t.Errorf("%s, over %s: a person without an invite becomes %s", name, over, subjectOf(t, got))
				}
			}
			came := w.join(t, p.bearer, p.group, p.role, p.idToken)
			if came == w.ann {
				t.Fatalf("%s: a person of this provider becomes ann", name)
			}
			for _, over := range []string{"HTTP", "gRPC"} {
				got := w.through(t, over, p.uid, p.idToken)
				if got == "" || subjectOf(t, got) != came || w.ruledBy(t, got, w.a) || w.ruledBy(t, got, w.folder) {
					t.Errorf("%s, over %s: the token %q has rights in a", name, over, got)
				}
			}
		}
		for what, idToken := range map[string]string{
			"for us": w.idToken("ann", w.AuthURL), "for a's client": w.idToken("ann", "client-a"),
		} {
			for _, identity := range []string{"", w.ann} {
				got, st := w.exchangeHTTP(t, idToken, w.wish(identity))
				if st == nil && (subjectOf(t, got.GetToken()) == w.ann || w.ruledBy(t, got.GetToken(), w.a)) {
					t.Errorf("a token of the issuer %s, exchanged for %q, becomes ann", what, identity)
				}
			}
		}
	})
}

// TestHonestProviders is the honest counterpart of TestAttackTakeover: people can work through the identity provider of
// their own organization, and in groups that invited them.
func TestHonestProviders(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		c, carol := w.organization(t, "c", "carol") // organization c has no identity provider
		ofB := w.provide(t, w.mallory, w.b, "client-b", nil)
		inB := w.join(t, w.mallory, w.b, ownerRole, w.idToken("ann", "client-b"))
		for _, over := range []string{"HTTP", "gRPC"} {
			ann := w.through(t, over, w.idp, w.idToken("ann", "client-a"))
			if ann == "" || subjectOf(t, ann) != w.ann || !w.ruledBy(t, ann, w.a) {
				t.Fatalf("ann with her own provider, over %s: %q", over, ann)
			}
			if over == "HTTP" {
				if got := w.join(t, carol, c, ownerRole, ann); got != w.ann {
					t.Errorf("ann was invited, but %s joined", got)
				}
			}
			if !w.ruledBy(t, ann, c) {
				t.Errorf("ann cannot work where she was invited, over %s", over)
			}
			annInB := w.through(t, over, ofB, w.idToken("ann", "client-b"))
			if annInB == "" || subjectOf(t, annInB) != inB || !w.ruledBy(t, annInB, w.b) ||
				w.ruledBy(t, annInB, w.a) || w.ruledBy(t, annInB, c) {
				t.Errorf("ann in b through b's provider, over %s: %q", over, annInB)
			}
		}
		look := func(bearer, provider string) string {
			target := "/iam/v2beta1/identities:lookupIdentity?subject=ann&issuer=" + url.QueryEscape(w.issuer.url) +
				"&identity_provider=" + url.QueryEscape(provider)
			var got struct{ UID string }
			r := w.send(t, bearer, http.MethodGet, target, "")
			if err := json.Unmarshal([]byte(r.body), &got); err != nil {
				t.Fatal(r.body)
			}
			return got.UID
		}
		mine, theirs := look(w.Token, ""), look(w.mallory, ofB)
		if mine != w.ann || theirs != inB || look(w.Token, w.idp) != w.ann || look(w.mallory, w.idp) != "" {
			t.Errorf("lookup of ann returns %s in a and %s in b", mine, theirs)
		}
	})
}

// TestAttackProviderEdit checks that a caller can change the trust settings of an identity provider only if the
// caller holds the roles that the provider's mappings grant.
func TestAttackProviderEdit(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		w.allowed(t, w.Token, &iampb.CreateExternalGroupRoleMappingRequest{
			Parent:                   w.idp,
			ExternalGroupRoleMapping: &iampb.ExternalGroupRoleMapping{ExternalGroupId: "bosses", RoleUid: ownerRole},
		})
		editor := w.worker(t, w.a, "editor", capabilitiespb.Capability_CAP_IAM_IDENTITY_PROVIDERS_UPDATE,
			capabilitiespb.Capability_CAP_IAM_ROLE_BINDINGS_CREATE)
		w.bind(t, w.a, subjectOf(t, editor), viewer)
		oidc := func(o *iampb.IdentityProvider_OIDC) *iampb.IdentityProvider {
			return &iampb.IdentityProvider{Uid: w.idp, Configuration: &iampb.IdentityProvider_Oidc{Oidc: o}}
		}
		changes := map[string]*iampb.UpdateIdentityProviderRequest{
			"the issuer": masked(oidc(&iampb.IdentityProvider_OIDC{Issuer: "https://evil.example", ClientSecret: "s"}),
				"oidc.issuer", "oidc.client_secret"),
			"the client": masked(oidc(&iampb.IdentityProvider_OIDC{ClientId: "evil", ClientSecret: "s"}),
				"oidc.client_id", "oidc.client_secret"),
			"the groups claim": masked(oidc(&iampb.IdentityProvider_OIDC{GroupsClaim: "nicknames"}), "oidc.groups_claim"),
			"the secret":       masked(oidc(&iampb.IdentityProvider_OIDC{ClientSecret: "s"}), "oidc.client_secret"),
			"the scopes": masked(oidc(&iampb.IdentityProvider_OIDC{AdditionalScopes: []string{"nicknames"}}),
				"oidc.additional_scopes"),
			"the correlation rule": masked(oidc(&iampb.IdentityProvider_OIDC{CorrelationRule: 2, ClientSecret: "s"}),
				"oidc.correlation_rule", "oidc.client_secret"),
			"whether it is used": masked(&iampb.IdentityProvider{Uid: w.idp, Disabled: true}, "disabled"),
			"the default role":   masked(&iampb.IdentityProvider{Uid: w.idp, DefaultRole: viewer}, "default_role"),
		}
		for what, change := range changes {
			w.refused(t, what, editor, change, codes.PermissionDenied)
		}
		w.allowed(t, editor, masked(&iampb.IdentityProvider{Uid: w.idp, Description: "ours"}, "description"))
		for _, what := range []string{"the groups claim", "the scopes", "the issuer"} {
			w.allowed(t, w.Token, changes[what])
		}
	})
}

// TestAttackProviderBelief: if the trust settings of a provider change, then the tokens of its people are revoked.
// The people count as new people unless an owner keeps them. The old client secret is never sent to a new issuer.
func TestAttackProviderBelief(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		ann := w.through(t, "HTTP", w.idp, w.idToken("ann", "client-a"))
		rechristen := func(client, secret string, keep bool) *iampb.UpdateIdentityProviderRequest {
			r := masked(&iampb.IdentityProvider{
				Uid: w.idp,
				Configuration: &iampb.IdentityProvider_Oidc{Oidc: &iampb.IdentityProvider_OIDC{
					ClientId: client, ClientSecret: secret,
				}},
			}, "oidc.client_id")
			if secret != "" {
				r.UpdateMask.Paths = append(r.UpdateMask.Paths, "oidc.client_secret")
			}
			r.KeepPeople = keep
			return r
		}
		w.refused(t, "another client with the old secret", w.Token, rechristen("client-2", "", false), codes.InvalidArgument)
		w.allowed(t, w.Token, rechristen("client-2", "new", false))
		if w.ruledBy(t, ann, w.a) {
			t.Error("a token from before the change is still valid")
		}
		if got := w.through(t, "HTTP", w.idp, w.idToken("ann", "client-2")); got != "" {
			t.Errorf("ann of the new client becomes %s", subjectOf(t, got))
		}
		anew := w.join(t, w.Token, w.a, viewer, w.idToken("ann", "client-2"))
		if anew == w.ann {
			t.Fatal("ann of the new client is the same person as before")
		}
		// Only people whose rights do not exceed the caller's rights are kept. A person who was invited to another
		// organization has more rights than the caller and is not kept.
		elsewhere := w.join(t, w.Token, w.a, viewer, w.idToken("eve", "client-2"))
		w.join(t, w.mallory, w.b, ownerRole, w.through(t, "HTTP", w.idp, w.idToken("eve", "client-2")))
		w.allowed(t, w.Token, rechristen("client-3", "newer", true))
		if got := w.through(t, "HTTP", w.idp, w.idToken("ann", "client-3")); got == "" || subjectOf(t, got) != anew {
			t.Errorf("ann was not kept: %q", got)
		}
		if got := w.through(t, "HTTP", w.idp, w.idToken("eve", "client-3")); got != "" {
			t.Errorf("the owner of a took over %s, who owns b", elsewhere)
		}
	})
}

// TestAttackChain checks that the server follows rights through chains of identities that trust this server as an
// issuer.
func TestAttackChain(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		trusting := func(subject string) func(*iampb.Identity_ClaimMatch) {
			return func(m *iampb.Identity_ClaimMatch) {
				m.Sub = &iampb.Identity_ClaimMatch_Subject{Subject: subject}
				m.Aud = &iampb.Identity_ClaimMatch_Audience{Audience: w.BaseURL}
			}
		}
		first := w.workload(t, w.issuer.url, nil)
		second := w.workload(t, w.AuthURL, trusting(first))
		third := w.workload(t, w.AuthURL, trusting(second))
		w.bind(t, w.a, third, ownerRole)
		lonely := w.workload(t, w.issuer.url, nil)
		helper := w.worker(t, w.a, "helper", capabilitiespb.Capability_CAP_IAM_IDENTITY_UPDATE,
			capabilitiespb.Capability_CAP_IAM_IDENTITY_CREATE, capabilitiespb.Capability_CAP_IAM_IDENTITY_LIST)
		mine := func(uid string) *iampb.UpdateIdentityRequest {
			return &iampb.UpdateIdentityRequest{Identity: &iampb.Identity{
				Uid: uid,
				Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
					Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: w.issuer.url},
					Sub: &iampb.Identity_ClaimMatch_Subject{Subject: "mine"},
				}},
			}}
		}
		for i, uid := range []string{first, second, third} {
			w.refused(t, fmt.Sprint("editing link ", i), helper, mine(uid), codes.PermissionDenied)
		}
		w.allowed(t, helper, mine(lonely))
		pattern := &iampb.Identity{Name: "anybody",
			Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
				Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: w.AuthURL},
				Sub: &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: w.a + "/[0-9a-f]{16}"},
			}}}
		w.refused(t, "a pattern that matches our own identities", w.Token,
			&iampb.CreateIdentityRequest{Parent: w.a, Identity: pattern}, codes.InvalidArgument)
		loose := w.workload(t, "", func(m *iampb.Identity_ClaimMatch) {
			trusting(first)(m)
			m.Iss = &iampb.Identity_ClaimMatch_IssuerPattern{IssuerPattern: "http://issuer.tes(t|ing)"}
		})
		token := w.exchange(t, w.issuer.token(nil), first)
		if _, st := w.exchangeHTTP(t, token, w.wish(loose)); st.Code() != codes.PermissionDenied {
			t.Errorf("an issuer pattern that matches this server: %v", st)
		}
		owner := w.exchange(t, w.exchange(t, token, second), third) // the chain itself works
		if !w.ruledBy(t, owner, w.a) {
			t.Error("the chain of exchanges does not reach the owner identity")
		}
		// If an identity with the role owner trusts an account, the account is part of the chain, too.
		account := must[*signinpb.CreateAccountResponse](t, w.overGRPC, helper, &signinpb.CreateAccountRequest{
			Parent: w.a, Account: &signinpb.Account{Email: "temp@example.test"},
		})
		w.bind(t, w.a, w.workload(t, w.AuthURL, trusting(account.GetAccount().GetIdentityUid())), ownerRole)
		w.refused(t, "a link to an account that can assume an owner", helper,
			&signinpb.CreateAccountLinkRequest{Uid: account.GetAccount().GetUid()}, codes.PermissionDenied)
	})
}

// TestAttackOutlivedLink checks that a one-time link works only if its creator still holds the rights of the account
// when the link is used.
func TestAttackOutlivedLink(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		helper := w.worker(t, w.a, "helper", capabilitiespb.Capability_CAP_IAM_IDENTITY_UPDATE,
			capabilitiespb.Capability_CAP_IAM_IDENTITY_CREATE, capabilitiespb.Capability_CAP_IAM_IDENTITY_LIST)
		made := must[*signinpb.CreateAccountResponse](t, w.overGRPC, helper, &signinpb.CreateAccountRequest{
			Parent: w.a, Account: &signinpb.Account{Email: "new@example.test"},
		})
		uid := made.GetAccount().GetUid()
		links := map[string]string{"the first": made.GetLink().GetUrl()}
		if got := w.follow(t, links["the first"]); got != http.StatusOK {
			t.Errorf("link to an account without rights: %d", got)
		}
		links["another"] = must[*signinpb.AccountLink](t, w.overGRPC, helper, &signinpb.CreateAccountLinkRequest{
			Uid: uid,
		}).GetUrl()
		w.bind(t, w.a, made.GetAccount().GetIdentityUid(), ownerRole)
		if got := w.follow(t, links["another"]); got != http.StatusBadRequest {
			t.Errorf("link from before the account became an owner: %d", got)
		}
		w.refused(t, "a later link", helper, &signinpb.CreateAccountLinkRequest{Uid: uid}, codes.PermissionDenied)
		got := w.follow(t,
			must[*signinpb.AccountLink](t, w.overGRPC, w.Token, &signinpb.CreateAccountLinkRequest{Uid: uid}).GetUrl())
		if got != http.StatusOK {
			t.Errorf("an owner's link: %d", got)
		}
	})
}

// follow opens a one-time link in a browser, without setting a password. It returns the status of
// the page.
func (w *tenants) follow(t *testing.T, link string) int {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	noRedirect := *w.client
	noRedirect.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	first, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+u.RequestURI(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := noRedirect.Do(first)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	second, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+"/link", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range resp.Cookies() {
		second.AddCookie(c)
	}
	return w.roundTrip(t, second).status
}

// TestAttackMappingScope checks that nobody can create a mapping that grants a role at a place where they could not
// grant the role themselves.
func TestAttackMappingScope(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		admin := w.worker(t, w.folder, "admin", capabilitiespb.Capability_CAP_IAM_IDENTITY_PROVIDERS_CREATE,
			capabilitiespb.Capability_CAP_IAM_ROLE_BINDINGS_CREATE)
		bare := w.role(t, w.a, "bare", capabilitiespb.Capability_CAP_IAM_ROLE_BINDINGS_CREATE)
		idp := w.provide(t, admin, w.folder, "client-f", func(p *iampb.IdentityProvider) { p.DefaultRole = bare })
		for _, scope := range []string{"", w.a} {
			w.refused(t, "a scope above the creator's", admin, &iampb.CreateExternalGroupRoleMappingRequest{
				Parent:                   idp,
				ExternalGroupRoleMapping: &iampb.ExternalGroupRoleMapping{ExternalGroupId: "x", RoleUid: bare, Scope: scope},
			}, codes.PermissionDenied)
		}
		w.allowed(t, w.Token, &iampb.CreateExternalGroupRoleMappingRequest{
			Parent:                   idp,
			ExternalGroupRoleMapping: &iampb.ExternalGroupRoleMapping{ExternalGroupId: "x", RoleUid: bare, Scope: w.a},
		})
	})
}

// TestAttackFolderProvider checks that an identity provider in a folder is not used for the whole organization.
func TestAttackFolderProvider(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		w.provide(t, w.Token, w.folder, "client-f", func(p *iampb.IdentityProvider) { p.Name = "only the folder" })
		page := w.send(t, "", http.MethodGet, "/oauth?idp_id=dev", "")
		if strings.Contains(page.body, "only the folder") {
			t.Error("the sign-in page of the organization offers the provider of the folder")
		}
		verified := func(client string) string {
			return w.issuer.token(map[string]any{"sub": "pat", "aud": client, "email": "boss@a.example", "email_verified": true})
		}
		redeem := func(group, idToken string) int {
			i := must[*iampb.GroupInvite](t, w.overGRPC, w.Token, &iampb.CreateGroupInviteRequest{
				Parent:      group,
				GroupInvite: &iampb.GroupInvite{RoleUid: viewer, Email: "boss@a.example", Ttl: invitation().GetTtl()},
			})
			return w.send(t, idToken, http.MethodPost, "/auth/v1/register", fmt.Sprintf(`{"code":%q}`, i.GetCode())).status
		}
		for name, tt := range map[string]struct {
			group, idToken string
			joins          bool
		}{
			"the folder's, into the organization": {w.a, verified("client-f"), false},
			"the folder's, into the folder":       {w.folder, verified("client-f"), true},
			"the organization's, into both":       {w.folder, verified("client-a"), true},
			"the organization's, into itself":     {w.a, verified("client-a"), true},
		} {
			if got := redeem(tt.group, tt.idToken); (got == http.StatusOK) != tt.joins {
				t.Errorf("%s: status %d", name, got)
			}
		}
	})
}

// TestAttackVerifiedEmail checks that the server does not trust an e-mail address only because a provider calls it
// verified. Every organization can add a provider.
func TestAttackVerifiedEmail(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		idToken := w.issuer.token(map[string]any{
			"sub": "pat", "aud": "client-a", "email": "ceo@victim.example", "email_verified": true,
		})
		w.join(t, w.Token, w.a, viewer, idToken)
		claims := said(t, w.through(t, "HTTP", w.idp, idToken))
		if claims["email_verified"] == true {
			t.Errorf("this server's token repeats the claim: %v", claims)
		}
	})
}

// TestAttackUndeletable checks that another organization cannot prevent the deletion of a workload by making the
// workload an owner.
func TestAttackUndeletable(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		robot := w.robot(t, w.a, "robot")
		w.refused(t, "a foreign workload as owner", w.mallory, &iampb.CreateRoleBindingRequest{
			Parent: w.b, RoleBinding: &iampb.RoleBinding{IdentityUid: robot, RoleUid: ownerRole},
		}, codes.InvalidArgument)
		r := w.send(t, w.mallory, http.MethodPost, "/iam/v1/rolebindings/"+w.b,
			fmt.Sprintf(`{"identity":%q,"role":%q}`, robot, ownerRole))
		if r.status != http.StatusBadRequest {
			t.Errorf("with version 1: %d %s", r.status, r.body)
		}
		w.allowed(t, w.mallory, &iampb.CreateRoleBindingRequest{
			Parent: w.b, RoleBinding: &iampb.RoleBinding{IdentityUid: robot, RoleUid: viewer},
		})
		w.allowed(t, w.Token, &iampb.DeleteIdentityRequest{Uid: robot})
		w.bind(t, w.a, w.robot(t, w.a, "own robot"), ownerRole) // the organization may make its own workload an owner
	})
}

// TestAttackAssumedOutlives: if a token of this server is exchanged for another token, then the new token ends with
// the first token and with the session of that token.
func TestAttackAssumedOutlives(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		assumed := w.workload(t, w.AuthURL, func(m *iampb.Identity_ClaimMatch) {
			m.Sub = &iampb.Identity_ClaimMatch_Subject{Subject: string(w.Owner)}
			m.Aud = &iampb.Identity_ClaimMatch_Audience{Audience: w.BaseURL}
		})
		w.bind(t, w.a, assumed, ownerRole)
		session := w.refresh(t, w.RefreshToken)
		for _, exchange := range []func() string{
			func() string { return w.exchange(t, session, assumed) },
			func() string {
				got, st := w.exchangeGRPC(t, session, w.wish(assumed))
				if st != nil {
					t.Fatal(st)
				}
				return got.GetToken()
			},
		} {
			got := exchange()
			if !w.ruledBy(t, got, w.a) {
				t.Fatal("the identity cannot be assumed")
			}
			if said(t, got)["exp"].(float64) > said(t, session)["exp"].(float64) ||
				said(t, got)["sid"] != said(t, session)["sid"] {
				t.Errorf("the token outlives the original token: %v", said(t, got))
			}
			defer func() {
				if w.ruledBy(t, got, w.a) {
					t.Error("the token outlives the session")
				}
			}()
		}
		short := w.mint(t, w.Owner, token.Claims{Life: time.Minute})
		if got := said(t, w.exchange(t, short, assumed)); got["exp"].(float64) > said(t, short)["exp"].(float64) {
			t.Errorf("the token gets a new hour: %v", got)
		}
		w.allowed(t, session, &signinpb.EndSessionRequest{Id: "current"})
	})
}

// refresh uses a refresh token and returns the new access token.
func (w *tenants) refresh(t *testing.T, refresh string) string {
	t.Helper()
	r := w.send(t, refresh, http.MethodPost, "/sts/exchange_refresh_token?aud="+url.QueryEscape(w.BaseURL), "")
	var got struct{ Token struct{ Token string } }
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || got.Token.Token == "" {
		t.Fatalf("%d %s", r.status, r.body)
	}
	return got.Token.Token
}

// TestAttackNarrowed checks that a narrowed token cannot call the methods about the caller's own person.
func TestAttackNarrowed(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		var list resource.Capabilities
		list.Add(resource.GroupsList)
		narrowed := map[string]string{
			"to a place":        w.mint(t, resource.UID(w.ann), token.Claims{Scopes: []resource.UID{resource.UID(w.folder)}}),
			"to a capability":   w.mint(t, resource.UID(w.ann), token.Claims{Caps: &list}),
			"to nothing at all": w.mint(t, resource.UID(w.ann), token.Claims{Scopes: []resource.UID{}}),
		}
		whole := w.mint(t, resource.UID(w.ann), token.Claims{})
		invite := must[*iampb.GroupInvite](t, w.overGRPC, w.mallory, &iampb.CreateGroupInviteRequest{
			Parent: w.b, GroupInvite: &iampb.GroupInvite{RoleUid: viewer, Ttl: invitation().GetTtl()},
		})
		for name, bearer := range narrowed {
			for what, call := range map[string]func() int{
				"deletes its identity": func() int {
					return w.send(t, bearer, http.MethodDelete, "/auth/v1/delete/"+w.ann, "").status
				},
				"ends all sessions": func() int {
					return w.send(t, bearer, http.MethodDelete, "/signin/v1/sessions/-", "").status
				},
				"lists its sessions": func() int { return w.send(t, bearer, http.MethodGet, "/signin/v1/sessions", "").status },
				"redeems an invite": func() int {
					return w.send(t, bearer, http.MethodPost, "/auth/v1/register", fmt.Sprintf(`{"code":%q}`, invite.GetCode())).status
				},
				"reads its own identity": func() int {
					return w.send(t, bearer, http.MethodGet, "/iam/v2beta1/identities/"+w.ann, "").status
				},
				"looks for its domain": func() int {
					return w.send(t, bearer, http.MethodGet, "/iam/v2beta1/groups:lookupGroup", "").status
				},
			} {
				if got := call(); got != http.StatusForbidden {
					t.Errorf("a token narrowed %s %s: status %d", name, what, got)
				}
			}
			var who struct {
				Capabilities []struct{ Group struct{ ID string } }
			}
			r := w.send(t, bearer, http.MethodGet, "/auth/v1/ok", "")
			if err := json.Unmarshal([]byte(r.body), &who); err != nil || r.status != http.StatusOK {
				t.Fatal(r.body)
			}
			for _, c := range who.Capabilities {
				if name != "to a capability" && c.Group.ID != w.folder {
					t.Errorf("a token narrowed %s reveals %s", name, c.Group.ID)
				}
			}
		}
		if got := w.send(t, whole, http.MethodGet, "/iam/v2beta1/identities/"+w.ann, "").status; got != http.StatusOK {
			t.Errorf("a full token reads its own identity: %d", got)
		}
		got := w.send(t, whole, http.MethodPost, "/auth/v1/register", fmt.Sprintf(`{"code":%q}`, invite.GetCode())).status
		if got != http.StatusOK {
			t.Errorf("a full token redeems an invite: %d", got)
		}
		if got := w.send(t, whole, http.MethodDelete, "/auth/v1/delete/"+w.ann, "").status; got != http.StatusOK {
			t.Errorf("a full token deletes its identity: %d", got)
		}
	})
}

// TestAttackStaticKeysAct: if the stored keys of an identity verified a token, then the act claim names no issuer,
// because no issuer has confirmed the token.
func TestAttackStaticKeysAct(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		uid := w.identify(t,
			&iampb.Identity{Name: "keys", Relationship: &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{
				Issuer: "https://accounts.google.com", Subject: "job", IssuerKeys: string(fakeKeySet()),
			}}})
		got := said(t, w.exchange(t, w.issuer.token(map[string]any{"iss": "https://accounts.google.com"}), uid))
		act, _ := got["act"].(map[string]any)
		if act["iss"] != nil || act["sub"] != "job" {
			t.Errorf("act = %v", act)
		}
	})
}

// TestAttackHydration checks that a role binding shows only those fields of its identity that the caller may see
// anyway.
func TestAttackHydration(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		robot := w.robot(t, w.a, "secret robot")
		absent := w.a + "/0123456789abcdef"
		secrets := []string{"secret robot", "https://", "job", "ann", w.issuer.url}
		check := func(what string, r reply, identity string) {
			t.Helper()
			for _, s := range secrets {
				if strings.Contains(r.body, s) {
					t.Errorf("%s for %s reveals a secret: %s", what, identity, r.body)
				}
			}
			if r.status != http.StatusOK {
				t.Errorf("%s for %s: %d %s", what, identity, r.status, r.body)
			}
		}
		for _, identity := range []string{robot, absent, w.ann, string(w.Owner)} {
			body := fmt.Sprintf(`{"identityUid":%q,"roleUid":%q}`, identity, viewer)
			check("a dry run",
				w.send(t, w.mallory, http.MethodPost, "/iam/v2beta1/roleBindings/"+w.b+"?validate_only=true", body),
				identity)
			check("a binding", w.send(t, w.mallory, http.MethodPost, "/iam/v2beta1/roleBindings/"+w.b, body), identity)
			check("version 1",
				w.send(t, w.mallory, http.MethodPost, "/iam/v1/rolebindings/"+w.child2(t, w.b, "g"+segmentOf(identity)[:8]),
					fmt.Sprintf(`{"identity":%q,"role":%q}`, identity, viewer)),
				identity)
		}
		check("the list",
			w.send(t, w.mallory, http.MethodGet, "/iam/v2beta1/roleBindings?uidp.descendants_of="+w.b, ""), "all")
		check("the list of version 1",
			w.send(t, w.mallory, http.MethodGet, "/iam/v1/rolebindings?uidp.descendantsOf="+w.b, ""), "all")
		// Callers in organization a see the identities of a.
		w.bind(t, w.folder, robot, viewer)
		list := w.send(t, w.Token, http.MethodGet, "/iam/v2beta1/roleBindings?uidp.descendants_of="+w.a, "").body
		for _, s := range []string{"secret robot", `"subject":"ann"`, "dev owner"} {
			if !strings.Contains(list, s) {
				t.Errorf("a's owner does not see %s: %s", s, list)
			}
		}
		w.refused(t, "a missing identity in the caller's own organization", w.Token, &iampb.CreateRoleBindingRequest{
			Parent: w.a, RoleBinding: &iampb.RoleBinding{IdentityUid: absent, RoleUid: viewer},
		}, codes.NotFound)
	})
}

// child2 creates a group like child, but as the owner of organization b.
func (w *tenants) child2(t *testing.T, parent, name string) string {
	t.Helper()
	return must[*iampb.Group](t, w.overGRPC, w.mallory, &iampb.CreateGroupRequest{
		Parent: parent, Group: &iampb.Group{Name: name},
	}).GetUid()
}
