package iam

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

func endingCommand(a *noun.App) *cobra.Command {
	var within, group string
	cmd := &cobra.Command{
		Use: "ending", Short: "List roles that end soon", Args: cobra.NoArgs,
		Long: "Lists the role bindings that end within a time, next to end first. It shows at most 200, and says if\n" +
			"there are more.",
		Example: "  holdfast access ending --within 7d",
	}
	cmd.Flags().StringVar(&within, "within", "3d", "only roles that end within this `DURATION`, such as 7d")
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only roles on `GROUP` and its subgroups")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		period, err := noun.ParseDuration(within)
		if err != nil {
			return problem.Usage("--within: %v", err)
		}
		uidp, err := below(ctx, a, group)
		if err != nil {
			return err
		}
		req := &accesspb.ListEndingGrantsRequest{
			Within: durationpb.New(period), GroupUid: uidp.GetDescendantsOf(), PageSize: 200,
		}
		got, err := signin.Call(ctx, accesspb.NewAccessServiceClient(a).ListEndingGrants, req, "within=--within",
			"group_uid=--group")
		if err != nil {
			return err
		}
		items := func(yield func(protoreflect.Message, error) bool) {
			for _, g := range got.GetGrants() {
				if !yield(g.ProtoReflect(), nil) {
					return
				}
			}
		}
		if err := a.PrintList(ctx, endingGrant(), items); err != nil {
			return err
		}
		if got.GetMore() {
			a.Note("there are more: use a shorter time with --within, or a group with --group")
		}
		return nil
	})
	return cmd
}

func endingGrant() noun.Noun {
	return noun.Noun{
		Area: "access", Use: "ending-grant", One: "role that ends", Message: noun.MessageOf(&accesspb.Grant{}),
		Columns: output.Columns(output.Text("identity", grantee),
			output.Text("role", func(g *accesspb.Grant) string { return g.GetRole().GetName() }),
			output.GroupOf("on", "bindingUid"), "expireTime", "bindingUid"),
		Wide: output.Columns("createTime"),
	}
}
