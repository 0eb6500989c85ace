// Package kubernetes has the commands that prepare and check clusters whose pods pull with their own identity.
package kubernetes

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
)

// Command returns the commands about clusters.
func Command(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "kubernetes", Short: "Let the pods of a cluster pull with their own identity",
		Long: "A cluster needs no pull secrets: each pod pulls with the identity of its service account. setup prints the\n" +
			"configuration of the nodes and of the cluster, and check tries a pull as a pod would make it.",
		Example: "  holdfast kubernetes setup --nodes k3s\n" +
			"  holdfast kubernetes check registry.example.com/acme/shop/web:1.2 --service-account shop/web",
	}
	cmd.AddCommand(setup(a), check(a))
	return cmd
}
