package vulnapi

import (
	"strconv"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// findingNewsOf returns the body of an event about findings.
func findingNewsOf(n vuln.FindingNews) *pb.FindingNews {
	return &pb.FindingNews{
		Findings: wire.Convert(n.Findings, newFindingOf), FindingCount: int32(n.FindingCount),
		Images: wire.Convert(n.Images, func(i vuln.NewsImage) *pb.FindingNews_NewsImage {
			return &pb.FindingNews_NewsImage{RepoUid: string(i.Repo), Digest: i.Digest}
		}), ImageCount: int32(n.ImageCount), PairCount: int32(n.Pairs),
		GroupUid: string(n.Group), AdvisoryGroupUid: string(n.AdvisoryGroup), Source: n.Source,
		OwnerUids: wire.Convert(n.Owners, func(u resource.UID) string { return string(u) }),
	}
}

func newFindingOf(f vuln.NewFinding) *pb.FindingNews_NewFinding {
	out := &pb.FindingNews_NewFinding{AdvisoryId: f.ID, Aliases: f.Aliases, SeveritySource: f.Source,
		Packages: wire.Convert(f.Packages, func(p vuln.NewsPackage) *pb.FindingNews_NewsPackage {
			return &pb.FindingNews_NewsPackage{FixedVersion: p.Fixed,
				Package: &pb.Package{Ecosystem: p.Ecosystem, Name: p.Name, Version: p.Version, Purl: p.PURL}}
		})}
	if score := float64(f.Score) / 10; score > 0 {
		out.Severity, out.Score = pb.Severity(finding.SeverityOf(score)), strconv.FormatFloat(score, 'f', 1, 64)
	}
	if f.Severity > 0 {
		out.Severity = pb.Severity(f.Severity)
	}
	return out
}
