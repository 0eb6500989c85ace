package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	operatorpb "github.com/holdfast-dev/holdfast/gen/operator/v1"
)

// operatorCommand returns the commands for operators of an installation.
func operatorCommand(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "operator", Short: "See the state of the installation, as its operator",
		Long: "Operators are the identities that the server's setting operators names. People who can sign in to the\n" +
			"server's machine have more commands there, with holdfastd.",
	}
	cmd.AddCommand(&cobra.Command{
		Use: "status", Short: "Show system status", Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			in, err := signin.Call(ctx, operatorpb.NewOperatorServiceClient(a).GetInstallation,
				&operatorpb.GetInstallationRequest{})
			if err != nil {
				return err
			}
			replicas := output.View{Plural: "replicas", ID: "id", Columns: output.Columns("id", "live", "behind", "age")}
			return noun.ShowAnswer(ctx, a, replicas, in, in.GetReplicas(), func() { sayInstallation(a, in) })
		}),
	})
	return cmd
}

func sayInstallation(a *noun.App, in *operatorpb.Installation) {
	d, w, c := in.GetDatabase(), in.GetWork(), in.GetCollection()
	signs := "none"
	for _, k := range in.GetKeys() {
		if k.GetSigns() {
			signs = fmt.Sprintf("%s since %s", k.GetId(), k.GetCreateTime().AsTime().Format(time.RFC3339))
			break
		}
	}
	rows := [][2]string{
		{"version", in.GetVersion()}, {"since", in.GetStartTime().AsTime().Format(time.RFC3339)},
		{"database", fmt.Sprintf("%s, schema %d, answers in %s", d.GetVersion(), d.GetSchema(), d.GetAnswers().AsDuration())},
		{"connections", fmt.Sprintf("%d of %d", d.GetConnectionsInUse(), d.GetConnectionsLimit())},
		{"replicas", fmt.Sprint(len(in.GetReplicas()))}, {"signing key", signs},
	}
	rows = append(rows, workRows(w)...)
	if c.GetLastTime() != nil {
		rows = append(rows,
			[2]string{"garbage collected", c.GetLastTime().AsTime().Format(time.RFC3339) + " " + c.GetLastError()})
	}
	for _, b := range in.GetBudgets() {
		rows = append(rows,
			[2]string{"budget of " + b.GetGroupName(), fmt.Sprintf("%d of %d %s", b.GetUsed(), b.GetLimit(), b.GetMetric())})
	}
	a.Pairs(rows)
}

// workRows returns the state of the background work. Values that the server does not know are not shown as 0.
func workRows(w *operatorpb.Work) [][2]string {
	since := func(t *timestamppb.Timestamp) string {
		if t == nil {
			return ""
		}
		return ", the oldest from " + t.AsTime().Format(time.RFC3339)
	}
	rows := [][2]string{
		{"feeds overdue", "not known"}, {"feeds failing", "not known"}, {"webhooks failing", "not known"},
		{"images waiting", "not known"},
		{"deliveries waiting", fmt.Sprint(w.GetDeliveriesWaiting()) + since(w.GetOldestDeliveryTime())},
		{"mails waiting", "there is no mail server, or its queue is not known"},
	}
	if w.InspectionsWaiting != nil {
		rows[0][1] = w.GetFeedOverdue().AsDuration().String()
		rows[1][1], rows[2][1] = fmt.Sprint(w.GetFeedsFailing()), fmt.Sprint(w.GetSubscriptionsFailing())
		rows[3][1] = fmt.Sprint(w.GetInspectionsWaiting()) + since(w.GetOldestInspectionTime())
	}
	if w.MailsWaiting != nil {
		rows[5][1] = fmt.Sprint(w.GetMailsWaiting()) + since(w.GetOldestMailTime())
	}
	return rows
}
