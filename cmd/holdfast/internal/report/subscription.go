package report

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// subscriptions returns the Noun for the caller's subscriptions to weekly reports.
func subscriptions() noun.Noun {
	return noun.Noun{
		Area: "findings", Use: "subscriptions", One: "subscription", Form: "GROUP",
		Message: noun.MessageOf(&findingspb.ReportSubscription{}), ID: "group_uid",
		Columns: output.Columns("group", "nextTime", "lastTime", "problem"),
		Wide:    output.Columns("groupUid", "createTime"),
		Locate: func(ctx context.Context, a *noun.App, text string) (string, error) {
			return a.Resolve(ctx, noun.Groups(), text)
		},
	}
}

func subscribe(a *noun.App) *cobra.Command {
	n := subscriptions()
	cmd := &cobra.Command{
		Use: "subscribe GROUP", Short: "Get the report of a group by e-mail every week",
		Long: "Sends the report to the e-mail address of your account, now and then every week. Before each mail the\n" +
			"server checks again whether you may get the report, so it sends nothing if you have lost access.",
		Example: "  holdfast findings report subscribe acme/platform",
	}
	noun.AddDryRun(cmd)
	return a.About(n, cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &findingspb.CreateReportSubscriptionRequest{GroupUid: uid}
		m, err := a.Write(ctx, cmd, reportMethod("CreateReportSubscription"), req.ProtoReflect(),
			map[string]string{"group_uid": n.Form})
		if err != nil {
			return err
		}
		return a.Show(ctx, n.View(), m.Interface())
	})
}

func unsubscribe(a *noun.App) *cobra.Command {
	n := subscriptions()
	cmd := &cobra.Command{
		Use: "unsubscribe GROUP", Short: "Stop the weekly e-mail with the report of a group",
		Long: "Stops the weekly e-mail. If you may no longer see the group, give its UID, which is in each mail and in\n" +
			"`findings report subscriptions -o wide`.",
		Example: "  holdfast findings report unsubscribe acme/platform",
	}
	noun.AddDryRun(cmd)
	return a.About(n, cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &findingspb.DeleteReportSubscriptionRequest{GroupUid: uid}
		_, err := a.Write(ctx, cmd, reportMethod("DeleteReportSubscription"), req.ProtoReflect(),
			map[string]string{"group_uid": n.Form})
		return err
	})
}

func listSubscriptions(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "subscriptions", Short: "List the weekly reports that you get by e-mail",
		Long:    "Lists your subscriptions. The problem says why the last report was not sent.",
		Example: "  holdfast findings report subscriptions",
		Args:    cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			got, err := signin.Call(ctx, findingspb.NewReportsServiceClient(a).ListReportSubscriptions,
				&findingspb.ListReportSubscriptionsRequest{})
			if err != nil {
				return err
			}
			return a.PrintList(ctx, subscriptions(), func(yield func(protoreflect.Message, error) bool) {
				for _, v := range got.GetItems() {
					if !yield(v.ProtoReflect(), nil) {
						return
					}
				}
			})
		}),
	}
}

// reportMethod returns a method of the service for reports.
func reportMethod(name protoreflect.Name) protoreflect.MethodDescriptor {
	return findingspb.File_holdfast_findings_v1_reports_proto.Services().ByName("ReportsService").Methods().ByName(name)
}
