package vulnapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

func (s *server) CreateAdvisory(ctx context.Context, r *advisoriespb.CreateAdvisoryRequest) (*vulnpb.Advisory, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r, readNewAdvisory, s.Advisory.Create, AdvisoryOf)
}

func readNewAdvisory(r *advisoriespb.CreateAdvisoryRequest, a *vuln.Advisory) error {
	a.ID = r.GetAdvisoryId()
	for _, p := range r.GetAdvisory().GetEvents() {
		var e vuln.AdvisoryEvent
		if err := ReadAdvisoryEvent(p, &e); err != nil {
			return err
		}
		a.Events = append(a.Events, e)
	}
	return readAdvisory(r.GetAdvisory(), a)
}

func (s *server) UpdateAdvisory(ctx context.Context, r *advisoriespb.UpdateAdvisoryRequest) (*vulnpb.Advisory, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "advisory", r.GetAdvisory(), readAdvisory, s.Advisory.Update, AdvisoryOf)
}

func (s *server) DeleteAdvisory(ctx context.Context, r *advisoriespb.DeleteAdvisoryRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Advisory.Delete)
}

func (s *server) CreateAdvisoryEvent(
	ctx context.Context, r *advisoriespb.CreateAdvisoryEventRequest,
) (*vulnpb.AdvisoryEvent, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetEvent(), ReadAdvisoryEvent, s.Advisory.AddEvent, AdvisoryEventOf)
}

func (s *server) UpdateAdvisoryEvent(
	ctx context.Context, r *advisoriespb.UpdateAdvisoryEventRequest,
) (*vulnpb.AdvisoryEvent, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "event", r.GetEvent(), ReadAdvisoryEvent, s.Advisory.UpdateEvent,
		AdvisoryEventOf)
}
