package iam

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

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
		Short: "Let people sign in with an identity provider of your own",
		About: "Identity providers sign in the people of an organization. A person who signs in for the first time gets\n" +
			"the default role on the provider's group. A new provider is disabled, so that you can try it first.",
		Example: "  holdfast iam identity-providers create okta --parent acme --issuer https://acme.okta.com \\\n" +
			"    --client-id 0oa1b2c3 --client-secret-file secret.txt --default-role viewer\n" +
			"  holdfast iam identity-providers update okta --enable   # after you have tried it",
		Message:  noun.MessageOf(&iampb.IdentityProvider{}),
		Console:  noun.PageAt("/sign-in/"),
		Kind:     "identity_providers",
		Argument: "name",
		Fields: []noun.Field{
			noun.Description("provider"),
			{Flag: "default-role", Ref: Roles, Help: "`ROLE` that a person gets at the first sign-in"},
			{Flag: "issuer", Path: "oidc.issuer", Help: "`ADDRESS` of the OpenID Connect issuer"},
			{Flag: "client-id", Path: "oidc.client_id", Help: "client `ID` of Holdfast at the issuer"},
			{Flag: "client-secret-file", Path: "oidc.client_secret", File: true,
				Help: "`FILE` with the client secret; - is standard input"},
			{Flag: "scope", Path: "oidc.additional_scopes", Help: "`SCOPE` to request in addition to openid; can be repeated"},
			{Flag: "groups-claim", Path: "oidc.groups_claim", Help: "`CLAIM` that lists a person's groups"},
			{Flag: "correlation-rule", Path: "oidc.correlation_rule",
				Help: "`RULE` that finds a provisioned user: sub-equals-external-id or oid-equals-external-id; " +
					"cannot be changed"},
			{Flag: "pkce", Path: "oidc.pkce_enabled", Help: "use PKCE"},
			{Flag: "enable", Path: "disabled", Read: readEnable,
				Help: "allow sign-in; a new provider is disabled unless this is given"},
			{Flag: "disabled", Help: "do not allow sign-in, except to test the provider"},
			{Flag: "shared-redirect", Help: "use the redirect address that all providers share; " +
				"always set for a new provider"},
		},
		UpdateFlags: []noun.Field{
			{Flag: "keep-people", Help: "if issuer, client or rule change: keep the identities of people who " +
				"have no capability that you lack"},
		},
		Defaults: func(m protoreflect.Message) { noun.Put(m, "disabled", true) },
		Remark:   remarkTrial,
		ByName:   true,
		Columns: output.Columns("name", output.PathOf("path", "uid"), "issuer=oidc.issuer",
			output.NameOf("defaultRole", "defaultRole")),
		Wide: output.Columns("uid", "clientId=oidc.clientId", "description", "roleUid=defaultRole",
			"trusted", "createTime", "updateTime"),
		Extra:      []func(*noun.App) *cobra.Command{testProvider, redirectAddress, scimCommands},
		OtherFlags: map[string]string{"oidc": "--issuer and --client-id"},
	}
}

// readEnable sets the field disabled to the opposite of a flag.
func readEnable(m protoreflect.Message, texts []string) error {
	noun.Put(m, "disabled", texts[0] != "true")
	return nil
}

// remarkTrial prints how to try a new provider that is disabled.
func remarkTrial(ctx context.Context, a *noun.App, m protoreflect.Message) {
	p := m.Interface().(*iampb.IdentityProvider)
	if !p.GetDisabled() {
		return
	}
	a.Note("%s is disabled until you enable it: holdfast iam identity-providers update %s --enable", p.GetName(),
		p.GetUid())
	req := &signinpb.TestIdentityProviderRequest{Uid: p.GetUid()}
	result, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).TestIdentityProvider, req)
	if err != nil { // who may create a provider need not be allowed to test it
		return
	}
	for _, check := range result.GetChecks() {
		if !check.GetOk() {
			a.Note("warning: %s: %s", check.GetName(), check.GetDetail())
		}
	}
	a.Note("try a sign-in first, which shows your claims and grants nothing: %s", result.GetTrialUrl())
}

func testProvider(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "test IDENTITY-PROVIDER", Short: "Check whether an identity provider can sign people in",
		Long: "Sends the provider the requests of a sign-in, and prints an address where you can try a complete\n" +
			"sign-in. That shows your claims and the roles you would get, and grants nothing. The exit code is 3 if a\n" +
			"check fails.",
	}
	return a.About(identityProviders(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &signinpb.TestIdentityProviderRequest{Uid: uid}
		result, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).TestIdentityProvider, req, "uid=IDENTITY-PROVIDER")
		if err != nil {
			return err
		}
		checks := output.View{Plural: "checks", ID: "name", Columns: output.Columns("name", "ok", "detail")}
		say := func() { sayTest(a, result) }
		if err := noun.ShowAnswer(ctx, a, checks, result, result.GetChecks(), say); err != nil {
			return err
		}
		if !result.GetReady() {
			return problem.New(problem.ExitNo, "") // a failed test is reported by the exit code, without a message
		}
		return nil
	})
}

func redirectAddress(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "redirect-address", Short: "Print the redirect address to register at an identity provider",
		Long: "The address is the same for all providers, so that you can register a client before you create its\n" +
			"provider here. You do not need to be signed in.",
		Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			address, err := a.RedirectAddress(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, output.Printable(address))
			return nil
		}),
	}
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
		Short:      "Give roles to the groups of an identity provider",
		About:      "A group mapping grants a role to the members of a group at an identity provider.",
		Example:    "  holdfast iam group-mappings create platform-admins --provider okta --role editor",
		Message:    noun.MessageOf(&iampb.ExternalGroupRoleMapping{}),
		Parent:     identityProviders,
		ParentFlag: "provider", Argument: "external-group-id",
		Fields: []noun.Field{
			{Flag: "role", Path: "role_uid", Ref: Roles, Help: "`ROLE` to grant to members"},
			{Flag: "scope", Ref: noun.Groups, Help: "`GROUP` to grant it on (default: the organization)"},
		},
		Filters: []noun.Field{
			{Flag: "provider", Path: "identity_provider_uid", Ref: identityProviders,
				Help: "only mappings of `IDENTITY-PROVIDER`"},
		},
		Sorted: true,
		Columns: output.Columns("group=externalGroupId", output.NameOf("role", "roleUid"), output.PathOf("on", "scope"),
			output.PathOf("provider", "identityProviderUid")),
		Wide: output.Columns("uid", "roleUid", "identityProviderUid", "scope", "createTime"),
	}
}
