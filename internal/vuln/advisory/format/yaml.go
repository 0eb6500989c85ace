package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// decodeYAML decodes a YAML file with OSV records, or with a distribution's advisories about a package.
func decodeYAML(name string, text []byte) []Record {
	if len(text) > maxYAML {
		return []Record{{Name: name, Err: errTooLarge}}
	}
	var records []Record
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		var value bytes.Buffer
		if err == nil {
			err = writeNode(&value, &doc, 0)
		}
		if err != nil {
			err = fmt.Errorf("is neither JSON nor supported YAML: %w", err)
			return append(records, Record{Name: recordName(name, len(records)), Err: err})
		}
		records = append(records, decodeYAMLDocument(recordName(name, len(records)), name, &doc, value.String())...)
	}
	if len(records) == 0 {
		return []Record{{Name: name, Err: errEmpty}}
	}
	return records
}

// decodeYAMLDocument decodes a YAML document. text is the document as JSON.
func decodeYAMLDocument(name, file string, doc *yaml.Node, text string) []Record {
	root := doc.Content[0]
	for i := 0; i+1 < len(root.Content) && root.Kind == yaml.MappingNode; i += 2 {
		if root.Content[i].Value == "advisories" {
			return decodeMany(name, file, text, readDistribution)
		}
	}
	return decodeValue(name, file, text)
}

var (
	errAlias = errors.New("anchors and aliases are not supported")
	errKey   = errors.New("a key must be text")
)

// writeNode writes a YAML node as JSON. Every scalar becomes a string with its original text, because in YAML the
// version 1.10 is a number and equal to 1.1.
func writeNode(b *bytes.Buffer, n *yaml.Node, depth int) error {
	switch {
	case depth > maxDepth:
		return errDepth
	case n.Kind == yaml.AliasNode, n.Anchor != "":
		return errAlias
	case n.Kind == yaml.DocumentNode:
		return writeNode(b, n.Content[0], depth)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		b.WriteString("null")
		return nil
	case n.Kind == yaml.ScalarNode:
		return writeText(b, n.Value)
	}
	opening, closing := byte('{'), byte('}')
	if n.Kind == yaml.SequenceNode {
		opening, closing = '[', ']'
	}
	b.WriteByte(opening)
	for i, child := range n.Content {
		key := n.Kind == yaml.MappingNode && i%2 == 0
		if key && (child.Kind != yaml.ScalarNode || child.Tag == "!!null" || child.Tag == "!!merge") {
			return errKey
		}
		if err := writeNode(b, child, depth+1); err != nil {
			return err
		}
		switch {
		case key:
			b.WriteByte(':')
		case i < len(n.Content)-1:
			b.WriteByte(',')
		}
	}
	return b.WriteByte(closing)
}

// writeText writes a text with the same escapes as json.Marshal, because the digest of a record depends on them. It is
// faster for texts without escapes, which nearly all texts are.
func writeText(b *bytes.Buffer, s string) error {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		c := s[i]
		plain = c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' && c != 0x7f
	}
	if plain {
		b.WriteByte('"')
		b.WriteString(s)
		return b.WriteByte('"')
	}
	text, err := json.Marshal(s)
	b.Write(text)
	return err
}

// A distroFile contains a distribution's advisories about one package.
type distroFile struct {
	Package struct {
		Name string `json:"name"`
	} `json:"package"`
	Advisories []distroAdvisory `json:"advisories"`
}

type distroAdvisory struct {
	ID      string        `json:"id"`
	Aliases []string      `json:"aliases"`
	Events  []distroEvent `json:"events"`
}

type distroEvent struct {
	Timestamp time.Time `json:"timestamp"`
	Type      string    `json:"type"`
	Data      struct {
		Type         string          `json:"type"`
		Note         string          `json:"note"`
		FixedVersion string          `json:"fixed-version"`
		Data         distroDetection `json:"data"`
	} `json:"data"`
}

type distroDetection struct {
	CPESearched       string `json:"cpeSearched"`
	CPEFound          string `json:"cpeFound"`
	Scanner           string `json:"scanner"`
	Subpackage        string `json:"subpackageName"`
	ComponentID       string `json:"componentID"`
	Component         string `json:"componentName"`
	ComponentVersion  string `json:"componentVersion"`
	ComponentType     string `json:"componentType"`
	ComponentLocation string `json:"componentLocation"`
}

// distroTypes are the types of events by name.
var distroTypes = map[string]vuln.AdvisoryEventType{
	"detection": vuln.EventDetection, "true-positive-determination": vuln.EventTruePositive,
	"fixed": vuln.EventFixed, "false-positive-determination": vuln.EventFalsePositive,
	"analysis-not-planned": vuln.EventAnalysisNotPlanned, "fix-not-planned": vuln.EventFixNotPlanned,
	"pending-upstream-fix": vuln.EventPendingUpstreamFix,
}

// distroReasons are the reasons for false positives by name.
var distroReasons = map[string]vuln.FalsePositiveType{
	"vulnerability-record-analysis-contested":           vuln.AnalysisContested,
	"component-vulnerability-mismatch":                  vuln.ComponentMismatch,
	"vulnerable-code-version-not-used":                  vuln.CodeVersionNotUsed,
	"vulnerable-code-not-included-in-package":           vuln.CodeNotIncluded,
	"vulnerable-code-not-in-execution-path":             vuln.CodeNotInExecutionPath,
	"vulnerable-code-cannot-be-controlled-by-adversary": vuln.CodeNotControllable,
	"inline-mitigations-exist":                          vuln.InlineMitigations,
}

