package resource

import (
	"context"
	"time"
)

// An EventType is the type of an event, without the prefix that its CloudEvents type has.
type EventType string

// These are the types of events. The store records an event with every change.
const (
	GroupCreated            EventType = "iam.group.created.v1"
	GroupUpdated            EventType = "iam.group.updated.v1"
	GroupDeleted            EventType = "iam.group.deleted.v1"
	GroupAccessRequested    EventType = "iam.group.access_requested.v1"
	GroupOwnerless          EventType = "iam.group.ownerless.v1" // a directory has deactivated the last permanent owner
	IdentityCreated         EventType = "iam.identity.created.v1"
	IdentityUpdated         EventType = "iam.identity.updated.v1"
	IdentityDeleted         EventType = "iam.identity.deleted.v1"
	IdentityMetadataUpdated EventType = "iam.identity.metadata.updated.v1"
	IdentityDeactivated     EventType = "iam.identity.deactivated.v1" // by the directory of its provider
	IdentityReactivated     EventType = "iam.identity.reactivated.v1"
	RoleCreated             EventType = "iam.roles.created.v1"
	RoleUpdated             EventType = "iam.roles.updated.v1"
	RoleDeleted             EventType = "iam.roles.deleted.v1"
	BindingCreated          EventType = "iam.rolebindings.created.v1"
	BindingsCreated         EventType = "iam.rolebindings.created.batch.v1"
	BindingUpdated          EventType = "iam.rolebindings.updated.v1"
	BindingDeleted          EventType = "iam.rolebindings.deleted.v1"
	BindingExpired          EventType = "iam.rolebindings.expired.v1"
	AccessUnused            EventType = "iam.access.unused.v1" // recorded once a week
	AccessRuleCreated       EventType = "iam.access_rules.created.v1"
	AccessRuleDeleted       EventType = "iam.access_rules.deleted.v1"
	AccessRequestCreated    EventType = "iam.access_requests.created.v1"
	AccessRequestApproved   EventType = "iam.access_requests.approved.v1" // the request waits for another approval
	AccessRequestGranted    EventType = "iam.access_requests.granted.v1"
	AccessRequestTaken      EventType = "iam.access_requests.taken.v1" // the person took the access without an approval
	AccessRequestDenied     EventType = "iam.access_requests.denied.v1"
	AccessRequestHandedBack EventType = "iam.access_requests.handed_back.v1"
	AccessRequestClosed     EventType = "iam.access_requests.closed.v1" // the group was deleted or the person deactivated
	ProviderCreated         EventType = "iam.identity_providers.created.v1"
	ProviderUpdated         EventType = "iam.identity_providers.updated.v1"
	ProviderDeleted         EventType = "iam.identity_providers.deleted.v1"
	ScimTokenGenerated      EventType = "iam.identity_providers.scim_token.generated.v1"
	ScimTokenRegenerated    EventType = "iam.identity_providers.scim_token.regenerated.v1"
	ScimTokenRevoked        EventType = "iam.identity_providers.scim_token.revoked.v1"
	ScimEnabledUpdated      EventType = "iam.identity_providers.scim_enabled.updated.v1"
	DirectoryUpdated        EventType = "iam.identity_providers.directory.updated.v1"
	TeamCreated             EventType = "iam.teams.created.v1"
	TeamUpdated             EventType = "iam.teams.updated.v1"
	TeamDeleted             EventType = "iam.teams.deleted.v1"
	AssociationCreated      EventType = "iam.account_associations.created.v1"
	AssociationUpdated      EventType = "iam.account_associations.updated.v1"
	AssociationDeleted      EventType = "iam.account_associations.deleted.v1"
	InviteCreated           EventType = "iam.group_invite.created.v1"
	InviteUpdated           EventType = "iam.group_invite.updated.v1"
	InviteDeleted           EventType = "iam.group_invite.deleted.v1"
	InviteExpired           EventType = "iam.group_invite.expired.v1"
	MappingCreated          EventType = "iam.external_group_role_mappings.created.v1"
	MappingDeleted          EventType = "iam.external_group_role_mappings.deleted.v1"
	MappingsDeleted         EventType = "iam.external_group_role_mappings.deleted.batch.v1"
	OrganizationApplied     EventType = "iam.organization.applied.v1" // many changes in one transaction
	BudgetCreated           EventType = "iam.budgets.created.v1"
	BudgetUpdated           EventType = "iam.budgets.updated.v1"
	BudgetDeleted           EventType = "iam.budgets.deleted.v1"
	RepoCreated             EventType = "platform.registry.repo.created.v1"
	RepoUpdated             EventType = "platform.registry.repo.updated.v1"
	RepoDeleted             EventType = "platform.registry.repo.deleted.v1"
	TagCreated              EventType = "platform.registry.tag.created.v1"
	TagDeleted              EventType = "platform.registry.tag.deleted.v1"
	TrashRestored           EventType = "platform.registry.trash.restored.v1"
	TrashDeleted            EventType = "platform.registry.trash.deleted.v1"
	ImageCopied             EventType = "platform.registry.image.copied.v1"
	ImagePromoted           EventType = "platform.registry.image.promoted.v1"
	RetentionUpdated        EventType = "platform.registry.retention.updated.v1"
	RetentionDeleted        EventType = "platform.registry.retention.deleted.v1"
	RetentionApplied        EventType = "platform.registry.retention.applied.v1"
	UpstreamCreated         EventType = "platform.registry.upstream.created.v1"
	UpstreamUpdated         EventType = "platform.registry.upstream.updated.v1"
	UpstreamDeleted         EventType = "platform.registry.upstream.deleted.v1"
	ReplicationCreated      EventType = "platform.registry.replication.created.v1"
	ReplicationUpdated      EventType = "platform.registry.replication.updated.v1"
	ReplicationDeleted      EventType = "platform.registry.replication.deleted.v1"
	RegistrySettingsUpdated EventType = "platform.registry.settings.updated.v1"
	DeploymentCreated       EventType = "platform.registry.deployment.created.v1"
	DeploymentUpdated       EventType = "platform.registry.deployment.updated.v1"
	InventoryPushed         EventType = "platform.registry.inventory.pushed.v1"
	InventoryDeleted        EventType = "platform.registry.inventory.deleted.v1"

	// These two types have the prefix of the registry instead of the prefix of the API.
	RegistryPush       EventType = "push.v1"
	RegistryPull       EventType = "pull.v1"
	AdvisoryCreated    EventType = "vulnerabilities.advisory.created.v1"
	AdvisoryUpdated    EventType = "vulnerabilities.advisory.updated.v1"
	AdvisoryDeleted    EventType = "vulnerabilities.advisory.deleted.v1"
	AdvisoriesImported EventType = "vulnerabilities.advisories.imported.v1" // one event for many records
	FeedCreated        EventType = "vulnerabilities.feed.created.v1"
	FeedUpdated        EventType = "vulnerabilities.feed.updated.v1"
	FeedDeleted        EventType = "vulnerabilities.feed.deleted.v1"
	ExploitListDeleted EventType = "vulnerabilities.exploit_list.deleted.v1"
	FindingOpened      EventType = "findings.finding.opened.v1"
	FindingClosed      EventType = "findings.finding.closed.v1"
	ExceptionCreated   EventType = "findings.exception.created.v1"
	ExceptionApproved  EventType = "findings.exception.approved.v1"
	ExceptionDeleted   EventType = "findings.exception.deleted.v1"
	RuleCreated        EventType = "findings.rule.created.v1"
	RuleUpdated        EventType = "findings.rule.updated.v1"
	RuleDeleted        EventType = "findings.rule.deleted.v1"
	SLAUpdated         EventType = "findings.sla.updated.v1"
	SLADeleted         EventType = "findings.sla.deleted.v1"
	ReportSubscribed   EventType = "findings.report_subscription.created.v1"
	ReportUnsubscribed EventType = "findings.report_subscription.deleted.v1"
	SignerCreated      EventType = "platform.registry.signer.created.v1"
	SignerDeleted      EventType = "platform.registry.signer.deleted.v1"
	AccountCreated     EventType = "signin.account.created.v1"
	AccountUpdated     EventType = "signin.account.updated.v1"
	AccountDeleted     EventType = "signin.account.deleted.v1"
	SignInRulesUpdated EventType = "signin.rules.updated.v1"
	SessionEnded       EventType = "signin.session.ended.v1"
	Registered         EventType = "auth.registered.v1"

	// The data of these events is an Activity.
	SignedIn             EventType = "signin.activity.signed_in.v1"
	SignInRefused        EventType = "signin.activity.refused.v1"
	PasswordChanged      EventType = "signin.activity.password_changed.v1"
	PasskeyAdded         EventType = "signin.activity.passkey_added.v1"
	PasskeyRemoved       EventType = "signin.activity.passkey_removed.v1"
	AppAdded             EventType = "signin.activity.app_added.v1" // an authenticator app was added
	AppRemoved           EventType = "signin.activity.app_removed.v1"
	RecoveryCodesCreated EventType = "signin.activity.recovery_codes_created.v1"
	SecondFactorChanged  EventType = "signin.activity.second_factor_changed.v1"
	LinkCreated          EventType = "signin.activity.link_created.v1"
	LinkUsed             EventType = "signin.activity.link_used.v1"
	ProgramAllowed       EventType = "signin.activity.program_allowed.v1"
	ProgramDenied        EventType = "signin.activity.program_denied.v1"
	RegistryRefused      EventType = "platform.registry.access.refused.v1"

	SubscriptionCreated EventType = "events.subscription.created.v1"
	SubscriptionDeleted EventType = "events.subscription.deleted.v1"
	SubscriptionFailing EventType = "events.subscription.failing.v1" // no event was accepted for an hour
)

