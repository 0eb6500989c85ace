package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// A place is a group or a repo.
type place struct{ group, repo string }

func (at *place) register(a *noun.App, cmd *cobra.Command) {
	a.RegisterRef(cmd, &at.group, "group", noun.Groups(), "all tagged images in `GROUP` and its subgroups")
	a.RegisterRef(cmd, &at.repo, "repo", Repos(), "all tagged images in `REPO`")
	cmd.MarkFlagsMutuallyExclusive("group", "repo")
}

// uid returns the UID of the place, or "" if none is given.
func (at *place) uid(ctx context.Context, a *noun.App) (string, error) {
	if at.repo != "" {
		return a.Resolve(ctx, Repos(), at.repo)
	}
	return a.ResolveAny(ctx, noun.Groups(), at.group)
}

// groupFindings returns the Noun for findings with the number of affected images.
func groupFindings() noun.Noun {
	n := findings()
	images := func(f *findingspb.Finding) string { return fmt.Sprint(f.GetImageCount()) }
	n.Columns = append(n.Columns, output.Columns(output.Text("state", groupState), output.Text("images", images))...)
	n.Wide = output.Columns("severityBy=severitySource", output.Text("ratings", ratings),
		"purl=package.purl", "summary", "firstSeenTime")
	return n
}

// groupState returns the state of a finding, with the number of images for which it is
// excepted.
func groupState(f *findingspb.Finding) string {
	state := strings.ToLower(strings.TrimPrefix(f.GetState().String(), "STATE_"))
	if n := f.GetExceptedImageCount(); n > 0 && f.GetState() == findingspb.State_STATE_OPEN {
		state += fmt.Sprintf(", excepted in %d", n)
	}
	return state
}

// listGroup lists the findings of a group or repo.
func listGroup(
	ctx context.Context, a *noun.App, at *place, like *findingspb.ListFindingsRequest, p noun.Paging,
) error {
	uid, err := at.uid(ctx, a)
	if err != nil {
		return err
	}
	req := &findingspb.ListGroupFindingsRequest{
		GroupUid: uid, Severities: like.GetSeverities(), Fixable: like.GetFixable(), Kev: like.GetKev(),
		Package: like.GetPackage(), States: like.GetStates(), DueTimes: like.GetDueTimes(), Overdue: like.GetOverdue(),
	}
	answer, err := a.PrintAnswer(ctx, withDue(groupFindings(), like), req, p, without(findingsWord(like)))
	if err != nil {
		return err
	}
	sayNoDue(a, answer)
	m, err := signin.Call(ctx, findingspb.NewGroupFindingsServiceClient(a).ListGroupFindings,
		&findingspb.ListGroupFindingsRequest{GroupUid: uid, PageSize: 1,
			States: []findingspb.State{findingspb.State_STATE_EXCEPTED}})
	if err != nil {
		return err
	}
	sayCoverage(a, m.GetCoverage(), "with tags")
	if n := m.GetTotalCount(); n > 0 {
		fmt.Fprintf(a.Err, "%s in all images (--state excepted)\n", noun.Count(n, "excepted finding"))
	}
	return nil
}

func findingsSummary(a *noun.App) *cobra.Command {
	var at place
	req := &findingspb.GetSummaryRequest{}
	cmd := &cobra.Command{
		Use: "summary", Short: "Count the findings in a group or repo, now and over time",
		Long: "Counts findings of tags. A finding is a vulnerability, a package name and a tag whose image has the\n" +
			"package. A row is a group or repo in the group, or a tag of the repo; the last row is the total. A finding is\n" +
			"fixed when the tag is moved to an image without it. The open findings of each day, and the coverage of\n" +
			"the images, follow on standard error.",
		Example: "  holdfast findings summary --group acme/platform\n" +
			"  holdfast findings summary --repo acme/platform/app --days 90",
		Args: cobra.NoArgs,
	}
	at.register(a, cmd)
	cmd.Flags().Int32Var(&req.Days, "days", 0, "number of `DAYS` in the series, at most 90 (default: 30)")
	cmd.Flags().StringVar(&req.OrderBy, "order-by", "", "`ORDER` of the rows: name or open, with or without desc")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		if req.GroupUid, err = at.uid(ctx, a); err != nil {
			return err
		}
		sum, err := readSummary(ctx, a, req)
		if err != nil {
			return err
		}
		return showSummary(ctx, a, sum)
	})
	return cmd
}

