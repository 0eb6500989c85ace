package v2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// EventBodies writes the bodies of events as JSON of the API: the resource as it
// is after the event, or the request that deleted it.
type EventBodies struct {
	encoder wire.Encoder

	Interop  bool                                                        // with the names that clients of the public API know
	RepoPath func(ctx context.Context, uid resource.UID) (string, error) // the address of a repo in the registry
}

// eventKinds are the kinds of resources that have events, by how the types of
// these begin.
var eventKinds = map[string]struct {
	payload func(text []byte) (proto.Message, error)
	deleted proto.Message // the request to delete one; nil if that event has no body
}{
	"iam.group":                        {payload(GroupOf), &iampb.DeleteGroupRequest{}},
	"iam.identity":                     {payload(IdentityOf), &iampb.DeleteIdentityRequest{}},
	"iam.roles":                        {payload(roleOf), &iampb.DeleteRoleRequest{}},
	"iam.rolebindings":                 {payload(bindingOf), &iampb.DeleteRoleBindingRequest{}},
	"iam.access":                       {payload(unusedReportOf), nil},
	"iam.access_rules":                 {payload(accessRuleOf), &accesspb.DeleteAccessRuleRequest{}},
	"iam.access_requests":              {payload(accessRequestRecordOf), nil},
	"iam.identity_providers":           {payload(ProviderOf), &iampb.DeleteIdentityProviderRequest{}},
	"iam.account_associations":         {payload(AssociationOf), nil},
	"iam.group_invite":                 {payload(InviteOf), &iampb.DeleteGroupInviteRequest{}},
	"iam.external_group_role_mappings": {payload(MappingOf), &iampb.DeleteExternalGroupRoleMappingRequest{}},
	"iam.budgets":                      {payload(budgetOf), &budgetspb.DeleteBudgetRequest{}},
	"platform.registry.repo":           {payload(RepoOf), &registrypb.DeleteRepoRequest{}},
	"platform.registry.tag":            {payload(TagOf), &registrypb.DeleteTagRequest{}},
	"platform.registry.trash":          {payload(trashEntryOf), &ocipb.DeleteTrashEntryRequest{}},
	"platform.registry.image":          {payload(imageCopyOf), nil},
	"platform.registry.retention":      {payload(ownRetentionOf), &ocipb.DeleteRetentionRequest{}},
	"platform.registry.signer":         {payload(listedSignerOf), &ocipb.DeleteSignerRequest{}},
	"platform.registry.settings":       {payload(ownSettingsOf), nil},
	"platform.registry.upstream":       {payload(upstreamOf), &ocipb.DeleteUpstreamRequest{}},
	"platform.registry.deployment":     {payload(DeploymentOf), nil},
	"platform.registry.inventory":      {payload(placeOf), nil},
	"platform.registry.access":         {payload(refusedAccessOf), nil},
	"events.subscription":              {payload(SubscriptionOf), &eventspb.DeleteSubscriptionRequest{}},
	"vulnerabilities.advisory":         {payload(advisoryRecordOf), &advisoriespb.DeleteAdvisoryRequest{}},
	"vulnerabilities.advisories":       {payload(importedOf), nil},
	"vulnerabilities.feed":             {payload(feedOf), &advisoriespb.DeleteAdvisoryFeedRequest{}},
	"vulnerabilities.exploit_list":     {payload(exploitListOf), nil},
	"findings.finding":                 {payload(findingNewsOf), nil},
	"findings.exception":               {payload(exceptionRecordOf), &findingspb.DeleteExceptionRequest{}},
	"findings.rule":                    {payload(ruleOf), &findingspb.DeleteRuleRequest{}},
	"signin.account":                   {payload(accountRecordOf), &signinpb.DeleteAccountRequest{}},
	"signin.activity":                  {payload(activityOf), nil},
	"signin.rules":                     {payload(rulesOf), nil},
	"signin.session":                   {payload(endedSessionOf), nil},
	"auth":                             {payload(registeredOf), nil},
}

