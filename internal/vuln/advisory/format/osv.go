package format

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// Errors of readOSV for documents in other formats.
var (
	errOpenVEX = errors.New("is an OpenVEX document")
	errSecDB   = errors.New("is a secdb")
)

// gitEcosystem is Holdfast's ecosystem for records about a repository instead of a package.
const gitEcosystem = "GIT"

// readOSV parses an OSV record. It returns errOpenVEX or errSecDB if the text is in one of these formats.
func readOSV(text string) (vuln.Advisory, error) {
	a := vuln.Advisory{}
	r := newReader(text)
	var specific specificFields
	var upstream, related []string
	for key := range r.object {
		switch key {
		case "id":
			a.ID = r.text()
		case "published":
			a.Source.Published = r.time()
		case "modified":
			a.Source.Modified = r.time()
		case "withdrawn":
			a.DeleteTime = r.time()
		case "aliases":
			a.Aliases = r.texts()
		case "upstream":
			upstream = r.texts()
		case "related":
			related = r.texts()
		case "summary":
			a.Summary = r.text()
		case "details":
			a.Details = r.text()
		case "severity":
			a.Severities = r.severities(&a.VendorSeverity)
		case "affected":
			a.Affected = r.affected()
		case "references":
			a.References = r.references()
		case "database_specific":
			specific = r.specific()
		case "@context", "statements":
			return a, errOpenVEX
		case "packages":
			return a, errSecDB
		default:
			r.skip()
		}
	}
	if err := r.end(); err != nil {
		return a, err
	}
	if a.ID == "" {
		return a, errors.New("has no id")
	}
	a.VendorSeverity = cmp.Or(a.VendorSeverity, specific.severity)
	setOSVSource(&a, text, specific.extension, upstream, related)
	nameArtifact(&a)
	if specific.extension != "" {
		return a, readExtension(specific.extension, &a)
	}
	a.Author = databaseOf(a.ID)
	a.Events = osvEvents(a)
	return a, nil
}

// setOSVSource sets the format, the digest and the relations of a record. A record with Holdfast's extension has exact
// relations. In other records they depend on the source, see vuln.Relate.
func setOSVSource(a *vuln.Advisory, text, extension string, upstream, related []string) {
	a.Source.Format = "osv"
	a.Source.Digest = digest(strings.TrimSpace(text))
	if a.VendorSeverity != "" { // version 0.1.0 did not store it, so the record must differ from the stored one
		a.Source.Digest = digest("vendor severity\n" + strings.TrimSpace(text))
	}
	if extension != "" {
		a.Fixes = upstream
		return
	}
	a.Aliases, a.Fixes = vuln.Relate(a.ID, a.Aliases, upstream, related)
}

// digest returns a hash of a record, by which an import detects changes.
func digest(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:16:16]
}

