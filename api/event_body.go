package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-dev/holdfast/event"
	"github.com/holdfast-dev/holdfast/fault"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

// EventBodies writes what events say of the things they happened to, in the
// words of the API: the thing as it is since, or the request to delete it.
type EventBodies struct {
	encoder encoder

	Interop  bool                                                        // with the names that clients of the public API know
	RepoPath func(ctx context.Context, uid resource.UID) (string, error) // the address of a repo in the registry
}

// told are the things events happen to, by how the types of these begin.
var told = map[string]struct {
	thing func(text []byte) (proto.Message, error)
	gone  proto.Message // the request to delete one; nil where that is not told
}{
	"iam.group":                        {thing(groupOf), &iampb.DeleteGroupRequest{}},
	"iam.identity":                     {thing(identityOf), &iampb.DeleteIdentityRequest{}},
	"iam.roles":                        {thing(roleOf), &iampb.DeleteRoleRequest{}},
	"iam.rolebindings":                 {thing(bindingOf), &iampb.DeleteRoleBindingRequest{}},
	"iam.identity_providers":           {thing(providerOf), &iampb.DeleteIdentityProviderRequest{}},
	"iam.account_associations":         {thing(associationOf), nil},
	"iam.group_invite":                 {thing(inviteOf), &iampb.DeleteGroupInviteRequest{}},
	"iam.external_group_role_mappings": {thing(mappingOf), &iampb.DeleteExternalGroupRoleMappingRequest{}},
	"platform.registry.repo":           {thing(repoOf), &registrypb.DeleteRepoRequest{}},
	"platform.registry.tag":            {thing(tagOf), &registrypb.DeleteTagRequest{}},
	"platform.registry.settings":       {thing(ownSettingsOf), nil},
	"platform.registry.deployment":     {thing(deploymentV1), nil},
	"events.subscription":              {thing(subscriptionOf), &eventspb.DeleteSubscriptionRequest{}},
	"vulnerabilities.advisory":         {thing(advisoryRecordOf), &advisoriespb.DeleteAdvisoryRequest{}},
	"vulnerabilities.advisories":       {thing(importedOf), nil},
	"vulnerabilities.feed":             {thing(feedOf), &advisoriespb.DeleteAdvisoryFeedRequest{}},
	"signin.account":                   {thing(accountRecordOf), &signinpb.DeleteAccountRequest{}},
	"signin.rules":                     {thing(rulesOf), nil},
	"signin.session":                   {thing(endedSessionOf), nil},
	"auth":                             {thing(registeredOf), nil},
}