// specialEvents are the events whose body is not the resource.
var specialEvents = map[resource.EventType]func(e resource.Event) (proto.Message, error){
	resource.InviteCreated: inviteEvent,
	resource.InviteUpdated: inviteEvent,
	resource.InviteExpired: inviteEvent,
	resource.RetentionApplied: func(e resource.Event) (proto.Message, error) {
		r, err := decode[registry.RetentionRun](e.After)
		return appliedOf(r), err
	},
	resource.BindingsCreated: func(e resource.Event) (proto.Message, error) {
		all, err := decode[[]resource.RoleBinding](e.After)
		return &iampb.BatchCreateRoleBindingsResponse{RoleBindings: wire.Convert(all, bindingOf)}, err
	},
	resource.MappingsDeleted: func(e resource.Event) (proto.Message, error) {
		all, err := decode[[]resource.ExternalGroupRoleMapping](e.Before)
		return &iampb.BatchDeleteExternalGroupRoleMappingsResponse{
			Parent: string(e.Subject), ExternalGroupRoleMappings: wire.Convert(all, MappingOf),
		}, err
	},
	resource.GroupAccessRequested: func(e resource.Event) (proto.Message, error) {
		return &iampb.RequestGroupAccessRequest{GroupUid: string(e.Subject)}, nil
	},
	resource.AdvisoriesImported: func(e resource.Event) (proto.Message, error) {
		i, err := decode[imported](e.After)
		m := importedOf(i)
		m.GroupUid = string(e.Group)
		return m, err
	},
	resource.InventoryDeleted: func(e resource.Event) (proto.Message, error) {
		p, err := decode[vuln.InventoryPlace](e.Before)
		return &findingspb.DeleteInventoryRequest{GroupUid: string(p.Group), Place: p.Name}, err
	},
	resource.ExploitListDeleted: func(e resource.Event) (proto.Message, error) {
		l, err := decode[vuln.ExploitList](e.Before)
		return &findingspb.DeleteExploitListRequest{GroupUid: string(l.Group), Format: string(l.Format)}, err
	},
	resource.SessionEnded: func(e resource.Event) (proto.Message, error) {
		n, err := decode[resource.EndedSession](e.Before)
		return endedSessionOf(n), err
	},
	resource.IdentityMetadataUpdated: func(e resource.Event) (proto.Message, error) {
		i, err := decode[resource.Identity](e.After)
		return MetadataOf(i), err
	},
}

// inviteEvent returns the body of an event about an invite, which does not say whom
// it is for.
func inviteEvent(e resource.Event) (proto.Message, error) {
	i, err := decode[resource.GroupInvite](e.After)
	return &iampb.GroupInvite{Uid: string(i.UID), ExpirationTime: wire.Time(i.ExpirationTime)}, err
}

func decode[T any](text []byte) (v T, err error) {
	if err = json.Unmarshal(text, &v); err != nil {
		err = fmt.Errorf("decode an event: %w", err)
	}
	return v, err
}

// payload returns a function that turns a resource as the outbox has it into its
// message.
func payload[T any, M proto.Message](of func(T) M) func([]byte) (proto.Message, error) {
	return func(text []byte) (proto.Message, error) {
		v, err := decode[T](text)
		if err != nil {
			return nil, err
		}
		return of(v), nil
	}
}

// bindingOf returns the message of a binding as events have it: with uids alone.
func bindingOf(b resource.RoleBinding) *iampb.RoleBinding {
	return &iampb.RoleBinding{
		Uid: string(b.UID), CreateTime: wire.Time(b.CreateTime),
		Identity: &iampb.RoleBindingIdentity{Uid: string(b.Identity)},
		Group:    &iampb.RoleBindingGroup{Uid: string(b.Group())}, Role: &iampb.RoleBindingRole{Uid: string(b.Role)},
		StartTime: wire.Time(b.StartTime), ExpireTime: wire.Time(b.ExpireTime), Reason: wire.Optional(b.Reason),
	}
}

// DeploymentOf returns the message of a deployment. Only version 1 has a message for it.
func DeploymentOf(d registry.Deployment) *registryv1pb.Deployment {
	return &registryv1pb.Deployment{Id: string(d.UID),
		Charts: wire.Convert(d.Charts, func(c registry.HelmChart) *registryv1pb.HelmChart {
			return &registryv1pb.HelmChart{Source: c.Source, Repo: c.Repo, Chart: c.Chart}
		})}
}

func ownSettingsOf(s registry.Settings) *ocipb.Settings { return settingsOf(s.UID)(s) }

func advisoryRecordOf(r vuln.AdvisoryRecord) *vulnpb.Advisory { return AdvisoryOf(r.Restore()) }

// imported is what the outbox has of an import.
type imported struct {
	vuln.ImportResult
	Source string `json:"source"`
	Format string `json:"format"`
}

