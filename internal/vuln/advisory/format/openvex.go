package format

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// A vexDocument is an OpenVEX document.
type vexDocument struct {
	Context    string         `json:"@context"`
	ID         string         `json:"@id"`
	Author     string         `json:"author"`
	Timestamp  time.Time      `json:"timestamp"`
	Version    json.Number    `json:"version"`
	Tooling    string         `json:"tooling,omitempty"`
	Statements []vexStatement `json:"statements"`
}

type vexStatement struct {
	ID            string           `json:"@id,omitempty"`
	Vulnerability vexVulnerability `json:"vulnerability"`
	Timestamp     time.Time        `json:"timestamp,omitzero"`
	LastUpdated   time.Time        `json:"last_updated,omitzero"`
	Products      []vexProduct     `json:"products"`
	Status        string           `json:"status"`
	StatusNotes   string           `json:"status_notes,omitempty"`
	Justification string           `json:"justification,omitempty"`
	Impact        string           `json:"impact_statement,omitempty"`
	Action        string           `json:"action_statement,omitempty"`
}

type vexVulnerability struct {
	ID          string   `json:"@id,omitempty"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Aliases     []string `json:"aliases,omitempty"`
}

// A vexProduct is a product or a subcomponent of one.
type vexProduct struct {
	ID            string         `json:"@id,omitempty"`
	Identifiers   vexIdentifiers `json:"identifiers,omitzero"`
	Hashes        vexHashes      `json:"hashes,omitempty"`
	Subcomponents []vexProduct   `json:"subcomponents,omitempty"`
}

type vexIdentifiers struct {
	PURL string `json:"purl,omitempty"`
}

// vexHashes are the digests of a product, in hexadecimal digits, by the name of the algorithm.
type vexHashes map[string]string

// UnmarshalJSON leaves h empty instead of failing if the JSON is not an object of strings, because few readers need the
// hashes.
func (h *vexHashes) UnmarshalJSON(b []byte) error {
	var hashes map[string]string
	if json.Unmarshal(b, &hashes) == nil {
		*h = hashes
	}
	return nil
}

// UnmarshalJSON also accepts a string, which OpenVEX used for a vulnerability before version 0.2.
func (v *vexVulnerability) UnmarshalJSON(b []byte) error {
	type plain vexVulnerability
	return unmarshalString(b, &v.Name, (*plain)(v))
}

// UnmarshalJSON also accepts a string, which OpenVEX used for a product before version 0.2.
func (p *vexProduct) UnmarshalJSON(b []byte) error {
	type plain vexProduct
	return unmarshalString(b, &p.ID, (*plain)(p))
}

func unmarshalString(b []byte, s *string, object any) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, s)
	}
	return json.Unmarshal(b, object)
}

// The statuses of OpenVEX.
const (
	vexNotAffected        = "not_affected"
	vexAffected           = "affected"
	vexFixed              = "fixed"
	vexUnderInvestigation = "under_investigation"
)

// vexJustifications maps the justifications in OpenVEX to types of false positives.
var vexJustifications = []struct {
	name string
	kind vuln.FalsePositiveType
}{
	{"component_not_present", vuln.ComponentMismatch},
	{"vulnerable_code_not_present", vuln.CodeNotIncluded},
	{"vulnerable_code_not_present", vuln.CodeVersionNotUsed},
	{"vulnerable_code_not_in_execute_path", vuln.CodeNotInExecutionPath},
	{"vulnerable_code_cannot_be_controlled_by_adversary", vuln.CodeNotControllable},
	{"inline_mitigations_already_exist", vuln.InlineMitigations},
}

// statementPrefix is the prefix of the IDs of statements that Holdfast writes. The ID of the advisory follows.
const statementPrefix = "urn:holdfast:advisory:"

// readOpenVEX parses an OpenVEX document. It returns an advisory for each
// vulnerability and product, with an event for each statement about them.
func readOpenVEX(text string) ([]vuln.Advisory, error) {
	doc, statements, err := vexHead(text)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(doc.Context, "https://openvex.dev/ns") {
		return nil, fmt.Errorf("has a @context that is not OpenVEX's: %q", doc.Context)
	}
	var advisories []vuln.Advisory
	index := map[string]int{} // index in the result, by advisory ID
	for i, text := range statements {
		s, err := decodeJSON[vexStatement](text)
		if err == nil {
			err = s.check()
		}
		if err != nil {
			return nil, fmt.Errorf("has an invalid statement, number %d: it %w", i+1, err)
		}
		for _, p := range s.Products {
			a := vexAdvisory(doc, s, p)
			if k, ok := index[a.ID]; ok {
				advisories[k] = vexMerge(advisories[k], a)
				continue
			}
			index[a.ID] = len(advisories)
			advisories = append(advisories, a)
		}
	}
	for i := range advisories {
		slices.SortStableFunc(advisories[i].Events,
			func(a, b vuln.AdvisoryEvent) int { return a.CreateTime.Compare(b.CreateTime) })
		advisories[i] = withSource(advisories[i], "openvex")
	}
	return advisories, nil
}

// vexHead parses the metadata of a document, and returns the texts of its statements.
func vexHead(text string) (doc vexDocument, statements []string, err error) {
	r := newReader(text)
	for key := range r.object {
		switch key {
		case "@context":
			doc.Context = r.text()
		case "author":
			doc.Author = r.text()
		case "timestamp":
			doc.Timestamp = r.time()
		case "statements":
			statements = r.elements()
		default:
			r.skip()
		}
	}
	return doc, statements, r.end()
}

// check returns an error if the statement is invalid. Its text continues a sentence about the statement.
func (s vexStatement) check() error {
	switch {
	case s.Vulnerability.name() == "":
		return errors.New("names no vulnerability")
	case len(s.Products) == 0:
		return errors.New("names no product")
	case s.Status == vexNotAffected && s.Justification == "" && s.Impact == "":
		return errors.New("has neither a justification nor an impact_statement")
	}
	for _, p := range s.Products {
		if p.name() == "" {
			return errors.New("names no product")
		}
	}
	switch s.Status {
	case vexNotAffected, vexAffected, vexFixed, vexUnderInvestigation:
		return nil
	}
	return fmt.Errorf("has the unknown status %q", s.Status)
}

func (v vexVulnerability) name() string { return cmp.Or(v.Name, v.ID) }

// name returns the package URL of a product, or its ID.
func (p vexProduct) name() string { return cmp.Or(p.Identifiers.PURL, p.ID) }

// vexAdvisory returns the advisory for a statement about a product.
func vexAdvisory(doc vexDocument, s vexStatement, p vexProduct) vuln.Advisory {
	name := s.Vulnerability.name()
	id, ok := strings.CutPrefix(s.ID, statementPrefix)
	if !ok {
		id = vuln.StableAdvisoryID("openvex", name, p.name())
	}
	a := vuln.Advisory{
		ID: id, Author: doc.Author, Summary: s.Vulnerability.Description,
		Aliases: union([]string{name}, s.Vulnerability.Aliases),
	}
	a.Aliases = slices.DeleteFunc(a.Aliases, func(alias string) bool { return alias == id || alias == "" })
	a.Aliases, a.Fixes = vuln.Relate(id, a.Aliases, nil, nil)
	v, number := vexAffectedBy(p.name())
	switch {
	case s.Status == vexNotAffected:
		if v.PURL != "" {
			v.PURL = p.name() // includes the version, because Versions lists only affected versions
		}
	case s.Status == vexFixed:
	case number != "":
		v.Versions = []string{number}
	default:
		v.Ranges = []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}}}}
	}
	a.Affected = []vuln.Affected{v}
	nameArtifact(&a)
	if len(p.Subcomponents) > 0 {
		c, _ := vexAffectedBy(p.Subcomponents[0].name())
		if a.ComponentName = c.Name; c.PURL != "" {
			a.ComponentType = version.PURLType(c.Ecosystem)
		}
	}
	a.Events = []vuln.AdvisoryEvent{vexEvent(doc, s, number)}
	return a
}

// genericEcosystem is the ecosystem of products that only have a name.
const genericEcosystem = "generic"

// vexAffectedBy splits a product into its package and version. If the product is not a package URL, the whole text is
// the name of the package.
func vexAffectedBy(product string) (v vuln.Affected, number string) {
	ecosystem, name, number, err := version.ParsePURL(product)
	if err != nil {
		return vuln.Affected{Ecosystem: genericEcosystem, Name: product}, ""
	}
	purl, _, _ := strings.Cut(product, "@")
	if strings.HasPrefix(product, "pkg:npm/@") { // an npm scope whose @ is not escaped
		purl = "pkg:npm/%40" + strings.SplitN(product, "@", 3)[1]
	}
	purl, _, _ = strings.Cut(purl, "?")
	return vuln.Affected{Ecosystem: ecosystem, Name: name, PURL: purl}, number
}

func vexEvent(doc vexDocument, s vexStatement, number string) vuln.AdvisoryEvent {
	created := cmp.Or(s.LastUpdated, s.Timestamp, doc.Timestamp).UTC().Truncate(time.Millisecond)
	e := vuln.AdvisoryEvent{CreateTime: created, Author: doc.Author, ReviewState: vuln.ReviewApproved,
		Note: s.StatusNotes}
	switch s.Status {
	case vexNotAffected:
		e.Type, e.Note = vuln.EventFalsePositive, cmp.Or(s.Impact, e.Note)
		for _, j := range vexJustifications {
			if j.name == s.Justification {
				e.FalsePositive = j.kind
				break
			}
		}
	case vexAffected:
		e.Type, e.Note = vuln.EventTruePositive, cmp.Or(s.Action, e.Note)
	case vexFixed:
		e.Type, e.Fixed = vuln.EventFixed, &vuln.Fix{Version: number}
	default:
		e.Type, e.Note, e.Detection = vuln.EventDetection, "", &vuln.Detection{Manual: true}
	}
	return e
}

// vexMerge merges two advisories with the same ID.
func vexMerge(a, b vuln.Advisory) vuln.Advisory {
	a.Aliases, a.Fixes = union(a.Aliases, b.Aliases), union(a.Fixes, b.Fixes)
	for _, e := range b.Events { // a statement about several products is one event
		if !slices.ContainsFunc(a.Events, func(o vuln.AdvisoryEvent) bool { return reflect.DeepEqual(o, e) }) {
			a.Events = append(a.Events, e)
		}
	}
	for _, v := range b.Affected {
		i := slices.IndexFunc(a.Affected,
			func(o vuln.Affected) bool { return o.Name == v.Name && o.Ecosystem == v.Ecosystem })
		if i < 0 {
			a.Affected = append(a.Affected, v)
			continue
		}
		a.Affected[i].Versions = union(a.Affected[i].Versions, v.Versions)
		if len(a.Affected[i].Ranges) == 0 {
			a.Affected[i].Ranges = v.Ranges
		}
	}
	return a
}
