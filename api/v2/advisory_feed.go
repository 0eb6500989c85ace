package v2

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/api/wire"
	"github.com/holdfast-dev/holdfast/fault"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/resource"
)

type advisoryFeeds struct {
	advisoriespb.UnsafeAdvisoryFeedsServiceServer
	service *advisory.Service
}

// feedOf returns the message of a feed.
func feedOf(f resource.AdvisoryFeed) *advisoriespb.AdvisoryFeed {
	p := &advisoriespb.AdvisoryFeed{
		Uid: string(f.UID), Name: f.Name, Address: f.Address, Interval: durationpb.New(f.Interval), Paused: f.Paused,
		CreateTime: wire.Time(f.CreateTime), UpdateTime: wire.Time(f.UpdateTime),
	}
	if l := f.Last; !l.Time.IsZero() {
		p.Last = &advisoriespb.FeedResult{
			Time: wire.Time(l.Time), Took: durationpb.New(l.Took), Error: l.Error, Unchanged: l.Unchanged,
			Counts: countsOf(l.Import),
		}
	}
	return p
}

func countsOf(r resource.ImportResult) *advisoriespb.ImportCounts {
	return &advisoriespb.ImportCounts{
		Created: r.Created, Updated: r.Updated, Unchanged: r.Unchanged, Withdrawn: r.Withdrawn, Failed: r.Failed,
	}
}

// readFeed copies what clients may set from p to f.
func readFeed(p *advisoriespb.AdvisoryFeed, f *resource.AdvisoryFeed) error {
	f.Name, f.Address, f.Paused, f.Interval = p.GetName(), p.GetAddress(), p.GetPaused(), 0
	if d := p.GetInterval(); d != nil {
		if err := d.CheckValid(); err != nil {
			return fault.Field("interval", "is not a duration")
		}
		f.Interval = d.AsDuration().Truncate(time.Millisecond)
	}
	return nil
}

func (s advisoryFeeds) CreateAdvisoryFeed(ctx context.Context, r *advisoriespb.CreateAdvisoryFeedRequest) (*advisoriespb.AdvisoryFeed, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetFeed(), readFeed, s.service.CreateFeed, feedOf)
}

func (s advisoryFeeds) UpdateAdvisoryFeed(ctx context.Context, r *advisoriespb.UpdateAdvisoryFeedRequest) (*advisoriespb.AdvisoryFeed, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "feed", r.GetFeed(), readFeed, s.service.UpdateFeed, feedOf)
}

func (s advisoryFeeds) DeleteAdvisoryFeed(ctx context.Context, r *advisoriespb.DeleteAdvisoryFeedRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.service.DeleteFeed)
}

func (s advisoryFeeds) GetAdvisoryFeed(ctx context.Context, r *advisoriespb.GetAdvisoryFeedRequest) (*advisoriespb.AdvisoryFeed, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.service.GetFeed, feedOf)
}

func (s advisoryFeeds) ListAdvisoryFeeds(ctx context.Context, r *advisoriespb.ListAdvisoryFeedsRequest) (*advisoriespb.ListAdvisoryFeedsResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{Place: wire.Place(r.GetUidp()), Name: r.GetName()}, s.service.ListFeeds,
		feedOf)
	return &advisoriespb.ListAdvisoryFeedsResponse{
		Feeds: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
