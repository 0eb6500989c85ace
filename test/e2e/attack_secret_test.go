package e2e_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestAttackSecretsInEvents creates, changes and deletes every kind of resource that has a secret. No secret may
// appear in the events of a subscription on the organization, in the audit log or in the server's log.
func TestAttackSecretsInEvents(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		log := &attackText{}
		w := serve(t, url, server.Config{Stderr: log}, nil)
		org := string(w.Organization)
		sink, received := newSink(t)
		w.post(t, "/events/v2beta1/subscriptions/"+org, `{"sink":"`+sink+`"}`)
		secrets := map[string]string{
			"the owner's token": w.Token, "the owner's password": w.OwnerPassword, "the registry token": w.RegistryToken,
		}
		for protocol, call := range w.protocols() {
			w.spillProvider(t, call, protocol, secrets)
			w.spillPeople(t, call, protocol, secrets)
			w.spillSubscription(t, call, protocol, secrets)
		}
		w.spillIdentity(t)
		w.spillSessions(t, secrets)
		for _, kind := range []string{
			"iam.identity_providers.created", "iam.identity_providers.updated",
			"iam.identity_providers.deleted", "iam.group_invite.created", "iam.group_invite.deleted",
			"signin.account.created", "signin.account.deleted", "signin.session.ended",
			"events.subscription.created", "events.subscription.deleted",
			"iam.identity.created", "iam.identity.updated", "iam.identity.deleted",
		} {
			procUntil(t, kind+" is received", func() bool {
				return strings.Contains(received.String(), "dev.holdfast.api."+kind+".v1 of ")
			})
		}
		last := w.child(t, org, "last")
		procUntil(t, "the last event is received", func() bool {
			return strings.Contains(received.String(), "group.created.v1 of "+last)
		})
		for where, text := range map[string]string{
			"a sink":        received.String(),
			"the audit log": w.send(t, w.Token, "GET", "/audit/v1/entries?page_size=1000", "").body,
			"the log":       log.String(),
		} {
			for what, secret := range secrets {
				if len(secret) < 8 {
					t.Fatalf("%s is %q, which is too short to search for", what, secret)
				}
				if i := strings.Index(text, secret); i >= 0 {
					t.Errorf("%s is in %s: …%s", what, where, text[max(0, i-300):i+len(secret)])
				}
			}
		}
	})
}

// spillProvider creates, changes and deletes an identity provider.
func (w *world) spillProvider(t *testing.T, call caller, protocol string, secrets map[string]string) {
	t.Helper()
	first, second := "first-client-secret-"+protocol, "second-client-secret-"+protocol
	secrets["a client secret over "+protocol], secrets["a new client secret over "+protocol] = first, second
	p := provider("idp-" + strings.ToLower(protocol))
	p.GetOidc().ClientSecret = first
	made := must[*iampb.IdentityProvider](t, call, w.Token, &iampb.CreateIdentityProviderRequest{
		Parent: string(w.Organization), IdentityProvider: p,
	})
	p.Uid, p.GetOidc().ClientSecret = made.GetUid(), second
	for _, paths := range [][]string{{"oidc"}, {"description"}} {
		p.Description = "changed " + paths[0]
		must[*iampb.IdentityProvider](t, call, w.Token, &iampb.UpdateIdentityProviderRequest{
			IdentityProvider: p, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
		})
	}
	must[proto.Message](t, call, w.Token, &iampb.DeleteIdentityProviderRequest{Uid: made.GetUid()})
}

