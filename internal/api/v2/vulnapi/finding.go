package vulnapi

import (
	"context"
	"errors"
	"strconv"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// An imageRequest is a request that names an image.
type imageRequest interface {
	GetRepoUid() string
	GetReference() string
	GetArchitecture() string
}

func imageOf(r imageRequest) (finding.Image, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if p, ok := r.(interface{ GetPageToken() string }); ok && r.GetRepoUid() == "" && p.GetPageToken() != "" {
		repo, err = "", nil // the page token contains the UID of the repo
	}
	return finding.Image{Repo: repo, Reference: r.GetReference(), Architecture: r.GetArchitecture()}, err
}

// inspectionStates are the states of inspections in the API.
var inspectionStates = map[registry.ImageState]pb.Inspection_State{
	registry.ImageWaiting:       pb.Inspection_STATE_WAITING,
	registry.ImageIndexed:       pb.Inspection_STATE_INDEXED,
	registry.ImageNotUnderstood: pb.Inspection_STATE_NOT_UNDERSTOOD,
	registry.ImageNone:          pb.Inspection_STATE_NOT_AN_IMAGE,
}

func inspectionOf(k query.ImageDetails) *pb.Inspection {
	out := &pb.Inspection{
		RepoUid: string(k.Repo), Digest: k.Digest, Platform: k.Platform, State: inspectionStates[k.State],
		Reason: k.Reason, Warnings: k.Warnings, UpdateTime: wire.Time(k.UpdateTime),
	}
	out.Sboms, out.OtherPlatforms = wire.Convert(k.SBOMs, sbomOf), k.OtherPlatforms
	if k.State == registry.ImageIndexed || k.Coverage.Packages > 0 {
		out.Coverage = coverageOf(k.Coverage)
		d := k.Distribution
		out.Distribution = &pb.Distribution{Id: d.ID, Version: d.Version, Name: d.Name}
	}
	return out
}

func (s *server) GetInspection(ctx context.Context, r *pb.GetInspectionRequest) (*pb.Inspection, error) {
	image, err := imageOf(r)
	if err != nil {
		return nil, err
	}
	k, err := s.Findings.Inspect(ctx, image)
	if err != nil {
		return nil, err
	}
	return inspectionOf(k), nil
}

// Inspector returns a function that returns the inspection of an image, or nil if the caller may not see it.
func Inspector(findings *query.Service) func(context.Context, resource.UID, string) (*pb.Inspection, error) {
	return func(ctx context.Context, repo resource.UID, digest string) (*pb.Inspection, error) {
		k, err := findings.Inspect(ctx, finding.Image{Repo: repo, Reference: digest})
		if errors.Is(err, fault.PermissionDenied) || errors.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return inspectionOf(k), nil
	}
}

func packageOf(p registry.Package) *pb.Package {
	return &pb.Package{Ecosystem: p.Ecosystem, Name: p.Name, Version: p.Version, Purl: p.PURL,
		SourceName: p.SourceName, SourceVersion: p.SourceVersion, Owned: p.Owned}
}

func (s *server) ListPackages(ctx context.Context, r *pb.ListPackagesRequest) (*pb.ListPackagesResponse, error) {
	image, err := imageOf(r)
	if err != nil {
		return nil, err
	}
	got, known, err := s.Findings.ListPackages(ctx, image, wire.Params(r))
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got, func(p registry.ImagePackage) *pb.ImagePackage {
		return &pb.ImagePackage{Package: packageOf(p.Package), Location: p.Place, Layer: int32(p.Layer),
			Origins: wire.Convert(p.Origins, originOf)}
	})
	return &pb.ListPackagesResponse{
		Packages: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
		Coverage: answerCoverageOf(known),
	}, nil
}

func (s *server) ListFindings(ctx context.Context, r *pb.ListFindingsRequest) (*pb.ListFindingsResponse, error) {
	image, err := imageOf(r)
	if err != nil {
		return nil, err
	}
	f := query.Filter{Fixable: r.GetFixable(), KEV: r.GetKev(), Package: r.GetPackage(),
		Due: r.GetDueTimes(), Overdue: r.GetOverdue()}
	if f.Severities, err = severitiesOf(r.GetSeverities()); err != nil {
		return nil, err
	}
	if f.States, err = statesOf(r.GetStates()); err != nil {
		return nil, err
	}
	if f.At, err = wire.ReadTime("at_time", r.GetAtTime()); err != nil {
		return nil, err
	}
	got, known, err := s.Findings.List(ctx, image, f, wire.Params(r))
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got, findingOf)
	return &pb.ListFindingsResponse{
		Findings: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Inspection: inspectionOf(known),
		Incomplete: known.Incomplete, Coverage: answerCoverageOf(known.Answer), DueTimesUnknown: known.Answer.NoDue,
	}, nil
}

