package iam

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// scimCommands are the commands for the company directory of an identity provider.
func scimCommands(a *noun.App) *cobra.Command {
	cmd := a.Branch("scim", "Let the company directory of a provider manage people and teams", scimStatus(a),
		scimSwitch(a, "enable", "Allow the directory to call Holdfast", true),
		scimSwitch(a, "disable", "Refuse the calls of the directory", false), scimToken(a), scimRoles(a))
	cmd.Long = "Create a token, enable the directory, and enter the token and the address at the directory. Its users\n" +
		"become people, and its groups become teams, which mappings can give roles to."
	return cmd
}

// directoryView shows a directory.
func directoryView() output.View {
	return output.View{
		ID: "uid", Columns: output.Columns("enabled", "token=credentialState", "roles=roleSource", "users=userCount",
			"teams=teamCount", "used=tokenUseTime", "expires=tokenExpireTime", "address=endpointUrl"),
	}
}

// directoryETag returns the current etag of a provider's directory.
func directoryETag(ctx context.Context, a *noun.App, uid string) (string, error) {
	d, err := accesspb.NewDirectoriesServiceClient(a).GetDirectory(ctx, &accesspb.GetDirectoryRequest{Uid: uid})
	return d.GetEtag(), err
}

func scimStatus(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{Use: "status IDENTITY-PROVIDER", Short: "Show the directory of an identity provider"}
	return a.About(identityProviders(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		d, err := accesspb.NewDirectoriesServiceClient(a).GetDirectory(ctx, &accesspb.GetDirectoryRequest{Uid: uid})
		if err != nil {
			return err
		}
		return a.Show(ctx, directoryView(), d)
	})
}

func scimSwitch(a *noun.App, name, short string, enabled bool) *cobra.Command {
	cmd := &cobra.Command{Use: name + " IDENTITY-PROVIDER", Short: short}
	return a.About(identityProviders(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		etag, err := directoryETag(ctx, a, uid)
		if err != nil {
			return err
		}
		_, err = iampb.NewIdentityProvidersServiceClient(a).SetScimEnabled(ctx,
			&iampb.SetScimEnabledRequest{IdentityProviderUid: uid, Enabled: enabled, Etag: etag})
		return err
	})
}

func scimToken(a *noun.App) *cobra.Command {
	var replace, revoke, never bool
	var expires, overlap string
	cmd := &cobra.Command{
		Use: "token IDENTITY-PROVIDER", Short: "Create, replace or revoke the token of the directory",
		Long: "Prints the token, which is not shown again, and on standard error the address to enter at the directory.\n" +
			"The token is valid for a year unless you set --expires or --never-expires.",
	}
	f := cmd.Flags()
	f.BoolVar(&replace, "replace", false, "replace the token; the previous one stays valid for a while")
	f.StringVar(&overlap, "overlap", "", "the `DURATION` for which the previous token stays valid (default 1h)")
	f.StringVar(&expires, "expires", "", "the `DURATION` for which the token is valid, such as 90d")
	f.BoolVar(&never, "never-expires", false, "the token does not expire")
	f.BoolVar(&revoke, "revoke", false, "make all tokens void, and create none")
	cmd.MarkFlagsMutuallyExclusive("replace", "revoke")
	cmd.MarkFlagsMutuallyExclusive("expires", "never-expires")
	return a.About(identityProviders(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		c := iampb.NewIdentityProvidersServiceClient(a)
		if revoke {
			_, err := c.RevokeScimToken(ctx, &iampb.RevokeScimTokenRequest{IdentityProviderUid: uid})
			return err
		}
		var end *timestamppb.Timestamp
		if expires != "" {
			life, err := length("expires", expires)
			if err != nil {
				return err
			}
			end = timestamppb.New(time.Now().Add(life.AsDuration()))
		}
		if !replace {
			got, err := signin.Call(ctx, c.GenerateScimToken, &iampb.GenerateScimTokenRequest{
				IdentityProviderUid: uid, ExpireTime: end, NeverExpires: never,
			}, "expire_time=--expires")
			return showToken(a, got.GetToken(), got.GetEndpointUrl(), err)
		}
		var keep *durationpb.Duration
		if overlap != "" {
			var err error
			if keep, err = length("overlap", overlap); err != nil {
				return err
			}
		}
		etag, err := directoryETag(ctx, a, uid)
		if err != nil {
			return err
		}
		got, err := signin.Call(ctx, c.RegenerateScimToken, &iampb.RegenerateScimTokenRequest{
			IdentityProviderUid: uid, ExpireTime: end, NeverExpires: never, Overlap: keep, Etag: etag,
		}, "expire_time=--expires", "overlap=--overlap")
		return showToken(a, got.GetToken(), got.GetEndpointUrl(), err)
	})
}

// showToken prints a new token, and the address for which it is valid.
func showToken(a *noun.App, token, address string, err error) error {
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out, output.Printable(token))
	a.Note("enter this token and the address %s at the directory", output.Printable(address))
	return nil
}

func scimRoles(a *noun.App) *cobra.Command {
	var from string
	sources := map[string]accesspb.RoleSource{
		"teams": accesspb.RoleSource_ROLE_SOURCE_TEAMS, "claims": accesspb.RoleSource_ROLE_SOURCE_CLAIMS,
	}
	cmd := &cobra.Command{
		Use: "roles IDENTITY-PROVIDER --from teams|claims", Short: "Let group mappings apply to teams or to claims",
		Long: "With --dry-run, prints who would gain and lose which roles. Roles that claims give are unknown until\n" +
			"people sign in.",
	}
	cmd.Flags().StringVar(&from, "from", "", "`SOURCE` of the groups that mappings name: teams or claims")
	noun.AddDryRun(cmd)
	return a.About(identityProviders(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		source, ok := sources[from]
		if !ok {
			return problem.Usage("--from must be teams or claims")
		}
		etag, err := directoryETag(ctx, a, uid)
		if err != nil {
			return err
		}
		dry, _ := cmd.Flags().GetBool("dry-run")
		got, err := accesspb.NewDirectoriesServiceClient(a).UpdateDirectory(ctx, &accesspb.UpdateDirectoryRequest{
			Directory: &accesspb.Directory{Uid: uid, Etag: etag, RoleSource: source}, ValidateOnly: dry,
		})
		if err != nil || !dry {
			return err
		}
		sayRoles(a, "gain", got.GetGainedRoles(), got.GetGainedCount())
		sayRoles(a, "lose", got.GetLostRoles(), got.GetLostCount())
		noteDryRun(a, dry)
		return nil
	})
}

// sayRoles prints the roles that people would gain or lose.
func sayRoles(a *noun.App, verb string, roles []*accesspb.MappedRole, total int32) {
	fmt.Fprintf(a.Out, "%d roles to %s\n", total, verb)
	for _, r := range roles {
		name := r.GetIdentityName()
		if name == "" {
			name = r.GetIdentityUid()
		}
		fmt.Fprintln(a.Out, output.Printable(fmt.Sprintf("  %s would %s %s on %s", name, verb, r.GetRoleName(),
			r.GetGroupName())))
	}
}
