package accessapi

import (
	"google.golang.org/protobuf/proto"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// EventKinds are the kinds of resources that have events, by the prefix of the
// event types.
var EventKinds = map[string]wire.EventKind{
	"iam.group":                        wire.NewEventKind(GroupOf, &iampb.DeleteGroupRequest{}),
	"iam.identity":                     wire.NewEventKind(IdentityOf, &iampb.DeleteIdentityRequest{}),
	"iam.roles":                        wire.NewEventKind(roleOf, &iampb.DeleteRoleRequest{}),
	"iam.rolebindings":                 wire.NewEventKind(bindingOf, &iampb.DeleteRoleBindingRequest{}),
	"iam.access":                       wire.NewEventKind(unusedReportOf, nil),
	"iam.access_rules":                 wire.NewEventKind(accessRuleOf, &accesspb.DeleteAccessRuleRequest{}),
	"iam.access_requests":              wire.NewEventKind(accessRequestRecordOf, nil),
	"iam.identity_providers":           wire.NewEventKind(ProviderOf, &iampb.DeleteIdentityProviderRequest{}),
	"iam.teams":                        wire.NewEventKind(teamOf, nil),
	"iam.account_associations":         wire.NewEventKind(AssociationOf, nil),
	"iam.group_invite":                 wire.NewEventKind(InviteOf, &iampb.DeleteGroupInviteRequest{}),
	"iam.external_group_role_mappings": wire.NewEventKind(MappingOf, &iampb.DeleteExternalGroupRoleMappingRequest{}),
	"iam.budgets":                      wire.NewEventKind(budgetOf, &budgetspb.DeleteBudgetRequest{}),
	"signin.account":                   wire.NewEventKind(accountRecordOf, &signinpb.DeleteAccountRequest{}),
	"signin.activity":                  wire.NewEventKind(activityOf, nil),
	"signin.rules":                     wire.NewEventKind(rulesOf, nil),
	"signin.session":                   wire.NewEventKind(endedSessionOf, nil),
	"auth":                             wire.NewEventKind(registeredOf, nil),
}

// EventBodies return the bodies of events whose body is not the resource itself.
var EventBodies = map[resource.EventType]wire.EventBody{
	resource.InviteCreated: inviteEvent,
	resource.InviteUpdated: inviteEvent,
	resource.InviteExpired: inviteEvent,
	resource.BindingsCreated: func(e resource.Event) (proto.Message, error) {
		bindings, err := wire.DecodeEvent[[]resource.RoleBinding](e.After)
		return &iampb.BatchCreateRoleBindingsResponse{RoleBindings: wire.Convert(bindings, bindingOf)}, err
	},
	resource.MappingsDeleted: func(e resource.Event) (proto.Message, error) {
		mappings, err := wire.DecodeEvent[[]resource.ExternalGroupRoleMapping](e.Before)
		return &iampb.BatchDeleteExternalGroupRoleMappingsResponse{
			Parent: string(e.Subject), ExternalGroupRoleMappings: wire.Convert(mappings, MappingOf),
		}, err
	},
	resource.ScimTokenGenerated: directoryEvent(func(d resource.Directory) proto.Message {
		return &iampb.GenerateScimTokenResponse{
			IdentityProviderUid: string(d.Provider), ExpireTime: wire.Time(d.ExpireTime), Etag: d.ETag(),
		}
	}),
	resource.ScimTokenRegenerated: directoryEvent(func(d resource.Directory) proto.Message {
		return &iampb.RegenerateScimTokenResponse{
			IdentityProviderUid: string(d.Provider), ExpireTime: wire.Time(d.ExpireTime), Etag: d.ETag(),
			PreviousTokenExpireTime: wire.Time(d.PreviousExpireTime),
		}
	}),
	resource.ScimTokenRevoked: directoryEvent(func(d resource.Directory) proto.Message { return revokedOf(d) }),
	resource.DirectoryUpdated: directoryEvent(func(d resource.Directory) proto.Message {
		source := accesspb.RoleSource_ROLE_SOURCE_CLAIMS
		if d.RolesFromTeams {
			source = accesspb.RoleSource_ROLE_SOURCE_TEAMS
		}
		return &accesspb.Directory{Uid: string(d.Provider), Enabled: d.Enabled, RoleSource: source, Etag: d.ETag(),
			Required: new(d.Required), HoldPercent: new(int32(d.HoldPercent)), HoldMinimum: new(int32(d.HoldMinimum)),
			HeldCount: d.Held}
	}),
	resource.ScimEnabledUpdated: directoryEvent(func(d resource.Directory) proto.Message { return enabledOf(d) }),
	resource.GroupAccessRequested: func(e resource.Event) (proto.Message, error) {
		return &iampb.RequestGroupAccessRequest{GroupUid: string(e.Subject)}, nil
	},
	resource.SessionEnded: func(e resource.Event) (proto.Message, error) {
		n, err := wire.DecodeEvent[resource.EndedSession](e.Before)
		return endedSessionOf(n), err
	},
	resource.IdentityMetadataUpdated: func(e resource.Event) (proto.Message, error) {
		i, err := wire.DecodeEvent[resource.Identity](e.After)
		return MetadataOf(i), err
	},
}

// inviteEvent returns the body of an event about an invite, without the invited
// person.
func inviteEvent(e resource.Event) (proto.Message, error) {
	i, err := wire.DecodeEvent[resource.GroupInvite](e.After)
	return &iampb.GroupInvite{Uid: string(i.UID), ExpirationTime: wire.Time(i.ExpirationTime)}, err
}

// bindingOf converts a binding to the message in an event. The message contains only
// UIDs.
func bindingOf(b resource.RoleBinding) *iampb.RoleBinding {
	return &iampb.RoleBinding{
		Uid: string(b.UID), CreateTime: wire.Time(b.CreateTime),
		Identity: &iampb.RoleBindingIdentity{Uid: string(b.Identity)},
		Group:    &iampb.RoleBindingGroup{Uid: string(b.Group())}, Role: &iampb.RoleBindingRole{Uid: string(b.Role)},
		StartTime: wire.Time(b.StartTime), ExpireTime: wire.Time(b.ExpireTime), Reason: wire.Optional(b.Reason),
	}
}

func accountRecordOf(r resource.AccountRecord) *signinpb.Account {
	p := accountOf(r.Account, r.Keys)
	p.HasPassword, p.Totp, p.UseTime = r.HasPassword, r.HasTOTP, wire.Time(r.LastUse)
	return p
}

func endedSessionOf(n resource.EndedSession) *signinpb.EndedSession {
	return &signinpb.EndedSession{Session: sessionOf(n.Session), Reason: signinpb.EndReason(n.Reason)}
}

func activityOf(a resource.Activity) *signinpb.Activity {
	return &signinpb.Activity{
		IdentityUid: string(a.Identity), AccountUid: string(a.Account), Method: a.Method, Factor: a.Factor,
		IdentityProvider: string(a.Provider), Purpose: a.Purpose, Program: a.Program, Agent: a.Agent, Address: a.Address,
		Session: a.Session, Reason: a.Reason, Count: a.Count, FirstTime: wire.Time(a.First), LastTime: wire.Time(a.Last),
	}
}

// directoryEvent returns the body of an event about a directory.
func directoryEvent(convert func(resource.Directory) proto.Message) wire.EventBody {
	return func(e resource.Event) (proto.Message, error) {
		d, err := wire.DecodeEvent[resource.Directory](e.After)
		return convert(d), err
	}
}

// registered is the outbox record about a person who joined a group.
type registered struct {
	Identity string `json:"identity"`
	Group    string `json:"group"`
}

func registeredOf(r registered) *authpb.Session {
	return &authpb.Session{Identity: r.Identity, Group: r.Group}
}
