// Package report writes the report about the findings of a group as an HTML page, as CSV or as JSON.
package report

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// Texts describe what was known when a question about findings was answered.
type Texts struct {
	Coverage func(*findingspb.AnswerCoverage) string // one sentence
	Unknown  func(*findingspb.AnswerCoverage) string // why nothing is known
	Say      func(*findingspb.AnswerCoverage)        // prints everything that is known, with the feeds
}

// Command returns the command that reports the findings of a group.
func Command(a *noun.App, t Texts) *cobra.Command {
	format := "html"
	cmd := &cobra.Command{
		Use: "report GROUP", Short: "Report the open, overdue and fixed findings of a group, with their owners",
		Long: "Writes a report of the findings of tags in a group and everything below it: open and overdue ones\n" +
			"(see `findings sla`), those that were fixed since the start of the month in UTC, the owners, and the packages\n" +
			"to update first. The HTML page contains everything it needs, so it can be printed, sent and archived. CSV has\n" +
			"a row for each finding, and JSON has everything. The coverage of the images follows on standard error.",
		Example: "  holdfast findings report acme/platform > report.html\n" +
			"  holdfast findings report acme/platform --format csv > report.csv",
		Args: cobra.ExactArgs(1),
	}
	cmd.AddCommand(subscribe(a), unsubscribe(a), listSubscriptions(a))
	cmd.ValidArgsFunction = a.CompleteArgs(noun.Groups())
	cmd.Flags().StringVar(&format, "format", format, "`FORMAT` of the report: html, csv or json")
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if format != "html" && format != "csv" && format != "json" {
			return problem.Usage("--format: %q is not one of html, csv, json", format)
		}
		if cmd.Flags().Changed("output") {
			return problem.Usage("-o cannot be used here").Hint("use --format html, csv or json")
		}
		uid, err := a.Resolve(ctx, noun.Groups(), args[0])
		if err != nil {
			return err
		}
		r, err := signin.Call(ctx, findingspb.NewReportsServiceClient(a).GetReport,
			&findingspb.GetReportRequest{GroupUid: uid}, "group_uid=GROUP")
		if err != nil {
			return err
		}
		if err := write(a, r, format, args[0], t); err != nil {
			return err
		}
		if r.GetCoverage().GetExtent() == findingspb.AnswerCoverage_EXTENT_NOTHING {
			a.Note("nothing is known: %s", t.Unknown(r.GetCoverage()))
		}
		for _, gap := range r.GetGaps() {
			a.Note("%s", gap)
		}
		t.Say(r.GetCoverage())
		return nil
	})
	return cmd
}

// write writes a report to the standard output.
func write(a *noun.App, r *findingspb.Report, format, name string, t Texts) error {
	if format == "html" {
		return newPage(r, name, t).write(a.Out)
	}
	d, many, view := r.ProtoReflect().Descriptor(), false, output.View{}
	if format == "csv" {
		d, many, view = (&findingspb.ReportFinding{}).ProtoReflect().Descriptor(), true, findings()
	}
	p, err := output.NewPrinter(a.Console, format, nil, view, d, many, nil)
	if err != nil {
		return err
	}
	if !many {
		err = p.Add(r.ProtoReflect())
	} else {
		for _, f := range append(r.GetOpen(), r.GetFixed()...) {
			if err = p.Add(f.ProtoReflect()); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	return p.Close()
}

// findings returns the View of the findings in a report.
func findings() output.View {
	word := func(f *findingspb.ReportFinding) string { return severity(f.GetSeverity()) }
	return output.View{Plural: "findings", ID: "advisory_id", Columns: output.Columns(
		output.Text("state", state), output.Text("severity", word), "severityBy=severitySource",
		"vulnerability=advisoryId", "package", "repo", "tag", "kev", "fixable", "openTime", "dueTime", "fixedTime",
		output.Text("owners", func(f *findingspb.ReportFinding) string { return strings.Join(f.GetOwners(), ", ") }),
		"repoUid")}
}

// state returns whether a finding is fixed, overdue or open.
func state(f *findingspb.ReportFinding) string {
	switch {
	case f.GetFixedTime() != nil:
		return "fixed"
	case f.GetOverdue():
		return "overdue"
	}
	return "open"
}
