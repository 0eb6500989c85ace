package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// trendDays returns the View for the days of a trend.
func trendDays() output.View {
	count := func(name string, value func(*findingspb.TrendDay) int64) any {
		return output.Text(name, func(d *findingspb.TrendDay) string { return fmt.Sprint(value(d)) })
	}
	open := func(name string, value func(*findingspb.SeverityCounts) int64) any {
		return count(name, func(d *findingspb.TrendDay) int64 { return value(d.GetOpen()) })
	}
	known := func(name string, value func(*findingspb.TrendDay) *int64) any {
		return output.Text(name, func(d *findingspb.TrendDay) string {
			if n := value(d); n != nil {
				return fmt.Sprint(*n)
			}
			return ""
		})
	}
	inspected := func(d *findingspb.TrendDay) string {
		if d.Images == nil {
			return ""
		}
		return fmt.Sprintf("%d of %d", d.GetIndexed(), d.GetImages())
	}
	compared := func(d *findingspb.TrendDay) string {
		if d.GetPackages() == nil {
			return ""
		}
		p := d.GetPackages()
		return fmt.Sprintf("%d of %d", p.GetPackages()-p.GetNotCovered()-p.GetWaiting(), p.GetPackages())
	}
	age := func(d *findingspb.TrendDay) string {
		if d.GetMeanAge() == nil {
			return ""
		}
		return days(d.GetMeanAge().AsDuration())
	}
	return output.View{
		Plural: "days", ID: "day",
		Columns: output.Columns(
			output.Text("day", func(d *findingspb.TrendDay) string { return d.GetDay().AsTime().Format(time.DateOnly) }),
			open("open", (*findingspb.SeverityCounts).GetOpen), open("critical", (*findingspb.SeverityCounts).GetCritical),
			open("high", (*findingspb.SeverityCounts).GetHigh), open("medium", (*findingspb.SeverityCounts).GetMedium),
			open("low", (*findingspb.SeverityCounts).GetLow), open("unknown", (*findingspb.SeverityCounts).GetUnknown),
			known("kev", func(d *findingspb.TrendDay) *int64 { return d.Kev }),
			known("fixable", func(d *findingspb.TrendDay) *int64 { return d.Fixable }),
			count("opened", (*findingspb.TrendDay).GetOpened), count("closed", (*findingspb.TrendDay).GetClosed),
			output.Text("mean age", age), output.Text("inspected", inspected)),
		Wide: output.Columns(known("excepted", func(d *findingspb.TrendDay) *int64 { return d.Excepted }),
			output.Text("packages compared", compared), "images", "indexed", "waiting", "notUnderstood", "time"),
	}
}

func findingsTrend(a *noun.App) *cobra.Command {
	var group string
	req := &findingspb.GetTrendRequest{}
	cmd := &cobra.Command{
		Use: "trend --group GROUP", Short: "Show how the findings of a group have changed, day by day",
		Long: "Prints a row for each day: the open findings of tags by severity, how many are known to be exploited, can\n" +
			"be fixed, were opened and were closed, their mean age, and the images. The counts include all images and\n" +
			"all advisories of the organization. They are made every hour and kept for two years. A day without a\n" +
			"count is left out. If you may not list all advisories of the organization, the server computes the\n" +
			"findings that you may see on the last days, at most 90, and the other columns stay empty.",
		Example: "  holdfast findings trend --group acme/platform --days 365 -o csv",
		Args:    cobra.NoArgs,
	}
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "`GROUP` whose findings are shown")
	cmd.Flags().Int32Var(&req.Days, "days", 0, "number of `DAYS`, at most 730 (default: 90)")
	problem.Must(cmd.MarkFlagRequired("group"))
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		if req.GroupUid, err = a.Resolve(ctx, noun.Groups(), group); err != nil {
			return err
		}
		m, err := signin.Call(ctx, findingspb.NewGroupFindingsServiceClient(a).GetTrend, req, "days=--days",
			"group_uid=--group")
		if err != nil {
			return err
		}
		view := trendDays()
		view.Empty = func() string {
			if m.GetFailure() != "" {
				return "nothing is known: the findings could not be counted: " + m.GetFailure()
			}
			return "nothing is known: the findings were not counted yet; they are counted every hour"
		}
		if err := noun.ShowAnswer(ctx, a, view, m, m.GetDays(), nil); err != nil || len(m.GetDays()) == 0 {
			return err
		}
		var open []int64
		for _, d := range m.GetDays() {
			open = append(open, d.GetOpen().GetOpen())
		}
		if m.GetFailure() != "" {
			fmt.Fprintf(a.Err, "the last count failed, so the last row may be old: %s\n", m.GetFailure())
		}
		fmt.Fprintf(a.Err, "open on %s: %s %d → %d\n", noun.Count(len(open), "day"), sparkline(open), open[0],
			open[len(open)-1])
		if t := m.GetDays()[len(m.GetDays())-1].GetTime(); t != nil {
			fmt.Fprintf(a.Err, "counted every hour, the last time at %s; now:\n", output.ShortTime(t.AsTime()))
		}
		sayCoverage(a, m.GetCoverage(), "")
		return nil
	})
	return cmd
}
