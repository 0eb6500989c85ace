package vulnapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// feedOf converts a feed to a message.
func feedOf(f vuln.AdvisoryFeed) *pb.AdvisoryFeed {
	p := &pb.AdvisoryFeed{
		Uid: string(f.UID), Name: f.Name, Address: f.Address, Interval: durationpb.New(f.Interval), Paused: f.Paused,
		Format:     string(f.Format),
		CreateTime: wire.Time(f.CreateTime), UpdateTime: wire.Time(f.UpdateTime),
	}
	if l := f.Last; !l.Time.IsZero() {
		p.Last = &pb.FeedResult{
			Time: wire.Time(l.Time), Took: durationpb.New(l.Took), Error: l.Error, Unchanged: l.Unchanged,
			Counts: countsOf(l.Import),
		}
	}
	return p
}

func countsOf(r vuln.ImportResult) *pb.ImportCounts {
	return &pb.ImportCounts{
		Created: r.Created, Updated: r.Updated, Unchanged: r.Unchanged, Withdrawn: r.Withdrawn, Failed: r.Failed,
		Removed: r.Removed, Older: r.Older,
	}
}

// readFeed copies the fields that clients may set from p to f.
func readFeed(p *pb.AdvisoryFeed, f *vuln.AdvisoryFeed) error {
	f.Name, f.Address, f.Paused, f.Interval = p.GetName(), p.GetAddress(), p.GetPaused(), 0
	f.Format = vuln.ExploitFormat(p.GetFormat())
	if d := p.GetInterval(); d != nil {
		if err := d.CheckValid(); err != nil {
			return fault.Field("interval", "is not a duration")
		}
		f.Interval = d.AsDuration().Truncate(time.Millisecond)
	}
	return nil
}

func (s *server) CreateAdvisoryFeed(ctx context.Context, r *pb.CreateAdvisoryFeedRequest) (*pb.AdvisoryFeed, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetFeed(), readFeed, s.Advisory.CreateFeed, feedOf)
}

func (s *server) UpdateAdvisoryFeed(ctx context.Context, r *pb.UpdateAdvisoryFeedRequest) (*pb.AdvisoryFeed, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "feed", r.GetFeed(), readFeed, s.Advisory.UpdateFeed, feedOf)
}

func (s *server) RunAdvisoryFeed(ctx context.Context, r *pb.RunAdvisoryFeedRequest) (*pb.AdvisoryFeed, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Advisory.RunFeed, feedOf)
}

func (s *server) DeleteAdvisoryFeed(ctx context.Context, r *pb.DeleteAdvisoryFeedRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Advisory.DeleteFeed)
}

func (s *server) GetAdvisoryFeed(ctx context.Context, r *pb.GetAdvisoryFeedRequest) (*pb.AdvisoryFeed, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Advisory.GetFeed, feedOf)
}

func (s *server) ListAdvisoryFeeds(
	ctx context.Context, r *pb.ListAdvisoryFeedsRequest,
) (*pb.ListAdvisoryFeedsResponse, error) {
	p, err := wire.List(ctx, r, wire.Filter(r), s.Advisory.ListFeeds, feedOf)
	return &pb.ListAdvisoryFeedsResponse{
		Feeds: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
