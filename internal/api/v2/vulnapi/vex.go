package vulnapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
)

func (s *server) ExportVex(ctx context.Context, r *pb.ExportVexRequest) (*pb.ExportVexResponse, error) {
	image, err := imageOf(r)
	if err != nil {
		return nil, err
	}
	text, known, err := s.Findings.ExportVEX(ctx, image)
	if err != nil {
		return nil, err
	}
	return &pb.ExportVexResponse{Document: text, Coverage: answerCoverageOf(known.Answer)}, nil
}

func (s *server) ImportVex(ctx context.Context, r *pb.ImportVexRequest) (*pb.ImportVexResponse, error) {
	repo, err := wire.OptionalUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	expires, err := wire.ReadTime("expire_time", r.GetExpireTime())
	if err != nil {
		return nil, err
	}
	v := policy.VEX{Text: r.GetDocument(), Expires: expires,
		Image: finding.Image{Repo: repo, Reference: r.GetReference(), Architecture: r.GetArchitecture()}}
	importVEX := func(ctx context.Context, parent resource.UID) ([]policy.ImportedStatement, error) {
		return s.Policy.ImportVEX(ctx, parent, v)
	}
	return wire.Get(ctx, "parent", r.GetParent(), importVEX, func(all []policy.ImportedStatement) *pb.ImportVexResponse {
		out := &pb.ImportVexResponse{Statements: wire.Convert(all, importedStatementOf)}
		for _, st := range all {
			out.Created += int32(len(st.Exceptions))
		}
		return out
	})
}

func importedStatementOf(st policy.ImportedStatement) *pb.ImportedStatement {
	return &pb.ImportedStatement{
		Number: int32(st.Number), AdvisoryId: st.Name, Status: st.Status, Author: st.Author, DocumentDigest: st.Document,
		Exceptions: wire.Convert(st.Exceptions, exceptionOf), Problems: st.Problems,
	}
}