// readSummary reads all pages of a summary.
func readSummary(
	ctx context.Context, a *noun.App, req *findingspb.GetSummaryRequest,
) (sum *findingspb.GetSummaryResponse, _ error) {
	req.PageSize = 200
	for page, err := range holdfast.Pages(ctx, findingspb.NewGroupFindingsServiceClient(a).GetSummary, req) {
		if err != nil {
			return nil, err
		}
		if sum == nil {
			sum = page
			continue
		}
		sum.Rows = append(sum.Rows, page.GetRows()...)
	}
	sum.NextPageToken = ""
	return sum, nil
}

func showSummary(ctx context.Context, a *noun.App, sum *findingspb.GetSummaryResponse) error {
	format, err := a.Value("output")
	if err != nil {
		return err
	}
	if format.Text == "json" || format.Text == "yaml" {
		return a.Show(ctx, output.View{}, sum)
	}
	rows := append(sum.GetRows(), &findingspb.SummaryRow{Name: "(all)", Counts: sum.GetTotal()})
	if err := noun.ShowAll(ctx, a, output.View{Columns: summaryColumns()}, rows); err != nil {
		return err
	}
	var open []int64
	for _, p := range sum.GetSeries() {
		open = append(open, p.GetCounts().GetOpen())
	}
	fmt.Fprintf(a.Err, "open in the last %s: %s %d → %d\n", noun.Count(len(open), "day"), sparkline(open), open[0],
		open[len(open)-1])
	if c := sum.GetCoverage(); c.GetExtent() == findingspb.AnswerCoverage_EXTENT_NOTHING {
		a.Note("nothing is known: %s", whyUnknown(c))
	}
	sayCoverage(a, sum.GetCoverage(), "with tags")
	return nil
}

func summaryColumns() []output.Column {
	count := func(name string, value func(*findingspb.FindingCounts) int64) any {
		return output.Text(name, func(r *findingspb.SummaryRow) string { return fmt.Sprint(value(r.GetCounts())) })
	}
	open := func(name string, value func(*findingspb.SeverityCounts) int64) any {
		return count(name, func(c *findingspb.FindingCounts) int64 { return value(c.GetNow()) })
	}
	return output.Columns("name",
		open("open", (*findingspb.SeverityCounts).GetOpen), open("critical", (*findingspb.SeverityCounts).GetCritical),
		open("high", (*findingspb.SeverityCounts).GetHigh), open("medium", (*findingspb.SeverityCounts).GetMedium),
		open("low", (*findingspb.SeverityCounts).GetLow), open("unknown", (*findingspb.SeverityCounts).GetUnknown),
		count("fixable", (*findingspb.FindingCounts).GetFixable),
		count("excepted", (*findingspb.FindingCounts).GetExcepted),
		output.Text("overdue", func(r *findingspb.SummaryRow) string {
			if r.GetCounts().GetOverdue() == nil {
				return ""
			}
			return fmt.Sprint(r.GetCounts().GetOverdue().GetOpen())
		}),
		output.Text("oldest", func(r *findingspb.SummaryRow) string {
			if o := r.GetCounts().GetOldest(); o != nil {
				return days(time.Since(o.GetOpenTime().AsTime()))
			}
			return ""
		}),
		count("fixed", (*findingspb.FindingCounts).GetFixed),
		output.Text("time to fix", func(r *findingspb.SummaryRow) string {
			if d := r.GetCounts().GetMeanTimeToFix(); d != nil {
				return days(d.AsDuration())
			}
			return ""
		}))
}

// days formats a duration in days, or exactly if it is shorter than two days.
func days(d time.Duration) string {
	if d < 48*time.Hour {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// sparkline draws numbers as blocks. The largest number is a full block.
func sparkline(numbers []int64) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	most := int64(1)
	for _, n := range numbers {
		most = max(most, n)
	}
	var b strings.Builder
	for _, n := range numbers {
		b.WriteRune(blocks[n*int64(len(blocks)-1)/most])
	}
	return b.String()
}

// parseSeverities parses the values of a flag.
func parseSeverities(words []string) (out []findingspb.Severity, _ error) {
	for _, s := range words {
		n, ok := findingspb.Severity_value["SEVERITY_"+strings.ToUpper(strings.TrimSpace(s))]
		if !ok {
			return nil, problem.Usage("%q is not a severity", s).Hint("use critical, high, medium, low or unknown")
		}
		out = append(out, findingspb.Severity(n))
	}
	return out, nil
}