// time reads a timestamp. It returns the zero time for the year 1, which some
// databases write for an unknown time.
func (r *reader) time() time.Time {
	s := r.text()
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		r.fail(fmt.Errorf("has a time that is not in the format of RFC 3339: %q", s))
	}
	if t.Year() <= 1 {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// severities reads CVSS vectors. It sets vendor to a severity in the words of a vendor, such as the priority of Ubuntu.
// Other severities are skipped.
func (r *reader) severities(vendor *string) []vuln.Severity {
	var severities []vuln.Severity
	for range r.array {
		var kind, score string
		r.textFields(textField{"type", &kind}, textField{"score", &score})
		if vuln.RatingOf(score) > 0 {
			*vendor = score
		}
		if t := severityType(kind); t != vuln.SeverityUnspecified && r.err == nil {
			s := vuln.Severity{Type: t, Score: score}
			if err := CheckSeverity(s); err != nil {
				r.fail(err)
			}
			severities = append(severities, s)
		}
	}
	return severities
}

func (r *reader) references() []vuln.Reference {
	references := make([]vuln.Reference, 0, 4)
	for range r.array {
		var v vuln.Reference
		r.textFields(textField{"type", &v.Type}, textField{"url", &v.URL})
		references = append(references, v)
	}
	return references
}

func (r *reader) affected() []vuln.Affected {
	affected := make([]vuln.Affected, 0, 1)
	for range r.array {
		var v vuln.Affected
		for key := range r.object {
			switch key {
			case "package":
				r.textFields(textField{"ecosystem", &v.Ecosystem}, textField{"name", &v.Name},
					textField{"purl", &v.PURL})
			case "severity":
				v.Severities = r.severities(&v.VendorSeverity)
			case "ranges":
				v.Ranges = r.ranges()
			case "versions":
				v.Versions = r.texts()
			case "database_specific", "ecosystem_specific":
				v.VendorSeverity = cmp.Or(v.VendorSeverity, r.specific().severity)
			default:
				r.skip()
			}
		}
		if v.Name == "" && len(v.Ranges) > 0 { // the record is about a repository
			v.Ecosystem, v.Name = gitEcosystem, v.Ranges[0].Repo
		}
		affected = append(affected, v)
	}
	return affected
}

func (r *reader) ranges() []vuln.AffectedRange {
	ranges := make([]vuln.AffectedRange, 0, 1)
	for range r.array {
		var v vuln.AffectedRange
		for key := range r.object {
			switch key {
			case "type":
				v.Type = r.text()
			case "repo":
				v.Repo = r.text()
			case "events":
				v.Events = r.rangeEvents()
			default:
				r.skip()
			}
		}
		ranges = append(ranges, v)
	}
	return ranges
}

// rangeEvents reads the events of a range. An object with several keys becomes several events.
func (r *reader) rangeEvents() []vuln.RangeEvent {
	events := make([]vuln.RangeEvent, 0, 2)
	for range r.array {
		for key := range r.object {
			var e vuln.RangeEvent
			switch key {
			case "introduced":
				e.Introduced = r.text()
			case "fixed":
				e.Fixed = r.text()
			case "last_affected":
				e.LastAffected = r.text()
			case "limit":
				e.Limit = r.text()
			default:
				r.skip()
				continue
			}
			events = append(events, e)
		}
	}
	return events
}

// specificFields are the fields of a database_specific or an ecosystem_specific that Holdfast reads.
type specificFields struct {
	extension string // JSON of the member extensionKey, or ""
	severity  string // severity in the words of the vendor, or ""
}

// severityKeys are the keys of severities in the words of vendors: GitHub's, Debian's and Ubuntu's.
var severityKeys = []string{"severity", "urgency", "ubuntu_priority"}

// specific reads a database_specific or an ecosystem_specific.
func (r *reader) specific() (f specificFields) {
	if r.next() != '{' {
		r.skip()
		return f
	}
	for key := range r.object {
		isSeverity := slices.Contains(severityKeys, key) && r.next() == '"'
		switch text := r.raw(); {
		case key == extensionKey:
			f.extension = text
		case isSeverity:
			var word string
			if json.Unmarshal([]byte(text), &word) == nil && vuln.RatingOf(word) > 0 {
				f.severity = cmp.Or(f.severity, word)
			}
		}
	}
	return f
}

// extensionKey is the key of Holdfast's part of database_specific.
const extensionKey = "holdfast"

// An osvExtension contains the fields of an advisory that OSV lacks.
type osvExtension struct {
	LegacyID             string               `json:"legacyId,omitempty"`
	Author               string               `json:"author,omitempty"`
	ArtifactName         string               `json:"artifactName,omitempty"`
	ArtifactType         string               `json:"artifactType,omitempty"`
	ArtifactArchitecture string               `json:"artifactArchitecture,omitempty"`
	ComponentName        string               `json:"componentName,omitempty"`
	ComponentLocation    string               `json:"componentLocation,omitempty"`
	ComponentType        string               `json:"componentType,omitempty"`
	Events               []vuln.AdvisoryEvent `json:"events,omitempty"`
}

// readExtension sets the fields of a from the text of an extension.
func readExtension(text string, a *vuln.Advisory) error {
	var x osvExtension
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		return fmt.Errorf("has an invalid database_specific.%s: %w", extensionKey, err)
	}
	a.LegacyID, a.Author, a.ArtifactArchitecture = x.LegacyID, x.Author, x.ArtifactArchitecture
	a.ArtifactName, a.ArtifactType = x.ArtifactName, x.ArtifactType
	a.ComponentName, a.ComponentLocation, a.ComponentType = x.ComponentName, x.ComponentLocation, x.ComponentType
	a.Events = x.Events
	for i := range a.Events {
		a.Events[i].UID = ""
		a.Events[i].CreateTime = a.Events[i].CreateTime.UTC().Truncate(time.Millisecond)
	}
	return nil
}

