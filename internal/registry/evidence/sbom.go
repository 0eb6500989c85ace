package evidence

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// An SBOM lists the packages and files of an image.
type SBOM struct {
	Name          string
	Description   string
	Tool          string
	Authors       []string
	Time          time.Time
	Packages      []Package
	Files         []File
	Relationships []Relationship
}

// A Package is a package in an image.
type Package struct {
	ID          string
	Name        string
	Version     string
	License     string
	Description string
	PURL        string
	Origin      string // package URL of the source package; "" if unknown
}

// A File is a file in an image.
type File struct {
	ID    string
	Name  string
	Types []string
}

// A Relationship relates two parts of an SBOM by their IDs.
type Relationship struct {
	From, To string
	Kind     RelationshipKind
}

// A RelationshipKind is the kind of a Relationship.
type RelationshipKind int

// The kinds of relationships.
const (
	OtherRelationship RelationshipKind = iota
	Describes
	Contains
	DependsOn
	GeneratedFrom
)

// SBOM parses an SBOM.
func (d Document) SBOM() (SBOM, error) {
	switch d.Format {
	case SPDX:
		return readSPDX(d.Raw)
	case CycloneDX:
		return readCycloneDX(d.Raw)
	}
	return SBOM{}, ErrUnknown
}

type spdxDocument struct {
	Name, Comment string
	CreationInfo  struct {
		Created  string
		Creators []string
	}
	Packages []struct {
		SPDXID, Name, VersionInfo         string
		LicenseConcluded, LicenseDeclared string
		Description, Summary              string
		ExternalRefs                      []struct{ ReferenceType, ReferenceLocator string }
	}
	Files []struct {
		ID    string   `json:"SPDXID"`
		Name  string   `json:"fileName"`
		Types []string `json:"fileTypes"`
	}
	Relationships []struct {
		From string `json:"spdxElementId"`
		To   string `json:"relatedSpdxElement"`
		Type string `json:"relationshipType"`
	}
}

// spdxRelationships maps the names of relationships in SPDX to kinds. If inverse is true, the name is the name of the
// inverse relationship.
var spdxRelationships = map[string]struct {
	kind    RelationshipKind
	inverse bool
}{
	"DESCRIBES": {kind: Describes}, "DESCRIBED_BY": {kind: Describes, inverse: true},
	"CONTAINS": {kind: Contains}, "CONTAINED_BY": {kind: Contains, inverse: true},
	"DEPENDS_ON": {kind: DependsOn}, "DEPENDENCY_OF": {kind: DependsOn, inverse: true},
	"GENERATED_FROM": {kind: GeneratedFrom}, "GENERATES": {kind: GeneratedFrom, inverse: true},
}

func readSPDX(raw []byte) (SBOM, error) {
	var d spdxDocument
	if err := decode(raw, &d); err != nil {
		return SBOM{}, fmt.Errorf("SPDX: %w", err)
	}
	s := SBOM{Name: d.Name, Description: d.Comment, Time: parseTime(d.CreationInfo.Created)}
	for _, c := range d.CreationInfo.Creators {
		if tool, ok := strings.CutPrefix(c, "Tool: "); ok {
			s.Tool = first(s.Tool, tool)
			continue
		}
		s.Authors = append(s.Authors, c)
	}
	for _, p := range d.Packages {
		part := Package{
			ID: p.SPDXID, Name: p.Name, Version: first(p.VersionInfo),
			License: first(p.LicenseConcluded, p.LicenseDeclared), Description: first(p.Description, p.Summary),
		}
		for _, r := range p.ExternalRefs {
			if r.ReferenceType == "purl" && part.PURL == "" {
				part.PURL = r.ReferenceLocator
			}
		}
		part.Origin = origin(part.PURL)
		s.Packages = append(s.Packages, part)
	}
	for _, f := range d.Files {
		s.Files = append(s.Files, File(f))
	}
	for _, r := range d.Relationships {
		relationship := spdxRelationships[r.Type]
		if relationship.inverse {
			r.From, r.To = r.To, r.From
		}
		s.Relationships = append(s.Relationships, Relationship{From: r.From, To: r.To, Kind: relationship.kind})
	}
	return s, nil
}

