package authz

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// A managedRole is a role that the service defines. It has its own capabilities
// and the capabilities of the roles that it includes.
type managedRole struct {
	name, description string
	includes          []string
	capabilities      []string
}

// managedRoles lists each role after the roles that it includes.
var managedRoles = []managedRole{
	{
		name: "console_viewer", description: "Sees everything but the content of images",
		capabilities: []string{
			"groups.list", "group_invites.list", "roles.list", "role_bindings.list", "record_signatures.list",
			"sboms.list", "vuln_reports.list", "account_associations.list", "identity.list", "identity_providers.list",
			"subscriptions.list", "repo.list", "manifest.list", "tag.list", "manifest.metadata.list", "referrers.list",
			"apk.list", "version.list", "vuln_report.list", "build_report.list", "registry.entitlements.list",
			"registry.settings.list", "registry.overlays.list", "libraries.entitlements.list",
			"libraries.artifacts.list",
			"libraries.cache.list", "libraries.aws_marketplace.subscriptions.list", "libraries.request_groups.list",
			"libraries.remote_registries.list", "advisories.list", "registry.deployments.list", "policies.policy.list",
			"policies.binding.list", "policies.decision.list", "policies.override.list", "packages.entitlements.list",
			"guardener.entitlement.list", "guardener.scan.list", "guardener.scan.get", "skills.entitlements.list",
			"skills.list", "libraries.policy.list", "libraries.policy.binding.list",
			"libraries.policy.block_event.list", "actions.list",
		},
	},
	{
		name: "viewer", description: "Sees everything and pulls images",
		includes: []string{"console_viewer"},
		capabilities: []string{
			"repo.blobs.get", "apk.blobs.get", "terms.list", "guardener.dfc.convert", "guardener.association.list",
			"guardener.actions.migrate",
		},
	},
	{
		name: "editor", description: "Views everything, and edits repos and event subscriptions",
		includes: []string{"viewer"},
		capabilities: []string{
			"subscriptions.create", "subscriptions.update", "subscriptions.delete", "repo.create", "repo.update",
			"repo.delete", "registry.overlays.edit", "libraries.request_groups.create",
			"libraries.request_groups.update", "libraries.request_groups.delete",
			"libraries.request_groups.items.update",
		},
	},
	{
		name: "owner", description: "Does everything in an organization",
		includes: []string{"editor"},
		capabilities: []string{
			// Nobody can grant a capability that they do not hold. Without the first capabilities here, nobody could
			// ever write an advisory or report where images run.
			"advisories.create", "advisories.update", "advisories.approve", "advisories.delete", "groups.create",
			"groups.update", "groups.delete", "group_invites.create", "group_invites.delete", "roles.create",
			"roles.update", "roles.delete", "role_bindings.create", "role_bindings.update", "role_bindings.delete",
			"account_associations.create", "account_associations.update", "account_associations.delete",
			"identity.create", "identity.update", "identity.delete", "identity_providers.create",
			"identity_providers.update", "identity_providers.delete", "identity_providers.scim.manage",
			"manifest.create", "manifest.update", "manifest.delete", "tag.create", "tag.update", "tag.delete",
			"apk.create", "apk.delete", "vuln_report.create", "vuln.create", "registry.entitlements.images.add",
			"registry.entitlements.images.remove", "registry.entitlements.images.swap", "registry.deployments.create",
			"libraries.entitlements.create", "libraries.entitlements.delete", "libraries.python.list",
			"libraries.python.create", "libraries.java.list", "libraries.java.create", "libraries.javascript.list",
			"libraries.javascript.create", "libraries.dotnet.list", "libraries.dotnet.create", "libraries.go.list",
			"libraries.go.create", "libraries.cache.invalidate", "libraries.aws_marketplace.subscriptions.create",
			"libraries.aws_marketplace.subscriptions.update", "libraries.request_groups.submit",
			"libraries.remote_registries.create", "libraries.remote_registries.delete", "policies.policy.create",
			"policies.policy.update", "policies.policy.delete", "policies.binding.create", "policies.binding.update",
			"policies.binding.delete", "policies.override.create", "policies.override.delete", "repo.check_policies",
			"terms.accept", "guardener.association.manage", "mcp.tool.call", "skills.publish",
			"skills.entitlements.create", "skills.entitlements.delete", "skills.harden.read", "skills.harden.write",
			"skills.harden.cancel", "libraries.policy.create", "libraries.policy.update", "libraries.policy.delete",
			"libraries.policy.binding.create", "libraries.policy.binding.update", "libraries.policy.binding.delete",
		},
	},
	{
		name: "registry.pull", description: "Pulls images",
		capabilities: []string{
			"groups.list", "record_signatures.list", "sboms.list", "vuln_reports.list", "repo.blobs.get", "repo.list",
			"manifest.list", "tag.list", "manifest.metadata.list", "referrers.list",
		},
	},
	{
		name: "registry.push", description: "Pushes and pulls images",
		includes: []string{"registry.pull"},
		capabilities: []string{
			"groups.create", "repo.create", "repo.update", "repo.delete", "manifest.create", "manifest.update",
			"manifest.delete", "tag.create", "tag.update", "tag.delete",
		},
	},
	{
		name: "registry.editor", description: "Pulls images and edits repos",
		includes: []string{"registry.pull"},
		capabilities: []string{
			"repo.create", "repo.update", "repo.delete", "registry.overlays.list", "registry.overlays.edit",
		},
	},
	{
		name: "registry.repo_admin", description: "Administers repos",
		includes: []string{"registry.editor"},
	},
	{
		name: "apk.pull", description: "Pulls packages",
		capabilities: []string{"groups.list", "apk.list", "apk.blobs.get"},
	},
	{
		name: "registry.pull_token_creator", description: "Makes identities that can pull",
		includes:     []string{"registry.pull", "apk.pull"},
		capabilities: []string{"groups.list", "roles.list", "role_bindings.create", "identity.create"},
	},
	{
		name: "apk.push", description: "Pushes and pulls packages",
		includes:     []string{"apk.pull"},
		capabilities: []string{"apk.create", "apk.delete"},
	},
	{
		name: "advisories.viewer", description: "Reads advisories",
		capabilities: []string{"advisories.list"},
	},
	{
		name: "advisories.creator", description: "Writes advisories",
		includes:     []string{"advisories.viewer"},
		capabilities: []string{"advisories.create", "advisories.update"},
	},
	{
		name: "advisories.approver", description: "Writes and approves advisories",
		includes:     []string{"advisories.creator"},
		capabilities: []string{"advisories.approve"},
	},
	{
		name: "advisories.admin", description: "Administers advisories",
		includes:     []string{"advisories.approver"},
		capabilities: []string{"advisories.delete"},
	},
}

// ManagedRoles returns the roles that the service defines. Their UIDs are derived
// from their names, so they are the same in every installation.
func ManagedRoles() []resource.Role {
	sets := map[string]resource.Capabilities{}
	var roles []resource.Role
	for _, b := range managedRoles {
		caps := resource.CapabilitySet(b.capabilities...)
		for _, base := range b.includes {
			caps = caps.Union(sets[base])
		}
		sets[b.name] = caps
		roles = append(roles, resource.Role{
			UID: resource.ManagedRoleUID(b.name), Name: b.name, Description: b.description, Capabilities: caps,
		})
	}
	return roles
}
