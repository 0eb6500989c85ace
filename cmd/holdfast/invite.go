package main

import (
	"github.com/spf13/cobra"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func invites() noun {
	return noun{
		use: "invites", one: "invite",
		about: "An invite gives a role on a group to whoever brings its code. The code is shown when the invite is created,\n" +
			"and never again.",
		example: "  holdfast iam invites create --parent acme/platform --role viewer --ttl 7d --email ann@example.com --single-use",
		message: messageOf(&iampb.GroupInvite{}),
		fields: []field{
			{flag: "role", path: "role_uid", ref: roles, help: "`ROLE` to give"},
			{flag: "ttl", path: "ttl", help: "how long the code is good for, a `DURATION` such as 12h or 7d"},
			{flag: "email", path: "email", help: "verified email `ADDRESS` that alone may use the code"},
			{flag: "single-use", path: "single_use", help: "the invite is gone once someone has used it"},
		},
		filters: []field{
			{flag: "key-id", path: "key_id", help: "only the invite whose code has this `ID`"},
		},
		columns: columnsOf("uid", "role=role.name", "email", "expires=expirationTime"),
		wide:    columnsOf("singleUse", "keyId", "createTime"),
		created: columnsOf("code"),
		extra:   []func(*app) *cobra.Command{(*app).redeemInvite, (*app).joins},
	}
}
