package main

import (
	"context"
	"fmt"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	// These packages register the .proto files that our files import.
	_ "google.golang.org/genproto/googleapis/api/annotations"
	_ "google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/fieldmaskpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
)

// A definition is the compiled API.
type definition struct {
	paths []string                            // paths of our own files
	files []*descriptorpb.FileDescriptorProto // our files and the files that they import, imports first
	open  map[string]bool                     // methods that need no token, by the key Service_Method
}

// compile reads the .proto files below dir. Imports that are not below dir come from
// Go packages that are linked into this program.
func compile(ctx context.Context, dir string) (*definition, error) {
	paths, err := protoFiles(dir)
	if err != nil {
		return nil, err
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{dir}},
			protocompile.ResolverFunc(registered),
		},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, paths...)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	api := &definition{paths: paths, open: map[string]bool{}}
	seen := map[string]bool{}
	for _, file := range compiled {
		api.add(file, seen)
		api.findOpen(file)
	}
	return api, nil
}

// registered returns a file that is linked into this program.
func registered(path string) (protocompile.SearchResult, error) {
	file, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return protocompile.SearchResult{}, err
	}
	return protocompile.SearchResult{Desc: file}, nil
}

// add appends file after all of its imports, which is the order that plugins rely
// on.
func (d *definition) add(file protoreflect.FileDescriptor, seen map[string]bool) {
	if seen[file.Path()] {
		return
	}
	seen[file.Path()] = true
	imports := file.Imports()
	for i := range imports.Len() {
		d.add(imports.Get(i).FileDescriptor, seen)
	}
	d.files = append(d.files, protoutil.ProtoFromFileDescriptor(file))
}

// findOpen records the methods of file whose (holdfast.annotations.iam) is
// disabled.
func (d *definition) findOpen(file protoreflect.FileDescriptor) {
	services := file.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			if m := methods.Get(j); isOpen(m) {
				d.open[string(services.Get(i).Name())+"_"+string(m.Name())] = true
			}
		}
	}
}

// isOpen reports whether a method needs no token. It reads the option by
// reflection, because its Go type is in gen, and writing gen must not need gen.
func isOpen(m protoreflect.MethodDescriptor) bool {
	open := false
	m.Options().ProtoReflect().Range(func(option protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if option.FullName() != "holdfast.annotations.iam" {
			return true
		}
		open = v.Message().Has(option.Message().Fields().ByName("disabled"))
		return false
	})
	return open
}