// nameArtifact sets the artifact to the first affected package, or to the ID if there is none.
func nameArtifact(a *vuln.Advisory) {
	if len(a.Affected) == 0 || a.Affected[0].Name == "" {
		a.ArtifactName = a.ID
		return
	}
	a.ArtifactName = a.Affected[0].Name
	a.ArtifactType = version.PURLType(a.Affected[0].Ecosystem)
}

// osvEvents returns the events for an OSV record: a detection, and a fix if the record contains one. The fix is never
// older than the detection, because a detection after a fix would re-open the advisory.
func osvEvents(a vuln.Advisory) []vuln.AdvisoryEvent {
	events := []vuln.AdvisoryEvent{{
		CreateTime: cmp.Or(a.Source.Published, a.Source.Modified), Author: a.Author,
		ReviewState: vuln.ReviewApproved,
		Type:        vuln.EventDetection, Detection: &vuln.Detection{Manual: true},
	}}
	if fixed := firstFixed(a.Affected); fixed != "" {
		fixTime := a.Source.Modified
		if fixTime.Before(a.Source.Published) {
			fixTime = a.Source.Published
		}
		events = append(events, vuln.AdvisoryEvent{
			CreateTime: fixTime, Author: a.Author, ReviewState: vuln.ReviewApproved,
			Type: vuln.EventFixed, Fixed: &vuln.Fix{Version: fixed},
		})
	}
	return events
}

// firstFixed returns the first fixed version in the ranges, or "".
func firstFixed(affected []vuln.Affected) string {
	for _, v := range affected {
		for _, r := range v.Ranges {
			for _, e := range r.Events {
				if e.Fixed != "" && r.Type != "GIT" {
					return e.Fixed
				}
			}
		}
	}
	return ""
}

// databases are the names of databases by the prefixes of their IDs.
var databases = []struct{ prefix, name string }{
	{"GO-", "Go"}, {"GHSA-", "GitHub"}, {"CVE-", "CVE"}, {"PYSEC-", "PyPA"}, {"RUSTSEC-", "RustSec"},
	{"MAL-", "OpenSSF"}, {"OSV-", "OSS-Fuzz"}, {"DEBIAN-", "Debian"}, {"DSA-", "Debian"}, {"DLA-", "Debian"},
	{"DTSA-", "Debian"}, {"UBUNTU-", "Ubuntu"}, {"USN-", "Ubuntu"}, {"LSN-", "Ubuntu"}, {"ALPINE-", "Alpine"},
	{"RHSA-", "Red Hat"}, {"RHBA-", "Red Hat"}, {"RHEA-", "Red Hat"}, {"ALSA-", "AlmaLinux"}, {"ALBA-", "AlmaLinux"},
	{"ALEA-", "AlmaLinux"}, {"RLSA-", "Rocky"}, {"RXSA-", "Rocky"}, {"SUSE-", "SUSE"}, {"openSUSE-", "SUSE"},
	{"MGASA-", "Mageia"}, {"OESA-", "openEuler"}, {"BIT-", "Bitnami"}, {"CURL-", "curl"}, {"HSEC-", "Haskell"},
	{"JLSEC-", "Julia"}, {"PSF-", "PSF"}, {"RSEC-", "R Consortium"}, {"BELL-", "BellSoft"}, {"MINI-", "MinimOS"},
	{"EEF-", "EEF"}, {"ASB-", "Android"}, {"PUB-", "Android"},
}

// databaseOf returns the database of a record by its ID, or "osv" if the database is unknown. The result becomes the
// author of the advisory.
func databaseOf(id string) string {
	for _, d := range databases {
		if strings.HasPrefix(id, d.prefix) {
			return d.name
		}
	}
	return "osv"
}

// union appends to a the elements of b that a does not contain.
func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
