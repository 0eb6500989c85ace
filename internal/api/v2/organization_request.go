package v2

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// applicable are the requests that ApplyOrganization carries out: those that change the configuration, do nothing
// outside of the database, and return no secret.
var applicable = func() map[protoreflect.FullName]bool {
	names := map[protoreflect.FullName]bool{}
	for pkg, requests := range map[string][]string{
		"holdfast.iam.v2beta1": {
			"CreateGroup", "UpdateGroup", "DeleteGroup", "CreateIdentity", "UpdateIdentity", "DeleteIdentity",
			"CreateRole", "UpdateRole", "DeleteRole", "CreateRoleBinding", "UpdateRoleBinding", "DeleteRoleBinding",
			"CreateIdentityProvider", "UpdateIdentityProvider", "DeleteIdentityProvider",
			"CreateExternalGroupRoleMapping", "DeleteExternalGroupRoleMapping",
			"CreateAccountAssociation", "UpdateAccountAssociation", "DeleteAccountAssociation",
		},
		"holdfast.registry.v2beta1": {"CreateRepo", "UpdateRepo", "DeleteRepo", "UpdateRepoReadme"},
		"holdfast.oci.v1": {
			"UpdateSettings", "DeleteSettings", "CreateUpstream", "UpdateUpstream", "DeleteUpstream",
			"SetRetention", "DeleteRetention", "CreateSigner", "DeleteSigner",
		},
		"holdfast.findings.v1": {
			"CreateRule", "UpdateRule", "DeleteRule", "CreateException", "DeleteException", "SetSla", "DeleteSla",
		},
		"holdfast.advisories.v1":  {"CreateAdvisoryFeed", "UpdateAdvisoryFeed", "DeleteAdvisoryFeed"},
		"holdfast.budgets.v1":     {"UpdateBudget", "DeleteBudget"},
		"holdfast.events.v2beta1": {"CreateSubscription", "DeleteSubscription"},
		"holdfast.access.v1":      {"CreateAccessRule", "DeleteAccessRule"},
		"holdfast.signin.v1":      {"UpdateSignInRules"},
	} {
		for _, r := range requests {
			names[protoreflect.FullName(pkg+"."+r+"Request")] = true
		}
	}
	return names
}()

// requests are the methods that carry out requests, by the name of the request's message.
type requests map[protoreflect.FullName]method

// A method is a method of the API.
type method struct {
	handler grpc.MethodHandler
	service any
}

// call carries out a request and returns its answer.
func (r requests) call(ctx context.Context, in proto.Message) (proto.Message, error) {
	m, ok := r[in.ProtoReflect().Descriptor().FullName()]
	if !ok {
		return nil, fault.Field("request", "is not a request that can be applied")
	}
	out, err := m.handler(m.service, ctx, func(to any) error {
		proto.Merge(to.(proto.Message), in)
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return out.(proto.Message), nil
}

// A recorder registers services and records their methods.
type recorder struct {
	grpc.ServiceRegistrar
	requests requests
}

// RegisterService implements grpc.ServiceRegistrar.
func (r recorder) RegisterService(d *grpc.ServiceDesc, service any) {
	r.ServiceRegistrar.RegisterService(d, service)
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(d.ServiceName))
	described, ok := found.(protoreflect.ServiceDescriptor)
	if err != nil || !ok {
		return
	}
	for _, m := range d.Methods {
		input := described.Methods().ByName(protoreflect.Name(m.MethodName)).Input().FullName()
		if applicable[input] {
			r.requests[input] = method{m.Handler, service}
		}
	}
}

// targetOf returns the UID of the resource that a request changes, or of the group in which it creates one, or "".
func targetOf(m protoreflect.Message) resource.UID {
	if uid := textField(m, "parent"); uid != "" {
		return uid
	}
	if uid := textField(m, "uid"); uid != "" {
		return uid
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() { // an update names the resource in the message of the resource
		fd := fields.Get(i)
		if fd.Kind() == protoreflect.MessageKind && !fd.IsList() && !fd.IsMap() && fd.Name() != "update_mask" {
			return textField(m.Get(fd).Message(), "uid")
		}
	}
	return ""
}

// textField returns the text of a field, or "" if there is no such field.
func textField(m protoreflect.Message, name protoreflect.Name) resource.UID {
	fd := m.Descriptor().Fields().ByName(name)
	if fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
		return ""
	}
	return resource.UID(m.Get(fd).String())
}
