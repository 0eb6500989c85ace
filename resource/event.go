package resource

import (
	"context"
	"time"
)

// An EventType says what happened. The prefix that makes it a CloudEvents type
// is added on delivery.
type EventType string

// The events there are. A store records one with every change.
const (
	GroupCreated            EventType = "iam.group.created.v1"
	GroupUpdated            EventType = "iam.group.updated.v1"
	GroupDeleted            EventType = "iam.group.deleted.v1"
	GroupAccessRequested    EventType = "iam.group.access_requested.v1"
	IdentityCreated         EventType = "iam.identity.created.v1"
	IdentityUpdated         EventType = "iam.identity.updated.v1"
	IdentityDeleted         EventType = "iam.identity.deleted.v1"
	IdentityMetadataUpdated EventType = "iam.identity.metadata.updated.v1"
	RoleCreated             EventType = "iam.roles.created.v1"
	RoleUpdated             EventType = "iam.roles.updated.v1"
	RoleDeleted             EventType = "iam.roles.deleted.v1"
	BindingCreated          EventType = "iam.rolebindings.created.v1"
	BindingsCreated         EventType = "iam.rolebindings.created.batch.v1"
	BindingUpdated          EventType = "iam.rolebindings.updated.v1"
	BindingDeleted          EventType = "iam.rolebindings.deleted.v1"
	ProviderCreated         EventType = "iam.identity_providers.created.v1"
	ProviderUpdated         EventType = "iam.identity_providers.updated.v1"
	ProviderDeleted         EventType = "iam.identity_providers.deleted.v1"
	AssociationCreated      EventType = "iam.account_associations.created.v1"
	AssociationUpdated      EventType = "iam.account_associations.updated.v1"
	AssociationDeleted      EventType = "iam.account_associations.deleted.v1"
	InviteCreated           EventType = "iam.group_invite.created.v1"
	InviteDeleted           EventType = "iam.group_invite.deleted.v1"
	MappingCreated          EventType = "iam.external_group_role_mappings.created.v1"
	MappingDeleted          EventType = "iam.external_group_role_mappings.deleted.v1"
	MappingsDeleted         EventType = "iam.external_group_role_mappings.deleted.batch.v1"
	RepoCreated             EventType = "platform.registry.repo.created.v1"
	RepoUpdated             EventType = "platform.registry.repo.updated.v1"
	RepoDeleted             EventType = "platform.registry.repo.deleted.v1"
	TagCreated              EventType = "platform.registry.tag.created.v1"
	TagDeleted              EventType = "platform.registry.tag.deleted.v1"
	RegistrySettingsUpdated EventType = "platform.registry.settings.updated.v1"
	DeploymentCreated       EventType = "platform.registry.deployment.created.v1"
	DeploymentUpdated       EventType = "platform.registry.deployment.updated.v1"

	// Of these two the prefix is the registry's, not the API's.
	RegistryPush       EventType = "push.v1"
	RegistryPull       EventType = "pull.v1"
	AdvisoryCreated    EventType = "vulnerabilities.advisory.created.v1"
	AdvisoryUpdated    EventType = "vulnerabilities.advisory.updated.v1"
	AdvisoryDeleted    EventType = "vulnerabilities.advisory.deleted.v1"
	AdvisoriesImported EventType = "vulnerabilities.advisories.imported.v1" // one for many records
	FeedCreated        EventType = "vulnerabilities.feed.created.v1"
	FeedUpdated        EventType = "vulnerabilities.feed.updated.v1"
	FeedDeleted        EventType = "vulnerabilities.feed.deleted.v1"
	AccountCreated     EventType = "signin.account.created.v1"
	AccountUpdated     EventType = "signin.account.updated.v1"
	AccountDeleted     EventType = "signin.account.deleted.v1"
	SignInRulesUpdated EventType = "signin.rules.updated.v1"
	SessionEnded       EventType = "signin.session.ended.v1"
	Registered         EventType = "auth.registered.v1"

	SubscriptionCreated EventType = "events.subscription.created.v1"
	SubscriptionDeleted EventType = "events.subscription.deleted.v1"
)

// Internal tells whether events of the type are for the service alone.
func (t EventType) Internal() bool { return t == IdentityMetadataUpdated }

// OfRegistry tells whether the prefix of the type is the registry's.
func (t EventType) OfRegistry() bool { return t == RegistryPush || t == RegistryPull }

// An Event is one change, as the outbox keeps it. Before and After are JSON,
// or empty where there was nothing.
type Event struct {
	Seq     int64
	ID      string
	Type    EventType
	Subject UID
	Group   UID // "/" for what happened to the root of everything
	Actor   Actor
	Time    time.Time
	Before  []byte
	After   []byte
}

// An Actor is who a change is put down to. The zero value is the service.
type Actor struct {
	Subject   UID       `json:"subject,omitempty"`
	Act       *Upstream `json:"act,omitempty"`
	RequestID string    `json:"requestId,omitempty"`
	Remote    string    `json:"remote,omitempty"` // the caller's address
}

// An Upstream is the credential an identity was assumed with.
type Upstream struct {
	Issuer   string   `json:"iss,omitempty"`
	Subject  string   `json:"sub,omitempty"`
	Audience []string `json:"aud,omitempty"`

	Act *Upstream `json:"act,omitempty"` // the one before, if this one is an identity of ours (RFC 8693, 4.1)
}

type actorKey struct{}

// WithActor puts the changes made under the context down to a.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorFrom returns who changes are put down to.
func ActorFrom(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}

type rehearsalKey struct{}

// Rehearse makes a change under the context run with all its checks and answers,
// and then not happen.
func Rehearse(ctx context.Context) context.Context {
	return context.WithValue(ctx, rehearsalKey{}, true)
}

// Rehearsing tells whether changes under the context are not to happen.
func Rehearsing(ctx context.Context) bool { return ctx.Value(rehearsalKey{}) != nil }
