package registry

import (
	"cmp"
	"context"
	"slices"
	"strings"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// listImageTotals adds up the open findings of an image. It reads all of them, because a page of findings says nothing
// about the totals.
func (q *findingsQuery) listImageTotals(ctx context.Context) error {
	by, err := noun.ParseEnum(findingspb.ListFindingTotalsRequest_By(0).Descriptor(), q.by)
	if err != nil {
		return problem.Usage("--by: %v", err)
	}
	q.req.PageSize = 200
	found := &findingspb.ListFindingsResponse{}
	for page, err := range holdfast.Pages(ctx, findingspb.NewFindingsServiceClient(q).ListFindings, q.req) {
		if err != nil {
			return err
		}
		if found.Coverage == nil {
			found.Coverage, found.Inspection, found.DueTimesUnknown = page.Coverage, page.Inspection, page.DueTimesUnknown
		}
		found.Findings = append(found.Findings, page.GetFindings()...)
	}
	answer := &findingspb.ListFindingTotalsResponse{
		Coverage: found.GetCoverage(), DueTimesUnknown: found.GetDueTimesUnknown(),
		Totals: imageTotals(found, findingspb.ListFindingTotalsRequest_By(by), q.named())}
	answer.TotalCount = new(int64(len(answer.Totals)))
	view := withDue(totals(findingspb.ListFindingTotalsRequest_By(by)), q.req).View()
	view.Empty = func() string { return without(findingsWord(q.req))(answer) }
	if err := noun.ShowAnswer(ctx, q.App, view, answer, answer.GetTotals(), nil); err != nil {
		return err
	}
	sayNoDue(q.App, answer)
	return sayImageCoverage(ctx, q.App, q.req)
}

// named returns the image as the arguments name it.
func (q *findingsQuery) named() *findingspb.AffectedImage {
	image := &findingspb.AffectedImage{RepoUid: q.req.GetRepoUid()}
	path, _, isDigest := strings.Cut(q.argument, "@")
	image.Repo = strings.TrimSuffix(path, ":"+q.req.GetReference())
	if !isDigest {
		image.Tags = []string{q.req.GetReference()}
	}
	return image
}

// imageTotals adds up findings of an image. The totals are in the order of their most urgent findings.
func imageTotals(
	found *findingspb.ListFindingsResponse, by findingspb.ListFindingTotalsRequest_By, image *findingspb.AffectedImage,
) (out []*findingspb.FindingTotal) {
	named := map[string]*findingspb.FindingTotal{}
	packages := map[*findingspb.FindingTotal][]string{}
	for _, f := range found.GetFindings() {
		key := ""
		switch by {
		case findingspb.ListFindingTotalsRequest_BY_PACKAGE:
			key = f.GetPackage().GetPurl()
		case findingspb.ListFindingTotalsRequest_BY_VULNERABILITY:
			key = vulnerability(f)
		}
		t := named[key]
		if t == nil {
			t = &findingspb.FindingTotal{Open: &findingspb.SeverityCounts{}, ImageCount: 1}
			named[key], out = t, append(out, t)
			switch by {
			case findingspb.ListFindingTotalsRequest_BY_PACKAGE:
				t.Package = f.GetPackage()
			case findingspb.ListFindingTotalsRequest_BY_VULNERABILITY:
				t.AdvisoryId, t.Summary = key, f.GetSummary()
			default:
				image.Digest, image.Platform = found.GetInspection().GetDigest(), found.GetInspection().GetPlatform()
				t.Image = image
			}
		}
		addFinding(t, f)
		name := f.GetPackage().GetName() + " " + f.GetPackage().GetVersion()
		if !slices.Contains(packages[t], name) {
			packages[t] = append(packages[t], name)
		}
	}
	for _, t := range out {
		t.PackageCount = int32(len(packages[t]))
		if by == findingspb.ListFindingTotalsRequest_BY_VULNERABILITY {
			t.PackageNames = packages[t][:min(len(packages[t]), shownNames)]
		}
	}
	return out
}

// shownNames is the maximum number of names in a total, as in the totals of the server.
const shownNames = 5

// addFinding counts a finding.
func addFinding(t *findingspb.FindingTotal, f *findingspb.Finding) {
	n := t.GetOpen()
	n.Open++
	*map[findingspb.Severity]*int64{
		findingspb.Severity_SEVERITY_CRITICAL: &n.Critical, findingspb.Severity_SEVERITY_HIGH: &n.High,
		findingspb.Severity_SEVERITY_MEDIUM: &n.Medium, findingspb.Severity_SEVERITY_LOW: &n.Low,
		findingspb.Severity_SEVERITY_UNKNOWN: &n.Unknown,
	}[f.GetSeverity()]++
	if f.GetKev() {
		t.Kev++
	}
	if len(f.GetFixedVersions()) > 0 {
		t.Fixable++
	}
	if t.GetPackage() != nil {
		t.AdvisedVersion = cmp.Or(t.GetAdvisedVersion(), f.GetAdvisedVersion())
		if len(t.GetAdvisoryIds()) < shownNames {
			t.AdvisoryIds = append(t.AdvisoryIds, vulnerability(f))
		}
	}
	if due := f.GetDueTime(); due != nil && (t.GetDueTime() == nil || due.AsTime().Before(t.GetDueTime().AsTime())) {
		t.DueTime = due
	}
}