func statesOf(states []pb.State) (all []finding.State, _ error) {
	for _, state := range states {
		if _, ok := pb.State_name[int32(state)]; !ok || state == pb.State_STATE_UNSPECIFIED {
			return nil, fault.Field("states", "%d is not a state", state)
		}
		all = append(all, finding.State(state))
	}
	return all, nil
}

func findingOf(v finding.Finding) *pb.Finding {
	score := ""
	if v.Score > 0 {
		score = strconv.FormatFloat(v.Score, 'f', 1, 64)
	}
	epss, percentile := scoreOf(v.Exploitation)
	return &pb.Finding{
		AdvisoryId: v.ID, Aliases: v.Aliases, Package: packageOf(v.Package.Package), FixedVersions: v.Fixed,
		Severity: pb.Severity(v.Severity), Score: score, Summary: v.Summary, FirstSeenTime: wire.Time(v.FirstSeen),
		Origin: firstOrigin(v.Package.Origins), Origins: wire.Convert(v.Package.Origins, originOf),
		Location: v.Package.Place, Layer: int32(v.Package.Layer),
		AdvisoryUids: wire.Convert(v.Advisories, func(u resource.UID) string { return string(u) }),
		Kev:          v.Known, KevDueTime: wire.Time(v.Due.Time()), KevRansomware: v.Ransomware,
		Epss: epss, EpssPercentile: percentile,
		State: pb.State(v.State), ExceptionUid: string(v.Exception), ExceptionExpireTime: wire.Time(v.ExceptionExpires),
		CloseTime: wire.Time(v.CloseTime), CloseReason: pb.CloseReason(v.CloseReason), OpenedBy: v.OpenedBy,
		ClosedBy: v.ClosedBy, FixedVersion: v.FixedVersion, AdvisedVersion: v.Advice,
		Evidence: wire.Convert(v.Evidence, evidenceOf), SeveritySource: v.SeveritySource,
		Ratings: wire.Convert(v.Ratings, ratingOf), DueTime: wire.Time(v.DueTime),
	}
}

func ratingOf(r finding.Rating) *pb.Rating {
	p := &pb.Rating{Source: r.Source, Severity: pb.Severity(r.Severity), Vendor: r.Vendor, AdvisoryId: r.Advisory}
	if r.Score > 0 {
		p.Score = strconv.FormatFloat(r.Score, 'f', 1, 64)
	}
	return p
}

func evidenceOf(e finding.Evidence) *pb.Evidence {
	return &pb.Evidence{AdvisoryUid: string(e.Advisory), AdvisoryId: e.ID, Summary: e.Summary, Fixes: e.Fixes,
		FixedVersion: e.FixedVersion}
}

func affectedImageOf(i query.AffectedImage) *pb.AffectedImage {
	origin := originIndex
	if i.Claimed {
		origin = originSBOM
	}
	return &pb.AffectedImage{RepoUid: string(i.Repo), Repo: i.Path, Digest: i.Digest, Tags: i.Tags,
		Packages: wire.Convert(i.Packages, packageOf), Platform: i.Platform, Origin: origin,
		PastTags: wire.Convert(i.PastTags, func(t registry.PastTag) *pb.PastTag {
			return &pb.PastTag{Tag: t.Name, StartTime: wire.Time(t.Since), EndTime: wire.Time(t.Until)}
		})}
}

func (s *server) ListAffectedImages(
	ctx context.Context, r *pb.ListAffectedImagesRequest,
) (*pb.ListAffectedImagesResponse, error) {
	group, err := wire.OptionalUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	got, c, err := s.Findings.AffectedImages(ctx, r.GetAdvisoryId(), query.Place{Group: group}, wire.Params(r))
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got, affectedImageOf)
	return &pb.ListAffectedImagesResponse{
		Images: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Coverage: answerCoverageOf(c),
	}, nil
}

func (s *server) SearchPackages(ctx context.Context, r *pb.SearchPackagesRequest) (*pb.SearchPackagesResponse, error) {
	group, err := wire.OptionalUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	got, c, err := s.Findings.SearchWithCoverage(
		ctx, r.GetPurl(), r.GetRange(), query.Place{Group: group}, wire.Params(r))
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got, affectedImageOf)
	return &pb.SearchPackagesResponse{
		Images: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Coverage: answerCoverageOf(c),
	}, nil
}
