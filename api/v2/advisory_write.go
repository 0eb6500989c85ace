package v2

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/api/wire"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

type advisoryWriting struct {
	advisoriespb.UnsafeAdvisoryWritingServiceServer
	service *advisory.Service
	dir     string // for documents while they are imported
}

func (s advisoryWriting) CreateAdvisory(ctx context.Context, r *advisoriespb.CreateAdvisoryRequest) (*vulnpb.Advisory, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r, readNewAdvisory, s.service.Create, AdvisoryOf)
}

func readNewAdvisory(r *advisoriespb.CreateAdvisoryRequest, a *resource.Advisory) error {
	a.ID = r.GetAdvisoryId()
	for _, p := range r.GetAdvisory().GetEvents() {
		var e resource.AdvisoryEvent
		if err := ReadAdvisoryEvent(p, &e); err != nil {
			return err
		}
		a.Events = append(a.Events, e)
	}
	return readAdvisory(r.GetAdvisory(), a)
}

func (s advisoryWriting) UpdateAdvisory(ctx context.Context, r *advisoriespb.UpdateAdvisoryRequest) (*vulnpb.Advisory, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "advisory", r.GetAdvisory(), readAdvisory, s.service.Update, AdvisoryOf)
}

func (s advisoryWriting) DeleteAdvisory(ctx context.Context, r *advisoriespb.DeleteAdvisoryRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.service.Delete)
}

func (s advisoryWriting) CreateAdvisoryEvent(ctx context.Context, r *advisoriespb.CreateAdvisoryEventRequest) (*vulnpb.AdvisoryEvent, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetEvent(), ReadAdvisoryEvent, s.service.AddEvent, AdvisoryEventOf)
}

func (s advisoryWriting) UpdateAdvisoryEvent(ctx context.Context, r *advisoriespb.UpdateAdvisoryEventRequest) (*vulnpb.AdvisoryEvent, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "event", r.GetEvent(), ReadAdvisoryEvent, s.service.UpdateEvent,
		AdvisoryEventOf)
}
