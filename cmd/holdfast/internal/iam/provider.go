package iam

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

func identityProviders() noun.Noun {
	return noun.Noun{
		Use: "identity-providers", One: "identity provider",
		About: "Identity providers are where the people of an organization sign in. Whoever does so for the first time gets\n" +
			"the default role on the provider's group.",
		Example: "  holdfast iam identity-providers create okta --parent acme --issuer https://acme.okta.com \\\n" +
			"    --client-id 0oa1b2c3 --client-secret-file secret.txt --default-role viewer",
		Message:  noun.MessageOf(&iampb.IdentityProvider{}),
		Argument: "name",
		Fields: []noun.Field{
			noun.Description("provider"),
			{Flag: "default-role", Ref: Roles, Help: "`ROLE` that people get when they first sign in"},
			{Flag: "issuer", Path: "oidc.issuer", Help: "`ADDRESS` of the OpenID Connect issuer"},
			{Flag: "client-id", Path: "oidc.client_id", Help: "`NAME` the issuer knows the service by"},
			{Flag: "client-secret-file", Path: "oidc.client_secret", File: true,
				Help: "`FILE` of the secret that goes with it; - is standard input"},
			{Flag: "scope", Path: "oidc.additional_scopes", Help: "a `SCOPE` to ask for beside openid; can be repeated"},
			{Flag: "groups-claim", Path: "oidc.groups_claim", Help: "`CLAIM` that lists a person's groups"},
			{Flag: "correlation-rule", Path: "oidc.correlation_rule",
				Help: "`RULE` that finds a provisioned user: sub-equals-external-id or oid-equals-external-id; " +
					"it cannot be changed"},
			{Flag: "pkce", Path: "oidc.pkce_enabled", Help: "prove with PKCE that whoever began a sign-in also ends it"},
			{Flag: "disabled", Help: "nobody can sign in with it yet, but for trying it"},
		},
		UpdateFlags: []noun.Field{
			{Flag: "keep-people", Help: "with another issuer, client or rule: whoever holds nothing that you do not hold " +
				"stays who they are"},
		},
		Columns:    output.Columns("name", "uid", "issuer=oidc.issuer", "clientId=oidc.clientId"),
		Wide:       output.Columns("description", "defaultRole", "trusted", "createTime", "updateTime"),
		Extra:      []func(*noun.App) *cobra.Command{testProvider},
		OtherFlags: map[string]string{"oidc": "--issuer and --client-id"},
	}
}

func testProvider(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "test IDENTITY-PROVIDER", Short: "Tell whether an identity provider can sign people in, and why not",
		Long: "Asks the provider what a sign-in would ask it for, and prints an address to try a whole sign-in at: it shows what\n" +
			"the provider says of you and what you would be given, and gives nothing. The exit code is 3 if something is wrong.",
	}
	return a.About(identityProviders(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &signinpb.TestIdentityProviderRequest{Uid: uid}
		result, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).TestIdentityProvider, req, "uid=IDENTITY-PROVIDER")
		if err != nil {
			return err
		}
		checks := output.View{Plural: "checks", ID: "name", Columns: output.Columns("name", "ok", "detail")}
		if err := noun.ShowAnswer(a, checks, result, result.GetChecks(), func() { sayTest(a, result) }); err != nil {
			return err
		}
		if !result.GetReady() {
			return problem.New(problem.ExitNo, "") // that a provider does not work is a result, not an error
		}
		return nil
	})
}

func sayTest(a *noun.App, result *signinpb.TestIdentityProviderResponse) {
	for _, check := range result.GetChecks() {
		verdict := a.Paint(output.Red, "no")
		if check.GetOk() {
			verdict = a.Paint(output.Green, "ok")
		}
		fmt.Fprintf(a.Out, "%s %s\n", verdict, output.Printable(check.GetName()+": "+check.GetDetail()))
	}
	a.Pairs([][2]string{{"redirect", result.GetRedirectUri()}, {"try it at", result.GetTrialUrl()}})
}

func groupMappings() noun.Noun {
	return noun.Noun{
		Use: "group-mappings", One: "group mapping",
		About:      "A group mapping gives a role on the organization to the members of a group that an identity provider knows.",
		Example:    "  holdfast iam group-mappings create platform-admins --provider okta --role editor",
		Message:    noun.MessageOf(&iampb.ExternalGroupRoleMapping{}),
		Parent:     identityProviders,
		ParentFlag: "provider", Argument: "external-group-id",
		Fields: []noun.Field{
			{Flag: "role", Path: "role_uid", Ref: Roles, Help: "`ROLE` that members get"},
			{Flag: "scope", Ref: noun.Groups, Help: "`GROUP` they get it on (the organization)"},
		},
		Filters: []noun.Field{
			{Flag: "provider", Path: "identity_provider_uid", Ref: identityProviders,
				Help: "only mappings of this `IDENTITY-PROVIDER`"},
		},
		Columns: output.Columns("externalGroupId", "roleUid", "uid"),
		Wide:    output.Columns("identityProviderUid", "scope", "createTime"),
	}
}
