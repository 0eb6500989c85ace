package format

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// A secDB is the file in which distributions with apk packages publish the versions that fix vulnerabilities. The field
// ecosystem is an addition of Holdfast; without it, a reader must guess the ecosystem.
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

// neverAffected is the fixed version in a secdb for a vulnerability that never affected the package.
const neverAffected = "0"

// readSecDB parses a secdb. It returns an advisory for each package and vulnerability.
func readSecDB(text string) ([]vuln.Advisory, error) {
	db, packages, err := secDBHead(text)
	if err != nil {
		return nil, err
	}
	ecosystem := db.ecosystem()
	var advisories []vuln.Advisory
	for _, text := range packages {
		p, err := decodeJSON[secDBPackage](text)
		if err != nil {
			return nil, err
		}
		found := map[string]vuln.Advisory{} // advisories of one package, by the ID of the vulnerability
		for _, fixed := range slices.Sorted(maps.Keys(p.Pkg.SecFixes)) {
			for _, entry := range p.Pkg.SecFixes[fixed] {
				for _, ids := range secDBVulnerabilities(entry) {
					a := found[ids[0]]
					a.Aliases = union(a.Aliases, ids)
					a.Affected = secDBAffected(a.Affected, ecosystem, p.Pkg.Name, fixed)
					found[ids[0]] = a
				}
			}
		}
		for _, id := range slices.Sorted(maps.Keys(found)) {
			advisories = append(advisories, secDBAdvisory(found[id], ecosystem, p.Pkg.Name, id))
		}
	}
	return advisories, nil
}

// secDBHead parses the metadata of a secdb, and returns the texts of its packages.
func secDBHead(text string) (db secDB, packages []string, err error) {
	r := newReader(text)
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

// ecosystem returns the ecosystem of the packages.
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

// secDBVulnerabilities returns the IDs of each vulnerability in an entry. Usually an entry contains the IDs of one
// vulnerability. If it contains several CVEs, each of them is a vulnerability, and the other IDs are ignored, because
// it is unknown which CVE they mean.
func secDBVulnerabilities(entry string) (vulnerabilities [][]string) {
	ids := secDBIDs(entry)
	for _, id := range ids {
		if vuln.IsCVE(id) {
			vulnerabilities = append(vulnerabilities, []string{id})
		}
	}
	switch {
	case len(ids) == 0:
		return nil
	case len(vulnerabilities) <= 1:
		return [][]string{ids}
	}
	return vulnerabilities
}

// secDBIDs returns the IDs in an entry. An entry may contain other words, too. An ID starts with a capital letter and
// contains a hyphen.
func secDBIDs(entry string) []string {
	var ids []string
	for word := range strings.FieldsSeq(entry) {
		if word = strings.Trim(word, "()+,;"); strings.Contains(word, "-") && 'A' <= word[0] && word[0] <= 'Z' {
			ids = append(ids, word)
		}
	}
	return ids
}

// secDBAffected adds a fixed version to before. If there are several fixed versions, only the newest one remains.
func secDBAffected(before []vuln.Affected, ecosystem, name, fixed string) []vuln.Affected {
	if len(before) > 0 {
		old := firstFixed(before)
		if c, err := version.Compare("Alpine", fixed, old); err != nil || c < 0 || fixed == neverAffected {
			return before
		}
	}
	v := vuln.Affected{Ecosystem: ecosystem, Name: name, PURL: apkPURL(ecosystem, name)}
	v.Ranges = []vuln.AffectedRange{{
		Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: fixed}},
	}}
	return []vuln.Affected{v}
}

// apkPURL returns the package URL of a package, without a version.
func apkPURL(ecosystem, name string) string {
	base, _, _ := strings.Cut(ecosystem, ":")
	return "pkg:apk/" + strings.ToLower(strings.ReplaceAll(base, " ", "-")) + "/" + url.PathEscape(name)
}

func secDBAdvisory(a vuln.Advisory, ecosystem, name, id string) vuln.Advisory {
	base, _, _ := strings.Cut(ecosystem, ":")
	a.ID = vuln.StableAdvisoryID("secdb", ecosystem, name, id)
	a.Author, a.ArtifactName, a.ArtifactType = base, name, "apk"
	e := vuln.AdvisoryEvent{Author: base, ReviewState: vuln.ReviewApproved, Type: vuln.EventFixed}
	if fixed := firstFixed(a.Affected); fixed == neverAffected {
		e.Type, a.Affected[0].Ranges = vuln.EventFalsePositive, nil
	} else {
		e.Fixed = &vuln.Fix{Version: fixed}
	}
	a.Events = []vuln.AdvisoryEvent{e}
	return withSource(a, "secdb")
}

// withSource sets the source format and the digest of an advisory from a document with several advisories.
func withSource(a vuln.Advisory, format string) vuln.Advisory {
	a.Source.Format = format
	text, _ := json.Marshal(a) // Marshal cannot fail for an advisory
	a.Source.Digest = digest(string(text))
	return a
}

// decodeJSON decodes a part of a document, within the limits of a reader.
func decodeJSON[T any](text string) (T, error) {
	var v T
	r := newReader(text)
	r.skip()
	if err := r.end(); err != nil {
		return v, err
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return v, fmt.Errorf("is invalid JSON: %w", err)
	}
	return v, nil
}
