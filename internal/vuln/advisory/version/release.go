package version

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A release is the part of an ecosystem's name that says which packages of a distribution it is about.
type release struct {
	base    string // name of the distribution, such as Debian
	product string // product stream that is not part of the base system, such as Pro for Ubuntu; "" for the base system
	number  string // number of the release in a form that can be compared; "" for every release
}

// renamed lists distributions that have a new name in OSV.
var renamed = map[string]string{"CBL-Mariner": "Azure Linux", "Mariner": "Azure Linux"}

// Bases returns the names without a release under which advisories may be about an ecosystem: its own, and former names
// of the distribution.
func Bases(ecosystem string) []string {
	base := releaseOf(ecosystem).base
	bases := []string{base}
	for _, former := range slices.Sorted(maps.Keys(renamed)) {
		if renamed[former] == base {
			bases = append(bases, former)
		}
	}
	return bases
}

// releaseOf parses the name of an ecosystem.
func releaseOf(ecosystem string) release {
	base, rest, _ := strings.Cut(ecosystem, ":")
	if name, ok := renamed[base]; ok {
		base = name
	}
	if rest == "" {
		return release{base: base}
	}
	product, number := "", rest
	switch base {
	case "Red Hat":
		product, number = redHat(rest)
	case "SUSE":
		product, number = suse(rest)
	case "openSUSE":
		number = strings.Replace(rest, " NonFree", "", 1)
	case "Ubuntu":
		product, number = ubuntu(rest)
	case "Alpine":
		number = strings.TrimPrefix(rest, "v")
	case "AlmaLinux", "Rocky Linux", "Azure Linux", "Photon OS", "Mageia", "Alpaquita", "BellSoft Hardened Containers":
		number, _, _ = strings.Cut(rest, ".")
	}
	return release{base, product, number}
}

// redHat parses enterprise_linux:9::baseos: a product and a number, and then a part of the product. The base system is
// the product enterprise_linux. All its minor releases are one release, because updates lead from one to the next.
func redHat(rest string) (product, number string) {
	product, number, _ = strings.Cut(rest, ":")
	number, _, _ = strings.Cut(number, ":")
	if product == "enterprise_linux" {
		product = ""
		number, _, _ = strings.Cut(number, ".")
	}
	return product, number
}

// ubuntu parses 22.04:LTS and Pro:22.04:LTS. Every further word names a product stream.
func ubuntu(rest string) (product, number string) {
	var words []string
	for word := range strings.SplitSeq(rest, ":") {
		switch {
		case number == "" && word != "" && digit(word[0]):
			number = word
		case word != "LTS":
			words = append(words, word)
		}
	}
	return strings.Join(words, ":"), number
}

var suseNumber = regexp.MustCompile(`^(.*?) ?(\d+(?:\.\d+)?)(?: SP(\d+))?(-.*)?$`)

// suse parses Linux Enterprise Server 15 SP5. The base system consists of the server, the desktop and their modules. A
// suffix such as -LTSS names a product stream. Modules for release 12 are for all its service packs.
func suse(rest string) (product, number string) {
	parts := suseNumber.FindStringSubmatch(rest)
	if parts == nil {
		return rest, ""
	}
	product, number = parts[1]+parts[4], parts[2]
	if parts[3] != "" {
		number += "." + parts[3]
	}
	switch module := strings.HasPrefix(product, "Linux Enterprise Module for "); {
	case module && number == "12":
		return "", ""
	case module, product == "Linux Enterprise Server", product == "Linux Enterprise Desktop",
		product == "Linux Enterprise Software Development Kit", product == "Linux Enterprise Workstation Extension":
		product = ""
	}
	return product, number
}

// SameEcosystem reports whether two ecosystems are about the same packages: they have the same distribution or
// registry, the same product stream, and, if both have a release, the same release. So 22.04 and 22.04:LTS are the
// same, but a product stream such as Ubuntu Pro or JBoss is never the same as the base system.
func SameEcosystem(a, b string) bool {
	return a == b || releaseOf(a).same(releaseOf(b))
}

func (r release) same(other release) bool {
	return r.base == other.base && r.product == other.product && (r.number == "" || other.number == "" ||
		r.number == other.number || isPart(r.number, other.number) || isPart(other.number, r.number))
}

// isPart reports whether a release is a part of another: 22.03-LTS-SP1 is a part of 22.03, whose service pack is
// unknown.
func isPart(a, b string) bool {
	rest, ok := strings.CutPrefix(a, b)
	return ok && !strings.Contains(b, "-") && (strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, ":"))
}

// debianNames are the numbers of Debian's releases by code name.
var debianNames = map[string]string{
	"stretch": "9", "buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13", "forky": "14",
}

// releaseSuffix returns the suffix that OSV adds to the name of an ecosystem for a release. namespace and distro come
// from a package URL. It returns "", which means all releases, if the release is unknown.
func releaseSuffix(ecosystem, namespace, distro string) string {
	number := strings.TrimPrefix(distro, namespace+"-")
	if name, ok := debianNames[number]; ok {
		number = name
	}
	switch ecosystem {
	case "openSUSE":
		return openSUSE(namespace, distro)
	case "SUSE":
		return suseSuffix(namespace, distro)
	}
	if i := strings.LastIndexByte(number, '-'); i >= 0 && ecosystem != "openEuler" {
		number = number[i+1:] // the distribution has another name in distro than in namespace
	}
	if number == "" || !digit(number[0]) {
		return ""
	}
	major, rest, _ := strings.Cut(number, ".")
	switch ecosystem {
	case "Alpine":
		minor, _, _ := strings.Cut(rest, ".")
		return ":v" + major + "." + minor
	case "Ubuntu", "openEuler", "Photon OS":
		return ":" + number
	case "Red Hat":
		return ":enterprise_linux:" + major
	case "Debian", "AlmaLinux", "Rocky Linux", "Azure Linux", "Mageia", "Alpaquita", "BellSoft Hardened Containers":
		return ":" + major
	}
	return ""
}

// openSUSE returns the suffix for a release of openSUSE. The ID in os-release contains the product, such as
// opensuse-leap.
func openSUSE(namespace, distro string) string {
	text := strings.TrimPrefix(strings.ToLower(distro), "opensuse-")
	switch {
	case strings.HasPrefix(text, "tumbleweed"), strings.HasSuffix(namespace, "tumbleweed"):
		return ":Tumbleweed"
	case strings.HasPrefix(text, "leap-micro-"):
		return ":Leap Micro " + strings.TrimPrefix(text, "leap-micro-")
	}
	if text = strings.TrimPrefix(text, "leap-"); text == "" || !digit(text[0]) {
		return ""
	}
	return ":Leap " + text
}

// suseSuffix returns the suffix for a release of a SUSE product: Linux Enterprise Server 15 SP5 for sles-15.5.
func suseSuffix(namespace, distro string) string {
	text := strings.ToLower(distro)
	i := strings.LastIndexByte(text, '-')
	id, number := namespace, text[i+1:]
	if i > 0 {
		id = text[:i]
	}
	if number == "" || !digit(number[0]) {
		return ""
	}
	major, minor, _ := strings.Cut(number, ".")
	switch {
	case id == "sle-micro" || id == "suse-microos":
		return ":Linux Enterprise Micro " + number
	case id == "sl-micro":
		return ":Linux Micro " + number
	case len(major) == 2 && major < "16" && minor != "" && minor != "0":
		return ":Linux Enterprise Server " + major + " SP" + minor
	case len(major) == 2 && major < "16":
		return ":Linux Enterprise Server " + major
	}
	return ":Linux Enterprise Server " + number
}
