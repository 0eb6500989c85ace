package api

import (
	"context"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/fault"
	vulnv1pb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

type advisoriesV1 struct {
	vulnv1pb.UnsafeAdvisoriesServer
	service *advisory.Service
}

func advisoryV1(a resource.Advisory) (*vulnv1pb.Advisory, error) {
	v2 := advisoryOf(a)
	p := &vulnv1pb.Advisory{
		Id: v2.GetUid(), AdvisoryId: v2.GetAdvisoryId(), Author: v2.GetAuthor(), LegacyAdvisoryID: v2.LegacyAdvisoryId,
		CreatedAt: v2.GetCreateTime(), UpdatedAt: v2.GetUpdateTime(), DeletedAt: v2.GetDeleteTime(),
		ArtifactName: v2.GetArtifactName(), ArtifactType: v2.GetArtifactType(), ArtifactArchitecture: v2.GetArtifactArchitecture(),
		ComponentName: optional(v2.GetComponentName()), ComponentLocation: optional(v2.GetComponentLocation()), ComponentType: optional(v2.GetComponentType()),
		Aliases: v2.GetAliases(),
	}
	for _, e := range v2.GetEvents() {
		event, err := advisoryEventV1(e)
		if err != nil {
			return nil, err
		}
		p.Events = append(p.Events, event)
	}
	return p, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func advisoryEventV1(e *vulnpb.AdvisoryEvent) (*vulnv1pb.AdvisoryEvent, error) {
	p := &vulnv1pb.AdvisoryEvent{
		Id: e.GetUid(), Timestamp: e.GetCreateTime(), Findings: e.GetFindings(), Author: e.GetAuthor(), Reviewer: e.GetReviewer(),
		Status: vulnv1pb.ReviewStatus(e.GetReviewState()), Issue: e.Issue,
	}
	return p, recodeType(e, p)
}

// readAdvisoryEventV1 reads an event. It returns fault.InvalidArgument for the
// one type that later versions do not have.
func readAdvisoryEventV1(p *vulnv1pb.AdvisoryEvent, e *resource.AdvisoryEvent) error {
	if p.GetComponentLocationChanged() != nil {
		return fault.Field("component_location_changed", "is not kept: change the component_location of the advisory")
	}
	v2 := &vulnpb.AdvisoryEvent{
		Findings: p.GetFindings(), Author: p.GetAuthor(), Reviewer: p.GetReviewer(),
		ReviewState: vulnpb.ReviewState(p.GetStatus()), Issue: p.Issue,
	}
	if err := recodeType(p, v2); err != nil {
		return err
	}
	readAdvisoryEvent(v2, e)
	return nil
}

// recodeType gives one event the type of another. What a type says has the same
// fields in both versions; the events number their types differently.
func recodeType(from, to proto.Message) error {
	f, t := from.ProtoReflect(), to.ProtoReflect()
	set := f.WhichOneof(f.Descriptor().Oneofs().ByName("type"))
	if set == nil {
		return nil
	}
	field := t.Descriptor().Fields().ByName(set.Name())
	inner, err := recode(f.Get(set).Message().Interface(), t.NewField(field).Message().Interface())
	if err != nil {
		return err
	}
	t.Set(field, protoreflect.ValueOfMessage(inner.ProtoReflect()))
	return nil
}

// readAdvisoryV1 reads into a what clients may set. What only later versions
// have stays as it is.
func readAdvisoryV1(p *vulnv1pb.Advisory, a *resource.Advisory) {
	a.Author, a.Aliases = p.GetAuthor(), p.GetAliases()
	a.ArtifactName, a.ArtifactType, a.ArtifactArchitecture = p.GetArtifactName(), p.GetArtifactType(), p.GetArtifactArchitecture()
	a.ComponentName, a.ComponentLocation, a.ComponentType = p.GetComponentName(), p.GetComponentLocation(), p.GetComponentType()
}

// Create is of vulnv1pb.AdvisoriesServer.
func (s advisoriesV1) Create(ctx context.Context, r *vulnv1pb.CreateAdvisoryRequest) (*vulnv1pb.Advisory, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	a := resource.Advisory{ID: r.GetAdvisory().GetAdvisoryId()}
	readAdvisoryV1(r.GetAdvisory(), &a)
	for _, p := range r.GetAdvisory().GetEvents() {
		var e resource.AdvisoryEvent
		if err := readAdvisoryEventV1(p, &e); err != nil {
			return nil, err
		}
		a.Events = append(a.Events, e)
	}
	if a, err = s.service.Create(ctx, parent, a); err != nil {
		return nil, err
	}
	return advisoryV1(a)
}

// Update is of vulnv1pb.AdvisoriesServer.
func (s advisoriesV1) Update(ctx context.Context, r *vulnv1pb.Advisory) (*vulnv1pb.Advisory, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	a, err := s.service.Update(ctx, uid, func(a *resource.Advisory) error {
		readAdvisoryV1(r, a)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return advisoryV1(a)
}

// Delete is of vulnv1pb.AdvisoriesServer.
func (s advisoriesV1) Delete(ctx context.Context, r *vulnv1pb.DeleteAdvisoryRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.service.Delete)
}

// List is of vulnv1pb.AdvisoriesServer. Alone among the lists of version 1 it
// has pages.
func (s advisoriesV1) List(ctx context.Context, r *vulnv1pb.AdvisoryFilter) (*vulnv1pb.AdvisoriesList, error) {
	order, err := orderV1(r.GetOrderBy())
	if err != nil {
		return nil, err
	}
	size := min(max(r.GetPageSize(), -1), page.MaxSize) // negative ones are refused below
	got, err := s.service.List(ctx, advisoryFilterV1(r), page.Params{Size: int32(size), Token: r.GetPageToken(), OrderBy: order})
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, got.Expired)
	out := &vulnv1pb.AdvisoriesList{NextPageToken: got.Next, TotalCount: proto.Int64(got.Total)}
	for _, a := range got.Items {
		p, err := advisoryV1(a)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, p)
	}
	return out, nil
}

func advisoryFilterV1(r *vulnv1pb.AdvisoryFilter) resource.AdvisoryFilter {
	v2 := &vulnpb.ListAdvisoriesRequest{
		Uidp: r.GetUidp(), AdvisoryIds: r.GetAdvisoryIds(), LegacyAdvisoryIds: r.GetLegacyAdvisoryIds(),
		ArtifactNames: r.GetArtifactName(), ArtifactTypes: r.GetArtifactType(), ArtifactArchitectures: r.GetArtifactArchitecture(),
		ComponentNames: r.GetComponentName(), ComponentTypes: r.GetComponentType(), ComponentLocations: r.GetComponentLocation(),
		Aliases: r.GetAliases(), Origin: r.Origin, EventAuthors: r.GetEventAuthor(), ExcludeEventAuthors: r.GetExcludeEventAuthor(),
		EventReviewers:    r.GetEventReviewer(),
		EventReviewStates: convert(r.GetEventStatuses(), func(s vulnv1pb.ReviewStatus) vulnpb.ReviewState { return vulnpb.ReviewState(s) }),
		EventTypes:        convert(r.GetEventTypes(), func(t vulnv1pb.EventTypeFilter) vulnpb.EventTypeFilter { return vulnpb.EventTypeFilter(t) }),
	}
	if r.LatestEventType != nil {
		v2.LatestEventType = vulnpb.EventTypeFilter(r.GetLatestEventType()).Enum()
	}
	f := advisoryFilter(v2)
	f.Place = placeV1(r.GetUidp(), r.GetId())
	return f
}

// orderV1 is an order of version 1 in the words of later ones.
func orderV1(o vulnv1pb.OrderBy) (string, error) {
	if o == vulnv1pb.OrderBy_ORDER_BY_UNSPECIFIED {
		return "", nil
	}
	name, desc := strings.CutSuffix(o.String(), "_DESC")
	field, ok := map[string]string{"ID": "uid", "CREATED_AT": "create_time", "UPDATED_AT": "update_time"}[strings.TrimSuffix(name, "_ASC")]
	if !ok {
		return "", fault.Field("order_by", "must be of the id, created_at and updated_at")
	}
	if desc {
		field += " desc"
	}
	return field, nil
}

// CreateAdvisoryEvent is of vulnv1pb.AdvisoriesServer.
func (s advisoriesV1) CreateAdvisoryEvent(ctx context.Context, r *vulnv1pb.CreateAdvisoryEventRequest) (*vulnv1pb.AdvisoryEvent, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	var e resource.AdvisoryEvent
	if err := readAdvisoryEventV1(r.GetAdvisoryEvent(), &e); err != nil {
		return nil, err
	}
	if e, err = s.service.AddEvent(ctx, parent, e); err != nil {
		return nil, err
	}
	return advisoryEventV1(advisoryEventOf(e))
}

// ListAdvisoryEvents is of vulnv1pb.AdvisoriesServer.
func (s advisoriesV1) ListAdvisoryEvents(ctx context.Context, r *vulnv1pb.AdvisoryEventFilter) (*vulnv1pb.AdvisoryEventList, error) {
	uid, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	a, err := s.service.Get(ctx, uid)
	if err != nil {
		return nil, err
	}
	p, err := advisoryV1(a)
	if err != nil {
		return nil, err
	}
	return &vulnv1pb.AdvisoryEventList{ParentId: r.GetParentId(), Items: p.GetEvents()}, nil
}

// UpdateAdvisoryEvent is of vulnv1pb.AdvisoriesServer.
func (s advisoriesV1) UpdateAdvisoryEvent(ctx context.Context, r *vulnv1pb.AdvisoryEvent) (*vulnv1pb.AdvisoryEvent, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	e, err := s.service.UpdateEvent(ctx, uid, func(e *resource.AdvisoryEvent) error { return readAdvisoryEventV1(r, e) })
	if err != nil {
		return nil, err
	}
	return advisoryEventV1(advisoryEventOf(e))
}
