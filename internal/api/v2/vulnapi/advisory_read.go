package vulnapi

import (
	"bufio"
	"context"

	"google.golang.org/grpc"

	pb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

func readPackage(p *pb.PackageVersion) advisory.Package {
	return advisory.Package{PURL: p.GetPurl(), Ecosystem: p.GetEcosystem(), Name: p.GetName(), Version: p.GetVersion()}
}

func matchesOf(all []advisory.Match) *pb.QueryAdvisoriesResponse {
	return &pb.QueryAdvisoriesResponse{Matches: wire.Convert(all, func(m advisory.Match) *pb.Match {
		return &pb.Match{
			Uid: string(m.UID), AdvisoryId: m.ID, Aliases: m.Aliases, Summary: m.Summary,
			Severities: wire.Convert(m.Severities, severityOf), FixedVersions: m.Fixed,
		}
	})}
}

func (s *server) QueryAdvisories(
	ctx context.Context, r *pb.QueryAdvisoriesRequest,
) (*pb.QueryAdvisoriesResponse, error) {
	found, err := s.Advisory.Query(ctx, wire.UIDFilter(r.GetUidp()), readPackage(r.GetPackage()))
	return matchesOf(found), err
}

func (s *server) BatchQueryAdvisories(
	ctx context.Context, r *pb.BatchQueryAdvisoriesRequest,
) (*pb.BatchQueryAdvisoriesResponse, error) {
	found, err := s.Advisory.BatchQuery(ctx, wire.UIDFilter(r.GetUidp()), wire.Convert(r.GetPackages(), readPackage))
	return &pb.BatchQueryAdvisoriesResponse{Results: wire.Convert(found, matchesOf)}, err
}

// exportChunk is the largest part of an export in one message, in bytes.
const exportChunk = 256 << 10

func (s *server) ExportAdvisories(
	r *pb.ExportAdvisoriesRequest, stream grpc.ServerStreamingServer[pb.ExportAdvisoriesResponse],
) error {
	w := bufio.NewWriterSize(chunks{stream}, exportChunk)
	if err := s.Advisory.Export(stream.Context(), AdvisoryFilter(r.GetFilter()), format.Format(r.GetFormat()),
		format.Options{Zip: r.GetZip()}, w); err != nil {
		return err
	}
	return w.Flush()
}

// chunks is an io.Writer that sends the written bytes to a stream.
type chunks struct {
	stream grpc.ServerStreamingServer[pb.ExportAdvisoriesResponse]
}

func (c chunks) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), exportChunk)
		if err := c.stream.Send(&pb.ExportAdvisoriesResponse{Data: rest[:n]}); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}
