package api

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/holdfast-dev/holdfast/event"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	annotationspb "github.com/holdfast-dev/holdfast/gen/annotations"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventsv1pb "github.com/holdfast-dev/holdfast/gen/events/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	pingv1pb "github.com/holdfast-dev/holdfast/gen/ping/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	vulnv1pb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// packages are the services of this API, and the other names their package goes
// by: the version that follows the beta, and the names that clients of the
// public API with the same messages were built for.
var packages = []struct {
	files []protoreflect.FileDescriptor
	also  []string
}{
	{
		files: []protoreflect.FileDescriptor{
			iampb.File_holdfast_iam_v2beta1_groups_proto, iampb.File_holdfast_iam_v2beta1_identities_proto,
			iampb.File_holdfast_iam_v2beta1_roles_proto, iampb.File_holdfast_iam_v2beta1_role_bindings_proto,
			iampb.File_holdfast_iam_v2beta1_identity_providers_proto, iampb.File_holdfast_iam_v2beta1_account_associations_proto,
			iampb.File_holdfast_iam_v2beta1_group_invites_proto, iampb.File_holdfast_iam_v2beta1_external_group_role_mappings_proto,
		},
		also: []string{"holdfast.iam.v2", "chainguard.platform.iam.v2beta1", "chainguard.platform.iam.v2"},
	},
	{
		files: []protoreflect.FileDescriptor{
			registrypb.File_holdfast_registry_v2beta1_repos_proto, registrypb.File_holdfast_registry_v2beta1_tags_proto,
			registrypb.File_holdfast_registry_v2beta1_images_proto,
		},
		also: []string{"holdfast.registry.v2", "chainguard.platform.registry.v2beta1", "chainguard.platform.registry.v2"},
	},
	{
		files: []protoreflect.FileDescriptor{
			iamv1pb.File_holdfast_iam_v1_groups_proto, iamv1pb.File_holdfast_iam_v1_identities_proto,
			iamv1pb.File_holdfast_iam_v1_roles_proto, iamv1pb.File_holdfast_iam_v1_role_bindings_proto,
			iamv1pb.File_holdfast_iam_v1_identity_providers_proto, iamv1pb.File_holdfast_iam_v1_account_associations_proto,
			iamv1pb.File_holdfast_iam_v1_group_invites_proto, iamv1pb.File_holdfast_iam_v1_external_group_role_mappings_proto,
		},
		also: []string{"chainguard.platform.iam"},
	},
	{
		files: []protoreflect.FileDescriptor{ // what others import first
			registryv1pb.File_holdfast_registry_v1_builds_proto, registryv1pb.File_holdfast_registry_v1_charts_proto,
			registryv1pb.File_holdfast_registry_v1_images_proto, registryv1pb.File_holdfast_registry_v1_registry_proto,
			registryv1pb.File_holdfast_registry_v1_vulnerabilities_proto,
		},
		also: []string{"chainguard.platform.registry"},
	},
	{
		files: []protoreflect.FileDescriptor{vulnv1pb.File_holdfast_vulnerabilities_v1_advisories_proto},
		also:  []string{"chainguard.platform.vulnerabilities.v1"},
	},
	{
		files: []protoreflect.FileDescriptor{pingv1pb.File_holdfast_ping_v1_ping_proto},
		also:  []string{"chainguard.platform.ping"},
	},
	{
		files: []protoreflect.FileDescriptor{pingpb.File_holdfast_ping_v2beta1_ping_proto},
		also:  []string{"holdfast.ping.v2", "chainguard.platform.ping.v2beta1", "chainguard.platform.ping.v2"},
	},
	{
		files: []protoreflect.FileDescriptor{oidcpb.File_holdfast_oidc_oidc_proto},
		also:  []string{"chainguard.platform.oidc"},
	},
	{
		files: []protoreflect.FileDescriptor{vulnpb.File_holdfast_vulnerabilities_v2beta1_advisories_proto},
		also:  []string{"holdfast.vulnerabilities.v2", "chainguard.platform.vulnerabilities.v2beta1", "chainguard.platform.vulnerabilities.v2"},
	},
	{
		files: []protoreflect.FileDescriptor{authpb.File_holdfast_auth_auth_proto},
		also:  []string{"chainguard.platform.auth"},
	},
	{
		files: []protoreflect.FileDescriptor{eventspb.File_holdfast_events_v2beta1_subscriptions_proto},
		also:  []string{"holdfast.events.v2", "chainguard.platform.events.v2beta1", "chainguard.platform.events.v2"},
	},
	{
		files: []protoreflect.FileDescriptor{
			eventsv1pb.File_holdfast_events_v1_subscriptions_proto, eventsv1pb.File_holdfast_events_v1_identities_proto,
		},
		also: []string{"chainguard.platform.events"},
	},
	{files: []protoreflect.FileDescriptor{accesspb.File_holdfast_access_v1_access_proto}}, // ours alone, and so are the rest
	{files: []protoreflect.FileDescriptor{signinpb.File_holdfast_signin_v1_signin_proto}},
	{files: []protoreflect.FileDescriptor{auditpb.File_holdfast_audit_v1_audit_proto}},
	{files: []protoreflect.FileDescriptor{deliveriespb.File_holdfast_deliveries_v1_deliveries_proto}},
	{files: []protoreflect.FileDescriptor{federationpb.File_holdfast_federation_v1_federation_proto}},
	{files: []protoreflect.FileDescriptor{ocipb.File_holdfast_oci_v1_oci_proto}},
	{files: []protoreflect.FileDescriptor{advisoriespb.File_holdfast_advisories_v1_advisories_proto}},
}

