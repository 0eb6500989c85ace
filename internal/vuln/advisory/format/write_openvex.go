package format

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

const vexContext = "https://openvex.dev/ns/v0.2.0"

// vexWriter implements Writer for OpenVEX.
type vexWriter struct {
	to    *bufio.Writer
	head  vexDocument
	wrote int
}

// newVEXDocument returns a writer. OpenVEX needs an author and an ID, so it uses
// defaults if the Options have none.
func newVEXDocument(w io.Writer, o Options) *vexWriter {
	o.Author = cmp.Or(o.Author, "holdfast")
	o.ID = cmp.Or(o.ID, "urn:holdfast:openvex:"+o.Time.UTC().Format("20060102T150405.000Z"))
	return &vexWriter{to: bufio.NewWriter(w), head: vexDocument{
		Context: vexContext, ID: o.ID, Author: o.Author, Timestamp: o.Time.UTC().Truncate(time.Millisecond),
		Version:    "1",
		Tooling:    o.Tooling,
		Statements: []vexStatement{},
	}}
}

// Write writes a statement for each approved event of an advisory. In OpenVEX, later
// statements override earlier ones. It writes nothing for a withdrawn advisory.
func (d *vexWriter) Write(a vuln.Advisory) error {
	if !a.DeleteTime.IsZero() {
		return nil
	}
	a = a.Current()
	var fixed []string // versions that earlier events of the advisory name as fixed
	for _, e := range a.Events {
		if e.ReviewState != vuln.ReviewApproved {
			continue
		}
		fixed = union(fixed, e.FixedVersions())
		for _, names := range a.Vulnerabilities() {
			s, ok := toVEX(a, names, e, fixed)
			if !ok {
				continue
			}
			text, err := json.Marshal(s)
			if err != nil {
				return fmt.Errorf("write %s: %w", a.ID, err)
			}
			if err := d.statement(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// statement writes the text of a statement. Before the first statement it writes the head of the document, and before
// the others a comma.
func (d *vexWriter) statement(text []byte) error {
	before := ",\n"
	if d.wrote == 0 {
		head, err := json.Marshal(d.head)
		if err != nil {
			return err
		}
		before = strings.TrimSuffix(string(head), "]}") + "\n"
	}
	d.wrote++
	_, err := d.to.WriteString(before + string(text))
	return err
}

func (d *vexWriter) Close() error {
	if d.wrote == 0 {
		if err := d.statement(nil); err != nil {
			return err
		}
	}
	if _, err := d.to.WriteString("]}\n"); err != nil {
		return err
	}
	return d.to.Flush()
}

// toVEX returns the statement for an event about one of the advisory's vulnerabilities, which has the given names.
// fixed are the versions that earlier statements name as fixed. It returns false if there is no product that the event
// is about. If an advisory fixes vulnerabilities, its statements have different IDs, so that the vulnerabilities remain
// separate when the document is imported.
func toVEX(a vuln.Advisory, names []string, e vuln.AdvisoryEvent, fixed []string) (vexStatement, bool) {
	s := vexStatement{
		ID: statementPrefix + a.ID, Timestamp: e.CreateTime.UTC(),
		Vulnerability: vexVulnerability{Name: vexName(a, names)},
	}
	if len(a.Fixes) > 0 {
		s.ID += "/" + names[0]
	}
	s.Vulnerability.Aliases = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return name == s.Vulnerability.Name || name == a.ID && strings.HasPrefix(a.ID, vuln.AdvisoryIDPrefix)
	})
	switch e.Type {
	case vuln.EventFalsePositive:
		s.Status, s.Impact = vexNotAffected, e.Note
		for _, j := range vexJustifications {
			if j.kind == e.FalsePositive {
				s.Justification = j.name
			}
		}
		if s.Justification == "" && s.Impact == "" {
			s.Impact = "The analysis is contested."
		}
	case vuln.EventFixed, vuln.EventPatched:
		s.Status, s.StatusNotes = vexFixed, e.Note
	case vuln.EventTruePositive, vuln.EventFixNotPlanned, vuln.EventPendingUpstreamFix:
		s.Status, s.Action = vexAffected, cmp.Or(e.Note, vexActions[e.Type])
	case vuln.EventDetection, vuln.EventAnalysisNotPlanned:
		s.Status, s.StatusNotes = vexUnderInvestigation, e.Note
		if a.Source.Format == "osv" { // public databases contain only vulnerabilities that were analyzed
			s.Status, s.Action, s.StatusNotes = vexAffected, vexActions[vuln.EventTruePositive], ""
		}
	}
	s.Products = vexProducts(a, e, fixed)
	return s, len(s.Products) > 0
}

// vexActions are the action statements for events without a note, because OpenVEX requires an action statement.
var vexActions = map[vuln.AdvisoryEventType]string{
	vuln.EventTruePositive:       "Update to a version that is not affected.",
	vuln.EventFixNotPlanned:      "No fix is planned.",
	vuln.EventPendingUpstreamFix: "A fix is expected from upstream.",
}

// vexName returns the best known of a vulnerability's names.
func vexName(a vuln.Advisory, names []string) string {
	for _, name := range names {
		if vuln.IsCVE(name) {
			return name
		}
	}
	if len(names) > 1 && names[0] == a.ID && strings.HasPrefix(a.ID, vuln.AdvisoryIDPrefix) {
		return names[1]
	}
	return names[0]
}

// vexProducts returns the packages that an event is about, with their versions.
func vexProducts(a vuln.Advisory, e vuln.AdvisoryEvent, fixed []string) []vexProduct {
	affected := a.Affected
	if len(affected) == 0 {
		affected = []vuln.Affected{{Ecosystem: a.ArtifactType, Name: a.ArtifactName}}
	}
	var parts []vexProduct
	if a.ComponentName != "" {
		parts = []vexProduct{{ID: a.ComponentName}}
	}
	var products []vexProduct
	for _, v := range affected {
		purl := v.PURL
		if purl == "" && v.Ecosystem != gitEcosystem {
			purl = version.PURL(v.Ecosystem, v.Name)
		}
		if purl == "" || v.Ecosystem == genericEcosystem {
			purl = v.Name
		}
		for _, number := range vexVersions(a, v, e, fixed) {
			p := vexProduct{ID: purl, Subcomponents: parts}
			if number != "" && !strings.Contains(purl, "@") && strings.HasPrefix(purl, "pkg:") {
				p.ID += "@" + versionEscaper.Replace(number)
			}
			products = append(products, p)
		}
	}
	return products
}

// vexVersions returns the versions of a package that an event is about; "" means all versions. For an event that
// re-opens an advisory, it also returns the fixed versions, because not every reader lets a statement about all
// versions override a statement about one version.
func vexVersions(a vuln.Advisory, v vuln.Affected, e vuln.AdvisoryEvent, fixed []string) []string {
	versions := []string{""}
	switch {
	case e.Type == vuln.EventPatched && len(e.Patched) > 0:
		return e.Patched
	case e.Type == vuln.EventFixed:
		return []string{vexFixedVersion(a, v, e)}
	case e.Type == vuln.EventFalsePositive:
		return versions
	case len(v.Versions) > 0:
		versions = v.Versions
	}
	if v.Name == a.ArtifactName {
		versions = union(slices.Clone(versions), fixed)
	}
	return versions
}

// vexFixedVersion returns the version in which an event fixes a package. It prefers the version in the package's range,
// because the event names the version of only one package. If the advisory was re-opened, it prefers the version that
// the event names, because the ranges contain only the latest fix.
func vexFixedVersion(a vuln.Advisory, v vuln.Affected, e vuln.AdvisoryEvent) string {
	named, inRange := "", firstFixed([]vuln.Affected{v})
	if e.Fixed != nil {
		named = e.Fixed.Version
	}
	if a.Reopened() && v.Name == a.ArtifactName {
		return cmp.Or(named, inRange)
	}
	return cmp.Or(inRange, named)
}

var versionEscaper = strings.NewReplacer(
	"%", "%25", "+", "%2B", ":", "%3A", "@", "%40", "?", "%3F", "#", "%23", " ", "%20", "/", "%2F")
