package model

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// Names of kinds that others refer to.
const (
	Folders    = "folders"
	Roles      = "roles"
	Workloads  = "workloads"
	Identities = "identities" // people and workloads, as the target of a reference
	Providers  = "identityProviders"
	Repos      = "repos"
	Targets    = "targets" // groups and repos, as the target of a reference
)

// Kinds are the kinds that a file can contain, in the order in which they are created.
var Kinds = table()

// KindOf returns the kind with a name, or nil.
func KindOf(name string) *Kind {
	for _, k := range Kinds {
		if k.Name == name {
			return k
		}
	}
	return nil
}

func table() []*Kind {
	kinds := slices.Concat(accessKinds(), grantKinds(), registryKinds(), findingKinds(), []*Kind{budgetKind()})
	for _, k := range kinds {
		for i := range k.Fields {
			f := &k.Fields[i]
			if f.Name == "" {
				f.Name = camel(f.Path)
			}
			if f.Read == "" {
				f.Read = f.Path
			}
			k.Descriptor(f) // panics if the table is wrong
		}
	}
	return kinds
}

// fields returns plain fields.
func fields(paths ...string) []Field {
	var list []Field
	for _, p := range paths {
		list = append(list, Field{Path: p})
	}
	return list
}

// derived returns fields whose value the server chooses if they are absent.
func derived(paths ...string) []Field {
	list := fields(paths...)
	for i := range list {
		list[i].Derived = true
	}
	return list
}

// copied returns fields whose value the server chooses if the field from is present.
func copied(from string, paths ...string) []Field {
	list := fields(paths...)
	for i := range list {
		list[i].DerivedFrom = from
	}
	return list
}

func service(file protoreflect.FileDescriptor, name protoreflect.Name) protoreflect.ServiceDescriptor {
	return file.Services().ByName(name)
}

func accessKinds() []*Kind {
	return []*Kind{
		{
			Name: Folders, One: "folder", About: "Groups below the group of the file. The path \".\" is that group itself.",
			Service: service(iampb.File_holdfast_iam_v2beta1_groups_proto, "GroupsService"),
			Message: (&iampb.Group{}).ProtoReflect().Descriptor(), Fields: fields("display_name", "description"),
		},
		{
			Name: Roles, One: "role", About: "Custom roles.", Parent: Folders,
			Service: service(iampb.File_holdfast_iam_v2beta1_roles_proto, "RolesService"),
			Message: (&iampb.Role{}).ProtoReflect().Descriptor(), Fields: fields("description", "capabilities"),
		},
		{
			Name: Workloads, One: "workload", About: "Identities of workloads, with the rule for the tokens that prove them.",
			Parent: Folders, Service: service(iampb.File_holdfast_iam_v2beta1_identities_proto, "IdentitiesService"),
			Message: (&iampb.Identity{}).ProtoReflect().Descriptor(),
			Fields: append(fields("display_name", "description", "company", "claim_match.issuer", "claim_match.issuer_pattern",
				"claim_match.subject", "claim_match.subject_pattern", "claim_match.audience", "claim_match.audience_pattern",
				"claim_match.claims", "claim_match.claim_patterns", "static_keys.issuer", "static_keys.subject",
				"static_keys.issuer_keys", "static_keys.audiences", "aws_identity.aws_account", "aws_identity.arn",
				"aws_identity.arn_pattern", "aws_identity.user_id", "aws_identity.user_id_pattern", "service_principal"),
				derived("static_keys.expiration_time")...),
		},
	}
}

// grantKinds are the kinds that give people and workloads access.
func grantKinds() []*Kind {
	mapping := append([]Field{
		{Path: "external_group_id", Name: "group"}, {Path: "role_uid", Name: "role", Ref: Roles},
	}, Field{Path: "scope", Name: "scope", Ref: Folders})
	return []*Kind{
		{
			Name: Providers, One: "identity provider", About: "Identity providers through which people sign in.",
			Parent:  Folders,
			Service: service(iampb.File_holdfast_iam_v2beta1_identity_providers_proto, "IdentityProvidersService"),
			Message: (&iampb.IdentityProvider{}).ProtoReflect().Descriptor(),
			Fields: append(fields("description", "oidc.issuer", "oidc.client_id", "oidc.additional_scopes", "oidc.groups_claim",
				"oidc.correlation_rule", "oidc.pkce_enabled", "disabled"),
				Field{Path: "shared_redirect", Derived: true}, Field{Path: "oidc.client_secret", Secret: true},
				Field{Path: "default_role", Ref: Roles}),
		},
		{
			Name: "groupMappings", One: "group mapping", Parent: Providers, Fields: mapping,
			About: "Roles for the members of groups that an identity provider reports.",
			Key:   []string{"group", "role", "scope"},
			Service: service(iampb.File_holdfast_iam_v2beta1_external_group_role_mappings_proto,
				"ExternalGroupRoleMappingsService"),
			Message: (&iampb.ExternalGroupRoleMapping{}).ProtoReflect().Descriptor(),
		},
		{
			Name: "bindings", One: "binding", About: "Roles of people and workloads in a folder and below it.", Parent: Folders,
			Key:     []string{"identity", "role"},
			Service: service(iampb.File_holdfast_iam_v2beta1_role_bindings_proto, "RoleBindingsService"),
			Message: (&iampb.RoleBinding{}).ProtoReflect().Descriptor(),
			Fields: []Field{
				{Path: "identity_uid", Name: "identity", Read: "identity.uid", Ref: Identities},
				{Path: "role_uid", Name: "role", Read: "role.uid", Ref: Roles},
				{Path: "start_time"}, {Path: "expire_time"}, {Path: "reason"},
			},
			Over: func(m protoreflect.Message) bool {
				return m.Interface().(*iampb.RoleBinding).GetState() == iampb.RoleBindingState_ROLE_BINDING_STATE_OVER
			},
		},
		{
			Name: "accessRules", One: "access rule", About: "Roles that people may request for a limited time.", Parent: Folders,
			Key:     []string{"role", "requesterRole", "breakGlass"},
			Service: service(accesspb.File_holdfast_access_v1_requests_proto, "AccessRequestsService"),
			Message: (&accesspb.AccessRule{}).ProtoReflect().Descriptor(),
			Fields: append([]Field{{Path: "role_uid", Name: "role", Ref: Roles},
				{Path: "requester_role_uid", Name: "requesterRole", Ref: Roles}},
				append(fields("max_duration", "break_glass"), derived("approvers", "reason_required")...)...),
		},
	}
}