// distroEcosystem is the ecosystem of these files, which do not contain the name of an ecosystem.
const distroEcosystem = "Wolfi"

// readDistribution parses a distribution's advisories about a package.
func readDistribution(text string) ([]vuln.Advisory, error) {
	file, err := decodeJSON[distroFile](text)
	if err != nil {
		return nil, err
	}
	if file.Package.Name == "" {
		return nil, errors.New("names no package")
	}
	var advisories []vuln.Advisory
	for _, d := range file.Advisories {
		a, err := d.advisory(file.Package.Name)
		if err != nil {
			return nil, fmt.Errorf("has an invalid advisory: %s %w", d.ID, err)
		}
		advisories = append(advisories, withSource(a, "yaml"))
	}
	return advisories, nil
}

func (d distroAdvisory) advisory(name string) (vuln.Advisory, error) {
	a := vuln.Advisory{ID: d.ID, Aliases: d.Aliases, Author: distroEcosystem, ArtifactName: name,
		ArtifactType: "apk"}
	switch {
	case d.ID == "":
		return a, errors.New("has no id")
	case len(d.Events) == 0:
		return a, errors.New("has no events")
	case sharedID(d.ID): // in old files many packages have the same ID
		a.ID = vuln.StableAdvisoryID("yaml", name, d.ID)
		a.Aliases = union([]string{d.ID}, d.Aliases)
	}
	for _, e := range d.Events {
		event, err := e.event()
		if err != nil {
			return a, err
		}
		a.Events = append(a.Events, event)
		if s := e.Data.Data; event.Detection != nil && event.Detection.Scan != nil && a.ComponentName == "" {
			a.ComponentName, a.ComponentType, a.ComponentLocation = s.Component, s.ComponentType, s.ComponentLocation
		}
	}
	slices.SortStableFunc(a.Events,
		func(a, b vuln.AdvisoryEvent) int { return a.CreateTime.Compare(b.CreateTime) })
	a.Affected = []vuln.Affected{distroAffected(name, a.Events)}
	return a, nil
}

// sharedID reports whether an ID identifies a vulnerability instead of an advisory.
func sharedID(id string) bool {
	return strings.HasPrefix(id, "CVE-") || strings.HasPrefix(id, "GHSA-") || strings.HasPrefix(id, "GO-")
}

// distroAffected returns the affected versions according to the latest event: the versions before its fix, no versions
// for a false positive, and otherwise all versions. It ignores earlier fixes, because an event after a fix re-opens an
// advisory.
func distroAffected(name string, events []vuln.AdvisoryEvent) vuln.Affected {
	v := vuln.Affected{Ecosystem: distroEcosystem, Name: name, PURL: apkPURL(distroEcosystem, name)}
	bounds := []vuln.RangeEvent{{Introduced: "0"}}
	switch latest := events[len(events)-1]; latest.Type {
	case vuln.EventFalsePositive:
		return v
	case vuln.EventFixed:
		bounds = append(bounds, vuln.RangeEvent{Fixed: latest.Fixed.Version})
	}
	v.Ranges = []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: bounds}}
	return v
}

func (d distroEvent) event() (vuln.AdvisoryEvent, error) {
	e := vuln.AdvisoryEvent{
		CreateTime: d.Timestamp.UTC().Truncate(time.Millisecond), Author: distroEcosystem,
		ReviewState: vuln.ReviewApproved,
		Type:        distroTypes[d.Type], Note: d.Data.Note,
	}
	switch e.Type {
	case vuln.EventUnspecified:
		return e, fmt.Errorf("has an event of the unknown type %q", d.Type)
	case vuln.EventDetection:
		e.Note, e.Detection = "", d.detection()
	case vuln.EventFixed:
		if d.Data.FixedVersion == "" {
			return e, errors.New("has a fixed event without a fixed-version")
		}
		e.Fixed = &vuln.Fix{Version: d.Data.FixedVersion}
	case vuln.EventFalsePositive:
		e.FalsePositive = distroReasons[d.Data.Type]
		if e.FalsePositive == vuln.FalsePositiveUnspecified {
			return e, fmt.Errorf("has a false positive with the unknown reason %q", d.Data.Type)
		}
	}
	return e, nil
}

func (d distroEvent) detection() *vuln.Detection {
	s := d.Data.Data
	switch d.Data.Type {
	case "nvdapi":
		return &vuln.Detection{NVD: &vuln.NVDDetection{CPESearched: s.CPESearched, CPEFound: s.CPEFound}}
	case "scan/v1":
		return &vuln.Detection{Scan: &vuln.ScanDetection{
			Scanner: s.Scanner, Subpackage: s.Subpackage, ComponentID: s.ComponentID, Component: s.Component,
			ComponentVersion: s.ComponentVersion, ComponentType: s.ComponentType,
			ComponentLocation: s.ComponentLocation,
		}}
	}
	return &vuln.Detection{Manual: true}
}
