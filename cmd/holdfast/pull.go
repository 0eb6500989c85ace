package main

import (
	"github.com/spf13/cobra"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// pulls is the commands about who pulled what.
func (a *app) pulls() *cobra.Command {
	n := pulls()
	cmd := a.branch("pulls", "See who pulled and pushed what", a.listCommand(n))
	cmd.Long = n.about
	return cmd
}

func pulls() noun {
	return noun{
		area: "registry", use: "pulls", one: "pull",
		about: "Every pull and push of an image is kept for a time: who, what, when, from where and with which program.\n" +
			"Pulls that anybody may make are counted together if they are many: count says how many a line stands for.\n" +
			"To see them you need identity.list beside repo.list.",
		message: messageOf(&ocipb.Pull{}),
		filters: []field{
			{flag: "repo", path: "uidp.children_of", ref: repos, help: "only those of this `REPO`"},
			{flag: "digest", path: "digest", help: "only those of the image of this `DIGEST`"},
			{flag: "identity", path: "identity_uid", ref: identities, help: "only those by this `IDENTITY`"},
			{flag: "direction", path: "direction", help: "only those that went this `WAY`: pull or push"},
		},
		columns: columnsOf("createTime", "direction", "repo", "tag", "digest", "identity", "count"),
		wide:    columnsOf("remoteAddress", "userAgent", "repoUid", "identityUid"),
	}
}
