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
		scimSwitch(a, "disable", "Refuse the calls of the directory", false), scimToken(a), scimRoles(a),
		scimUpdate(a), scimHeld(a))
	cmd.Long = "Create a token, enable the directory, and enter the token and the address at the directory. Its users\n" +
		"become people, and its groups become teams, which mappings can give roles to."
	return cmd
}

// directoryView shows a directory.
func directoryView() output.View {
	return output.View{
		ID: "uid", Columns: output.Columns("enabled", "required", "token=credentialState", "roles=roleSource",
			"users=userCount", "teams=teamCount", "held=heldCount", "used=tokenUseTime",
			"expires=tokenExpireTime", "address=endpointUrl"),
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
		if n := d.GetHeldCount(); n > 0 {
			a.Note("the directory takes away the access of many people: %d changes are held and not done; see them with "+
				"holdfast iam identity-providers scim held", n)
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

func scimUpdate(a *noun.App) *cobra.Command {
	var required bool
	var percent, minimum int32
	cmd := &cobra.Command{
		Use: "update IDENTITY-PROVIDER", Short: "Change the settings of the directory",
		Long: "With --required, only active users of the directory can sign in with the provider. The sessions and tokens\n" +
			"of all other people of the provider end.\n\n" +
			"If the directory takes away the access of more than --hold-percent of its people within an hour, and of at\n" +
			"least --hold-minimum, the further changes are held until an owner or an operator decides.",
	}
	f := cmd.Flags()
	f.BoolVar(&required, "required", false, "only active users of the directory can sign in")
	f.Int32Var(&percent, "hold-percent", 0, "`PERCENT` of the people who may lose access within an hour")
	f.Int32Var(&minimum, "hold-minimum", 0, "the `NUMBER` of people from which changes are held")
	noun.AddDryRun(cmd)
	return a.About(identityProviders(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		d := &accesspb.Directory{}
		if f.Changed("required") {
			d.Required = &required
		}
		if f.Changed("hold-percent") {
			d.HoldPercent = &percent
		}
		if f.Changed("hold-minimum") {
			d.HoldMinimum = &minimum
		}
		if d.Required == nil && d.HoldPercent == nil && d.HoldMinimum == nil {
			return problem.Usage("nothing to change: set --required, --hold-percent or --hold-minimum")
		}
		return updateDirectory(ctx, a, cmd, uid, &accesspb.UpdateDirectoryRequest{Directory: d})
	})
}

// updateDirectory sends a change of the directory of a provider, and shows the directory.
func updateDirectory(
	ctx context.Context, a *noun.App, cmd *cobra.Command, uid string, r *accesspb.UpdateDirectoryRequest,
) error {
	etag, err := directoryETag(ctx, a, uid)
	if err != nil {
		return err
	}
	r.ValidateOnly, _ = cmd.Flags().GetBool("dry-run")
	r.Directory.Uid, r.Directory.Etag = uid, etag
	got, err := accesspb.NewDirectoriesServiceClient(a).UpdateDirectory(ctx, r)
	if err != nil {
		return err
	}
	noteDryRun(a, r.GetValidateOnly())
	return a.Show(ctx, directoryView(), got.GetDirectory())
}

// scimHeld shows held changes, and decides about them.
func scimHeld(a *noun.App) *cobra.Command {
	var confirm, discard bool
	cmd := &cobra.Command{
		Use: "held IDENTITY-PROVIDER", Short: "Show, confirm or discard changes that are held",
		Long: "Changes are held if the directory takes away the access of many people within an hour. Nothing of them is\n" +
			"done. An owner whose role somebody has assigned, or an operator, confirms or discards them.",
	}
	cmd.Flags().BoolVar(&confirm, "confirm", false, "make the changes, up to 500 at a time")
	cmd.Flags().BoolVar(&discard, "discard", false, "discard the changes, so that the people keep their access")
	cmd.MarkFlagsMutuallyExclusive("confirm", "discard")
	noun.AddDryRun(cmd)
	return a.About(identityProviders(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		decision := accesspb.HeldDecision_HELD_DECISION_DISCARD
		if confirm {
			decision = accesspb.HeldDecision_HELD_DECISION_CONFIRM
		}
		if confirm || discard {
			return updateDirectory(ctx, a, cmd, uid, &accesspb.UpdateDirectoryRequest{
				Directory: &accesspb.Directory{}, HeldDecision: decision,
			})
		}
		d, err := accesspb.NewDirectoriesServiceClient(a).GetDirectory(ctx, &accesspb.GetDirectoryRequest{Uid: uid})
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "%d changes are held\n", d.GetHeldCount())
		for _, c := range d.GetHeldChanges() {
			name := c.GetIdentityName()
			if name == "" {
				name = "somebody whom you cannot see"
			}
			fmt.Fprintln(a.Out, output.Printable(fmt.Sprintf("  %s of %s, sent at %s", heldKinds[c.GetKind()], name,
				c.GetCreateTime().AsTime().Format(time.RFC3339))))
		}
		return nil
	})
}

var heldKinds = map[accesspb.HeldChange_Kind]string{
	accesspb.HeldChange_KIND_DEACTIVATION: "deactivation", accesspb.HeldChange_KIND_DELETION: "deletion",
	accesspb.HeldChange_KIND_UNLINKING: "change of the external id",
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