func importedOf(i imported) *advisoriespb.AdvisoriesImported {
	return &advisoriespb.AdvisoriesImported{Source: i.Source, Counts: countsOf(i.ImportResult), Format: i.Format}
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

func refusedAccessOf(a resource.Activity) *ocipb.RefusedAccess {
	return &ocipb.RefusedAccess{
		IdentityUid: string(a.Identity), Reason: a.Reason, Capability: a.Capability, Agent: a.Agent, Address: a.Address,
		Count: a.Count, FirstTime: wire.Time(a.First), LastTime: wire.Time(a.Last),
	}
}

// registered is what the outbox has of somebody who joined a group.
type registered struct {
	Identity string `json:"identity"`
	Group    string `json:"group"`
}

func registeredOf(r registered) *authpb.Session {
	return &authpb.Session{Identity: r.Identity, Group: r.Group}
}

// kindOf returns the kind of resource that a type of events is about, and what
// happened to it.
func kindOf(t resource.EventType) (kind, happened string) {
	name := strings.TrimSuffix(string(t), ".v1")
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, ""
	}
	return name[:i], name[i+1:]
}

// Body returns the body of an event. It fails for a type that it does not know,
// which another replica of a later version may know.
func (b *EventBodies) Body(ctx context.Context, e resource.Event) (event.Body, error) {
	if e.Type.OfRegistry() {
		return b.traffic(ctx, e)
	}
	kind, happened := kindOf(e.Type)
	row, known := eventKinds[kind]
	form := specialEvents[e.Type]
	switch {
	case form != nil:
	case !known:
		return event.Body{}, fmt.Errorf("there is no body for %s", e.Type)
	case happened != "deleted":
		form = func(e resource.Event) (proto.Message, error) { return row.payload(e.After) }
	case row.deleted == nil:
		return event.Body{}, nil
	default:
		return uidOnly(b.name(row.deleted), e.Subject)
	}
	m, err := form(e)
	if err != nil {
		return event.Body{}, err
	}
	text, err := b.encoder.Marshal(m)
	return event.Body{Type: b.name(m), JSON: text}, err
}

// name returns the name of a message that receivers know.
func (b *EventBodies) name(m proto.Message) string {
	name := m.ProtoReflect().Descriptor().FullName()
	if b.Interop {
		name = wire.InteropName(name)
	}
	return string(name)
}

func uidOnly(name string, uid resource.UID) (event.Body, error) {
	text, err := json.Marshal(map[string]resource.UID{"uid": uid})
	return event.Body{Type: name, JSON: text}, err
}

// A traffic is the body of a pull or a push, with the names that receivers know.
type traffic struct {
	Repository    string `json:"repository"`
	RepoID        string `json:"repo_id"`
	Tag           string `json:"tag,omitempty"`
	Digest        string `json:"digest"`
	Method        string `json:"method,omitempty"`
	Type          string `json:"type"`
	When          string `json:"when"`
	Location      string `json:"location"`
	RemoteAddress string `json:"remote_address"`
	UserAgent     string `json:"user_agent"`
	Count         int64  `json:"count,omitempty"` // of pulls, if the event stands for several
}

// traffic returns the body of a pull or a push.
func (b *EventBodies) traffic(ctx context.Context, e resource.Event) (event.Body, error) {
	path, err := b.RepoPath(ctx, e.Subject)
	if err != nil && !errors.Is(err, fault.NotFound) { // a deleted repo has no address
		return event.Body{}, err
	}
	t := traffic{
		Repository: path, RepoID: string(e.Subject), Type: "manifest", When: civil(e.Time), RemoteAddress: e.Actor.Remote,
	}
	if e.Type == resource.RegistryPush {
		push, err := decode[struct {
			Digest string   `json:"digest"`
			Tags   []string `json:"tags"`
		}](e.After)
		if err != nil {
			return event.Body{}, err
		}
		t.Digest = push.Digest
		if len(push.Tags) > 0 {
			t.Tag = push.Tags[0]
		}
	} else {
		pull, err := decode[registry.Pull](e.After)
		if err != nil {
			return event.Body{}, err
		}
		t.Digest, t.Tag, t.Method, t.RemoteAddress, t.UserAgent = pull.Digest, pull.Tag, "GET", pull.Remote, pull.Agent
		t.When = civil(pull.Time)
		if pull.More > 0 {
			t.Count = 1 + pull.More
		}
	}
	text, err := json.Marshal(t)
	return event.Body{JSON: text}, err
}

// civil formats a time without its zone, and with a fraction only if there is one.
func civil(t time.Time) string {
	text := t.UTC().Format("2006-01-02T15:04:05.000000")
	return strings.TrimSuffix(text, ".000000")
}
