package format

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// secDBWriter implements Writer for secdb. It writes the document in Close, because a secdb is sorted by package.
type secDBWriter struct {
	to      io.Writer
	options Options
	fixes   map[string]map[string][]string // vulnerabilities by package and fixed version
}

func (d *secDBWriter) Write(a vuln.Advisory) error {
	if !a.DeleteTime.IsZero() {
		return nil
	}
	a = a.Current()
	latest := a.Latest()
	never := latest != nil && latest.Type == vuln.EventFalsePositive
	entries := secDBEntries(a)
	for _, v := range a.Affected {
		if !d.wants(v) {
			continue
		}
		fixed := lastFixed(v)
		if never {
			fixed = neverAffected
		}
		if fixed == "" && latest != nil && latest.Fixed != nil {
			fixed = latest.Fixed.Version
		}
		if fixed == "" {
			continue // a secdb contains only fixes
		}
		if d.fixes[v.Name] == nil {
			d.fixes[v.Name] = map[string][]string{}
		}
		d.fixes[v.Name][fixed] = append(d.fixes[v.Name][fixed], entries...)
	}
	return nil
}

// secDBEntries returns an entry for each vulnerability of an advisory, with its IDs: the aliases, which scanners look
// for, and then the advisory's ID. It omits an ID that Holdfast generated because the source has no IDs.
func secDBEntries(a vuln.Advisory) []string {
	if len(a.Fixes) > 0 {
		return a.Fixes
	}
	from := a.Source.Format
	generated := strings.HasPrefix(a.ID, vuln.AdvisoryIDPrefix) && from != "" && from != string(OSV)
	if generated && len(a.Aliases) > 0 {
		return []string{strings.Join(a.Aliases, " ")}
	}
	return []string{strings.Join(union(slices.Clone(a.Aliases), []string{a.ID}), " ")}
}

// wants reports whether a package belongs in this secdb.
func (d *secDBWriter) wants(v vuln.Affected) bool {
	if version.PURLType(v.Ecosystem) != "apk" && !strings.HasPrefix(v.PURL, "pkg:apk/") {
		return false
	}
	return d.options.Distribution == "" || v.Ecosystem == d.options.Distribution
}

// lastFixed returns the newest version with a fix, or "".
func lastFixed(v vuln.Affected) string {
	last := ""
	for _, r := range v.Ranges {
		for _, e := range r.Events {
			if e.Fixed == "" || r.Type == "GIT" {
				continue
			}
			if c, err := version.Compare("Alpine", e.Fixed, last); last == "" || err == nil && c > 0 {
				last = e.Fixed
			}
		}
	}
	return last
}

func (d *secDBWriter) Close() error {
	_, release, _ := strings.Cut(d.options.Distribution, ":")
	db := secDB{
		APKURL: d.options.APKURL, Architectures: d.options.Architectures, Ecosystem: d.options.Distribution,
		Repository: d.options.Repository, URLPrefix: d.options.URLPrefix, Distribution: release,
		Packages: []secDBPackage{},
	}
	db.APKURL = cmp.Or(db.APKURL, "{{urlprefix}}/{{reponame}}/{{arch}}/{{pkg.name}}-{{pkg.ver}}.apk")
	if db.Architectures == nil {
		db.Architectures = []string{}
	}
	for _, name := range slices.Sorted(maps.Keys(d.fixes)) {
		var p secDBPackage
		p.Pkg.Name, p.Pkg.SecFixes = name, d.fixes[name]
		for fixed, ids := range p.Pkg.SecFixes {
			slices.Sort(ids)
			// Compact removes duplicates, because several groups may have the same advisory.
			p.Pkg.SecFixes[fixed] = slices.Compact(ids)
		}
		db.Packages = append(db.Packages, p)
	}
	return json.NewEncoder(d.to).Encode(db)
}
