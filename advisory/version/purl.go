package version

import (
	"net/url"
	"strings"

	"github.com/package-url/packageurl-go"

	"github.com/holdfast-dev/holdfast/fault"
)

// registries pairs the ecosystems that have one home with their package URLs'
// types.
var registries = []struct{ ecosystem, purl string }{
	{"Bitnami", "bitnami"}, {"CRAN", "cran"}, {"ConanCenter", "conan"}, {"GitHub Actions", "githubactions"}, {"Go", "golang"},
	{"Hackage", "hackage"}, {"Hex", "hex"}, {"Julia", "julia"}, {"Maven", "maven"}, {"NuGet", "nuget"},
	{"Packagist", "composer"}, {"Pub", "pub"}, {"PyPI", "pypi"}, {"RubyGems", "gem"}, {"SwiftURL", "swift"},
	{"crates.io", "cargo"}, {"npm", "npm"}, {"opam", "opam"},
}

// distributions pairs the ecosystems of distributions with the type and the
// namespace of their package URLs; first as OSV has it, at the end as scanners
// have it that go by a system's own name for itself.
var distributions = []struct{ ecosystem, purl, namespace string }{
	{"AlmaLinux", "rpm", "almalinux"}, {"Alpaquita", "apk", "alpaquita"}, {"Alpine", "apk", "alpine"},
	{"Azure Linux", "rpm", "azure-linux"}, {"BellSoft Hardened Containers", "apk", "bellsoft-hardened-containers"},
	{"CleanStart", "apk", "cleanstart"}, {"Debian", "deb", "debian"}, {"Echo", "deb", "echo"}, {"Mageia", "rpm", "mageia"},
	{"MinimOS", "apk", "minimos"}, {"Photon OS", "rpm", "photon"}, {"Red Hat", "rpm", "redhat"},
	{"Rocky Linux", "rpm", "rocky-linux"}, {"SUSE", "rpm", "suse"}, {"Ubuntu", "deb", "ubuntu"}, {"Wolfi", "apk", "wolfi"},
	{"openEuler", "rpm", "openeuler"}, {"openSUSE", "rpm", "opensuse"},

	{"AlmaLinux", "rpm", "alma"}, {"Azure Linux", "rpm", "azurelinux"}, {"Red Hat", "rpm", "rhel"},
	{"Rocky Linux", "rpm", "rocky"}, {"SUSE", "rpm", "sles"},
}

const maxPURL = 1024

// ParsePURL takes a package URL apart into what OSV calls its parts. The version
// may be empty. A distribution's release, if the URL tells it, is part of the
// ecosystem: pkg:deb/debian/curl?distro=debian-12 is of Debian:12. It returns
// fault.InvalidArgument for what is no package URL.
func ParsePURL(s string) (ecosystem, name, version string, err error) {
	if len(s) > maxPURL {
		return "", "", "", fault.Field("package.purl", "must have at most %d bytes", maxPURL)
	}
	p, err := parsePURL(s)
	if err != nil || !plain(p.Name+p.Namespace+p.Version) {
		return "", "", "", fault.Field("package.purl", "%q is not a package URL", s)
	}
	return purlEcosystem(p), purlName(p), p.Version, nil
}

// parsePURL keeps the case of Go modules, which the library does not: they are
// told apart by it.
func parsePURL(s string) (packageurl.PackageURL, error) {
	rest, ok := strings.CutPrefix(s, "pkg:golang/")
	if !ok {
		return packageurl.FromString(s)
	}
	p, err := packageurl.FromString("pkg:generic/" + rest)
	p.Type = packageurl.TypeGolang
	return p, err
}

// PURLType is the type of an ecosystem's package URLs: golang for Go, deb for
// Debian:12. An ecosystem without one has its own name, in lower case.
func PURLType(ecosystem string) string {
	base, _, _ := strings.Cut(ecosystem, ":")
	for _, r := range registries {
		if r.ecosystem == base {
			return r.purl
		}
	}
	for _, d := range distributions {
		if d.ecosystem == base {
			return d.purl
		}
	}
	return strings.ToLower(base)
}

// purlName is the name as the ecosystem writes it.
func purlName(p packageurl.PackageURL) string {
	switch {
	case p.Namespace == "", ofDistribution(p.Type): // whose name is the namespace
		return p.Name
	case p.Type == packageurl.TypeMaven:
		return p.Namespace + ":" + p.Name
	}
	return p.Namespace + "/" + p.Name
}

func ofDistribution(purlType string) bool {
	switch purlType {
	case packageurl.TypeAlpm, packageurl.TypeApk, packageurl.TypeDebian, packageurl.TypeRPM:
		return true
	}
	return false
}

// purlEcosystem names the ecosystem. One we have not heard of is called as the
// URL calls it: by its distribution, else by its type.
func purlEcosystem(p packageurl.PackageURL) string {
	for _, r := range registries {
		if p.Type == r.purl {
			return r.ecosystem
		}
	}
	for _, d := range distributions {
		if p.Type == d.purl && strings.EqualFold(p.Namespace, d.namespace) {
			distro := p.Qualifiers.Map()["distro"]
			return d.ecosystem + release(d.ecosystem, strings.TrimPrefix(distro, d.namespace+"-"))
		}
	}
	if p.Namespace != "" && ofDistribution(p.Type) {
		return strings.ToUpper(p.Namespace[:1]) + p.Namespace[1:]
	}
	return p.Type
}

// debianNames are the code names that stand for Debian's releases.
var debianNames = map[string]string{"buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13", "forky": "14"}

// release is what OSV adds to the ecosystem's name for a release, as far as
// that follows from its number; otherwise nothing, which means all releases.
func release(ecosystem, number string) string {
	if name, ok := debianNames[number]; ok {
		number = name
	}
	if number == "" || !digit(number[0]) {
		return ""
	}
	major, rest, _ := strings.Cut(number, ".")
	switch ecosystem {
	case "Alpine":
		minor, _, _ := strings.Cut(rest, ".")
		return ":v" + major + "." + minor
	case "Ubuntu":
		return ":" + number
	case "Debian", "AlmaLinux", "Rocky Linux":
		return ":" + major
	}
	return ""
}

// PURL is the package URL of a package, without a version: the opposite of
// ParsePURL, as far as the ecosystem is known there.
func PURL(ecosystem, name string) string {
	base, _, _ := strings.Cut(ecosystem, ":")
	for _, d := range distributions {
		if d.ecosystem == base {
			return "pkg:" + d.purl + "/" + d.namespace + "/" + url.PathEscape(name)
		}
	}
	kind := PURLType(base)
	if kind == packageurl.TypeMaven {
		name = strings.Replace(name, ":", "/", 1)
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(parts[i]), "@", "%40")
	}
	return "pkg:" + strings.ReplaceAll(kind, " ", "-") + "/" + strings.Join(parts, "/")
}
