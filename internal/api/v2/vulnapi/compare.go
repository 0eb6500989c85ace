package vulnapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// readPair returns the images that a request compares. A page token contains the
// fields that the request omits.
func readPair(r *pb.CompareImagesRequest) (pair query.Pair, _ error) {
	var bad wire.Problems
	if r.GetFromRepoUid() != "" || r.GetPageToken() == "" {
		pair.From.Repo = bad.UID("from_repo_uid", r.GetFromRepoUid())
	}
	if r.GetToRepoUid() != "" {
		pair.To.Repo = bad.UID("to_repo_uid", r.GetToRepoUid())
	}
	var err error
	pair.From.Time, err = wire.ReadTime("from_time", r.GetFromTime())
	bad.Add(err)
	pair.To.Time, err = wire.ReadTime("to_time", r.GetToTime())
	bad.Add(err)
	pair.From.Reference, pair.From.Architecture = r.GetFromReference(), r.GetArchitecture()
	pair.To.Reference, pair.To.Architecture = r.GetToReference(), r.GetArchitecture()
	for _, k := range r.GetKinds() {
		if _, ok := pb.ImageChange_Kind_name[int32(k)]; !ok || k == pb.ImageChange_KIND_UNSPECIFIED {
			bad.Add(fault.Field("kinds", "%d is not a kind of change", k))
		}
		pair.Kinds = append(pair.Kinds, finding.ChangeKind(k))
	}
	return pair, bad.Err()
}

func changeOf(c finding.Change) *pb.ImageChange {
	out := &pb.ImageChange{Kind: pb.ImageChange_Kind(c.Kind), Ecosystem: c.Ecosystem, Name: c.Name,
		From: wire.Convert(c.From, packageOf), To: wire.Convert(c.To, packageOf)}
	if c.Finding != nil {
		out.Finding = findingOf(*c.Finding)
	}
	return out
}

func (s *server) CompareImages(ctx context.Context, r *pb.CompareImagesRequest) (*pb.CompareImagesResponse, error) {
	pair, err := readPair(r)
	if err != nil {
		return nil, err
	}
	got, err := s.Findings.Compare(ctx, pair, wire.Params(r))
	if err != nil {
		return nil, err
	}
	p, n := wire.PageOf(ctx, got.Page, changeOf), got.Counts
	return &pb.CompareImagesResponse{
		Changes: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
		From: inspectionOf(got.From), To: inspectionOf(got.To), Coverage: answerCoverageOf(got.Coverage),
		Counts: &pb.ImageChangeCounts{
			FindingsNew: int32(n[finding.ChangeNew]), FindingsFixed: int32(n[finding.ChangeFixed]),
			FindingsRemaining: int32(n[finding.ChangeRemaining]), PackagesChanged: int32(n[finding.PackageChanged]),
			PackagesAdded: int32(n[finding.PackageAdded]), PackagesRemoved: int32(n[finding.PackageRemoved]),
		},
	}, nil
}