func budgetKind() *Kind {
	return &Kind{
		Name: "budgets", One: "budget", About: "Limits of folders below the group of the file.", Parent: Folders, Here: true,
		Service: service(budgetspb.File_holdfast_budgets_v1_budgets_proto, "BudgetsService"),
		Message: (&budgetspb.Budget{}).ProtoReflect().Descriptor(),
		Fields: fields("stored_bytes", "repos", "identities", "advisories", "webhooks", "groups", "bindings",
			"requests_per_second", "pulls_per_day"),
	}
}

func registryKinds() []*Kind {
	return []*Kind{
		{
			Name: "upstreams", One: "upstream", About: "Registries from which folders fetch images on demand.", Parent: Folders,
			Service: service(ocipb.File_holdfast_oci_v1_upstream_proto, "UpstreamsService"),
			Message: (&ocipb.Upstream{}).ProtoReflect().Descriptor(),
			Fields: append(append(fields("names", "anyone", "identity"), derived("address", "realm", "fresh_for")...),
				Field{Path: "credentials", Secret: true}),
		},
		{
			Name: Repos, One: "repo", About: "Repos, with the repo from which each is synced.", Parent: Folders,
			Service: service(registrypb.File_holdfast_registry_v2beta1_repos_proto, "ReposService"),
			Message: (&registrypb.Repo{}).ProtoReflect().Descriptor(),
			// The server copies the fields of the source.
			Fields: append(copied("sync.source", "description", "catalog_tier", "bundles", "aliases", "active_tags"),
				Field{Path: "sync_config.source", Name: "sync.source", Ref: Repos},
				Field{Path: "sync_config.google", Name: "sync.google"},
				Field{Path: "sync_config.amazon", Name: "sync.amazon"}, Field{Path: "sync_config.azure", Name: "sync.azure"}),
		},
		{
			Name: "signers", One: "signer", About: "Whose signatures of images count.", Parent: Folders,
			Service: service(ocipb.File_holdfast_oci_v1_signers_proto, "SignersService"),
			Message: (&ocipb.Signer{}).ProtoReflect().Descriptor(),
			Fields: append(fields("description", "issuer", "subject", "subject_pattern"),
				Field{Path: "key", Trimmed: true}, Field{Path: "trusted_root", Trimmed: true}),
		},
	}
}

func findingKinds() []*Kind {
	return []*Kind{
		{
			Name: "pullRules", One: "pull rule", About: "Rules that refuse to serve vulnerable images.", Parent: Folders,
			Key:     []string{"target", "minSeverity", "kev", "unsigned"},
			Service: service(findingspb.File_holdfast_findings_v1_rules_proto, "RulesService"),
			Message: (&findingspb.Rule{}).ProtoReflect().Descriptor(),
			Fields: append([]Field{{Path: "target_uid", Name: "target", Ref: Targets}},
				append(append(fields("description", "min_severity", "fixable", "grace_days", "refuse_unknown", "kev", "unsigned"),
					derived("mode", "unknown_severity")...), Field{Path: "exempt_uids", Name: "exempt", Ref: Identities})...),
		},
		{
			Name: "exceptions", One: "exception", About: "Findings that are accepted, with a reason.", Parent: Folders,
			Key:     []string{"target", "tagPattern", "digest", "advisoryId", "purl"},
			Service: service(findingspb.File_holdfast_findings_v1_exceptions_proto, "ExceptionsService"),
			Message: (&findingspb.Exception{}).ProtoReflect().Descriptor(),
			Fields: append([]Field{{Path: "target_uid", Name: "target", Ref: Targets}},
				fields("tag_pattern", "digest", "advisory_id", "purl", "reason", "justification", "expire_time")...),
			Over: func(m protoreflect.Message) bool {
				state := m.Interface().(*findingspb.Exception).GetState()
				return state == findingspb.ExceptionState_EXCEPTION_STATE_EXPIRED ||
					state == findingspb.ExceptionState_EXCEPTION_STATE_DELETED
			},
		},
		{
			Name: "feeds", One: "feed", About: "Addresses from which advisories are imported.", Parent: Folders,
			Service: service(advisoriespb.File_holdfast_advisories_v1_advisories_proto, "AdvisoryFeedsService"),
			Message: (&advisoriespb.AdvisoryFeed{}).ProtoReflect().Descriptor(),
			Fields:  append(fields("address", "paused"), derived("interval", "format")...),
		},
		{
			Name: "subscriptions", One: "subscription", About: "Addresses to which events are sent.", Parent: Folders,
			Key:     []string{"sink"},
			Service: service(eventspb.File_holdfast_events_v2beta1_subscriptions_proto, "SubscriptionsService"),
			Message: (&eventspb.Subscription{}).ProtoReflect().Descriptor(), Fields: fields("sink"),
		},
	}
}
