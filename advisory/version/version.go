// Package version orders versions as their ecosystems do, and tells which of
// them a range of an advisory holds.
//
// Every ecosystem has a rule that turns a version into a key; keys compare as
// strings. That makes each order total whatever the versions: where a tool's
// own comparison runs in circles (Maven's did, RubyGems' nearly does), ours
// follows it everywhere else. It also means that a version is read once, and
// then compared with as many bounds as there are.
package version

import (
	"fmt"
	"strings"

	"github.com/holdfast-dev/holdfast/fault"
)

// MaxLength is how many bytes a version may have.
const MaxLength = 255

// A Key stands for a version among the versions of one ecosystem: compared as
// strings, the key of the older is less, and equal versions have equal keys.
type Key string

// A Rule is how the versions of an ecosystem are ordered. The zero Rule orders
// nothing.
type Rule struct {
	name string
	read func(key, string) (key, error)
}

// The rules, by the names they have in messages.
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

// ecosystems are named as OSV names them, without what follows a colon.
var ecosystems = map[string]Rule{
	"AlmaLinux": rpm, "Alpaquita": apk, "Alpine": apk, "Azure Linux": rpm, "BellSoft Hardened Containers": apk,
	"Bioconductor": semver, "Bitnami": semver, "CRAN": dotted, "CleanStart": apk, "ConanCenter": semver,
	"Debian": deb, "Docker Hardened Images": semver, "Echo": deb, "GHC": semver, "GitHub Actions": semver, "Go": semver,
	"Hackage": dotted, "Hex": semver, "Julia": semver, "Kubernetes": semver, "Linux": semver, "Mageia": rpm,
	"Maven": maven, "MinimOS": apk, "NuGet": nuget, "Packagist": packagist, "Photon OS": rpm, "Pub": pub,
	"PyPI": pypi, "Red Hat": rpm, "Rocky Linux": rpm, "RubyGems": gem, "SUSE": rpm, "SwiftURL": semver,
	"Ubuntu": deb, "VSCode": semver, "Wolfi": apk, "crates.io": semver, "npm": semver, "opam": deb,
	"openEuler": rpm, "openSUSE": rpm,
}

// purlTypes are the types of package URL whose ecosystem says how their
// versions are ordered.
var purlTypes = map[string]Rule{
	"alpm": rpm, "apk": apk, "bitnami": semver, "cargo": semver, "composer": packagist, "conan": semver, "cran": dotted,
	"deb": deb, "gem": gem, "githubactions": semver, "golang": semver, "hackage": dotted, "hex": semver, "julia": semver,
	"maven": maven, "npm": semver, "nuget": nuget, "opam": deb, "pub": pub, "pypi": pypi, "rpm": rpm, "swift": semver,
}

// Of returns the rule of an ecosystem, which may carry a release ("Debian:12").
// An ecosystem we have not heard of takes the rule of its package URL's type,
// if purl has one: distributions come and go, their package managers stay. It
// reports false if neither says how to order versions.
func Of(ecosystem, purl string) (Rule, bool) {
	base, _, _ := strings.Cut(ecosystem, ":")
	if r, ok := ecosystems[base]; ok {
		return r, true
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(purl, "pkg:"), "/")
	r, ok := purlTypes[kind]
	return r, ok
}

// Known tells whether the versions of an ecosystem can be ordered.
func Known(ecosystem string) bool {
	_, ok := Of(ecosystem, "")
	return ok
}

// Key reads a version. It returns fault.InvalidArgument if the rule cannot
// place it.
func (r Rule) Key(version string) (Key, error) {
	k, err := r.append(nil, version)
	return Key(k), err
}

// append is Key into a buffer of the caller's.
func (r Rule) append(k key, version string) (key, error) {
	switch {
	case r.read == nil:
		return nil, fault.Field("ecosystem", "has no known order of versions")
	case version == "":
		return nil, fault.Field("version", "is required")
	case len(version) > MaxLength:
		return nil, fault.Field("version", "must have at most %d bytes", MaxLength)
	case !plain(version):
		return nil, fault.Field("version", "%q must be printable UTF-8", version)
	}
	k, err := r.read(k, version)
	if err != nil {
		return nil, fault.Field("version", "%q is no %s version: %v", version, r.name, err)
	}
	return k, nil
}

// Compare is negative if a is older than b in the ecosystem, positive if it is
// newer, and 0 if they are the same version. It returns
// fault.InvalidArgument for an ecosystem without a rule and for versions that
// the rule cannot place.
func Compare(ecosystem, a, b string) (int, error) {
	rule, ok := Of(ecosystem, "")
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

// errShape is the reason of a rule that has one pattern only.
func errShape(want string) error { return fmt.Errorf("expected %s", want) }
