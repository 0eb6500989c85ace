package v1

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	eventspb "github.com/holdfast-dev/holdfast/gen/events/v1"
	eventsv2pb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iamv2pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registryv2pb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v1"
	vulnv2pb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// notTranslated are the fields of version 1 that have no counterpart in later versions.
// The methods of version 1 convert these fields themselves, or ignore or refuse them.
var notTranslated = []protoreflect.FullName{
	"holdfast.iam.v1.Role.capabilities",                                    // names; numbers in later versions
	"holdfast.registry.v1.Repo.readme",                                     // a resource of its own in later versions
	"holdfast.registry.v1.SyncConfig.sync_apks",                            // deprecated
	"holdfast.registry.v1.Repo.custom_overlay",                             // refused, whatever its value is
	"holdfast.vulnerabilities.v1.AdvisoryEvent.component_location_changed", // refused
	"holdfast.vulnerabilities.v1.AdvisoryFilter.page_size",                 // 64 bits, unlike in later versions
	"holdfast.vulnerabilities.v1.AdvisoryFilter.order_by",                  // an enum, unlike in later versions
	"holdfast.vulnerabilities.v1.AdvisoryFilter.id",                        // one of the IDs in uidp in later versions
	"holdfast.events.v1.IdentityMetadata.onboarding_questions",             // part of the metadata in later versions
	"holdfast.events.v1.IdentityMetadata.OnboardingQuestions.providers",    // not stored
}

// TestEveryFieldHasACounterpart: every field of a translated message has a counterpart of
// the same type, unless notTranslated lists it. So no field is lost unnoticed.
func TestEveryFieldHasACounterpart(t *testing.T) {
	for _, pair := range []struct{ old, new proto.Message }{
		{&iampb.Group{}, &iamv2pb.Group{}},
		{&iampb.Identity{}, &iamv2pb.Identity{}},
		{&iampb.IdentityProvider{}, &iamv2pb.IdentityProvider{}},
		{&iampb.StoredGroupInvite{}, &iamv2pb.GroupInvite{}},
		{&iampb.GroupInvite{}, &iamv2pb.GroupInvite{}},
		{&iampb.ExternalGroupRoleMapping{}, &iamv2pb.ExternalGroupRoleMapping{}},
		{&iampb.AccountAssociations{}, &iamv2pb.AccountAssociation{}},
		{&registrypb.Repo{}, &registryv2pb.Repo{}},
		{&registrypb.Tag{}, &registryv2pb.Tag{}},
		{&vulnpb.Advisory{}, &vulnv2pb.Advisory{}},
		{&vulnpb.AdvisoryFilter{}, &vulnv2pb.ListAdvisoriesRequest{}},
		{&eventspb.Subscription{}, &eventsv2pb.Subscription{}},
		{&eventspb.IdentityMetadata{}, &iamv2pb.IdentityMetadata{}},
		{&eventspb.IdentityMetadata_OnboardingQuestions{}, &iamv2pb.IdentityMetadata{}},
	} {
		compare(t, pair.old.ProtoReflect().Descriptor(), pair.new.ProtoReflect().Descriptor())
	}
}

func compare(t *testing.T, old, since protoreflect.MessageDescriptor) {
	t.Helper()
	for i := range old.Fields().Len() {
		f := old.Fields().Get(i)
		if slices.Contains(notTranslated, f.FullName()) {
			continue
		}
		c := counterpart(f, since.Fields())
		if c == nil {
			t.Errorf("%s has no counterpart in %s", f.FullName(), since.FullName())
			continue
		}
		if back := counterpart(c, old.Fields()); back != f {
			t.Errorf("%s becomes %s, which becomes %v", f.FullName(), c.FullName(), back)
		}
		if f.IsMap() {
			f, c = f.MapValue(), c.MapValue()
		}
		if f.Message() != nil {
			compare(t, f.Message(), c.Message())
		}
	}
}
