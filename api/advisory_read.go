package api

import (
	"bufio"
	"context"

	"google.golang.org/grpc"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/advisory/format"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
)

type advisoryReading struct {
	advisoriespb.UnsafeAdvisoryReadingServiceServer
	service *advisory.Service
}

func readPackage(p *advisoriespb.PackageVersion) advisory.Package {
	return advisory.Package{PURL: p.GetPurl(), Ecosystem: p.GetEcosystem(), Name: p.GetName(), Version: p.GetVersion()}
}

func matchesOf(all []advisory.Match) *advisoriespb.QueryAdvisoriesResponse {
	return &advisoriespb.QueryAdvisoriesResponse{Matches: convert(all, func(m advisory.Match) *advisoriespb.Match {
		return &advisoriespb.Match{
			Uid: string(m.UID), AdvisoryId: m.ID, Aliases: m.Aliases, Summary: m.Summary,
			Severities: convert(m.Severities, severityOf), FixedVersions: m.Fixed,
		}
	})}
}

// QueryAdvisories is of advisoriespb.AdvisoryReadingServiceServer.
func (s advisoryReading) QueryAdvisories(ctx context.Context, r *advisoriespb.QueryAdvisoriesRequest) (*advisoriespb.QueryAdvisoriesResponse, error) {
	found, err := s.service.Query(ctx, placeIn(r.GetUidp()), readPackage(r.GetPackage()))
	if err != nil {
		return nil, err
	}
	return matchesOf(found), nil
}

// BatchQueryAdvisories is of advisoriespb.AdvisoryReadingServiceServer.
func (s advisoryReading) BatchQueryAdvisories(ctx context.Context, r *advisoriespb.BatchQueryAdvisoriesRequest) (*advisoriespb.BatchQueryAdvisoriesResponse, error) {
	found, err := s.service.BatchQuery(ctx, placeIn(r.GetUidp()), convert(r.GetPackages(), readPackage))
	if err != nil {
		return nil, err
	}
	return &advisoriespb.BatchQueryAdvisoriesResponse{Results: convert(found, matchesOf)}, nil
}

// exportPiece is how many bytes of an export one message has.
const exportPiece = 256 << 10

// ExportAdvisories is of advisoriespb.AdvisoryReadingServiceServer.
func (s advisoryReading) ExportAdvisories(r *advisoriespb.ExportAdvisoriesRequest, stream grpc.ServerStreamingServer[advisoriespb.ExportAdvisoriesResponse]) error {
	w := bufio.NewWriterSize(pieces{stream}, exportPiece)
	to, options := format.Format(r.GetFormat()), format.Options{Zip: r.GetZip()}
	if err := s.service.Export(stream.Context(), advisoryFilter(r.GetFilter()), to, options, w); err != nil {
		return err
	}
	return w.Flush()
}

// pieces sends what is written to it.
type pieces struct {
	stream grpc.ServerStreamingServer[advisoriespb.ExportAdvisoriesResponse]
}

func (p pieces) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), exportPiece)
		if err := p.stream.Send(&advisoriespb.ExportAdvisoriesResponse{Data: rest[:n]}); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}
