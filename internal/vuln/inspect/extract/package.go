package extract

import (
	"cmp"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// A Package is a package at one location in an image.
type Package struct {
	Ecosystem string // name in OSV, with the release of a distribution (npm, Debian:12), or the type of the package URL
	Name      string
	Version   string // "" if unknown; for an rpm, it includes the epoch, unless the epoch is 0
	Purl      string

	SourceName    string // name of the source package; set for deb, apk and rpm packages
	SourceVersion string // version of the source package; set for deb and apk packages
	Arch          string // architecture; set for packages of a distribution

	Location string // path of the file that describes the package, from the root of the image
	Layer    int    // number of the layer that added this version; the lowest layer is 0
	Owner    string // package URL of the distribution's package that contains the file, or ""
}

// A Distribution is the content of os-release.
type Distribution struct {
	ID        string // ID of the distribution, such as debian
	IDLike    string // IDs of the distributions that it is based on, separated by spaces
	VersionID string // number of the release, such as 12
	Codename  string // code name of the release, such as bookworm
	Name      string // display name, such as Debian GNU/Linux 12 (bookworm)
}

// Maximum lengths in bytes. No package manager writes longer texts.
const (
	maxText     = 512
	maxLocation = 4096
)

// Valid reports whether all texts of p are printable and short.
func (p Package) Valid() bool {
	return p.Name != "" && p.Ecosystem != "" &&
		valid(maxText, p.Ecosystem, p.Name, p.Version, p.SourceName, p.SourceVersion, p.Arch) &&
		valid(4*maxText, p.Purl, p.Owner) && valid(maxLocation, p.Location)
}

// Valid reports whether all texts of d are printable and short.
func (d Distribution) Valid() bool {
	return valid(maxText, d.ID, d.IDLike, d.VersionID, d.Codename, d.Name)
}

func valid(limit int, texts ...string) bool {
	for _, s := range texts {
		if len(s) > limit || !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable) {
			return false
		}
	}
	return true
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// compare orders packages in a Result.
func compare(a, b Package) int {
	return cmp.Or(strings.Compare(a.Ecosystem, b.Ecosystem), strings.Compare(a.Name, b.Name),
		strings.Compare(a.Version, b.Version), strings.Compare(a.Location, b.Location), strings.Compare(a.Purl, b.Purl))
}

// setURL sets the package URL of a package from a registry.
func (p *Package) setURL() {
	p.Purl = version.PURL(p.Ecosystem, p.Name)
	if p.Version != "" {
		p.Purl += "@" + escape(p.Version)
	}
}

// setDistribution sets the ecosystem and the package URL of a package that belongs to a distribution. The URL contains
// the ID in os-release, from which version.ParsePURL derives the ecosystem.
func (p *entry) setDistribution(d Distribution) {
	p.Purl = "pkg:" + p.kind + "/"
	if d.ID != "" {
		p.Purl += escape(strings.ToLower(d.ID)) + "/"
	}
	p.Purl += escape(p.Name) + "@" + escape(strings.TrimPrefix(p.Version, p.epoch+":"))
	separator := "?"
	for _, q := range [][2]string{{"arch", p.Arch}, {"distro", d.release()}, {"epoch", p.epoch},
		{"rpmmod", p.module}} {
		if q[1] != "" {
			p.Purl += separator + q[0] + "=" + escape(q[1])
			separator = "&"
		}
	}
	ecosystem, _, _, err := version.ParsePURL(p.Purl)
	if err != nil || ecosystem == "" {
		ecosystem = p.kind
	}
	p.Ecosystem = ecosystem
}

// servicePack finds the service pack of openEuler, which only the display name contains: openEuler 22.03 (LTS-SP3).
var servicePack = regexp.MustCompile(`\((LTS(?:[- ]SP\d+)?)\)$`)

// release returns the name of the release in a package URL, such as debian-12.
func (d Distribution) release() string {
	number := cmp.Or(d.VersionID, d.Codename)
	if d.ID == "" || number == "" {
		return ""
	}
	id := strings.ToLower(d.ID)
	if pack := servicePack.FindStringSubmatch(d.Name); id == "openeuler" && pack != nil {
		number += "-" + strings.ReplaceAll(pack[1], " ", "-")
	}
	return id + "-" + number
}

var escaper = strings.NewReplacer("+", "%2B", "@", "%40", "&", "%26", "=", "%3D")

func escape(s string) string { return escaper.Replace(url.PathEscape(s)) }
