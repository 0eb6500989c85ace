package feed

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/advisory/version"
	"github.com/holdfast-dev/holdfast/resource"
)

// secDBWriter collects what fixed what, and writes it when there is no more: a
// secdb is sorted by package.
type secDBWriter struct {
	to      io.Writer
	options Options
	fixes   map[string]map[string][]string // package, version, vulnerabilities
}

func newSecDBDocument(w io.Writer, o Options) *secDBWriter {
	return &secDBWriter{to: w, options: o, fixes: map[string]map[string][]string{}}
}

func (d *secDBWriter) write(a resource.Advisory) error {
	if !a.DeleteTime.IsZero() {
		return nil
	}
	latest := a.Latest()
	never := latest != nil && latest.Type == resource.EventFalsePositive
	name := strings.Join(a.Aliases, " ")
	if name == "" {
		name = a.ID
	}
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
			continue // there is no word for what is not fixed
		}
		if d.fixes[v.Name] == nil {
			d.fixes[v.Name] = map[string][]string{}
		}
		d.fixes[v.Name][fixed] = append(d.fixes[v.Name][fixed], name)
	}
	return nil
}

// wants tells whether a package belongs in this secdb.
func (d *secDBWriter) wants(v resource.Affected) bool {
	if version.PURLType(v.Ecosystem) != "apk" && !strings.HasPrefix(v.PURL, "pkg:apk/") {
		return false
	}
	return d.options.Distribution == "" || v.Ecosystem == d.options.Distribution
}

// lastFixed is the fix that held.
func lastFixed(v resource.Affected) string {
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

func (d *secDBWriter) close() error {
	_, release, _ := strings.Cut(d.options.Distribution, ":")
	db := secDB{
		APKURL: d.options.APKURL, Architectures: d.options.Architectures, Ecosystem: d.options.Distribution,
		Repository: d.options.Repository, URLPrefix: d.options.URLPrefix, Distribution: release, Packages: []secDBPackage{},
	}
	if db.APKURL == "" {
		db.APKURL = "{{urlprefix}}/{{reponame}}/{{arch}}/{{pkg.name}}-{{pkg.ver}}.apk"
	}
	if db.Architectures == nil {
		db.Architectures = []string{}
	}
	for _, name := range slices.Sorted(maps.Keys(d.fixes)) {
		var p secDBPackage
		p.Pkg.Name, p.Pkg.SecFixes = name, d.fixes[name]
		for fixed, ids := range p.Pkg.SecFixes {
			slices.Sort(ids)
			p.Pkg.SecFixes[fixed] = slices.Compact(ids) // several groups may say the same
		}
		db.Packages = append(db.Packages, p)
	}
	return json.NewEncoder(d.to).Encode(db)
}
