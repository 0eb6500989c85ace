// Package iam has the commands of identity and access management, one file for
// each kind of resource, and presets for the workloads of known platforms.
package iam

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
)

// Command returns the commands of identity and access management.
func Command(a *noun.App) *cobra.Command {
	cmd := a.Branch("iam", "Manage groups, identities, roles and who holds them")
	for _, n := range nouns() {
		cmd.AddCommand(a.Command(n))
	}
	cmd.AddCommand(tree(a), can(a), whoCan(a), issuers(a), accountsCommand(a))
	return cmd
}

func nouns() []noun.Noun {
	return []noun.Noun{
		noun.Groups(), Identities(), Roles(), roleBindings(),
		identityProviders(), accountAssociations(), invites(), groupMappings(),
	}
}
