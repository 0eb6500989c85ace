package registry

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// totals returns the Noun for totals of findings.
func totals(by findingspb.ListFindingTotalsRequest_By) noun.Noun {
	n := noun.Noun{Area: "findings", Use: "totals", One: "total", Message: noun.MessageOf(&findingspb.FindingTotal{})}
	count := func(name string, value func(*findingspb.FindingTotal) int64) any {
		return output.Text(name, func(t *findingspb.FindingTotal) string { return fmt.Sprint(value(t)) })
	}
	open := func(name string, value func(*findingspb.SeverityCounts) int64) any {
		return count(name, func(t *findingspb.FindingTotal) int64 { return value(t.GetOpen()) })
	}
	counts := output.Columns(
		open("open", (*findingspb.SeverityCounts).GetOpen), open("critical", (*findingspb.SeverityCounts).GetCritical),
		open("high", (*findingspb.SeverityCounts).GetHigh), count("kev", (*findingspb.FindingTotal).GetKev))
	rest := output.Columns(
		open("medium", (*findingspb.SeverityCounts).GetMedium), open("low", (*findingspb.SeverityCounts).GetLow),
		open("unknown", (*findingspb.SeverityCounts).GetUnknown), count("fixable", (*findingspb.FindingTotal).GetFixable))
	images := output.Columns("images=imageCount")
	switch by {
	case findingspb.ListFindingTotalsRequest_BY_PACKAGE:
		n.ID = "package.purl"
		n.Columns = output.Columns(output.Columns("package=package.name")[0].Wrapped(),
			output.Columns("version=package.version")[0].Wrapped(), output.Columns("fixed=advisedVersion")[0].Wrapped())
		n.Columns = append(append(n.Columns, counts...), images...)
		n.Wide = append(rest, output.Columns("purl=package.purl", output.Text("vulnerabilities", namesOf))...)
	case findingspb.ListFindingTotalsRequest_BY_VULNERABILITY:
		n.ID = "advisory_id"
		n.Columns = append(output.Columns(output.Columns("vulnerability=advisoryId")[0].Whole()), counts...)
		n.Columns = append(n.Columns, output.Columns("images=imageCount", output.Text("packages", namesOf))...)
		n.Wide = append(rest, output.Columns("summary")...)
	default:
		n.ID = "image.digest"
		n.Columns = append(output.Columns(output.Text("image", imageOf).Whole()), counts...)
		n.Columns = append(n.Columns, rest...)
		n.Wide = output.Columns("packages=packageCount", "digest=image.digest", "repoUid=image.repoUid")
	}
	return n
}

// namesOf returns the names that a total shows, and the number of the others.
func namesOf(t *findingspb.FindingTotal) string {
	names, total := t.GetAdvisoryIds(), t.GetOpen().GetOpen()
	if t.GetAdvisoryId() != "" {
		names, total = t.GetPackageNames(), int64(t.GetPackageCount())
	}
	text := strings.Join(names, ", ")
	if more := total - int64(len(names)); more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

// imageOf returns the path of an image, with its tags or, if it has none, its digest.
func imageOf(t *findingspb.FindingTotal) string {
	i := t.GetImage()
	if len(i.GetTags()) == 0 {
		return i.GetRepo() + "@" + i.GetDigest()
	}
	return i.GetRepo() + ":" + strings.Join(i.GetTags(), ",")
}

// listTotals adds up the open findings of a group or repo.
func (q *findingsQuery) listTotals(ctx context.Context) error {
	by, err := noun.ParseEnum(findingspb.ListFindingTotalsRequest_By(0).Descriptor(), q.by)
	if err != nil {
		return problem.Usage("--by: %v", err)
	}
	uid, err := q.at.uid(ctx, q.App)
	if err != nil {
		return err
	}
	req := &findingspb.ListFindingTotalsRequest{
		GroupUid: uid, By: findingspb.ListFindingTotalsRequest_By(by), Severities: q.req.GetSeverities(),
		Fixable: q.req.GetFixable(), Kev: q.req.GetKev(), Package: q.req.GetPackage(), DueTimes: q.req.GetDueTimes(),
		Overdue: q.req.GetOverdue(),
	}
	answer, err := q.PrintAnswer(ctx, withDue(totals(req.GetBy()), q.req), req, q.page, without(findingsWord(q.req)))
	if err != nil {
		return err
	}
	sayNoDue(q.App, answer)
	sayCoverage(q.App, answer.(covered).GetCoverage(), "with tags")
	return nil
}
