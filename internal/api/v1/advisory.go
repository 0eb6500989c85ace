package v1

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/emptypb"

	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v1"
	vulnv2pb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/v2/vulnapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
)

type advisories struct {
	vulnpb.UnsafeAdvisoriesServer
	service *advisory.Service
}

var (
	advisoryOf           = writer[*vulnpb.Advisory](vulnapi.AdvisoryOf)
	eventOf              = writer[*vulnpb.AdvisoryEvent](vulnapi.AdvisoryEventOf)
	readEventOfSomeTypes = reader[*vulnpb.AdvisoryEvent](vulnapi.ReadAdvisoryEvent)
)

// readEvent reads an event. It returns fault.InvalidArgument for an event of the type
// that only version 1 has.
func readEvent(p *vulnpb.AdvisoryEvent, e *vuln.AdvisoryEvent) error {
	if p.GetComponentLocationChanged() != nil {
		return fault.Field("component_location_changed", "is not supported; change the component_location of the advisory")
	}
	return readEventOfSomeTypes(p, e)
}

// readAdvisory copies the fields that clients may set from p to a. It keeps the
// fields that only later versions have.
func readAdvisory(p *vulnpb.Advisory, a *vuln.Advisory) error {
	a.Author, a.Aliases = p.GetAuthor(), p.GetAliases()
	a.ArtifactName, a.ArtifactType = p.GetArtifactName(), p.GetArtifactType()
	a.ArtifactArchitecture = p.GetArtifactArchitecture()
	a.ComponentName, a.ComponentType = p.GetComponentName(), p.GetComponentType()
	a.ComponentLocation = p.GetComponentLocation()
	return nil
}

// readNewAdvisory reads a new advisory, which may already have events.
func readNewAdvisory(p *vulnpb.Advisory, a *vuln.Advisory) error {
	a.ID = p.GetAdvisoryId()
	for _, event := range p.GetEvents() {
		var e vuln.AdvisoryEvent
		if err := readEvent(event, &e); err != nil {
			return err
		}
		a.Events = append(a.Events, e)
	}
	return readAdvisory(p, a)
}

func (s advisories) Create(ctx context.Context, r *vulnpb.CreateAdvisoryRequest) (*vulnpb.Advisory, error) {
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetAdvisory(), readNewAdvisory, s.service.Create, advisoryOf)
}

func (s advisories) Update(ctx context.Context, r *vulnpb.Advisory) (*vulnpb.Advisory, error) {
	return wire.Replace(ctx, "id", r.GetId(), r, readAdvisory, s.service.Update, advisoryOf)
}

func (s advisories) Delete(ctx context.Context, r *vulnpb.DeleteAdvisoryRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.service.Delete)
}

// List returns one page of advisories, unlike most lists of version 1, which have no
// pages.
func (s advisories) List(ctx context.Context, r *vulnpb.AdvisoryFilter) (*vulnpb.AdvisoriesList, error) {
	order, err := orderOf(r.GetOrderBy())
	if err != nil {
		return nil, err
	}
	f := vulnapi.AdvisoryFilter(translate(r, &vulnv2pb.ListAdvisoriesRequest{}))
	f.UIDs = place(r.GetUidp(), r.GetId())
	list, err := s.service.List(ctx, f, pageParams(r, order))
	p := wire.PageOf(ctx, list, advisoryOf)
	return &vulnpb.AdvisoriesList{Items: p.Items, NextPageToken: p.Next, TotalCount: p.Total}, err
}

// orderOf converts an order of version 1 to the form of later versions.
func orderOf(o vulnpb.OrderBy) (string, error) {
	if o == vulnpb.OrderBy_ORDER_BY_UNSPECIFIED {
		return "", nil
	}
	name, desc := strings.CutSuffix(o.String(), "_DESC")
	fields := map[string]string{"ID": "uid", "CREATED_AT": "create_time", "UPDATED_AT": "update_time"}
	field, ok := fields[strings.TrimSuffix(name, "_ASC")]
	if !ok {
		return "", fault.Field("order_by", "must be of the id, created_at and updated_at")
	}
	if desc {
		field += " desc"
	}
	return field, nil
}

func (s advisories) CreateAdvisoryEvent(
	ctx context.Context, r *vulnpb.CreateAdvisoryEventRequest,
) (*vulnpb.AdvisoryEvent, error) {
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetAdvisoryEvent(), readEvent, s.service.AddEvent, eventOf)
}

func (s advisories) ListAdvisoryEvents(
	ctx context.Context, r *vulnpb.AdvisoryEventFilter,
) (*vulnpb.AdvisoryEventList, error) {
	return wire.Get(ctx, "parent_id", r.GetParentId(), s.service.Get, func(a vuln.Advisory) *vulnpb.AdvisoryEventList {
		return &vulnpb.AdvisoryEventList{ParentId: r.GetParentId(), Items: wire.Convert(a.Events, eventOf)}
	})
}

func (s advisories) UpdateAdvisoryEvent(ctx context.Context, r *vulnpb.AdvisoryEvent) (*vulnpb.AdvisoryEvent, error) {
	return wire.Replace(ctx, "id", r.GetId(), r, readEvent, s.service.UpdateEvent, eventOf)
}
