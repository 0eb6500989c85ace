package registry

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// slas returns the Noun for the days within which findings must be fixed.
func slas() noun.Noun {
	return noun.Noun{
		Area: "findings", Use: "sla", One: "SLA", Short: "Set within how many days findings must be fixed",
		Form: "GROUP",
		About: "The days apply to the group and everything below it. If a group below has its own days, they replace\n" +
			"these completely. The summary of a group counts the open findings that are overdue.",
		Message: noun.MessageOf(&findingspb.Sla{}),
		Locate: func(ctx context.Context, a *noun.App, text string) (string, error) {
			return a.Resolve(ctx, noun.Groups(), text)
		},
		Columns: output.Columns("critical=criticalDays", "high=highDays", "medium=mediumDays", "low=lowDays",
			"unknown=unknownDays", output.PathOf("set on", "sourceUid")),
		Wide:  output.Columns("uid", "sourceUid", "updateTime"),
		Extra: []func(*noun.App) *cobra.Command{slaSet},
	}
}

// slaDays returns the flags that set the days.
func slaDays() (fields []noun.Field) {
	for _, severity := range []string{"critical", "high", "medium", "low", "unknown"} {
		help := "fix " + severity + " findings within `DAYS`"
		if severity == "unknown" {
			help = "fix findings of unknown severity within `DAYS`"
		}
		fields = append(fields, noun.Field{Flag: severity, Path: severity + "_days", Read: readCount(severity + "_days"),
			Help: help})
	}
	return fields
}

func slaSet(a *noun.App) *cobra.Command {
	n := slas()
	cmd := &cobra.Command{
		Use: "set " + n.Form, Short: "Set the days of a group",
		Long: "Replaces all days of a group. Findings of a severity without days are never overdue. Days are counted\n" +
			"from the time when a finding of a tag was opened.",
		Example: "  holdfast findings sla set acme --critical 7 --high 30 --medium 90",
	}
	fields := slaDays()
	a.RegisterFields(cmd, fields, n.Message)
	noun.AddDryRun(cmd)
	return a.About(n, cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &findingspb.SetSlaRequest{Sla: &findingspb.Sla{Uid: uid}}
		if err := a.Fill(ctx, cmd, fields, req.GetSla()); err != nil {
			return err
		}
		flags := map[string]string{"sla.uid": n.Form, "uid": n.Form}
		for _, f := range fields {
			flags[cmp.Or(f.Path, strings.ReplaceAll(f.Flag, "-", "_"))] = "--" + f.Flag
		}
		m, err := a.Write(ctx, cmd, n.Method("Set"), req.ProtoReflect(), flags)
		if err != nil {
			return err
		}
		return a.Show(ctx, n.View(), m.Interface())
	})
}
