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

	annotationspb "github.com/holdfast-dev/holdfast/gen/annotations"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
)

// registerAll registers a service under each of its names.
func registerAll(s grpc.ServiceRegistrar, d *grpc.ServiceDesc, impl any) {
	s.RegisterService(d, impl)
	wire.EachService(func(svc protoreflect.ServiceDescriptor, in wire.Package) {
		if string(svc.FullName()) != d.ServiceName {
			return
		}
		for _, pkg := range in.Also {
			alias := *d
			alias.ServiceName = pkg + "." + string(svc.Name())
			s.RegisterService(&alias, impl)
		}
	})
}

// A rule has the properties of a method in the definition of the API.
type rule struct {
	name string // primary name of the method, for the log and the metrics
	open bool   // whether the method needs no token of this server, or checks the token itself
	read bool   // whether the method only reads

	watch     bool // whether the method sends events for as long as the call lasts
	versioned bool // whether the method can require a version of the resource that it changes; see expect
	sensitive bool // whether all requests require a recent sign-in; see prepare
}

// methodRules returns the rules of methods by all their full names. A method without
// a rule needs a token.
func methodRules() map[string]rule {
	rules := map[string]rule{}
	wire.EachService(func(s protoreflect.ServiceDescriptor, in wire.Package) {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			access, _ := proto.GetExtension(m.Options(), annotationspb.E_Iam).(*annotationspb.IAM)
			binding, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			r := rule{
				name: string(s.FullName()) + "/" + string(m.Name()),
				open: access == nil || access.GetDisabled() != nil,
				read: binding.GetGet() != "" || sideEffects(m) == descriptorpb.MethodOptions_NO_SIDE_EFFECTS,

				watch: isWatch(m), versioned: isVersioned(m),
			}
			r.sensitive = !r.read && isSensitive(r.name, access)
			for _, pkg := range in.Names() {
				rules["/"+pkg+"."+string(s.Name())+"/"+string(m.Name())] = r
			}
		}
	})
	for _, d := range []*grpc.ServiceDesc{
		&healthpb.Health_ServiceDesc, &reflectionpb.ServerReflection_ServiceDesc,
		&reflectionalphapb.ServerReflection_ServiceDesc,
	} {
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

// sideEffects returns the idempotency level of a method.
func sideEffects(m protoreflect.MethodDescriptor) descriptorpb.MethodOptions_IdempotencyLevel {
	o, _ := m.Options().(*descriptorpb.MethodOptions)
	return o.GetIdempotencyLevel()
}

// registerReflection lets clients list and describe the services of s, under all
// their names.
func registerReflection(s *grpc.Server) {
	// The aliases are created at the first request of a client, because they would take a
	// third of the memory of an idle server, and most clients never use reflection.
	o := reflection.ServerOptions{
		Services: s, DescriptorResolver: aliases{sync.OnceValue(newAliases)}, ExtensionResolver: protoregistry.GlobalTypes,
	}
	reflectionpb.RegisterServerReflectionServer(s, reflection.NewServerV1(o))
	reflectionalphapb.RegisterServerReflectionServer(s, reflection.NewServer(o))
}

// aliases implements protodesc.Resolver. It finds the descriptors of the program, and
// copies of them under the other names of their packages.
type aliases struct{ files func() *protoregistry.Files }

func newAliases() *protoregistry.Files {
	files := &protoregistry.Files{}
	a := aliases{func() *protoregistry.Files { return files }}
	for _, p := range wire.Packages {
		for _, name := range p.Also {
			for _, f := range p.Files() {
				a.add(f, name)
			}
		}
	}
	return files
}

// add adds a copy of f with another package name. It panics if the copy is invalid, which
// would be a bug in the program.
func (a aliases) add(f protoreflect.FileDescriptor, pkg string) {
	d := protodesc.ToFileDescriptorProto(f)
	old := "." + d.GetPackage() + "."
	moved := func(path string) string {
		return strings.ReplaceAll(pkg, ".", "/") + path[strings.LastIndexByte(path, '/'):]
	}
	folder := d.GetName()[:strings.LastIndexByte(d.GetName(), '/')+1]
	d.Name = proto.String(moved(d.GetName()))
	d.Package = proto.String(pkg)
	for i, dep := range d.Dependency {
		if strings.HasPrefix(dep, folder) { // dep is in the same package, so it was added before
			d.Dependency[i] = moved(dep)
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
		err = a.files().RegisterFile(file)
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

func (a aliases) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := protoregistry.GlobalFiles.FindFileByPath(path); err == nil {
		return f, nil
	}
	return a.files().FindFileByPath(path)
}

func (a aliases) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return a.files().FindDescriptorByName(name)
}