// deprecated are the packages of version 1.
var deprecated = []string{"holdfast.iam.v1", "holdfast.ping.v1", "holdfast.registry.v1", "holdfast.vulnerabilities.v1", "holdfast.events.v1"}

// EventNames are what events are called: our names, or those that receivers of
// the public API's events were built for.
func EventNames(interop bool) event.Names {
	if interop {
		return event.Names{Prefix: "dev.chainguard", Extension: "chainguarddev1"}
	}
	return event.Names{Prefix: "dev.holdfast", Extension: "holdfastdev1"}
}

// interopName is the name of a message that clients of the public API know, or
// its own if they know none.
func interopName(name protoreflect.FullName) protoreflect.FullName {
	for _, p := range packages {
		if p.files[0].Package() != name.Parent() {
			continue
		}
		i := slices.IndexFunc(p.also, func(s string) bool { return strings.HasPrefix(s, "chainguard.") })
		if i >= 0 {
			return protoreflect.FullName(p.also[i]).Append(name.Name())
		}
	}
	return name
}

// ProofHeaders are the prefixes that the headers of an AWS proof may have: ours,
// and the one that clients of the public API were built with.
var ProofHeaders = []string{"Holdfast", "Chainguard"}

// serviceBindings returns the service bindings of an association. Their field
// has the name that clients know.
func serviceBindings(p *iampb.AccountAssociation) *iampb.AccountAssociation_ServiceBindings {
	return p.GetChainguard()
}

func serviceBindingsV1(p *iamv1pb.AccountAssociations) *iamv1pb.AccountAssociations_ServiceBindings {
	return p.GetChainguard()
}

func setServiceBindingsV1(p *iamv1pb.AccountAssociations, b *iamv1pb.AccountAssociations_ServiceBindings) {
	p.Chainguard = b
}

func setServiceBindings(p *iampb.AccountAssociation, b *iampb.AccountAssociation_ServiceBindings) {
	p.Chainguard = b
}

// apiVersions are the versions of the API under our own names, as paths have
// them: iam/v2beta1.
func apiVersions() []string {
	var all []string
	for _, p := range packages {
		for _, name := range append([]string{string(p.files[0].Package())}, p.also...) {
			if ours, ok := strings.CutPrefix(name, "holdfast."); ok {
				all = append(all, strings.ReplaceAll(ours, ".", "/"))
			}
		}
	}
	slices.Sort(all)
	return all
}

// services calls f for each service of this API with the other names of its
// package.
func services(f func(s protoreflect.ServiceDescriptor, also []string)) {
	for _, p := range packages {
		for _, file := range p.files {
			for i := range file.Services().Len() {
				f(file.Services().Get(i), p.also)
			}
		}
	}
}

// registerAll registers a service under each of its names.
func registerAll(s grpc.ServiceRegistrar, d *grpc.ServiceDesc, impl any) {
	s.RegisterService(d, impl)
	services(func(svc protoreflect.ServiceDescriptor, also []string) {
		if string(svc.FullName()) != d.ServiceName {
			return
		}
		for _, pkg := range also {
			alias := *d
			alias.ServiceName = pkg + "." + string(svc.Name())
			s.RegisterService(&alias, impl)
		}
	})
}

// A rule is what the API's definition says about calling a method.
type rule struct {
	name string // for the log and the metrics: ours, whichever the client used
	open bool   // no token of ours is asked for, or the method judges it itself
	read bool   // nothing changes
}

