package format

import (
	"archive/zip"
	"cmp"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const osvSchema = "1.7.0"

// An osvRecord is a record of OSV.
type osvRecord struct {
	SchemaVersion string         `json:"schema_version"`
	ID            string         `json:"id"`
	Modified      time.Time      `json:"modified"`
	Published     time.Time      `json:"published,omitzero"`
	Withdrawn     time.Time      `json:"withdrawn,omitzero"`
	Aliases       []string       `json:"aliases,omitempty"`
	Upstream      []string       `json:"upstream,omitempty"`
	Summary       string         `json:"summary,omitempty"`
	Details       string         `json:"details,omitempty"`
	Severity      []osvSeverity  `json:"severity,omitempty"`
	Affected      []osvAffected  `json:"affected,omitempty"`
	Specific      map[string]any `json:"database_specific,omitempty"`

	References []vuln.Reference `json:"references,omitempty"`
}

type osvSeverity struct {
	Type  string `json:"type"`
	Score string `json:"score"`
}

type osvAffected struct {
	Package  *osvPackage   `json:"package,omitempty"`
	Severity []osvSeverity `json:"severity,omitempty"`
	Ranges   []osvRange    `json:"ranges,omitempty"`
	Versions []string      `json:"versions,omitempty"`

	Specific map[string]string `json:"database_specific,omitempty"`
}

type osvPackage struct {
	Ecosystem string `json:"ecosystem"`
	Name      string `json:"name"`
	PURL      string `json:"purl,omitempty"`
}

type osvRange struct {
	Type   string     `json:"type"`
	Repo   string     `json:"repo,omitempty"`
	Events []osvEvent `json:"events"`
}

type osvEvent struct {
	Introduced   string `json:"introduced,omitempty"`
	Fixed        string `json:"fixed,omitempty"`
	LastAffected string `json:"last_affected,omitempty"`
	Limit        string `json:"limit,omitempty"`
}

// toOSV returns the OSV record of an advisory. It adds Holdfast's extension if reading the record without it would not
// restore the advisory.
func toOSV(a vuln.Advisory) osvRecord {
	a = a.Current()
	v := osvRecord{
		SchemaVersion: osvSchema, ID: a.ID, Published: a.Source.Published, Withdrawn: a.DeleteTime,
		Modified: cmp.Or(a.Source.Modified, a.UpdateTime), Aliases: a.Aliases, Upstream: a.Fixes,
		Summary: a.Summary, Details: a.Details, Severity: toOSVSeverities(a.Severities), References: a.References,
	}
	for _, f := range a.Affected {
		v.Affected = append(v.Affected, toOSVAffected(f))
	}
	aliases, fixes := vuln.Relate(a.ID, a.Aliases, a.Fixes, nil)
	x := extensionOf(a)
	if !reflect.DeepEqual(x, extensionOf(derived(a))) || !sameNames(aliases, a.Aliases) || !sameNames(fixes, a.Fixes) {
		v.Specific = map[string]any{extensionKey: x}
	}
	if a.VendorSeverity != "" {
		if v.Specific == nil {
			v.Specific = map[string]any{}
		}
		v.Specific["severity"] = a.VendorSeverity
	}
	return v
}

// sameNames reports whether two lists contain the same names.
func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func toOSVSeverities(severities []vuln.Severity) []osvSeverity {
	var out []osvSeverity
	for _, s := range severities {
		out = append(out, osvSeverity{severityNames[s.Type], s.Score})
	}
	return out
}

func toOSVAffected(f vuln.Affected) osvAffected {
	v := osvAffected{Versions: f.Versions, Severity: toOSVSeverities(f.Severities)}
	if f.VendorSeverity != "" {
		v.Specific = map[string]string{"severity": f.VendorSeverity}
	}
	if f.Ecosystem != gitEcosystem {
		v.Package = &osvPackage{f.Ecosystem, f.Name, f.PURL}
	}
	for _, r := range f.Ranges {
		out := osvRange{Type: r.Type, Repo: r.Repo, Events: []osvEvent{}}
		for _, e := range r.Events {
			out.Events = append(out.Events, osvEvent(e))
		}
		v.Ranges = append(v.Ranges, out)
	}
	return v
}

// extensionOf returns Holdfast's extension of a record.
func extensionOf(a vuln.Advisory) osvExtension {
	x := osvExtension{
		LegacyID: a.LegacyID, Author: a.Author, ArtifactName: a.ArtifactName, ArtifactType: a.ArtifactType,
		ArtifactArchitecture: a.ArtifactArchitecture, ComponentName: a.ComponentName,
		ComponentLocation: a.ComponentLocation, ComponentType: a.ComponentType,
	}
	for _, e := range a.Events {
		e.UID = ""
		e.CreateTime = e.CreateTime.UTC()
		x.Events = append(x.Events, e)
	}
	return x
}

// derived returns the advisory that is read from a record without Holdfast's extension.
func derived(a vuln.Advisory) vuln.Advisory {
	d := vuln.Advisory{ID: a.ID, Affected: a.Affected, Source: a.Source, Author: databaseOf(a.ID)}
	nameArtifact(&d)
	d.Events = osvEvents(d)
	return d
}

// osvLines implements Writer with one line per record.
type osvLines struct{ to *json.Encoder }

func newOSVLines(w io.Writer) *osvLines {
	to := json.NewEncoder(w)
	to.SetEscapeHTML(false)
	return &osvLines{to}
}

func (d *osvLines) Write(a vuln.Advisory) error { return d.to.Encode(toOSV(a)) }

func (d *osvLines) Close() error { return nil }

// osvArchive implements Writer with one file per record, like the archives of the public databases.
type osvArchive struct{ to *zip.Writer }

func (d *osvArchive) Write(a vuln.Advisory) error {
	f, err := d.to.CreateHeader(&zip.FileHeader{
		Name: strings.ReplaceAll(a.ID, "/", "_") + ".json", Method: zip.Deflate,
		Modified: cmp.Or(a.Source.Modified, a.UpdateTime),
	})
	if err != nil {
		return err
	}
	return newOSVLines(f).Write(a)
}

func (d *osvArchive) Close() error { return d.to.Close() }
