package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits of OpenVEX documents that are read as statements.
const (
	MaxVEX        = 1 << 20
	MaxStatements = 500
	maxProducts   = 100 // of a statement, and subcomponents of a product
)

// A Statement is what an OpenVEX document says about products.
type Statement struct {
	Name          string   // of the vulnerability
	Aliases       []string // other names of it
	Status        string   // one of the Status constants
	Justification string   // if it is StatusNotAffected
	Text          string   // says why, or what to do
	Time          time.Time
	Products      []Product
	Err           error // if it makes no sense
}

// A Product is what a statement is about. PURLs of subcomponents narrow it down.
type Product struct {
	ID            string // a package URL, or another identifier
	SHA256        string // of it, in hexadecimal digits; "" if the document has none
	Subcomponents []string
}

// The statuses of OpenVEX.
const (
	StatusNotAffected        = vexNotAffected
	StatusAffected           = vexAffected
	StatusFixed              = vexFixed
	StatusUnderInvestigation = vexUnderInvestigation
)

// ReadStatements parses an OpenVEX document, and returns who has written it and its
// statements. One that makes no sense has an Err, and the rest is as good as without it.
func ReadStatements(text []byte) (author string, all []Statement, _ error) {
	if len(text) > MaxVEX {
		return "", nil, fmt.Errorf("has more than %d bytes", MaxVEX)
	}
	doc, statements, err := vexHead(string(text))
	if err != nil {
		return "", nil, err
	}
	if !strings.HasPrefix(doc.Context, "https://openvex.dev/ns") {
		return "", nil, errors.New("has a @context that is not OpenVEX's")
	}
	if len(statements) > MaxStatements {
		return "", nil, fmt.Errorf("has %d statements, and at most %d are read", len(statements), MaxStatements)
	}
	for _, text := range statements {
		all = append(all, readStatement(doc, text))
	}
	return doc.Author, all, nil
}

func readStatement(doc vexDocument, text string) (out Statement) {
	s, err := decodeJSON[vexStatement](text)
	if err != nil {
		return Statement{Err: err}
	}
	out = Statement{Name: s.Vulnerability.name(), Aliases: s.Vulnerability.Aliases, Status: s.Status,
		Justification: s.Justification, Time: doc.Timestamp, Err: s.check()}
	for _, text := range []string{s.Impact, s.StatusNotes, s.Action} {
		if out.Text == "" {
			out.Text = text
		}
	}
	for _, t := range []time.Time{s.Timestamp, s.LastUpdated} {
		if !t.IsZero() {
			out.Time = t
		}
	}
	if len(s.Products) > maxProducts {
		out.Err = fmt.Errorf("names more than %d products", maxProducts)
		return out
	}
	for _, p := range s.Products {
		product := Product{ID: p.name(), SHA256: strings.ToLower(p.Hashes["sha-256"])}
		if len(p.Subcomponents) > maxProducts {
			out.Err = fmt.Errorf("names more than %d subcomponents", maxProducts)
		}
		for _, part := range p.Subcomponents[:min(len(p.Subcomponents), maxProducts)] {
			product.Subcomponents = append(product.Subcomponents, part.name())
		}
		out.Products = append(out.Products, product)
	}
	return out
}

// WriteStatements returns an OpenVEX document.
func WriteStatements(o Options, all []Statement) ([]byte, error) {
	doc := newVEXDocument(nil, o).head
	for _, s := range all {
		v := vexStatement{Vulnerability: vexVulnerability{Name: s.Name, Aliases: s.Aliases}, Timestamp: s.Time,
			Status: s.Status, Justification: s.Justification}
		switch s.Status {
		case vexNotAffected:
			v.Impact = s.Text
		case vexAffected:
			v.Action = s.Text
		default:
			v.StatusNotes = s.Text
		}
		for _, p := range s.Products {
			product := vexProduct{ID: p.ID}
			if strings.HasPrefix(p.ID, "pkg:") {
				product.Identifiers.PURL = p.ID
			}
			if p.SHA256 != "" {
				product.Hashes = map[string]string{"sha-256": p.SHA256}
			}
			for _, part := range p.Subcomponents {
				product.Subcomponents = append(product.Subcomponents, vexProduct{ID: part, Identifiers: vexIdentifiers{PURL: part}})
			}
			v.Products = append(v.Products, product)
		}
		doc.Statements = append(doc.Statements, v)
	}
	return json.MarshalIndent(doc, "", "  ")
}