// origin returns the package URL of the source package that a package URL names, or "".
func origin(purl string) string {
	base, query, _ := strings.Cut(purl, "?")
	for pair := range strings.SplitSeq(query, "&") {
		name, ok := strings.CutPrefix(pair, "origin=")
		if !ok || name == "" {
			continue
		}
		path, version, versioned := strings.Cut(base, "@")
		slash := strings.LastIndexByte(path, '/')
		if slash < 0 {
			return ""
		}
		out := path[:slash+1] + name
		if versioned {
			out += "@" + version
		}
		return out
	}
	return ""
}

type cycloneDXDocument struct {
	Metadata struct {
		Timestamp string
		Tools     json.RawMessage
		Authors   []struct{ Name string }
		Component *cycloneDXComponent
	}
	Components   []cycloneDXComponent
	Dependencies []struct {
		Ref       string
		DependsOn []string
	}
}

type cycloneDXComponent struct {
	Type, Group, Name, Version, Description, PURL string

	Ref        string `json:"bom-ref"`
	Components []cycloneDXComponent
	Licenses   []struct {
		Expression string
		License    struct{ ID, Name string }
	}
}

func readCycloneDX(raw []byte) (SBOM, error) {
	var d cycloneDXDocument
	if err := decode(raw, &d); err != nil {
		return SBOM{}, fmt.Errorf("CycloneDX: %w", err)
	}
	s := SBOM{Time: parseTime(d.Metadata.Timestamp), Tool: cycloneDXTool(d.Metadata.Tools)}
	for _, a := range d.Metadata.Authors {
		s.Authors = append(s.Authors, a.Name)
	}
	if c := d.Metadata.Component; c != nil {
		s.Name, s.Description = c.Name, c.Description
		s.addComponent(*c, "")
	}
	for _, c := range d.Components {
		s.addComponent(c, "")
	}
	for _, dep := range d.Dependencies {
		for _, on := range dep.DependsOn {
			s.Relationships = append(s.Relationships, Relationship{From: dep.Ref, To: on, Kind: DependsOn})
		}
	}
	return s, nil
}

// addComponent adds a component, and recursively the components inside it.
func (s *SBOM) addComponent(c cycloneDXComponent, within string) {
	id := first(c.Ref, c.PURL, c.Name)
	if within != "" {
		s.Relationships = append(s.Relationships, Relationship{From: within, To: id, Kind: Contains})
	}
	if c.Type == "file" {
		s.Files = append(s.Files, File{ID: id, Name: c.Name})
	} else {
		name := c.Name
		if c.Group != "" {
			name = c.Group + "/" + c.Name
		}
		s.Packages = append(s.Packages, Package{
			ID: id, Name: name, Version: c.Version, License: c.license(),
			Description: c.Description, PURL: c.PURL, Origin: origin(c.PURL),
		})
	}
	for _, part := range c.Components {
		s.addComponent(part, id)
	}
}

func (c cycloneDXComponent) license() string {
	var all []string
	for _, l := range c.Licenses {
		if name := first(l.Expression, l.License.ID, l.License.Name); name != "" {
			all = append(all, name)
		}
	}
	return strings.Join(all, " AND ")
}

// cycloneDXTool returns the tool that wrote a document. Up to version 1.4 of CycloneDX, raw is a list of tools; since
// then it contains a list of components.
func cycloneDXTool(raw json.RawMessage) string {
	type tool struct{ Name, Version string }
	var list []tool
	if json.Unmarshal(raw, &list) != nil {
		var since struct{ Components []tool }
		_ = json.Unmarshal(raw, &since) // on failure, the tool is unknown
		list = since.Components
	}
	if len(list) == 0 {
		return ""
	}
	return strings.TrimSuffix(list[0].Name+"-"+list[0].Version, "-")
}
