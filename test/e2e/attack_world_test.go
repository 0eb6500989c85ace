package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// The attack_*_test.go files contain attacks that once succeeded, and other attacks that seem possible. Each attack
// has an honest counterpart, which must continue to work.

var ownerRole = string(resource.OwnerRole)

// tenants is a server with the organization a, whose people have accounts at an issuer, and the
// organization b, which belongs to somebody else.
type tenants struct {
	*world
	issuer  *fakeIssuer
	a, b    string // UIDs of the two organizations
	folder  string // UID of a folder in organization a
	mallory string // token of the owner of organization b
	idp     string // a's identity provider for the issuer, with the client ID client-a
	ann     string // UID of an owner of organization a, whose subject at the provider is ann
}

// storyTenants runs f with a new server on the engines that storetest.StoryURL chooses.
func storyTenants(t *testing.T, f func(t *testing.T, w *tenants)) {
	t.Helper()
	t.Parallel()
	storyWorld(t, func(t *testing.T, server *world) { f(t, newTenants(t, server)) })
}

func newTenants(t *testing.T, server *world) *tenants {
	t.Helper()
	w := &tenants{world: server, issuer: newFakeIssuer(t, server), a: string(server.Organization)}
	w.folder = w.child(t, w.a, "folder")
	w.b, w.mallory = w.organization(t, "b", "mallory")
	w.idp = w.provide(t, w.Token, w.a, "client-a", nil)
	w.ann = w.join(t, w.Token, w.a, ownerRole, w.idToken("ann", "client-a"))
	return w
}

// organization creates an organization whose only owner is the named person. It returns the
// organization's UID and the person's token.
func (w *tenants) organization(t *testing.T, name, person string) (uid, bearer string) {
	t.Helper()
	owner := resource.UserUID("https://people.example", person)
	uid = w.child(t, "", name)
	w.operate(t, "organizations", "payer", uid) // otherwise the organization of dev mode pays for it
	w.bind(t, uid, string(owner), ownerRole)
	bindings := must[*iampb.ListRoleBindingsResponse](t, w.overGRPC, w.Token, &iampb.ListRoleBindingsRequest{
		Group: uid, Identity: string(w.Owner),
	})
	bearer = w.mint(t, owner, token.Claims{})
	for _, b := range bindings.GetRoleBindings() {
		w.allowed(t, bearer, &iampb.DeleteRoleBindingRequest{Uid: b.GetUid()})
	}
	return uid, bearer
}

// provide creates an identity provider for the issuer in a group.
func (w *tenants) provide(t *testing.T, bearer, group, client string, change func(*iampb.IdentityProvider)) string {
	t.Helper()
	p := provider("idp")
	p.GetOidc().Issuer, p.GetOidc().ClientId = w.issuer.url, client
	if change != nil {
		change(p)
	}
	return must[*iampb.IdentityProvider](t, w.overGRPC, bearer, &iampb.CreateIdentityProviderRequest{
		Parent: group, IdentityProvider: p,
	}).GetUid()
}

// idToken returns a token of the issuer with a subject, for a client. more contains names and values of further
// claims.
func (w *tenants) idToken(subject, client string, more ...string) string {
	claims := map[string]any{"sub": subject, "aud": client}
	for i := 0; i+1 < len(more); i += 2 {
		claims[more[i]] = more[i+1]
	}
	return w.issuer.token(claims)
}

// join invites a person into a group, as bearer. newcomer is the token with which the person accepts the invite. It
// returns the UID of the person.
func (w *tenants) join(t *testing.T, bearer, group, role, newcomer string) string {
	t.Helper()
	i := must[*iampb.GroupInvite](t, w.overGRPC, bearer, &iampb.CreateGroupInviteRequest{
		Parent: group, GroupInvite: &iampb.GroupInvite{RoleUid: role, Ttl: invitation().GetTtl()},
	})
	r := w.send(t, newcomer, http.MethodPost, "/auth/v1/register", fmt.Sprintf(`{"code":%q}`, i.GetCode()))
	var session struct{ Identity string }
	if err := json.Unmarshal([]byte(r.body), &session); err != nil || session.Identity == "" {
		t.Fatalf("the invite was not redeemed: %s", r.body)
	}
	return session.Identity
}

// through exchanges a token of the issuer through an identity provider, over the given protocol. It returns the new
// token, or "" if the server refuses.
func (w *tenants) through(t *testing.T, over, provider, idToken string) string {
	t.Helper()
	exchange := w.exchangeHTTP
	if over == "gRPC" {
		exchange = w.exchangeGRPC
	}
	got, st := exchange(t, idToken, url.Values{"aud": {w.BaseURL}, "identity_provider": {provider}})
	if st != nil {
		return ""
	}
	return got.GetToken()
}

// worker creates a workload in organization a that holds capabilities on a group. It returns the workload's token.
func (w *tenants) worker(t *testing.T, group, name string, capabilities ...capabilitiespb.Capability) string {
	t.Helper()
	uid := w.robot(t, w.a, name)
	w.bind(t, group, uid, w.role(t, w.a, "role of "+name, capabilities...))
	return w.mint(t, resource.UID(uid), token.Claims{})
}

// allowed makes a call and fails the test if it is refused.
func (w *tenants) allowed(t *testing.T, bearer string, in proto.Message) {
	t.Helper()
	if _, st := w.overGRPC(t, bearer, in); st != nil {
		t.Fatalf("%s: %v", methodOf(in).Name(), st)
	}
}

// refused makes a call over both protocols, and fails the test unless both are refused with the code.
func (w *tenants) refused(t *testing.T, what, bearer string, in proto.Message, code codes.Code) {
	t.Helper()
	for name, call := range w.protocols() {
		if _, st := call(t, bearer, in); st.Code() != code {
			t.Errorf("%s, over %s: %v, want %v", what, name, st, code)
		}
	}
}

// ruledBy reports whether a caller with this token can read and write in a group.
func (w *tenants) ruledBy(t *testing.T, bearer, group string) bool {
	t.Helper()
	read := w.send(t, bearer, http.MethodGet, "/iam/v2beta1/groups/"+group, "")
	write := w.send(t, bearer, http.MethodPatch, "/iam/v2beta1/groups/"+group, `{"description":"was here"}`)
	return read.status == http.StatusOK || write.status == http.StatusOK
}

// masked returns a request that updates only these fields of a provider.
func masked(p *iampb.IdentityProvider, paths ...string) *iampb.UpdateIdentityProviderRequest {
	return &iampb.UpdateIdentityProviderRequest{IdentityProvider: p, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}}
}

// subjectOf returns the subject claim of a token.
func subjectOf(t *testing.T, bearer string) string {
	t.Helper()
	sub, _ := said(t, bearer)["sub"].(string)
	return sub
}

// segmentOf returns the last segment of a UID.
func segmentOf(uid string) string { return uid[strings.LastIndexByte(uid, '/')+1:] }
