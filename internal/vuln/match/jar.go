package match

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// bundleQualifier is the part of the package URL of a Java archive that contains its Bundle-SymbolicName.
const bundleQualifier = "bundle"

// A jar is a Java archive that does not name its Maven group. The group comes from the Maven packages that advisories
// of an organization name, so it may differ between organizations, and no organization influences another.
type jar struct {
	subject
	names map[int64]string // name of the Maven package, by the key of the organization
}

// jarOf returns a package as a jar, with the Maven package that each organization's advisories suggest.
func (m *Matcher) jarOf(ctx context.Context, p findingdb.StoredPackage) (jar, error) {
	j := jar{subject: subject{id: p.ID, ecosystem: "Maven", name: p.Name}, names: map[int64]string{}}
	query, err := version.NewQuery(j.ecosystem, p.Version)
	j.query, j.known = query, err == nil
	candidates, err := m.advisories.MavenNames(ctx, p.Name)
	for root, names := range candidates {
		if name := mavenName(names, bundleOf(p.PURL)); name != "" {
			j.names[root] = name
		}
	}
	return j, err
}

// bundleOf returns the Bundle-SymbolicName in a package URL, or "".
func bundleOf(purl string) string {
	_, qualifiers, _ := strings.Cut(purl, "?")
	values, _ := url.ParseQuery(qualifiers) // on an error, it returns the valid part
	return values.Get(bundleQualifier)
}

// mavenName returns the Maven package that an archive is, or "" if that is not certain. All names have the archive's
// artifact ID. If the archive has a bundle name, the group must begin with the same two words, and the group that
// shares most with the bundle name wins. Otherwise there must be only one name.
func mavenName(names []string, bundle string) string {
	if bundle == "" {
		if len(names) == 1 {
			return names[0]
		}
		return ""
	}
	best, shared, tie := "", 1, false // one shared word, such as org, is not enough
	for _, name := range names {
		group, _, _ := strings.Cut(name, ":")
		switch n := sharedWords(group, bundle); {
		case n > shared:
			best, shared, tie = name, n, false
		case n == shared:
			tie = true
		}
	}
	if tie {
		return ""
	}
	return best
}

// sharedWords returns the number of words at the start of two names that are equal. Words end with dots and hyphens.
func sharedWords(a, b string) int {
	separator := func(r rune) bool { return r == '.' || r == '-' }
	x, y := strings.FieldsFunc(a, separator), strings.FieldsFunc(b, separator)
	n := 0
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	return n
}

// match adds a match if an advisory affects the archive.
func (j jar) match(a vuln.Advisory, matches findingdb.Matches) {
	s := j.subject
	if s.name = j.names[store.Segment(a.UID.Root())]; s.name != "" {
		s.match(a, matches)
	}
}

// named returns the names under which advisories may be about the archive.
func (j jar) named() (names []string) {
	for _, name := range j.names {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// artifacts returns the artifact IDs of the Maven packages among names.
func artifacts(names []string) (ids []string) {
	for _, name := range names {
		if _, id, ok := strings.Cut(name, ":"); ok {
			ids = append(ids, id)
		}
	}
	return ids
}
