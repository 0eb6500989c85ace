package version

import (
	"net/url"
	"strings"

	"github.com/package-url/packageurl-go"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// registries lists the ecosystems that have their own type of package URL.
var registries = []struct{ ecosystem, purl string }{
	{"Bitnami", "bitnami"}, {"CRAN", "cran"}, {"ConanCenter", "conan"}, {"GitHub Actions", "githubactions"},
	{"Go", "golang"}, {"Hackage", "hackage"}, {"Hex", "hex"}, {"Julia", "julia"}, {"Maven", "maven"},
	{"NuGet", "nuget"}, {"Packagist", "composer"}, {"Pub", "pub"}, {"PyPI", "pypi"}, {"RubyGems", "gem"},
	{"SwiftURL", "swift"}, {"crates.io", "cargo"}, {"npm", "npm"}, {"opam", "opam"},
}

// distributions are the ecosystems of distributions with the types and namespaces of their package URLs. The first
// entries are the package URLs in OSV. The entries after them are written by scanners that use the ID in os-release.
var distributions = []struct{ ecosystem, purl, namespace string }{
	{"AlmaLinux", "rpm", "almalinux"}, {"Alpaquita", "apk", "alpaquita"}, {"Alpine", "apk", "alpine"},
	{"Azure Linux", "rpm", "azure-linux"}, {"BellSoft Hardened Containers", "apk", "bellsoft-hardened-containers"},
	{"Chainguard", "apk", "chainguard"}, {"CleanStart", "apk", "cleanstart"}, {"Debian", "deb", "debian"},
	{"Echo", "deb", "echo"},
	{"Mageia", "rpm", "mageia"}, {"MinimOS", "apk", "minimos"}, {"Photon OS", "rpm", "photon"},
	{"Red Hat", "rpm", "redhat"}, {"Rocky Linux", "rpm", "rocky-linux"}, {"SUSE", "rpm", "suse"},
	{"Ubuntu", "deb", "ubuntu"}, {"Wolfi", "apk", "wolfi"}, {"openEuler", "rpm", "openeuler"},
	{"openSUSE", "rpm", "opensuse"},

	{"AlmaLinux", "rpm", "alma"}, {"Azure Linux", "rpm", "azurelinux"}, {"Azure Linux", "rpm", "mariner"},
	{"Azure Linux", "rpm", "cbl-mariner"}, {"Red Hat", "rpm", "rhel"}, {"Rocky Linux", "rpm", "rocky"},
	{"SUSE", "rpm", "sles"}, {"SUSE", "rpm", "sles_sap"}, {"SUSE", "rpm", "sled"}, {"SUSE", "rpm", "sle-micro"},
	{"SUSE", "rpm", "sl-micro"}, {"SUSE", "rpm", "suse-microos"}, {"openSUSE", "rpm", "opensuse-leap"},
	{"openSUSE", "rpm", "opensuse-tumbleweed"}, {"openSUSE", "rpm", "opensuse-leap-micro"},
}

const maxPURL = 1024

// ParsePURL returns the ecosystem, the name and the version of a package URL. Ecosystem and name are spelled as in OSV,
// and the version may be empty. If the URL contains the release of a distribution, the release is part of the
// ecosystem: pkg:deb/debian/curl?distro=debian-12 is in Debian:12. It returns fault.InvalidArgument if s is not a
// package URL.
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

// parsePURL parses a package URL. Unlike the library, it preserves the case of Go modules, which is significant.
func parsePURL(s string) (packageurl.PackageURL, error) {
	rest, ok := strings.CutPrefix(s, "pkg:golang/")
	if !ok {
		return packageurl.FromString(s)
	}
	p, err := packageurl.FromString("pkg:generic/" + rest)
	p.Type = packageurl.TypeGolang
	return p, err
}

// PURLType returns the type of an ecosystem's package URLs: golang for Go, deb for
// Debian:12. For an unknown ecosystem it returns its name in lower case.
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

// purlName returns the name of a package in its ecosystem.
func purlName(p packageurl.PackageURL) string {
	switch {
	// The namespace of a distribution's package is not part of the package's name.
	case p.Namespace == "", distributionTypes[p.Type].read != nil:
		return p.Name
	case p.Type == packageurl.TypeMaven:
		return p.Namespace + ":" + p.Name
	}
	return p.Namespace + "/" + p.Name
}

// purlEcosystem returns the ecosystem of a package URL. For an unknown ecosystem it returns the namespace if the type
// belongs to distributions, and otherwise the type.
func purlEcosystem(p packageurl.PackageURL) string {
	for _, r := range registries {
		if p.Type == r.purl {
			return r.ecosystem
		}
	}
	for _, d := range distributions {
		if p.Type == d.purl && strings.EqualFold(p.Namespace, d.namespace) {
			distro := p.Qualifiers.Map()["distro"]
			return d.ecosystem + releaseSuffix(d.ecosystem, d.namespace, distro)
		}
	}
	if p.Namespace != "" && distributionTypes[p.Type].read != nil {
		return strings.ToUpper(p.Namespace[:1]) + p.Namespace[1:]
	}
	return p.Type
}

// PURL returns the package URL of a package, without a version. It is the inverse of
// ParsePURL for known ecosystems.
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
