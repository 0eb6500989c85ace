package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

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
		Use: "status", Short: "Print the state of the database, the replicas, the keys and the queues", Args: cobra.NoArgs,
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
		{"feeds overdue", w.GetFeedOverdue().AsDuration().String()},
		{"images waiting", fmt.Sprint(w.GetInspectionsWaiting())},
		{"deliveries waiting", fmt.Sprint(w.GetDeliveriesWaiting())},
	}
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
