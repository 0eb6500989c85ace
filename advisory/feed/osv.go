package feed

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/advisory/version"
	"github.com/holdfast-dev/holdfast/resource"
)

// Of what is not OSV, a reader of OSV finds out here.
var (
	errOpenVEX = errors.New("is an OpenVEX document")
	errSecDB   = errors.New("is a secdb")
)

// gitEcosystem stands for the ecosystem of what has none but a repository.
const gitEcosystem = "GIT"

// readOSV reads one OSV record. It returns errOpenVEX or errSecDB if the text is
// one of these.
func readOSV(text string) (resource.Advisory, error) {
	a := resource.Advisory{}
	r := read(text)
	var own string // what we wrote into a record ourselves
	var upstream []string
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
	a.Source.Digest = digest(strings.TrimSpace(text)) // wherever it stood
	a.Aliases = union(a.Aliases, upstream)
	nameArtifact(&a)
	if own != "" {
		return a, readOwn(own, &a)
	}
	a.Author = databaseOf(a.ID)
	a.Events = osvEvents(a)
	return a, nil
}

// digest is what tells two records apart.
func digest(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:16:16]
}

// digestOf is the digest of a record that was only a part of its text.
func digestOf(a resource.Advisory) []byte {
	text, err := json.Marshal(a)
	if err != nil {
		return nil // an advisory is nothing that JSON lacks
	}
	return digest(string(text))
}

// time reads a timestamp. The one databases without memory write, year 1, is
// none.
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

// severities reads CVSS vectors. Other ways to say how bad it is are left out.
func (r *reader) severities() []resource.Severity {
	var all []resource.Severity
	for range r.array {
		var kind, score string
		for key := range r.object {
			switch key {
			case "type":
				kind = r.text()
			case "score":
				score = r.text()
			default:
				r.skip()
			}
		}
		if t := severityType(kind); t != resource.SeverityUnspecified && r.err == nil {
			s := resource.Severity{Type: t, Score: score}
			if err := CheckSeverity(s); err != nil {
				r.fail(err)
			}
			all = append(all, s)
		}
	}
	return all
}

func (r *reader) references() []resource.Reference {
	all := make([]resource.Reference, 0, 4)
	for range r.array {
		var v resource.Reference
		for key := range r.object {
			switch key {
			case "type":
				v.Type = r.text()
			case "url":
				v.URL = r.text()
			default:
				r.skip()
			}
		}
		all = append(all, v)
	}
	return all
}

func (r *reader) affected() []resource.Affected {
	all := make([]resource.Affected, 0, 1)
	for range r.array {
		var v resource.Affected
		for key := range r.object {
			switch key {
			case "package":
				r.pkg(&v)
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
		if v.Name == "" && len(v.Ranges) > 0 { // of no package: a repository is affected
			v.Ecosystem, v.Name = gitEcosystem, v.Ranges[0].Repo
		}
		all = append(all, v)
	}
	return all
}

func (r *reader) pkg(v *resource.Affected) {
	for key := range r.object {
		switch key {
		case "ecosystem":
			v.Ecosystem = r.text()
		case "name":
			v.Name = r.text()
		case "purl":
			v.PURL = r.text()
		default:
			r.skip()
		}
	}
}

func (r *reader) ranges() []resource.AffectedRange {
	all := make([]resource.AffectedRange, 0, 1)
	for range r.array {
		var v resource.AffectedRange
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

// rangeEvents reads the bounds of a range. Each has one; where a record writes
// several into one object, they become several.
func (r *reader) rangeEvents() []resource.RangeEvent {
	all := make([]resource.RangeEvent, 0, 2)
	for range r.array {
		for key := range r.object {
			var e resource.RangeEvent
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

// own finds what our writer put into database_specific.
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

// ownKey is where a record carries what OSV has no place for.
const ownKey = "holdfast"

// An ownPart is what OSV has no place for.
type ownPart struct {
	LegacyID             string                   `json:"legacyId,omitempty"`
	Author               string                   `json:"author,omitempty"`
	ArtifactName         string                   `json:"artifactName,omitempty"`
	ArtifactType         string                   `json:"artifactType,omitempty"`
	ArtifactArchitecture string                   `json:"artifactArchitecture,omitempty"`
	ComponentName        string                   `json:"componentName,omitempty"`
	ComponentLocation    string                   `json:"componentLocation,omitempty"`
	ComponentType        string                   `json:"componentType,omitempty"`
	Events               []resource.AdvisoryEvent `json:"events,omitempty"`
}

func readOwn(text string, a *resource.Advisory) error {
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

// nameArtifact names the artifact after the first package affected.
func nameArtifact(a *resource.Advisory) {
	if len(a.Affected) == 0 || a.Affected[0].Name == "" {
		a.ArtifactName = a.ID
		return
	}
	a.ArtifactName = a.Affected[0].Name
	a.ArtifactType = version.PURLType(a.Affected[0].Ecosystem)
}

// osvEvents tells what a record says as steps: it was found, and perhaps fixed.
func osvEvents(a resource.Advisory) []resource.AdvisoryEvent {
	found := a.Source.Published
	if found.IsZero() {
		found = a.Source.Modified
	}
	events := []resource.AdvisoryEvent{{
		CreateTime: found, Author: a.Author, ReviewState: resource.ReviewApproved,
		Type: resource.EventDetection, Detection: &resource.Detection{Manual: true},
	}}
	if fixed := firstFixed(a.Affected); fixed != "" {
		events = append(events, resource.AdvisoryEvent{
			CreateTime: a.Source.Modified, Author: a.Author, ReviewState: resource.ReviewApproved,
			Type: resource.EventFixed, Fixed: &resource.Fix{Version: fixed},
		})
	}
	return events
}

func firstFixed(all []resource.Affected) string {
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

// databases are known by how their ids start.
var databases = []struct{ prefix, name string }{
	{"GO-", "Go"}, {"GHSA-", "GitHub"}, {"CVE-", "CVE"}, {"PYSEC-", "PyPA"}, {"RUSTSEC-", "RustSec"}, {"MAL-", "OpenSSF"},
	{"OSV-", "OSS-Fuzz"}, {"DEBIAN-", "Debian"}, {"DSA-", "Debian"}, {"DLA-", "Debian"}, {"DTSA-", "Debian"},
	{"UBUNTU-", "Ubuntu"}, {"USN-", "Ubuntu"}, {"LSN-", "Ubuntu"}, {"ALPINE-", "Alpine"}, {"RHSA-", "Red Hat"}, {"RHBA-", "Red Hat"},
	{"RHEA-", "Red Hat"}, {"ALSA-", "AlmaLinux"}, {"ALBA-", "AlmaLinux"}, {"ALEA-", "AlmaLinux"}, {"RLSA-", "Rocky"},
	{"RXSA-", "Rocky"}, {"SUSE-", "SUSE"}, {"openSUSE-", "SUSE"}, {"MGASA-", "Mageia"}, {"OESA-", "openEuler"},
	{"BIT-", "Bitnami"}, {"CURL-", "curl"}, {"HSEC-", "Haskell"}, {"JLSEC-", "Julia"}, {"PSF-", "PSF"}, {"RSEC-", "R Consortium"},
	{"BELL-", "BellSoft"}, {"MINI-", "MinimOS"}, {"EEF-", "EEF"}, {"ASB-", "Android"}, {"PUB-", "Android"},
}

// databaseOf names the author of a record that does not: its database.
func databaseOf(id string) string {
	for _, d := range databases {
		if strings.HasPrefix(id, d.prefix) {
			return d.name
		}
	}
	return "osv"
}

// union appends to a what it lacks of b.
func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
