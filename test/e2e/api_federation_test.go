package e2e_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// consoleViewer is the UID of a role that every caller who may grant roles can grant.
var consoleViewer = string(resource.ManagedRoleUID("console_viewer"))

// provider returns a valid identity provider for a create request.
func provider(name string) *iampb.IdentityProvider {
	return &iampb.IdentityProvider{Name: name, DefaultRole: consoleViewer,
		Configuration: &iampb.IdentityProvider_Oidc{Oidc: &iampb.IdentityProvider_OIDC{
			Issuer: "https://login.example", ClientId: "client", ClientSecret: "secret",
		}}}
}

// account returns a valid account association for a create request.
func account(name string) *iampb.AccountAssociation {
	return &iampb.AccountAssociation{Name: name, Amazon: &iampb.AccountAssociation_Amazon{Account: "123456789012"}}
}

// invitation returns a valid invite for a create request.
func invitation() *iampb.GroupInvite {
	return &iampb.GroupInvite{RoleUid: consoleViewer, Ttl: durationpb.New(time.Hour)}
}

// mapping returns a mapping that gives a role to the members of a group at the identity provider.
func mapping(group string) *iampb.ExternalGroupRoleMapping {
	return &iampb.ExternalGroupRoleMapping{ExternalGroupId: group, RoleUid: consoleViewer}
}

// withServices sets the identities as which services act. The field has the name that existing clients use, so this
// code refers to the field by its number.
func withServices(a *iampb.AccountAssociation, identities map[string]string) *iampb.AccountAssociation {
	m := a.ProtoReflect()
	b := &iampb.AccountAssociation_ServiceBindings{ServiceBindings: identities}
	m.Set(m.Descriptor().Fields().ByNumber(7), protoreflect.ValueOfMessage(b.ProtoReflect()))
	return a
}

// idp creates an identity provider as the owner and returns its UID.
func (w *world) idp(t *testing.T, parent, name string) string {
	t.Helper()
	return must[*iampb.IdentityProvider](t, w.overGRPC, w.Token, &iampb.CreateIdentityProviderRequest{
		Parent: parent, IdentityProvider: provider(name),
	}).GetUid()
}

// mapped creates a mapping for an identity provider as the owner, and returns the UID of the mapping.
func (w *world) mapped(t *testing.T, idp, group string) string {
	t.Helper()
	return must[*iampb.ExternalGroupRoleMapping](t, w.overGRPC, w.Token, &iampb.CreateExternalGroupRoleMappingRequest{
		Parent: idp, ExternalGroupRoleMapping: mapping(group),
	}).GetUid()
}

// invite creates an invite as the owner and returns its UID.
func (w *world) invite(t *testing.T, group string) string {
	t.Helper()
	return must[*iampb.GroupInvite](t, w.overGRPC, w.Token, &iampb.CreateGroupInviteRequest{
		Parent: group, GroupInvite: invitation(),
	}).GetUid()
}

// associate creates an account association for a group as the owner, and returns its UID.
func (w *world) associate(t *testing.T, group string) string {
	t.Helper()
	return must[*iampb.AccountAssociation](t, w.overGRPC, w.Token, &iampb.CreateAccountAssociationRequest{
		Parent: group, AccountAssociation: account("account"),
	}).GetUid()
}

// service creates an identity for the ingester service as the owner and returns its UID.
func (w *world) service(t *testing.T, group, name string) string {
	t.Helper()
	return must[*iampb.Identity](t, w.overGRPC, w.Token,
		&iampb.CreateIdentityRequest{Parent: group, Identity: &iampb.Identity{
			Name:         name,
			Relationship: &iampb.Identity_ServicePrincipal{ServicePrincipal: iampb.ServicePrincipal_SERVICE_PRINCIPAL_INGESTER},
		}}).GetUid()
}

// federate creates one resource of each federated kind, and returns x with their UIDs.
func (w *world) federate(t *testing.T, x things) things {
	t.Helper()
	x.service, x.provider, x.invite = w.service(t, x.folder, "ingester"), w.idp(t, x.folder, "idp"), w.invite(t, x.folder)
	x.mapping = w.mapped(t, x.provider, "staff")
	w.associate(t, x.folder)
	return x
}
