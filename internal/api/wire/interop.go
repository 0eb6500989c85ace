package wire

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/events/event"
)

// A Package is a package of the API's definition.
type Package struct {
	Name       string
	Also       []string // other names of the package, under which its services are served, too
	Deprecated bool     // whether the package belongs to version 1
}

// Packages are the packages of this API. Also lists the name that a package will have
// after the beta, and the names of the public API with the same messages, so that its
// clients work unchanged. Packages without other names are not part of the public API.
var Packages = []Package{
	{Name: "holdfast.iam.v2beta1", Also: []string{"holdfast.iam.v2", "chainguard.platform.iam.v2beta1",
		"chainguard.platform.iam.v2"}},
	{Name: "holdfast.registry.v2beta1", Also: []string{"holdfast.registry.v2", "chainguard.platform.registry.v2beta1",
		"chainguard.platform.registry.v2"}},
	{Name: "holdfast.iam.v1", Also: []string{"chainguard.platform.iam"}, Deprecated: true},
	{Name: "holdfast.registry.v1", Also: []string{"chainguard.platform.registry"}, Deprecated: true},
	{Name: "holdfast.vulnerabilities.v1", Also: []string{"chainguard.platform.vulnerabilities.v1"}, Deprecated: true},
	{Name: "holdfast.ping.v1", Also: []string{"chainguard.platform.ping"}, Deprecated: true},
	{Name: "holdfast.ping.v2beta1", Also: []string{"holdfast.ping.v2", "chainguard.platform.ping.v2beta1",
		"chainguard.platform.ping.v2"}},
	{Name: "holdfast.oidc", Also: []string{"chainguard.platform.oidc"}},
	{Name: "holdfast.vulnerabilities.v2beta1", Also: []string{
		"holdfast.vulnerabilities.v2", "chainguard.platform.vulnerabilities.v2beta1",
		"chainguard.platform.vulnerabilities.v2",
	}},
	{Name: "holdfast.auth", Also: []string{"chainguard.platform.auth"}},
	{Name: "holdfast.events.v2beta1", Also: []string{"holdfast.events.v2", "chainguard.platform.events.v2beta1",
		"chainguard.platform.events.v2"}},
	{Name: "holdfast.events.v1", Also: []string{"chainguard.platform.events"}, Deprecated: true},
	{Name: "holdfast.access.v1"},
	{Name: "holdfast.budgets.v1"},
	{Name: "holdfast.findings.v1"},
	{Name: "holdfast.signin.v1"},
	{Name: "holdfast.audit.v1"},
	{Name: "holdfast.deliveries.v1"},
	{Name: "holdfast.federation.v1"},
	{Name: "holdfast.oci.v1"},
	{Name: "holdfast.operator.v1"},
	{Name: "holdfast.advisories.v1"},
	{Name: "holdfast.organization.v1"},
}

// Names returns all names of the package, with Name first.
func (p Package) Names() []string { return append([]string{p.Name}, p.Also...) }

// Files returns the files of the package that are linked into the program. A file
// comes after the files that it imports.
func (p Package) Files() []protoreflect.FileDescriptor {
	var files, sorted []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(protoreflect.FullName(p.Name), func(f protoreflect.FileDescriptor) bool {
		files = append(files, f)
		return true
	})
	slices.SortFunc(files, func(x, y protoreflect.FileDescriptor) int { return strings.Compare(x.Path(), y.Path()) })
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if string(f.Package()) != p.Name || slices.Contains(sorted, f) {
			return
		}
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		sorted = append(sorted, f)
	}
	for _, f := range files {
		add(f)
	}
	return sorted
}

// EachService calls f for each service of this API.
func EachService(f func(s protoreflect.ServiceDescriptor, in Package)) {
	for _, p := range Packages {
		for _, file := range p.Files() {
			for i := range file.Services().Len() {
				f(file.Services().Get(i), p)
			}
		}
	}
}

// Versions returns the versions of the API under our names, in the form of paths:
// iam/v2beta1.
func Versions() []string {
	var versions []string
	for _, p := range Packages {
		for _, name := range p.Names() {
			if ours, ok := strings.CutPrefix(name, "holdfast."); ok {
				versions = append(versions, strings.ReplaceAll(ours, ".", "/"))
			}
		}
	}
	slices.Sort(versions)
	return versions
}

// EventNames returns the names of events. With interop, they are the names that receivers of
// the public API's events expect, and otherwise our own names.
func EventNames(interop bool) event.Names {
	if interop {
		return event.Names{Prefix: "dev.chainguard", Extension: "chainguarddev1"}
	}
	return event.Names{Prefix: "dev.holdfast", Extension: "holdfastdev1"}
}

// InteropName returns the name of a message in the public API, or name if the
// message is not part of it.
func InteropName(name protoreflect.FullName) protoreflect.FullName {
	for _, p := range Packages {
		if p.Name != string(name.Parent()) {
			continue
		}
		i := slices.IndexFunc(p.Also, func(s string) bool { return strings.HasPrefix(s, "chainguard.") })
		if i >= 0 {
			return protoreflect.FullName(p.Also[i]).Append(name.Name())
		}
	}
	return name
}

// ProofHeaders are the prefixes that the headers of an AWS proof may have: ours, and
// the prefix of the public API.
var ProofHeaders = []string{"Holdfast", "Chainguard"}

// ServiceBindings returns the service bindings of an association. Their field has
// the name that clients of the public API use.
func ServiceBindings(p *iampb.AccountAssociation) *iampb.AccountAssociation_ServiceBindings {
	return p.GetChainguard()
}

// SetServiceBindings sets the service bindings of an association.
func SetServiceBindings(p *iampb.AccountAssociation, b *iampb.AccountAssociation_ServiceBindings) {
	p.Chainguard = b
}
