package registry

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// settingsCommand is the commands about the rules of groups.
func settingsCommand(a *noun.App) *cobra.Command {
	n := registrySettings()
	cmd := a.Branch("settings", "Show and change the rules of a group", a.GetCommand(n), a.UpdateCommand(n), a.DeleteCommand(n))
	cmd.Long = n.About
	return cmd
}

func registrySettings() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "settings", One: "settings",
		About: "The rules for the repos in a group and below it: those of the nearest group at or above that has any.\n" +
			"An update gives a group rules of its own; delete takes them away again.",
		Message: noun.MessageOf(&ocipb.Settings{}),
		Named:   noun.Groups,
		Fields: []noun.Field{
			{Flag: "public", Path: "public", Help: "anybody may pull, without a token"},
			{Flag: "create-on-push", Path: "create_on_push", Help: "the first push to a repo makes it"},
			{Flag: "immutable-tags", Path: "immutable_tags", Help: "a tag that is there can be neither moved nor deleted"},
			{Flag: "immutable-except", Path: "immutable_except", Help: "`PATTERN` of tags that can all the same, such as dev-* (any number of times)"},
		},
		Columns: output.Columns("public", "createOnPush", "immutableTags", "immutableExcept"),
		Wide:    output.Columns("sourceUid", "updateTime"),
	}
}