// particular are the events that do not tell a thing as it is.
var particular = map[resource.EventType]func(e resource.Event) (proto.Message, error){
	resource.InviteCreated: func(e resource.Event) (proto.Message, error) {
		i, err := decode[resource.GroupInvite](e.After)
		return &iampb.GroupInvite{Uid: string(i.UID), ExpirationTime: timeOf(i.ExpirationTime)}, err
	},
	resource.BindingsCreated: func(e resource.Event) (proto.Message, error) {
		all, err := decode[[]resource.RoleBinding](e.After)
		return &iampb.BatchCreateRoleBindingsResponse{RoleBindings: convert(all, bindingOf)}, err
	},
	resource.MappingsDeleted: func(e resource.Event) (proto.Message, error) {
		all, err := decode[[]resource.ExternalGroupRoleMapping](e.Before)
		return &iampb.BatchDeleteExternalGroupRoleMappingsResponse{
			Parent: string(e.Subject), ExternalGroupRoleMappings: convert(all, mappingOf),
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
	resource.SessionEnded: func(e resource.Event) (proto.Message, error) {
		n, err := decode[resource.EndedSession](e.Before)
		return endedSessionOf(n), err
	},
	resource.IdentityMetadataUpdated: func(e resource.Event) (proto.Message, error) {
		i, err := decode[resource.Identity](e.After)
		return metadataOf(i), err
	},
}

func decode[T any](text []byte) (v T, err error) {
	if err = json.Unmarshal(text, &v); err != nil {
		err = fmt.Errorf("decode an event: %w", err)
	}
	return v, err
}

// thing reads what the outbox holds of a thing and writes it as the API does.
func thing[T any, M proto.Message](of func(T) M) func([]byte) (proto.Message, error) {
	return func(text []byte) (proto.Message, error) {
		v, err := decode[T](text)
		if err != nil {
			return nil, err
		}
		return of(v), nil
	}
}

// bindingOf writes a binding as events have it: what it ties together by uids
// alone.
func bindingOf(b resource.RoleBinding) *iampb.RoleBinding {
	return &iampb.RoleBinding{
		Uid: string(b.UID), CreateTime: timeOf(b.CreateTime),
		Identity: &iampb.RoleBindingIdentity{Uid: string(b.Identity)},
		Group:    &iampb.RoleBindingGroup{Uid: string(b.Group())},
		Role:     &iampb.RoleBindingRole{Uid: string(b.Role)},
	}
}

func ownSettingsOf(s resource.RegistrySettings) *ocipb.Settings { return settingsOf(s.UID, s) }

func advisoryRecordOf(r resource.AdvisoryRecord) *vulnpb.Advisory { return advisoryOf(r.Restore()) }

// imported is what the outbox keeps of an import.
type imported struct {
	resource.ImportResult
	Source string `json:"source"`
}

func importedOf(i imported) *advisoriespb.AdvisoriesImported {
	return &advisoriespb.AdvisoriesImported{Source: i.Source, Counts: countsOf(i.ImportResult)}
}

func accountRecordOf(r resource.AccountRecord) *signinpb.Account {
	p := accountOf(r.Account, r.Keys)
	p.HasPassword, p.Totp, p.UseTime = r.HasPassword, r.HasTOTP, timeOf(r.LastUse)
	return p
}

func endedSessionOf(n resource.EndedSession) *signinpb.EndedSession {
	return &signinpb.EndedSession{Session: sessionOf(n.Session), Reason: signinpb.EndReason(n.Reason)}
}

// registered is what the outbox keeps of somebody who joined a group.
type registered struct {
	Identity string `json:"identity"`
	Group    string `json:"group"`
}

func registeredOf(r registered) *authpb.Session {
	return &authpb.Session{Identity: r.Identity, Group: r.Group}
}

// kindOf is how the type of an event begins: without what happened, and the
// version.
func kindOf(t resource.EventType) (kind, happened string) {
	name := strings.TrimSuffix(string(t), ".v1")
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, ""
	}
	return name[:i], name[i+1:]
}

// Body writes the body of an event. It fails for a type that it does not know:
// another replica, of a later version, may.
func (b *EventBodies) Body(ctx context.Context, e resource.Event) (event.Body, error) {
	if e.Type.OfRegistry() {
		return b.traffic(ctx, e)
	}
	kind, happened := kindOf(e.Type)
	row, known := told[kind]
	form := particular[e.Type]
	switch {
	case form != nil:
	case !known:
		return event.Body{}, fmt.Errorf("there is no body for %s", e.Type)
	case happened != "deleted":
		form = func(e resource.Event) (proto.Message, error) { return row.thing(e.After) }
	case row.gone == nil:
		return event.Body{}, nil
	default:
		return uidOnly(b.name(row.gone), e.Subject)
	}
	m, err := form(e)
	if err != nil {
		return event.Body{}, err
	}
	text, err := b.encoder.write(m)
	return event.Body{Type: b.name(m), JSON: text}, err
}

// name is what receivers know a message by.
func (b *EventBodies) name(m proto.Message) string {
	name := m.ProtoReflect().Descriptor().FullName()
	if b.Interop {
		name = interopName(name)
	}
	return string(name)
}

func uidOnly(name string, uid resource.UID) (event.Body, error) {
	text, err := json.Marshal(map[string]resource.UID{"uid": uid})
	return event.Body{Type: name, JSON: text}, err
}

func (e *encoder) write(m proto.Message) ([]byte, error) {
	text, err := e.append(nil, m)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return text, nil
}

// A traffic is the body of a pull or a push. Its names are those that receivers
// know.
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

// traffic writes the body of a pull or a push.
func (b *EventBodies) traffic(ctx context.Context, e resource.Event) (event.Body, error) {
	path, err := b.RepoPath(ctx, e.Subject)
	if err != nil && !errors.Is(err, fault.NotFound) { // a repo that is gone has no address
		return event.Body{}, err
	}
	t := traffic{Repository: path, RepoID: string(e.Subject), Type: "manifest", When: civil(e.Time), RemoteAddress: e.Actor.Remote}
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
		pull, err := decode[resource.Pull](e.After)
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

// civil writes a time without its zone, and a fraction only if there is one.
func civil(t time.Time) string {
	text := t.UTC().Format("2006-01-02T15:04:05.000000")
	return strings.TrimSuffix(text, ".000000")
}
