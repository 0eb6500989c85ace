package main

import (
	"github.com/spf13/cobra"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// registrySettings is the commands about the rules of groups.
func (a *app) registrySettings() *cobra.Command {
	n := registrySettings()
	cmd := a.branch("settings", "Show and change the rules of a group", a.getCommand(n), a.updateCommand(n), a.deleteCommand(n))
	cmd.Long = n.about
	return cmd
}

func registrySettings() noun {
	return noun{
		area: "registry", use: "settings", one: "settings",
		about: "The rules for the repos in a group and below it: those of the nearest group at or above that has any.\n" +
			"An update gives a group rules of its own; delete takes them away again.",
		message: messageOf(&ocipb.Settings{}),
		named:   groups,
		fields: []field{
			{flag: "public", path: "public", help: "anybody may pull, without a token"},
			{flag: "create-on-push", path: "create_on_push", help: "the first push to a repo makes it"},
			{flag: "immutable-tags", path: "immutable_tags", help: "a tag that is there can be neither moved nor deleted"},
			{flag: "immutable-except", path: "immutable_except", help: "`PATTERN` of tags that can all the same, such as dev-* (any number of times)"},
		},
		columns: columnsOf("public", "createOnPush", "immutableTags", "immutableExcept"),
		wide:    columnsOf("sourceUid", "updateTime"),
	}
}
