package extract

import (
	"cmp"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// A Package is a package that an image has, at one place.
type Package struct {
	Ecosystem string // as OSV calls it, with the release of a distribution: npm, Debian:12; else the type of its URL
	Name      string
	Version   string // empty if it is unknown; of an rpm with its epoch, unless that is 0
	Purl      string

	SourceName    string // of the source package, if it is of Debian's or Alpine's kind or an rpm
	SourceVersion string // of Debian's and Alpine's kind only
	Arch          string // of packages of a distribution

	Location string // the file that told of it, from the root of the image
	Layer    int    // the layer that brought this version; the lowest is 0
	Owner    string // the package URL of the package of the distribution that the file belongs to
}

// A Distribution is what os-release says.
type Distribution struct {
	ID        string // debian
	IDLike    string // what it was made from, separated by spaces
	VersionID string // 12
	Codename  string // bookworm
	Name      string // for people: Debian GNU/Linux 12 (bookworm)
}

// Lengths, in bytes. What is longer was not written by a package manager.
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

// setURL sets the package URL of a package of a registry.
func (p *Package) setURL() {
	p.Purl = version.PURL(p.Ecosystem, p.Name)
	if p.Version != "" {
		p.Purl += "@" + escape(p.Version)
	}
}

// setDistribution sets the ecosystem and the package URL of a package of a distribution.
// A URL names the ID in os-release, which version.ParsePURL understands.
func (p *Package) setDistribution(kind string, d Distribution, epoch string) {
	p.Purl = "pkg:" + kind + "/"
	if d.ID != "" {
		p.Purl += escape(strings.ToLower(d.ID)) + "/"
	}
	p.Purl += escape(p.Name) + "@" + escape(strings.TrimPrefix(p.Version, epoch+":"))
	separator := "?"
	for _, q := range [][2]string{{"arch", p.Arch}, {"distro", d.release()}, {"epoch", epoch}} {
		if q[1] != "" {
			p.Purl += separator + q[0] + "=" + escape(q[1])
			separator = "&"
		}
	}
	ecosystem, _, _, err := version.ParsePURL(p.Purl)
	if err != nil || ecosystem == "" {
		ecosystem = kind
	}
	p.Ecosystem = ecosystem
}

// release names the release in a package URL: debian-12.
func (d Distribution) release() string {
	number := cmp.Or(d.VersionID, d.Codename)
	if d.ID == "" || number == "" {
		return ""
	}
	return strings.ToLower(d.ID) + "-" + number
}

var escaper = strings.NewReplacer("+", "%2B", "@", "%40", "&", "%26", "=", "%3D")

func escape(s string) string { return escaper.Replace(url.PathEscape(s)) }
