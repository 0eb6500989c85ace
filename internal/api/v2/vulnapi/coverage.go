package vulnapi

import (
	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

func coverageOf(c query.Coverage) *pb.Coverage {
	return &pb.Coverage{
		Packages: int32(c.Packages), Covered: int32(c.Covered), NotCovered: int32(c.Bare), Owned: int32(c.Owned),
		Waiting: int32(c.Waiting), SbomOnly: int32(c.OnlySBOMs), IndexOnly: int32(c.OnlyFiles),
	}
}

// answerCoverageOf converts the coverage that every answer about findings has.
func answerCoverageOf(c query.AnswerCoverage) *pb.AnswerCoverage {
	return &pb.AnswerCoverage{
		Images: int32(c.Images), Indexed: int32(c.Indexed), Waiting: int32(c.Waiting), NotUnderstood: int32(c.NotUnderstood),
		OldestWaitingTime: wire.Time(c.Oldest), WaitingEndTime: wire.Time(c.End),
		Packages: coverageOf(c.Packages), Extent: pb.AnswerCoverage_Extent(c.Extent), PackageTime: wire.Time(c.PackageTime),
		Feeds: wire.Convert(c.Feeds, func(f query.FeedVersion) *pb.FeedVersion {
			return &pb.FeedVersion{Uid: string(f.UID), Name: f.Name, Format: string(f.Format), Version: f.Version,
				Time: wire.Time(f.Time), Error: f.Error}
		}),
	}
}
