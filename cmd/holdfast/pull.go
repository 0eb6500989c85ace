package main

import (
	"github.com/spf13/cobra"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// pulls is the commands about who pulled what.
func (a *app) pulls() *cobra.Command {
	n := noun{
		area: "registry", use: "pulls", one: "pull",
		about: "Every pull and push of an image is kept for a time: who, what, when, from where and with which program.\n" +
			"To see them you need identity.list beside repo.list.",
		service: serviceOf(ocipb.File_holdfast_oci_v1_oci_proto),
		message: (*ocipb.Pull)(nil).ProtoReflect().Descriptor(),
		filters: []field{
			{flag: "repo", path: "uidp.children_of", ref: repos, help: "only those of this `REPO`"},
			{flag: "digest", path: "digest", help: "only those of the image of this `DIGEST`"},
			{flag: "identity", path: "identity_uid", ref: identities, help: "only those by this `IDENTITY`"},
		},
		columns: columnsOf("createTime", "direction", "tag", "digest", "identityUid"),
		wide:    columnsOf("remoteAddress", "userAgent", "repoUid"),
	}
	cmd := a.branch("pulls", "See who pulled and pushed what", a.list(n))
	cmd.Long = n.about
	return cmd
}

// registrySettings is the commands about the rules of groups.
func (a *app) registrySettings() *cobra.Command {
	n := noun{
		area: "registry", use: "settings", one: "settings",
		about: "The rules for the repos in a group and below it: those of the nearest group at or above that has any.\n" +
			"An update gives a group rules of its own; delete takes them away again.",
		service: serviceOf(ocipb.File_holdfast_oci_v1_oci_proto),
		message: (*ocipb.Settings)(nil).ProtoReflect().Descriptor(),
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
	cmd := a.branch("settings", "Show and change the rules of a group", a.get(n), a.update(n), a.delete(n))
	cmd.Long = n.about
	return cmd
}
