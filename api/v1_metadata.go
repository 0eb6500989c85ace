package api

import (
	"context"

	"google.golang.org/protobuf/reflect/protoreflect"

	eventsv1pb "github.com/holdfast-dev/holdfast/gen/events/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type eventIdentitiesV1 struct {
	eventsv1pb.UnsafeIdentitiesServer
	iam *iam.Service
}

// Create is of eventsv1pb.IdentitiesServer.
func (s eventIdentitiesV1) Create(ctx context.Context, _ *eventsv1pb.Identity) (*eventsv1pb.Identity, error) {
	return nil, s.iam.CreatePerson(ctx)
}

// UpdateMetadata is of eventsv1pb.IdentitiesServer.
func (s eventIdentitiesV1) UpdateMetadata(ctx context.Context, r *eventsv1pb.IdentityMetadata) (*eventsv1pb.IdentityMetadata, error) {
	i, err := s.iam.UpdateMetadata(ctx, func(i *resource.Identity) error {
		p := metadataOf(*i)
		copyAnswers(r.GetOnboardingQuestions().ProtoReflect(), p.ProtoReflect())
		if company := r.GetOnboardingQuestions().GetCompanyName(); company != "" {
			p.Company = company
		}
		p.UpdatesOptIn = p.GetUpdatesOptIn() || r.GetUpdatesOptIn()
		readMetadata(p, i)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return metadataV1(metadataOf(i)), nil
}

func metadataV1(p *iampb.IdentityMetadata) *eventsv1pb.IdentityMetadata {
	out := &eventsv1pb.IdentityMetadata{
		OnboardingQuestions: &eventsv1pb.IdentityMetadata_OnboardingQuestions{CompanyName: p.GetCompany()},
		Name:                p.GetName(), GivenName: p.GetGivenName(), FamilyName: p.GetFamilyName(), UpdatesOptIn: p.GetUpdatesOptIn(),
	}
	copyAnswers(p.ProtoReflect(), out.GetOnboardingQuestions().ProtoReflect())
	return out
}

// copyAnswers copies what is set of the fields that both messages have by the
// same name. Version 1 keeps answers apart from the rest; later ones do not.
func copyAnswers(from, to protoreflect.Message) {
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field := to.Descriptor().Fields().ByName(f.Name()); field != nil {
			to.Set(field, v)
		}
		return true
	})
}
