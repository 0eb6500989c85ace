package vuln

import (
	"cmp"
	"encoding/base32"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An Advisory describes one vulnerability in one artifact. An advisory of a public database describes the vulnerability
// in all affected packages; then the first entry of Affected determines the artifact's name and type. The component is
// the vulnerable part of the artifact. It is empty if the artifact itself is vulnerable. An advisory of a distribution
// describes all vulnerabilities that it fixes.
type Advisory struct {
	UID                  resource.UID    `json:"-"`
	ID                   string          `json:"id"`                 // unique in a group; the source's ID, if any
	LegacyID             string          `json:"legacyId,omitempty"` // an ID that the advisory had before
	Author               string          `json:"author"`
	ArtifactName         string          `json:"artifactName"`
	ArtifactType         string          `json:"artifactType"` // the type of a package URL: apk, golang, npm …
	ArtifactArchitecture string          `json:"artifactArchitecture,omitempty"`
	ComponentName        string          `json:"componentName,omitempty"`
	ComponentLocation    string          `json:"componentLocation,omitempty"`
	ComponentType        string          `json:"componentType,omitempty"`
	Aliases              []string        `json:"aliases,omitempty"` // other names of the same vulnerability
	Fixes                []string        `json:"fixes,omitempty"`   // vulnerabilities that the advisory fixes
	Events               []AdvisoryEvent `json:"events,omitempty"`  // events, the oldest first
	Severities           []Severity      `json:"severities,omitempty"`
	VendorSeverity       string          `json:"vendorSeverity,omitempty"` // word of the vendor, such as Important
	CreateTime           time.Time       `json:"-"`                        // set by the store
	UpdateTime           time.Time       `json:"-"`                        // set by the store
	DeleteTime           time.Time       `json:"deleteTime,omitzero"`      // when the source withdrew the advisory

	Summary    string         `json:"summary,omitempty"`
	Details    string         `json:"details,omitempty"`
	Affected   []Affected     `json:"affected,omitempty"`
	References []Reference    `json:"references,omitempty"`
	Source     AdvisorySource `json:"source,omitzero"`
}

// An AdvisoryRecord is the form of an advisory in the outbox. Its JSON includes the fields that are separate columns
// in the table of advisories.
type AdvisoryRecord struct {
	Advisory
	Path    resource.UID `json:"uid"`
	Created time.Time    `json:"createTime"`
	Updated time.Time    `json:"updateTime"`
}

// Record returns the advisory in the form of the outbox.
func (a Advisory) Record() AdvisoryRecord {
	return AdvisoryRecord{a, a.UID, a.CreateTime, a.UpdateTime}
}

// Restore returns the advisory from which Record made r.
func (r AdvisoryRecord) Restore() Advisory {
	a := r.Advisory
	a.UID, a.CreateTime, a.UpdateTime = r.Path, r.Created, r.Updated
	return a
}

// An AdvisorySource describes where an advisory came from. Two records of a group with the
// same advisory ID and the same digest are equal.
type AdvisorySource struct {
	Format    string    `json:"format,omitempty"` // osv, openvex, secdb, yaml; "" if it was written in Holdfast
	Name      string    `json:"name,omitempty"`   // name of the source's document
	Published time.Time `json:"published,omitzero"`
	Modified  time.Time `json:"modified,omitzero"`
	Digest    []byte    `json:"-"` // hash of the source's record
}

// An Affected is a package and its vulnerable versions: the versions in any of the ranges, and the listed versions.
type Affected struct {
	Ecosystem  string          `json:"ecosystem"` // name of the ecosystem in OSV: Go, npm, Alpine:v3.20 …
	Name       string          `json:"name"`
	PURL       string          `json:"purl,omitempty"` // package URL without a version
	Ranges     []AffectedRange `json:"ranges,omitempty"`
	Versions   []string        `json:"versions,omitempty"`
	Severities []Severity      `json:"severities,omitempty"`

	VendorSeverity string `json:"vendorSeverity,omitempty"` // word of the vendor for this package
}

// An AffectedRange is a range of versions, given by the events that start and end it.
type AffectedRange struct {
	Type   string       `json:"type"`           // SEMVER, ECOSYSTEM or GIT
	Repo   string       `json:"repo,omitempty"` // address of the repository, if Type is GIT
	Events []RangeEvent `json:"events"`
}

// A RangeEvent starts or ends a range. Exactly one field is set.
type RangeEvent struct {
	Introduced   string `json:"introduced,omitempty"` // "0" means before all versions
	Fixed        string `json:"fixed,omitempty"`
	LastAffected string `json:"lastAffected,omitempty"`
	Limit        string `json:"limit,omitempty"`
}

// A Severity is a CVSS vector.
type Severity struct {
	Type  SeverityType `json:"type"`
	Score string       `json:"score"`
}

// A SeverityType is a version of CVSS. Its values are equal to the values in the API.
type SeverityType int32

// The versions of CVSS.
const (
	SeverityUnspecified SeverityType = iota
	CVSSv2
	CVSSv3
	CVSSv4
)

// A Reference is a page about the vulnerability.
type Reference struct {
	Type string `json:"type"` // type of the reference in OSV: ADVISORY, FIX, WEB …
	URL  string `json:"url"`
}

// Limits of an advisory. They are far above the largest records of the public databases.
const (
	maxAliases       = 512
	maxFixes         = 2048
	maxAffected      = 4096
	maxRanges        = 1024
	maxRangeEvents   = 1024
	maxVersions      = 16384
	maxReferences    = 1024
	maxSeverities    = 16
	maxEvents        = 1024
	maxDetails       = 256 << 10
	maxLocation      = 64 << 10 // bytes in a component's location, which may list the paths of hundreds of files
	maxVersion       = 256
	maxAdvisoryBytes = 2 << 20 // bytes in all texts of an advisory together
)

var advisoryIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+~-]{0,254}$`)

// Validate returns an error that names every invalid field.
func (a Advisory) Validate() error {
	var p problems
	if a.ID != "" {
		p.Matches("advisory_id", a.ID, advisoryIDPattern)
	}
	for _, v := range [...][2]string{
		{"legacy_advisory_id", a.LegacyID}, {"author", a.Author},
		{"artifact_name", a.ArtifactName}, {"artifact_type", a.ArtifactType},
		{"artifact_architecture", a.ArtifactArchitecture}, {"component_name", a.ComponentName},
		{"component_type", a.ComponentType}, {"vendor_severity", a.VendorSeverity},
		{"summary", a.Summary}, {"source.format", a.Source.Format}, {"source.name", a.Source.Name},
	} {
		p.Text(v[0], v[1])
	}
	p.Required("artifact_name", a.ArtifactName)
	p.LongText("component_location", a.ComponentLocation, maxLocation)
	p.LongText("details", a.Details, maxDetails)
	p.texts("aliases", a.Aliases, maxAliases)
	p.texts("fixes", a.Fixes, maxFixes)
	p.severities("severities", a.Severities)
	p.AtMost("affected", len(a.Affected), maxAffected, "entries")
	for i, v := range a.Affected[:min(len(a.Affected), maxAffected)] {
		v.validate(&p, fmt.Sprintf("affected[%d]", i))
	}
	p.AtMost("references", len(a.References), maxReferences, "entries")
	for _, r := range a.References {
		p.Text("references.type", r.Type)
		p.Text("references.url", r.URL)
	}
	p.AtMost("events", len(a.Events), maxEvents, "entries")
	for i, e := range a.Events[:min(len(a.Events), maxEvents)] {
		e.validate(&p, fmt.Sprintf("events[%d].", i))
	}
	p.AtMost("advisory", a.Size(), maxAdvisoryBytes, "bytes of text")
	return p.Err()
}

func (v Affected) validate(p *problems, field string) {
	p.Text(field+".ecosystem", v.Ecosystem)
	p.Text(field+".name", v.Name)
	p.Text(field+".purl", v.PURL)
	p.Text(field+".vendor_severity", v.VendorSeverity)
	p.Required(field+".name", v.Name)
	p.AtMost(field+".versions", len(v.Versions), maxVersions, "entries")
	for _, s := range v.Versions[:min(len(v.Versions), maxVersions)] {
		p.version(field+".versions", s)
	}
	p.severities(field+".severities", v.Severities)
	p.AtMost(field+".ranges", len(v.Ranges), maxRanges, "entries")
	for i, r := range v.Ranges[:min(len(v.Ranges), maxRanges)] {
		r.validate(p, fmt.Sprintf("%s.ranges[%d]", field, i))
	}
}

func (r AffectedRange) validate(p *problems, field string) {
	if r.Type != "SEMVER" && r.Type != "ECOSYSTEM" && r.Type != "GIT" {
		p.Add(field+".type", "must be SEMVER, ECOSYSTEM or GIT")
	}
	p.Text(field+".repo", r.Repo)
	p.AtMost(field+".events", len(r.Events), maxRangeEvents, "entries")
	for _, e := range r.Events[:min(len(r.Events), maxRangeEvents)] {
		set := 0
		for _, s := range []string{e.Introduced, e.Fixed, e.LastAffected, e.Limit} {
			if s != "" {
				set++
				p.version(field+".events", s)
			}
		}
		if set != 1 {
			p.Add(field+".events", "must have exactly one of introduced, fixed, last_affected and limit")
		}
	}
}

// version checks a version of any ecosystem.
func (p *problems) version(field, s string) {
	p.LongText(field, s, maxVersion)
	p.Required(field, s)
}

// severities checks the types and lengths of CVSS vectors, but does not parse them.
func (p *problems) severities(field string, severities []Severity) {
	p.AtMost(field, len(severities), maxSeverities, "entries")
	for _, s := range severities {
		resource.Within(&p.Problems, field, s.Type, CVSSv2, CVSSv4, "is not a version of CVSS")
		p.Text(field, s.Score)
	}
}

// texts checks that there are at most limit values, and that none is empty. It checks only the first limit values.
func (p *problems) texts(field string, values []string, limit int) {
	p.AtMost(field, len(values), limit, "entries")
	for _, s := range values[:min(len(values), limit)] {
		p.Text(field, s)
		if s == "" {
			p.Add(field, "must not be empty")
		}
	}
}

// Size returns the approximate number of bytes of text in the advisory.
func (a Advisory) Size() int {
	n := len(a.Details) + len(a.ComponentLocation)
	for _, v := range a.Affected {
		n += len(v.Name) + 64
		for _, s := range v.Versions {
			n += len(s) + 4
		}
		for _, r := range v.Ranges {
			n += 64 * len(r.Events)
		}
	}
	for _, e := range a.Events {
		n += len(e.Note) + len(e.Findings) + 128
		if e.Detection != nil && e.Detection.Scan != nil {
			n += len(e.Detection.Scan.ComponentLocation)
		}
	}
	return n
}

// Names returns the names of the artifact and of all affected packages, each once.
func (a Advisory) Names() []string {
	names := make([]string, 0, 1+len(a.Affected))
	if a.ArtifactName != "" {
		names = append(names, a.ArtifactName)
	}
	for _, v := range a.Affected {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Latest returns the newest approved event, or nil.
func (a Advisory) Latest() *AdvisoryEvent {
	return latest(a.Events, func(AdvisoryEvent) bool { return true })
}

// latest returns the newest approved event that passes the filter, or nil.
func latest(events []AdvisoryEvent, filter func(AdvisoryEvent) bool) *AdvisoryEvent {
	var latest *AdvisoryEvent
	for i := range events {
		e := &events[i]
		if e.ReviewState == ReviewApproved && filter(*e) && (latest == nil || !e.CreateTime.Before(latest.CreateTime)) {
			latest = e
		}
	}
	return latest
}

// AdvisoryIDPrefix is the prefix of advisory IDs that Holdfast generates.
const AdvisoryIDPrefix = "HFA-"

// StableAdvisoryID returns an advisory ID for a source without IDs. Equal words give equal IDs.
func StableAdvisoryID(words ...string) string {
	const letters = "23456789cfghjmpqrvwx01abdeknstyz" // the alphabet of GHSA IDs, extended to 32 letters
	text := base32.NewEncoding(letters).EncodeToString(resource.HashWords(words)[:8])
	return AdvisoryIDPrefix + text[:4] + "-" + text[4:8] + "-" + text[8:12]
}

// IsOlder reports whether an advisory is an older version than the stored one, according to their source. If the
// version of one of them is unknown, it reports false. If the stored one claims to be modified after it was stored, it
// counts as modified when it was stored. Otherwise a wrong date in the future would refuse all later versions.
func (a Advisory) IsOlder(stored Advisory) bool {
	modified := stored.Source.Modified
	if !stored.UpdateTime.IsZero() && stored.UpdateTime.Before(modified) {
		modified = stored.UpdateTime
	}
	return a.Source.Format == stored.Source.Format && !a.Source.Modified.IsZero() && a.Source.Modified.Before(modified)
}

// Merge returns the advisory after its source has published next. Every field is replaced, except the events: the
// events of next are added to the stored ones. An event that occurs twice in next is stored twice, because a
// vulnerability can be found again after a fix.
func (a Advisory) Merge(next Advisory) Advisory {
	next.UID, next.CreateTime = a.UID, a.CreateTime
	next.LegacyID = cmp.Or(next.LegacyID, a.LegacyID)
	last := next.Latest()
	merged, known := slices.Clone(a.Events), slices.Clone(a.Events)
	for i := range next.Events {
		e := &next.Events[i]
		if index := slices.IndexFunc(known, e.equalContent); index >= 0 {
			known = slices.Delete(known, index, index+1)
			continue
		}
		merged = append(merged, *e)
		// The store sets the missing time to the time of the import, so e becomes the latest event.
		if e == last && e.CreateTime.IsZero() {
			last = nil
		}
	}
	next.Events = merged
	if last != nil {
		next.repeatLatest(*last)
	}
	return next
}

// repeatLatest appends e, the latest event of a source, again if the latest stored event of that source differs from
// it. This happens if the source withdraws a fix, or confirms a fix that it had withdrawn.
func (a *Advisory) repeatLatest(e AdvisoryEvent) {
	stored := latest(a.Events, func(o AdvisoryEvent) bool { return o.Author == e.Author })
	if stored == nil || stored.equalContent(e) {
		return
	}
	if e.UID = ""; !e.CreateTime.After(stored.CreateTime) {
		e.CreateTime = stored.CreateTime.Add(time.Millisecond)
	}
	a.Events = append(a.Events, e)
}

// plainText reports whether s has no control characters except line breaks and tabs.
func plainText(s string) bool {
	control := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' && r != '\r' }
	return resource.Storable(s) && !strings.ContainsFunc(s, control)
}
