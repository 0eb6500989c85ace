package match

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// The parts of the package URL of a Java archive that contain its Bundle-SymbolicName and its Implementation-Vendor-Id.
const (
	bundleQualifier = "bundle"
	vendorQualifier = "vendor"
)

// A jar is a Java archive that does not name its Maven group. The group comes from the Maven packages that advisories
// name. For an advisory, only the names in its own group and in the groups above it count. So an author in a folder can
// neither end nor begin a match of an advisory above, and no organization influences another.
type jar struct {
	subject
	names map[resource.UID]string // name of the Maven package, by the group of the advisories
}

// A mavenNames knows the Maven packages that the advisories of an organization name, or of all organizations. It reads
// the packages with an artifact ID once.
type mavenNames struct {
	advisories *advisorydb.Store
	root       resource.UID // the organization; "" means all
	known      map[string]map[resource.UID][]string
}

func (m *Matcher) mavenNames(root resource.UID) mavenNames {
	return mavenNames{m.advisories, root, map[string]map[resource.UID][]string{}}
}

// candidate returns a package in the form in which it is compared.
func (n mavenNames) candidate(ctx context.Context, p findingdb.StoredPackage) (candidate, error) {
	if p.Ecosystem != version.JAR {
		return subjectOf(p), nil
	}
	names, ok := n.known[p.Name]
	if !ok {
		var err error
		if names, err = n.advisories.MavenNames(ctx, p.Name, n.root); err != nil {
			return nil, err
		}
		n.known[p.Name] = names
	}
	return jarOf(p, names), nil
}

// jarOf returns a package as a jar, with the Maven package that the names suggest for the advisories of each group.
func jarOf(p findingdb.StoredPackage, names map[resource.UID][]string) jar {
	j := jar{subject: subject{id: p.ID, ecosystem: "Maven", name: p.Name}, names: map[resource.UID]string{}}
	query, err := version.NewQuery(j.ecosystem, p.Version)
	j.query, j.known = query, err == nil
	for group, candidates := range names {
		candidates = slices.Clone(candidates)
		for _, above := range group.Ancestors() {
			candidates = append(candidates, names[above]...)
		}
		slices.Sort(candidates)
		if name := mavenName(slices.Compact(candidates), p.Name, hintsOf(p.PURL)); name != "" {
			j.names[group] = name
		}
	}
	return j
}

// hints are the parts of a manifest that may contain the Maven group of an archive; "" if the manifest lacks them.
type hints struct{ bundle, vendor string }

// hintsOf returns the hints in a package URL.
func hintsOf(purl string) hints {
	_, qualifiers, _ := strings.Cut(purl, "?")
	values, _ := url.ParseQuery(qualifiers) // on an error, it returns the valid part
	return hints{values.Get(bundleQualifier), values.Get(vendorQualifier)}
}

// mavenName returns the Maven package that an archive is, or "" if that is not certain. All names have the archive's
// artifact ID. The name whose group is the vendor ID wins. Otherwise, if the archive has hints, the group must begin
// with the same two words as one of them, and the group that shares most with a hint wins. Without hints, there must be
// only one name.
func mavenName(names []string, artifact string, h hints) string {
	if confirmed := h.vendor + ":" + artifact; slices.Contains(names, confirmed) {
		return confirmed
	}
	if h == (hints{}) {
		if len(names) == 1 {
			return names[0]
		}
		return ""
	}
	best, shared, tie := "", 1, false // one shared word, such as org, is not enough
	for _, name := range names {
		group, _, _ := strings.Cut(name, ":")
		switch n := max(sharedWords(group, h.bundle), sharedWords(group, h.vendor)); {
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
	if s.name = j.names[a.UID.Parent()]; s.name != "" {
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

// rootOf returns the organization of advisories, or "" if there are none.
func rootOf(advisories []vuln.Advisory) resource.UID {
	if len(advisories) == 0 {
		return ""
	}
	return advisories[0].UID.Root()
}

// matchJars compares Java archives with all advisories of the organization that changed advisories belong to. The
// matches with other organizations stay, and so do the answers to them.
func (m *Matcher) matchJars(ctx context.Context, jars []jar, c advisorydb.Changes) error {
	if len(jars) == 0 {
		return nil
	}
	want := findingdb.NewMatches()
	named := map[string][]vuln.Advisory{}
	var ids []int64
	for _, j := range jars {
		ids = append(ids, j.id)
		for group, name := range j.names {
			if _, ok := named[name]; !ok {
				var err error
				if named[name], err = m.advisories.AdvisoriesNaming(ctx, name, group.Root()); err != nil {
					return err
				}
			}
			for _, a := range named[name] {
				j.match(a, want)
			}
		}
	}
	source := func(advisory int64) string { return cmp.Or(c.Sources[advisory], c.Sources[c.Advisories[0]]) }
	return m.write(ctx, func(t *store.Tx) error {
		return findingdb.In(t).MatchWithin(ctx, c.Root, ids, want, source,
			func(change findingdb.Change) error { return m.writeEvents(ctx, t, change) })
	})
}
