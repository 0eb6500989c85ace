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

// gitEcosystem is our ecosystem for records about a repository instead of a package.
const gitEcosystem = "GIT"

// readOSV parses an OSV record. It returns errOpenVEX or errSecDB if the text is in one of these formats.
func readOSV(text string) (vuln.Advisory, error) {
	a := vuln.Advisory{}
	r := newReader(text)
	var own string // our part of database_specific
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
			a.Severities = r.severities()
		case "affected":
			a.Affected = r.affected()
		case "references":
			a.References = r.references()
		case "database_specific":
			own = r.own()
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
	a.Source.Format = "osv"
	a.Source.Digest = digest(strings.TrimSpace(text))
	if len(upstream) == 0 && namesUpstreamRelated(a.ID) {
		upstream = cvesOf(related)
		// Such a record was stored without these names by an earlier version: it has changed for us.
		a.Source.Digest = digest(strings.TrimSpace(text) + strings.Join(upstream, " "))
	}
	a.Aliases = union(a.Aliases, upstream)
	nameArtifact(&a)
	if own != "" {
		return a, readOwn(own, &a)
	}
	a.Author = databaseOf(a.ID)
	a.Events = osvEvents(a)
	return a, nil
}

// namesUpstreamRelated reports whether the record of an id is of a distribution that lists
// what its advisory fixes under "related". Elsewhere that means other vulnerabilities.
func namesUpstreamRelated(id string) bool {
	return slices.ContainsFunc([]string{"ALSA-", "ALBA-", "ALEA-", "RLSA-", "RXSA-"}, func(prefix string) bool {
		return strings.HasPrefix(id, prefix)
	})
}

// cvesOf returns the CVEs among names.
func cvesOf(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := vuln.ParseCVE(name)
		return !ok
	})
}

// digest returns a digest of a record, by which changes are detected.
func digest(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:16:16]
}

// time reads a timestamp. It returns the zero time for the year 1, which some
// databases write if they do not know the time.
func (r *reader) time() time.Time {
	s := r.text()
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		r.fail(fmt.Errorf("has a time that is not as in RFC 3339: %q", s))
	}
	if t.Year() <= 1 {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// severities reads CVSS vectors, and skips other kinds of severities.
func (r *reader) severities() []vuln.Severity {
	var all []vuln.Severity
	for range r.array {
		var kind, score string
		r.textFields(textField{"type", &kind}, textField{"score", &score})
		if t := severityType(kind); t != vuln.SeverityUnspecified && r.err == nil {
			s := vuln.Severity{Type: t, Score: score}
			if err := CheckSeverity(s); err != nil {
				r.fail(err)
			}
			all = append(all, s)
		}
	}
	return all
}

func (r *reader) references() []vuln.Reference {
	all := make([]vuln.Reference, 0, 4)
	for range r.array {
		var v vuln.Reference
		r.textFields(textField{"type", &v.Type}, textField{"url", &v.URL})
		all = append(all, v)
	}
	return all
}

func (r *reader) affected() []vuln.Affected {
	all := make([]vuln.Affected, 0, 1)
	for range r.array {
		var v vuln.Affected
		for key := range r.object {
			switch key {
			case "package":
				r.textFields(textField{"ecosystem", &v.Ecosystem}, textField{"name", &v.Name}, textField{"purl", &v.PURL})
			case "severity":
				v.Severities = r.severities()
			case "ranges":
				v.Ranges = r.ranges()
			case "versions":
				v.Versions = r.texts()
			default:
				r.skip()
			}
		}
		if v.Name == "" && len(v.Ranges) > 0 { // it is about a repository
			v.Ecosystem, v.Name = gitEcosystem, v.Ranges[0].Repo
		}
		all = append(all, v)
	}
	return all
}

func (r *reader) ranges() []vuln.AffectedRange {
	all := make([]vuln.AffectedRange, 0, 1)
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
		all = append(all, v)
	}
	return all
}

// rangeEvents reads the events of a range. An object with several becomes several events.
func (r *reader) rangeEvents() []vuln.RangeEvent {
	all := make([]vuln.RangeEvent, 0, 2)
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
			all = append(all, e)
		}
	}
	return all
}

// own returns the text of our part of database_specific, or "".
func (r *reader) own() string {
	if r.next() != '{' {
		r.skip()
		return ""
	}
	found := ""
	for key := range r.object {
		if text := r.raw(); key == ownKey {
			found = text
		}
	}
	return found
}

// ownKey is the key of our part of database_specific.
const ownKey = "holdfast"

// An ownPart has the fields of an advisory that OSV does not have.
type ownPart struct {
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

func readOwn(text string, a *vuln.Advisory) error {
	var own ownPart
	if err := json.Unmarshal([]byte(text), &own); err != nil {
		return fmt.Errorf("has a part database_specific.%s that is not ours: %w", ownKey, err)
	}
	a.LegacyID, a.Author, a.ArtifactArchitecture = own.LegacyID, own.Author, own.ArtifactArchitecture
	a.ArtifactName, a.ArtifactType = own.ArtifactName, own.ArtifactType
	a.ComponentName, a.ComponentLocation, a.ComponentType = own.ComponentName, own.ComponentLocation, own.ComponentType
	a.Events = own.Events
	for i := range a.Events {
		a.Events[i].UID = ""
		a.Events[i].CreateTime = a.Events[i].CreateTime.UTC().Truncate(time.Millisecond)
	}
	return nil
}

// nameArtifact sets the artifact to the first affected package.
func nameArtifact(a *vuln.Advisory) {
	if len(a.Affected) == 0 || a.Affected[0].Name == "" {
		a.ArtifactName = a.ID
		return
	}
	a.ArtifactName = a.Affected[0].Name
	a.ArtifactType = version.PURLType(a.Affected[0].Ecosystem)
}

// osvEvents returns the events of a record: a detection, and a fix if it has one. The fix is never the older of
// the two, because a detection after a fix would re-open the advisory.
func osvEvents(a vuln.Advisory) []vuln.AdvisoryEvent {
	events := []vuln.AdvisoryEvent{{
		CreateTime: cmp.Or(a.Source.Published, a.Source.Modified), Author: a.Author,
		ReviewState: vuln.ReviewApproved,
		Type:        vuln.EventDetection, Detection: &vuln.Detection{Manual: true},
	}}
	if fixed := firstFixed(a.Affected); fixed != "" {
		at := a.Source.Modified
		if at.Before(a.Source.Published) {
			at = a.Source.Published
		}
		events = append(events, vuln.AdvisoryEvent{
			CreateTime: at, Author: a.Author, ReviewState: vuln.ReviewApproved,
			Type: vuln.EventFixed, Fixed: &vuln.Fix{Version: fixed},
		})
	}
	return events
}

func firstFixed(all []vuln.Affected) string {
	for _, v := range all {
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

// databaseOf returns the database of a record, which is its author if it names none.
func databaseOf(id string) string {
	for _, d := range databases {
		if strings.HasPrefix(id, d.prefix) {
			return d.name
		}
	}
	return "osv"
}

// union appends the elements of b to a that a does not have.
func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