// spillPeople creates an account with two one-time links, and two invites. One of the invites is redeemed.
func (w *world) spillPeople(t *testing.T, call caller, protocol string, secrets map[string]string) {
	t.Helper()
	org := string(w.Organization)
	made := must[*signinpb.CreateAccountResponse](t, call, w.Token, &signinpb.CreateAccountRequest{
		Parent: org, Account: &signinpb.Account{Email: "ann-" + strings.ToLower(protocol) + "@example.test", Name: "Ann"},
	})
	link := must[*signinpb.AccountLink](t, call, w.Token, &signinpb.CreateAccountLinkRequest{
		Uid: made.GetAccount().GetUid(), ResetFactors: true,
	})
	for what, address := range map[string]string{
		"the link of a new account": made.GetLink().GetUrl(), "a link": link.GetUrl(),
	} {
		secrets[what+" over "+protocol] = address[strings.LastIndexAny(address, "/=#")+1:]
	}
	must[proto.Message](t, call, w.Token, &signinpb.DeleteAccountRequest{Uid: made.GetAccount().GetUid()})
	for _, redeemed := range []bool{true, false} {
		invite := must[*iampb.GroupInvite](t, call, w.Token, &iampb.CreateGroupInviteRequest{
			Parent: org, GroupInvite: &iampb.GroupInvite{RoleUid: consoleViewer, Ttl: durationpb.New(time.Hour)},
		})
		if redeemed {
			secrets["a redeemed invite over "+protocol] = invite.GetCode()
			must[proto.Message](t, call, w.Token, &authpb.RegistrationRequest{Code: invite.GetCode()})
			continue
		}
		secrets["an invite over "+protocol] = invite.GetCode()
		must[proto.Message](t, call, w.Token, &iampb.DeleteGroupInviteRequest{Uid: invite.GetUid()})
	}
}

// spillSubscription creates and deletes a subscription.
func (w *world) spillSubscription(t *testing.T, call caller, protocol string, secrets map[string]string) {
	t.Helper()
	secret := "sink-secret-" + protocol
	secrets["the query of a sink over "+protocol] = secret
	sub := must[*eventspb.Subscription](t, call, w.Token, &eventspb.CreateSubscriptionRequest{
		Parent:       w.child(t, string(w.Organization), "folder-"+strings.ToLower(protocol)),
		Subscription: &eventspb.Subscription{Sink: "https://127.0.0.1:1/?key=" + secret},
	})
	must[proto.Message](t, call, w.Token, &eventspb.DeleteSubscriptionRequest{Uid: sub.GetUid()})
}

// spillIdentity creates, changes and deletes an identity with static keys. The server refuses private keys, so it
// cannot reveal them.
func (w *world) spillIdentity(t *testing.T) {
	t.Helper()
	keys := func(set string) *iampb.Identity {
		return &iampb.Identity{Name: "keys", Relationship: &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{
			Issuer:         "https://keys.example",
			Subject:        "job",
			IssuerKeys:     set,
			ExpirationTime: timestamppb.New(time.Now().Add(time.Hour)),
		}}}
	}
	private := strings.Replace(string(fakeKeySet()), `"kty":"EC"`,
		`"kty":"EC","d":"c3RvbGVuLXByaXZhdGUta2V5LXN0b2xlbi1wcml2YXRl"`, 1)
	for protocol, call := range w.protocols() {
		_, st := call(t, w.Token, &iampb.CreateIdentityRequest{Parent: string(w.Organization), Identity: keys(private)})
		if st == nil {
			t.Errorf("over %s the server accepted a private key", protocol)
		}
	}
	i := keys(string(fakeKeySet()))
	i.Uid = w.identify(t, i)
	i.Description = "changed"
	must[*iampb.Identity](t, w.overGRPC, w.Token, &iampb.UpdateIdentityRequest{
		Identity: i, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"description"}},
	})
	must[proto.Message](t, w.overGRPC, w.Token, &iampb.DeleteIdentityRequest{Uid: i.GetUid()})
}

// spillSessions starts sessions with a password and with a refresh token. One of the sessions ends because its
// refresh token is used twice.
func (w *world) spillSessions(t *testing.T, secrets map[string]string) {
	t.Helper()
	w.signsInWithPassword(t)
	secrets["a refresh token"] = w.RefreshToken
	target := "/sts/exchange_refresh_token?aud=" + url.QueryEscape(w.BaseURL)
	if got := w.send(t, w.RefreshToken, http.MethodPost, target, ""); got.status != http.StatusOK {
		t.Fatal(got.body)
	}
	if got := w.send(t, w.RefreshToken, http.MethodPost, target, ""); got.status != http.StatusUnauthorized {
		t.Fatal(got.body)
	}
	w.Token = w.mint(t, w.Owner, token.Claims{}) // the previous token has ended together with its session
}
