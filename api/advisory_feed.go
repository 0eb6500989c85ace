package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/fault"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/resource"
)

type advisoryFeeds struct {
	advisoriespb.UnsafeAdvisoryFeedsServiceServer
	service *advisory.Service
}

// feedOf writes a feed.
func feedOf(f resource.AdvisoryFeed) *advisoriespb.AdvisoryFeed {
	p := &advisoriespb.AdvisoryFeed{
		Uid: string(f.UID), Name: f.Name, Address: f.Address, Interval: durationpb.New(f.Interval), Paused: f.Paused,
		CreateTime: timeOf(f.CreateTime), UpdateTime: timeOf(f.UpdateTime),
	}
	if l := f.Last; !l.Time.IsZero() {
		p.Last = &advisoriespb.FeedResult{
			Time: timeOf(l.Time), Took: durationpb.New(l.Took), Error: l.Error, Unchanged: l.Unchanged, Counts: countsOf(l.Import),
		}
	}
	return p
}

func countsOf(r resource.ImportResult) *advisoriespb.ImportCounts {
	return &advisoriespb.ImportCounts{Created: r.Created, Updated: r.Updated, Unchanged: r.Unchanged, Withdrawn: r.Withdrawn, Failed: r.Failed}
}

// readFeed reads into f what clients may set.
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

// CreateAdvisoryFeed is of advisoriespb.AdvisoryFeedsServiceServer.
func (s advisoryFeeds) CreateAdvisoryFeed(ctx context.Context, r *advisoriespb.CreateAdvisoryFeedRequest) (*advisoriespb.AdvisoryFeed, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var f resource.AdvisoryFeed
	if err := readFeed(r.GetFeed(), &f); err != nil {
		return nil, err
	}
	if f, err = s.service.CreateFeed(ctx, parent, f); err != nil {
		return nil, err
	}
	return feedOf(f), nil
}

// UpdateAdvisoryFeed is of advisoriespb.AdvisoryFeedsServiceServer.
func (s advisoryFeeds) UpdateAdvisoryFeed(ctx context.Context, r *advisoriespb.UpdateAdvisoryFeedRequest) (*advisoriespb.AdvisoryFeed, error) {
	if r.GetFeed() == nil {
		return nil, fault.Field("feed", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetFeed().GetUid())
	if err != nil {
		return nil, err
	}
	f, err := s.service.UpdateFeed(ctx, uid, func(f *resource.AdvisoryFeed) error {
		p := feedOf(*f)
		if err := apply(r.GetUpdateMask(), r.GetFeed(), p); err != nil {
			return err
		}
		return readFeed(p, f)
	})
	if err != nil {
		return nil, err
	}
	return feedOf(f), nil
}

// DeleteAdvisoryFeed is of advisoriespb.AdvisoryFeedsServiceServer.
func (s advisoryFeeds) DeleteAdvisoryFeed(ctx context.Context, r *advisoriespb.DeleteAdvisoryFeedRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.service.DeleteFeed(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// GetAdvisoryFeed is of advisoriespb.AdvisoryFeedsServiceServer.
func (s advisoryFeeds) GetAdvisoryFeed(ctx context.Context, r *advisoriespb.GetAdvisoryFeedRequest) (*advisoriespb.AdvisoryFeed, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	f, err := s.service.GetFeed(ctx, uid)
	if err != nil {
		return nil, err
	}
	return feedOf(f), nil
}

// ListAdvisoryFeeds is of advisoriespb.AdvisoryFeedsServiceServer.
func (s advisoryFeeds) ListAdvisoryFeeds(ctx context.Context, r *advisoriespb.ListAdvisoryFeedsRequest) (*advisoriespb.ListAdvisoryFeedsResponse, error) {
	p, err := s.service.ListFeeds(ctx, resource.Filter{Place: placeOf(r), Name: r.GetName()}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &advisoriespb.ListAdvisoryFeedsResponse{
		Feeds: convert(p.Items, feedOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}
