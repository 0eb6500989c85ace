package api

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/fault"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

type advisoryWriting struct {
	advisoriespb.UnsafeAdvisoryWritingServiceServer
	service *advisory.Service
	dir     string // for documents while they are imported
}

// CreateAdvisory is of advisoriespb.AdvisoryWritingServiceServer.
func (s advisoryWriting) CreateAdvisory(ctx context.Context, r *advisoriespb.CreateAdvisoryRequest) (*vulnpb.Advisory, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	a := resource.Advisory{ID: r.GetAdvisoryId()}
	readAdvisory(r.GetAdvisory(), &a)
	for _, p := range r.GetAdvisory().GetEvents() {
		var e resource.AdvisoryEvent
		readAdvisoryEvent(p, &e)
		a.Events = append(a.Events, e)
	}
	if a, err = s.service.Create(ctx, parent, a); err != nil {
		return nil, err
	}
	return advisoryOf(a), nil
}

// UpdateAdvisory is of advisoriespb.AdvisoryWritingServiceServer.
func (s advisoryWriting) UpdateAdvisory(ctx context.Context, r *advisoriespb.UpdateAdvisoryRequest) (*vulnpb.Advisory, error) {
	if r.GetAdvisory() == nil {
		return nil, fault.Field("advisory", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetAdvisory().GetUid())
	if err != nil {
		return nil, err
	}
	a, err := s.service.Update(ctx, uid, func(a *resource.Advisory) error {
		p := advisoryOf(*a)
		if err := apply(r.GetUpdateMask(), r.GetAdvisory(), p); err != nil {
			return err
		}
		readAdvisory(p, a)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return advisoryOf(a), nil
}

// DeleteAdvisory is of advisoriespb.AdvisoryWritingServiceServer.
func (s advisoryWriting) DeleteAdvisory(ctx context.Context, r *advisoriespb.DeleteAdvisoryRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.service.Delete(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// CreateAdvisoryEvent is of advisoriespb.AdvisoryWritingServiceServer.
func (s advisoryWriting) CreateAdvisoryEvent(ctx context.Context, r *advisoriespb.CreateAdvisoryEventRequest) (*vulnpb.AdvisoryEvent, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var e resource.AdvisoryEvent
	readAdvisoryEvent(r.GetEvent(), &e)
	if e, err = s.service.AddEvent(ctx, parent, e); err != nil {
		return nil, err
	}
	return advisoryEventOf(e), nil
}

// UpdateAdvisoryEvent is of advisoriespb.AdvisoryWritingServiceServer.
func (s advisoryWriting) UpdateAdvisoryEvent(ctx context.Context, r *advisoriespb.UpdateAdvisoryEventRequest) (*vulnpb.AdvisoryEvent, error) {
	if r.GetEvent() == nil {
		return nil, fault.Field("event", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetEvent().GetUid())
	if err != nil {
		return nil, err
	}
	e, err := s.service.UpdateEvent(ctx, uid, func(e *resource.AdvisoryEvent) error {
		p := advisoryEventOf(*e)
		if err := apply(r.GetUpdateMask(), r.GetEvent(), p); err != nil {
			return err
		}
		readAdvisoryEvent(p, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return advisoryEventOf(e), nil
}
