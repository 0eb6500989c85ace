package main

import (
	"github.com/spf13/cobra"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func identityProviders() noun {
	return noun{
		use: "identity-providers", one: "identity provider",
		about: "Identity providers are where the people of an organization sign in. Whoever does so for the first time gets\n" +
			"the default role on the provider's group.",
		example: "  holdfast iam identity-providers create okta --parent acme --issuer https://acme.okta.com \\\n" +
			"    --client-id 0oa1b2c3 --client-secret-file secret.txt --default-role viewer",
		message:  messageOf(&iampb.IdentityProvider{}),
		argument: "name",
		fields: []field{
			description("provider"),
			{flag: "default-role", path: "default_role", ref: roles, help: "`ROLE` that people get when they first sign in"},
			{flag: "issuer", path: "oidc.issuer", help: "`ADDRESS` of the OpenID Connect issuer"},
			{flag: "client-id", path: "oidc.client_id", help: "`NAME` the issuer knows the service by"},
			{flag: "client-secret-file", path: "oidc.client_secret", file: true, help: "`FILE` of the secret that goes with it; - is standard input"},
			{flag: "scope", path: "oidc.additional_scopes", help: "a `SCOPE` to ask for beside openid; can be repeated"},
			{flag: "groups-claim", path: "oidc.groups_claim", help: "`CLAIM` that lists a person's groups"},
			{flag: "correlation-rule", path: "oidc.correlation_rule", help: "`RULE` that finds a provisioned user: sub-equals-external-id or oid-equals-external-id; it cannot be changed"},
			{flag: "pkce", path: "oidc.pkce_enabled", help: "prove with PKCE that whoever began a sign-in also ends it"},
			{flag: "disabled", path: "disabled", help: "nobody can sign in with it yet, but for trying it"},
		},
		changing: []field{
			{flag: "keep-people", path: "keep_people", help: "with another issuer, client or rule: whoever holds nothing that you do not hold stays who they are"},
		},
		columns: columnsOf("name", "uid", "issuer=oidc.issuer", "clientId=oidc.clientId"),
		wide:    columnsOf("description", "defaultRole", "trusted", "createTime", "updateTime"),
		extra:   []func(*app) *cobra.Command{(*app).testProvider},
		flagsOf: map[string]string{"oidc": "--issuer and --client-id"},
	}
}