// Internal reports whether events of this type are not delivered to subscribers.
func (t EventType) Internal() bool { return t == IdentityMetadataUpdated }

// configuring are the types of events about changes that a file can describe. Events about images, people who come and
// go, and what the server does by itself are not among them.
var configuring = map[EventType]bool{
	GroupCreated: true, GroupUpdated: true, GroupDeleted: true,
	IdentityCreated: true, IdentityUpdated: true, IdentityDeleted: true,
	RoleCreated: true, RoleUpdated: true, RoleDeleted: true,
	BindingCreated: true, BindingsCreated: true, BindingUpdated: true, BindingDeleted: true,
	AccessRuleCreated: true, AccessRuleDeleted: true,
	ProviderCreated: true, ProviderUpdated: true, ProviderDeleted: true,
	AssociationCreated: true, AssociationUpdated: true, AssociationDeleted: true,
	MappingCreated: true, MappingDeleted: true, MappingsDeleted: true,
	BudgetCreated: true, BudgetUpdated: true, BudgetDeleted: true,
	RepoCreated: true, RepoUpdated: true, RepoDeleted: true, RetentionUpdated: true, RetentionDeleted: true,
	UpstreamCreated: true, UpstreamUpdated: true, UpstreamDeleted: true, RegistrySettingsUpdated: true,
	SignerCreated: true, SignerDeleted: true, FeedCreated: true, FeedUpdated: true, FeedDeleted: true,
	ExceptionCreated: true, ExceptionApproved: true, ExceptionDeleted: true,
	RuleCreated: true, RuleUpdated: true, RuleDeleted: true, SLAUpdated: true, SLADeleted: true,
	SignInRulesUpdated: true, SubscriptionCreated: true, SubscriptionDeleted: true,
}

