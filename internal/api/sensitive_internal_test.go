package api

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	annotationspb "github.com/holdfast-dev/holdfast/gen/annotations"
	pb "github.com/holdfast-dev/holdfast/gen/capabilities"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
)

// eachWrite calls f with every method that changes something.
func eachWrite(f func(name string, m protoreflect.MethodDescriptor, caps []pb.Capability)) {
	rules := methodRules()
	wire.EachService(func(s protoreflect.ServiceDescriptor, _ wire.Package) {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			name := string(s.FullName()) + "/" + string(m.Name())
			if rules["/"+name].read {
				continue
			}
			access, _ := proto.GetExtension(m.Options(), annotationspb.E_Iam).(*annotationspb.IAM)
			f(name, m, access.GetEnabled().GetCapabilities())
		}
	})
}

// TestEveryWriteIsClassified checks that each capability of a writing method, and each writing method without a
// capability, either requires a recent sign-in in the console or is exempt for a reason.
func TestEveryWriteIsClassified(t *testing.T) {
	usedCaps, usedMethods := map[pb.Capability]bool{}, map[string]bool{}
	eachWrite(func(name string, m protoreflect.MethodDescriptor, caps []pb.Capability) {
		for _, c := range caps {
			usedCaps[c] = true
			if (sensitive[c] == "") == (routine[c] == "") {
				t.Errorf("%s needs %s, which must be in sensitive or in routine, with a reason", name, c)
			}
		}
		if len(caps) == 0 {
			usedMethods[name] = true
			if (sensitiveMethods[name] == "") == (routineMethods[name] == "") {
				t.Errorf("%s must be in sensitiveMethods or in routineMethods, with a reason", name)
			}
		}
		if isStream := m.IsStreamingClient() || m.IsStreamingServer(); isStream && methodRules()["/"+name].sensitive {
			t.Errorf("%s is sensitive, but prepare does not see streams", name)
		}
	})
	for _, list := range []map[pb.Capability]string{sensitive, routine} {
		for c := range list {
			if !usedCaps[c] {
				t.Errorf("no writing method needs %s", c)
			}
		}
	}
	for _, list := range []map[string]string{sensitiveMethods, routineMethods} {
		for name := range list {
			if !usedMethods[name] {
				t.Errorf("%s is not a writing method without a capability", name)
			}
		}
	}
}

// harmlessSwitches are fields of type bool in requests of methods that are not sensitive. None of them gives access or
// makes anything public.
var harmlessSwitches = map[string]string{
	"holdfast.findings.v1.PushInventoryRequest.empty":                    "replaces an inventory, as any other push does",
	"holdfast.advisories.v1.AdvisoryFeed.paused":                         "stops a feed",
	"holdfast.events.v1.IdentityMetadata.OnboardingQuestions.self_serve": "a preference of the caller",
	"holdfast.events.v1.IdentityMetadata.updatesOptIn":                   "a preference of the caller",
	"holdfast.iam.v2beta1.IdentityMetadata.self_serve":                   "a preference of the caller",
	"holdfast.iam.v2beta1.IdentityMetadata.updates_opt_in":               "a preference of the caller",
	"holdfast.iam.v2beta1.IdentityProvider.OIDC.pkce_enabled":            "is only tested",
	"holdfast.iam.v2beta1.IdentityProvider.disabled":                     "is only tested",
	"holdfast.iam.v2beta1.IdentityProvider.shared_redirect":              "is only tested",
	"holdfast.iam.v1.Group.verified":                                     "only the operator can set it",
	"holdfast.iam.v2beta1.Group.verified":                                "only the operator can set it",
	"holdfast.oci.v1.CopyImagesRequest.promote":                          "copies like a push",
	"holdfast.oci.v1.CopyImagesRequest.with_referrers":                   "copies like a push",
	"holdfast.oci.v1.RestoreTrashEntryRequest.replace":                   "can be undone",
	"holdfast.oci.v1.RestoreTrashEntryRequest.without_tags":              "can be undone",
	"holdfast.oci.v1.Retention.keep_deployed":                            "keeps images",
	"holdfast.oci.v1.Retention.keep_needed":                              "keeps images",
	"holdfast.oci.v1.Retention.keep_signed":                              "keeps images",
	"holdfast.oci.v1.Settings.create_groups_on_push":                     "gives nobody a capability",
	"holdfast.oci.v1.Settings.create_on_push":                            "gives nobody a capability",
	"holdfast.oci.v1.Settings.immutable_tags":                            "protects tags",
	"holdfast.registry.v1.CreateRepoRequest.prevent_existing":            "creates less",
	"holdfast.registry.v1.RegistrySettings.eol_grace_period":             "keeps tags longer",
	"holdfast.registry.v1.RegistrySettings.unique_tags":                  "protects tags",
	"holdfast.registry.v1.SyncConfig.grace_period":                       "has an effect only with a source",
	"holdfast.registry.v1.SyncConfig.sync_apks":                          "has an effect only with a source",
	"holdfast.registry.v1.SyncConfig.unique_tags":                        "has an effect only with a source",
	"holdfast.registry.v1.Tag.deprecated":                                "describes a tag",
	"holdfast.registry.v2beta1.Tag.deprecated":                           "describes a tag",
}

// TestEverySwitchIsClassified checks that each field of type bool that the request of a method that is not sensitive
// can set is either sensitive itself or exempt for a reason. A new switch such as public must not be forgotten.
func TestEverySwitchIsClassified(t *testing.T) {
	used := map[string]bool{}
	eachWrite(func(name string, m protoreflect.MethodDescriptor, _ []pb.Capability) {
		if methodRules()["/"+name].sensitive || m.IsStreamingClient() {
			return
		}
		eachSwitch(m.Input(), nil, func(path []protoreflect.FieldDescriptor) {
			field := path[len(path)-1]
			kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
			if err != nil {
				t.Fatal(err)
			}
			req := kind.New().Interface()
			in := req.ProtoReflect()
			for _, f := range path[:len(path)-1] {
				in = in.Mutable(f).Message()
			}
			in.Set(field, protoreflect.ValueOfBool(true))
			used[string(field.FullName())] = true
			if reason := harmlessSwitches[string(field.FullName())]; (reason == "") != isSensitiveRequest(req) {
				t.Errorf("%s with %s: isSensitiveRequest is %t; exempt because %q", name, field.FullName(), reason != "", reason)
			}
		})
	})
	for field := range harmlessSwitches {
		if !used[field] {
			t.Errorf("no request has the field %s", field)
		}
	}
}

// eachSwitch calls f with the path to each field of type bool of a message that a caller can set.
func eachSwitch(
	m protoreflect.MessageDescriptor, to []protoreflect.FieldDescriptor, f func([]protoreflect.FieldDescriptor),
) {
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		path := append(to[:len(to):len(to)], field)
		switch {
		case field.IsList() || field.IsMap() || wire.HasBehavior(field, annotations.FieldBehavior_OUTPUT_ONLY) ||
			field.Name() == "validate_only":
		case field.Kind() == protoreflect.BoolKind:
			f(path)
		case field.Kind() == protoreflect.MessageKind && strings.HasPrefix(string(field.Message().FullName()), "holdfast.") &&
			len(path) < 4:
			eachSwitch(field.Message(), path, f)
		}
	}
}
