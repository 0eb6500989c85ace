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
	MaxVEX        = 1 << 20 // maximum size of a document in bytes
	MaxStatements = 500
	maxProducts   = 100 // maximum number of products per statement, and of subcomponents per product
)

// A Statement is a statement of an OpenVEX document about one vulnerability in products.
type Statement struct {
	Name          string   // name of the vulnerability
	Aliases       []string // other names of the vulnerability
	Status        string   // one of the Status constants
	Justification string   // set if Status is StatusNotAffected
	Text          string   // the reason, or the action to take
	Time          time.Time
	Products      []Product
	Err           error // the reason why the statement is invalid, or nil
}

// A Product is a product in a statement. If it has subcomponents, the statement is only about them.
type Product struct {
	ID            string   // a package URL, or another identifier
	SHA256        string   // digest of the product in hexadecimal digits; "" if the document has none
	Subcomponents []string // package URLs of the subcomponents
}

// The statuses of OpenVEX.
const (
	StatusNotAffected        = vexNotAffected
	StatusAffected           = vexAffected
	StatusFixed              = vexFixed
	StatusUnderInvestigation = vexUnderInvestigation
)

// ReadStatements parses an OpenVEX document, and returns its author and its statements. An invalid statement has an
// Err, and does not affect the other statements.
func ReadStatements(text []byte) (author string, statements []Statement, _ error) {
	if len(text) > MaxVEX {
		return "", nil, fmt.Errorf("has more than %d bytes", MaxVEX)
	}
	doc, texts, err := vexHead(string(text))
	if err != nil {
		return "", nil, err
	}
	if !strings.HasPrefix(doc.Context, "https://openvex.dev/ns") {
		return "", nil, errors.New("has a @context that is not OpenVEX's")
	}
	if len(texts) > MaxStatements {
		return "", nil, fmt.Errorf("has %d statements, and at most %d are read", len(texts), MaxStatements)
	}
	for _, text := range texts {
		statements = append(statements, readStatement(doc, text))
	}
	return doc.Author, statements, nil
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

// WriteStatements returns an OpenVEX document with the statements.
func WriteStatements(o Options, statements []Statement) ([]byte, error) {
	doc := newVEXDocument(nil, o).head
	for _, s := range statements {
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
				product.Subcomponents = append(product.Subcomponents,
					vexProduct{ID: part, Identifiers: vexIdentifiers{PURL: part}})
			}
			v.Products = append(v.Products, product)
		}
		doc.Statements = append(doc.Statements, v)
	}
	return json.MarshalIndent(doc, "", "  ")
}
