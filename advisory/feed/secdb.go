package feed

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/advisory/version"
	"github.com/holdfast-dev/holdfast/resource"
)

// A secDB is the file in which distributions that use apk tell which version of
// a package fixed what. Ecosystem is our addition: without it, a reader guesses.
type secDB struct {
	APKURL        string         `json:"apkurl"`
	Architectures []string       `json:"archs"`
	Ecosystem     string         `json:"ecosystem,omitempty"`
	Repository    string         `json:"reponame"`
	URLPrefix     string         `json:"urlprefix"`
	Distribution  string         `json:"distroversion,omitempty"`
	Packages      []secDBPackage `json:"packages"`
}

type secDBPackage struct {
	Pkg struct {
		Name     string              `json:"name"`
		SecFixes map[string][]string `json:"secfixes"`
	} `json:"pkg"`
}

// neverAffected is the version that, in a secdb, means that none was affected.
const neverAffected = "0"

// readSecDB reads a secdb: an advisory for each package and vulnerability.
func readSecDB(text string) ([]resource.Advisory, error) {
	db, packages, err := secDBHead(text)
	if err != nil {
		return nil, err
	}
	ecosystem := db.ecosystem()
	var all []resource.Advisory
	for _, text := range packages {
		p, err := decodeJSON[secDBPackage](text)
		if err != nil {
			return nil, err
		}
		found := map[string]resource.Advisory{} // by the vulnerability
		for _, fixed := range slices.Sorted(maps.Keys(p.Pkg.SecFixes)) {
			for _, entry := range p.Pkg.SecFixes[fixed] {
				ids := secDBIDs(entry)
				if len(ids) == 0 {
					continue
				}
				a := found[ids[0]]
				a.Aliases = union(a.Aliases, ids)
				a.Affected = secDBAffected(a.Affected, ecosystem, p.Pkg.Name, fixed)
				found[ids[0]] = a
			}
		}
		for _, id := range slices.Sorted(maps.Keys(found)) {
			all = append(all, secDBAdvisory(found[id], ecosystem, p.Pkg.Name, id))
		}
	}
	return all, nil
}

// secDBHead reads what tells whose packages these are, and the packages' texts.
func secDBHead(text string) (db secDB, packages []string, err error) {
	r := read(text)
	for key := range r.object {
		switch key {
		case "ecosystem":
			db.Ecosystem = r.text()
		case "urlprefix":
			db.URLPrefix = r.text()
		case "distroversion":
			db.Distribution = r.text()
		case "packages":
			packages = r.elements()
		default:
			r.skip()
		}
	}
	return db, packages, r.end()
}

// ecosystem is whose packages these are.
func (db secDB) ecosystem() string {
	base, rest := "", ""
	switch u, _ := url.Parse(db.URLPrefix); {
	case db.Ecosystem != "":
		return db.Ecosystem
	case strings.Contains(db.URLPrefix, "wolfi"):
		return "Wolfi"
	case strings.Contains(db.URLPrefix, "alpinelinux"), u == nil, db.Distribution != "":
		base, rest = "Alpine", db.Distribution
	default:
		base = path.Base(u.Path)
	}
	if base == "" || base == "." || base == "/" {
		base = "Alpine"
	}
	if base = strings.ToUpper(base[:1]) + base[1:]; rest != "" {
		return base + ":" + rest
	}
	return base
}

// secDBIDs are the ids of an entry, which may be several names for one thing, and
// words about it: an id starts with a capital and has a hyphen.
func secDBIDs(entry string) []string {
	var ids []string
	for word := range strings.FieldsSeq(entry) {
		if word = strings.Trim(word, "()+,;"); strings.Contains(word, "-") && 'A' <= word[0] && word[0] <= 'Z' {
			ids = append(ids, word)
		}
	}
	return ids
}

// secDBAffected adds a fix. Where there are several, the newest is the one that
// held.
func secDBAffected(before []resource.Affected, ecosystem, name, fixed string) []resource.Affected {
	if len(before) > 0 {
		old := firstFixed(before)
		if c, err := version.Compare("Alpine", fixed, old); err != nil || c < 0 || fixed == neverAffected {
			return before
		}
	}
	v := resource.Affected{Ecosystem: ecosystem, Name: name, PURL: apkPURL(ecosystem, name)}
	v.Ranges = []resource.AffectedRange{{
		Type: "ECOSYSTEM", Events: []resource.RangeEvent{{Introduced: "0"}, {Fixed: fixed}},
	}}
	return []resource.Affected{v}
}

// apkPURL is the package URL of a package, without a version.
func apkPURL(ecosystem, name string) string {
	base, _, _ := strings.Cut(ecosystem, ":")
	return "pkg:apk/" + strings.ToLower(strings.ReplaceAll(base, " ", "-")) + "/" + url.PathEscape(name)
}

func secDBAdvisory(a resource.Advisory, ecosystem, name, id string) resource.Advisory {
	base, _, _ := strings.Cut(ecosystem, ":")
	a.ID = resource.StableAdvisoryID("secdb", ecosystem, name, id)
	a.Author, a.ArtifactName, a.ArtifactType = base, name, "apk"
	e := resource.AdvisoryEvent{Author: base, ReviewState: resource.ReviewApproved, Type: resource.EventFixed}
	if fixed := firstFixed(a.Affected); fixed == neverAffected {
		e.Type, a.Affected[0].Ranges = resource.EventFalsePositive, nil
	} else {
		e.Fixed = &resource.Fix{Version: fixed}
	}
	a.Events = []resource.AdvisoryEvent{e}
	return sealed(a, "secdb")
}

// sealed gives an advisory that is part of a document its source and digest.
func sealed(a resource.Advisory, format string) resource.Advisory {
	a.Source.Format = format
	a.Source.Digest = digestOf(a)
	return a
}

// decodeJSON reads a part of a document.
func decodeJSON[T any](text string) (T, error) {
	var v T
	r := read(text)
	r.skip()
	if err := r.end(); err != nil {
		return v, err
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return v, fmt.Errorf("is not the JSON it should be: %w", err)
	}
	return v, nil
}
