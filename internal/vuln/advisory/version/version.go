// Package version orders versions as their ecosystems do, and checks whether a version is
// in the ranges of an advisory.
//
// Every ecosystem has a rule that converts a version to a key, and keys compare as strings. So each order is total,
// even if the ecosystem's own comparison is not transitive, as Maven's was. Another benefit is that a version is
// parsed once and then compared with any number of bounds.
package version

import (
	"fmt"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// MaxLength is the maximum number of bytes of a version.
const MaxLength = 255

// A Key represents a version in an ecosystem. Compared as strings, the key of an older version is less, and equal
// versions have equal keys.
type Key string

// A Rule orders the versions of an ecosystem. The zero Rule orders nothing.
type Rule struct {
	name string
	read func(key, string) (key, error)
}

// The rules. Each has a name that is used in messages.
var (
	semver    = Rule{"SemVer", readSemver}
	pub       = Rule{"Dart", readPub}
	pypi      = Rule{"PEP 440", readPyPI}
	maven     = Rule{"Maven", readMaven}
	gem       = Rule{"RubyGems", readGem}
	nuget     = Rule{"NuGet", readNuGet}
	packagist = Rule{"Composer", readPackagist}
	dotted    = Rule{"dotted", readDotted}
	deb       = Rule{"deb", readDeb}
	rpm       = Rule{"rpm", readRPM}
	apk       = Rule{"apk", readAPK}
)

// JAR is Holdfast's ecosystem for Java archives that do not name their Maven group.
const JAR = "jar"

// ecosystems maps the names of ecosystems in OSV, without the release after the colon, to rules.
var ecosystems = map[string]Rule{
	"AlmaLinux": rpm, "Alpaquita": apk, "Alpine": apk, "Azure Linux": rpm, "BellSoft Hardened Containers": apk,
	"Bioconductor": semver, "Bitnami": semver, "CBL-Mariner": rpm, "CRAN": dotted, "Chainguard": apk,
	"CleanStart": apk, "ConanCenter": semver,
	"Debian": deb, "Docker Hardened Images": semver, "Echo": deb, "GHC": semver, "GitHub Actions": semver,
	"Go": semver, "Hackage": dotted, "Hex": semver, "Julia": semver, "Kubernetes": semver, "Linux": semver,
	"Mageia": rpm, "Mariner": rpm, "Maven": maven, "MinimOS": apk, "NuGet": nuget, "Packagist": packagist,
	"Photon OS": rpm,
	"Pub":       pub, "PyPI": pypi, "Red Hat": rpm, "Rocky Linux": rpm, "RubyGems": gem, "SUSE": rpm, "SwiftURL": semver,
	"Ubuntu": deb, "VSCode": semver, "Wolfi": apk, "crates.io": semver, JAR: maven, "npm": semver, "opam": deb,
	"openEuler": rpm,
	"openSUSE":  rpm,
}

// distributionTypes maps the types of package URLs that distributions use to rules.
var distributionTypes = map[string]Rule{"alpm": rpm, "apk": apk, "deb": deb, "rpm": rpm}

// RuleFor returns the rule of an ecosystem, which may include a release ("Debian:12"). For an unknown ecosystem it
// returns the rule for the type of purl, because many distributions use the same package manager. It returns false if
// neither is known.
func RuleFor(ecosystem, purl string) (Rule, bool) {
	base, _, _ := strings.Cut(ecosystem, ":")
	if r, ok := ecosystems[base]; ok {
		return r, true
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(purl, "pkg:"), "/")
	for _, r := range registries {
		if r.purl == kind {
			return ecosystems[r.ecosystem], true
		}
	}
	r, ok := distributionTypes[kind]
	return r, ok
}

// Key returns the key of a version. It returns fault.InvalidArgument if the rule cannot order it.
func (r Rule) Key(version string) (Key, error) {
	k, err := r.append(nil, version)
	return Key(k), err
}

// append appends the key of a version to k.
func (r Rule) append(k key, version string) (key, error) {
	switch {
	case r.read == nil:
		return nil, fault.Field("ecosystem", "has no known order of versions")
	case version == "":
		return nil, fault.Field("version", "is required")
	case len(version) > MaxLength:
		return nil, fault.Field("version", "has %d bytes, and at most %d are allowed", len(version), MaxLength)
	case !plain(version):
		return nil, fault.Field("version", "%q must be printable UTF-8", version)
	}
	k, err := r.read(k, version)
	if err != nil {
		return nil, fault.Field("version", "%q is no %s version: %v", version, r.name, err)
	}
	return k, nil
}

// Compare returns a negative number if a is older than b in the ecosystem, a positive number if it is newer,
// and 0 if they are the same version. It returns fault.InvalidArgument for an unknown ecosystem and for
// versions that its rule cannot order.
func Compare(ecosystem, a, b string) (int, error) {
	rule, ok := RuleFor(ecosystem, "")
	if !ok {
		return 0, fault.Field("ecosystem", "%q has no known order of versions", ecosystem)
	}
	ka, err := rule.Key(a)
	if err != nil {
		return 0, err
	}
	kb, err := rule.Key(b)
	if err != nil {
		return 0, err
	}
	return strings.Compare(string(ka), string(kb)), nil
}

func errShape(want string) error { return fmt.Errorf("expected %s", want) }