// Configures reports whether events of this type are about a change that a file about an organization can describe.
func (t EventType) Configures() bool { return configuring[t] }

// OfRegistry reports whether the type has the prefix of the registry.
func (t EventType) OfRegistry() bool { return t == RegistryPush || t == RegistryPull }

// An Event is a change that is recorded in the outbox. Before and After are the resource
// as JSON, or empty if it did not exist.
type Event struct {
	Seq     int64
	ID      string
	Type    EventType
	Subject UID
	Group   UID // "/" for events that concern the whole installation
	Actor   Actor
	Time    time.Time
	Before  []byte
	After   []byte
}

// An Actor is the identity that made a change. The zero value is the service itself.
type Actor struct {
	Subject   UID       `json:"subject,omitempty"`
	Act       *Upstream `json:"act,omitempty"`
	RequestID string    `json:"requestId,omitempty"`
	Remote    string    `json:"remote,omitempty"` // the caller's address
}

// An Upstream is the credential with which a caller assumed an identity.
type Upstream struct {
	Issuer   string   `json:"iss,omitempty"`
	Subject  string   `json:"sub,omitempty"`
	Audience []string `json:"aud,omitempty"`

	// the credential before this one, if this one is an identity of this service (RFC 8693, 4.1)
	Act *Upstream `json:"act,omitempty"`
}

type actorKey struct{}

// WithActor returns a context in which changes are recorded as made by a.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorFrom returns the actor in a context.
func ActorFrom(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}

// A Claim is the identity that a caller without a token of this service asks for, and the
// identity that it gets.
type Claim struct{ Asked, Proven UID }

type claimKey struct{}

// WithClaim returns a context that carries c, so that ClaimFrom can return c to be filled in.
func WithClaim(ctx context.Context, c *Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// ClaimFrom returns the claim in a context. The caller sets its fields, and the log shows
// them. If the context has no claim, it returns a new one that nothing reads.
func ClaimFrom(ctx context.Context) *Claim {
	if c, ok := ctx.Value(claimKey{}).(*Claim); ok {
		return c
	}
	return &Claim{}
}

type dryRunKey struct{}

// WithDryRun returns a context in which changes are checked completely, and then rolled back.
func WithDryRun(ctx context.Context) context.Context {
	return context.WithValue(ctx, dryRunKey{}, true)
}

// IsDryRun reports whether changes in a context are rolled back.
func IsDryRun(ctx context.Context) bool { return ctx.Value(dryRunKey{}) != nil }