// methodRules returns the rules by full method name, under every name. What is
// not there needs a token.
func methodRules() map[string]rule {
	rules := map[string]rule{}
	services(func(s protoreflect.ServiceDescriptor, also []string) {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			access, _ := proto.GetExtension(m.Options(), annotationspb.E_Iam).(*annotationspb.IAM)
			binding, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			r := rule{
				name: string(s.FullName()) + "/" + string(m.Name()),
				open: access == nil || access.GetDisabled() != nil,
				read: binding.GetGet() != "" || sideEffects(m) == descriptorpb.MethodOptions_NO_SIDE_EFFECTS,
			}
			for _, pkg := range append([]string{string(s.ParentFile().Package())}, also...) {
				rules["/"+pkg+"."+string(s.Name())+"/"+string(m.Name())] = r
			}
		}
	})
	for _, d := range []*grpc.ServiceDesc{&healthpb.Health_ServiceDesc, &reflectionpb.ServerReflection_ServiceDesc, &reflectionalphapb.ServerReflection_ServiceDesc} {
		open := func(method string) {
			rules["/"+d.ServiceName+"/"+method] = rule{name: d.ServiceName + "/" + method, open: true, read: true}
		}
		for _, m := range d.Methods {
			open(m.MethodName)
		}
		for _, m := range d.Streams {
			open(m.StreamName)
		}
	}
	return rules
}

// sideEffects is what the definition says of calling a method twice.
func sideEffects(m protoreflect.MethodDescriptor) descriptorpb.MethodOptions_IdempotencyLevel {
	o, _ := m.Options().(*descriptorpb.MethodOptions)
	return o.GetIdempotencyLevel()
}

// registerReflection lets clients ask what s serves. It knows every service by
// all its names.
func registerReflection(s *grpc.Server) {
	o := reflection.ServerOptions{Services: s, DescriptorResolver: onDemand{sync.OnceValue(newAliases)}, ExtensionResolver: protoregistry.GlobalTypes}
	reflectionpb.RegisterServerReflectionServer(s, reflection.NewServerV1(o))
	reflectionalphapb.RegisterServerReflectionServer(s, reflection.NewServer(o))
}

// onDemand are aliases that are made when somebody asks: they are a third of what
// a server at rest would remember, and most never ask.
type onDemand struct{ aliases func() aliases }

// FindFileByPath is of protodesc.Resolver.
func (o onDemand) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return o.aliases().FindFileByPath(path)
}

// FindDescriptorByName is of protodesc.Resolver.
func (o onDemand) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return o.aliases().FindDescriptorByName(name)
}

// aliases finds descriptors: the program's own, and copies of them under the
// other names of their packages.
type aliases struct{ files *protoregistry.Files }

func newAliases() aliases {
	a := aliases{&protoregistry.Files{}}
	for _, p := range packages {
		for _, name := range p.also {
			for _, f := range p.files {
				a.add(f, name)
			}
		}
	}
	return a
}

// add adds a copy of f whose package has another name. It panics if the copy is
// unsound: both are the program's own.
func (a aliases) add(f protoreflect.FileDescriptor, pkg string) {
	d := protodesc.ToFileDescriptorProto(f)
	old := "." + d.GetPackage() + "."
	elsewhere := func(path string) string {
		return strings.ReplaceAll(pkg, ".", "/") + path[strings.LastIndexByte(path, '/'):]
	}
	folder := d.GetName()[:strings.LastIndexByte(d.GetName(), '/')+1]
	d.Name = proto.String(elsewhere(d.GetName()))
	d.Package = proto.String(pkg)
	for i, dep := range d.Dependency { // of the same package, and listed before
		if strings.HasPrefix(dep, folder) {
			d.Dependency[i] = elsewhere(dep)
		}
	}
	rename := func(ref *string) {
		if ref != nil && strings.HasPrefix(*ref, old) {
			*ref = "." + pkg + "." + (*ref)[len(old):]
		}
	}
	for _, s := range d.Service {
		for _, m := range s.Method {
			rename(m.InputType)
			rename(m.OutputType)
		}
	}
	renameFields(d.MessageType, rename)
	file, err := protodesc.NewFile(d, a)
	if err == nil {
		err = a.files.RegisterFile(file)
	}
	if err != nil {
		panic(fmt.Sprintf("descriptor of %s under the name %s: %v", f.Path(), pkg, err))
	}
}

func renameFields(messages []*descriptorpb.DescriptorProto, rename func(*string)) {
	for _, m := range messages {
		for _, f := range slices.Concat(m.Field, m.Extension) {
			rename(f.TypeName)
		}
		renameFields(m.NestedType, rename)
	}
}

// FindFileByPath is of protodesc.Resolver.
func (a aliases) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := protoregistry.GlobalFiles.FindFileByPath(path); err == nil {
		return f, nil
	}
	return a.files.FindFileByPath(path)
}

// FindDescriptorByName is of protodesc.Resolver.
func (a aliases) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return a.files.FindDescriptorByName(name)
}
