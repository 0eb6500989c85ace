// Package evidence reads what others attach to images: what they are made of
// (SPDX, CycloneDX) and what scanners found in them (Grype, Trivy, SARIF), bare
// or in the envelopes of in-toto, DSSE, Sigstore and cosign; and Helm charts.
//
// All of it is other people's bytes. Nothing here is verified: whoever may push
// to a repo can say what they like about its images.
package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// MaxDocument is how large a document may be, with its envelopes.
	MaxDocument = 16 << 20

	// maxValues is how many values one may have: an empty one costs three bytes
	// in the document and a hundred in memory.
	maxValues = 1_000_000

	maxEnvelopes = 4 // around one another; real ones need three
)

// A Format is what a document is written in.
type Format string

// The formats that are read.
const (
	SPDX      Format = "SPDX"
	CycloneDX Format = "CycloneDX"
	Grype     Format = "Grype"
	Trivy     Format = "Trivy"
	SARIF     Format = "SARIF"
)

// Lists tells whether a document of the format says what an image is made of;
// if not, it says what is wrong with it.
func (f Format) Lists() bool { return f == SPDX || f == CycloneDX }

// ErrUnknown is that of a document in no format that is read.
var ErrUnknown = errors.New("neither an SBOM nor a report of a scanner")

// A Document is what was in the envelopes.
type Document struct {
	Format   Format
	Raw      []byte
	Subjects []string  // the digests it is about; nil if it does not say
	Scanned  time.Time // what the envelope says of a report
}

// head is every key by which a document or an envelope is known. Decoding takes
// the keys in any case; no two of these differ in that alone.
type head struct {
	PayloadType string          `json:"payloadType"` // DSSE
	Payload     string          `json:"payload"`
	Envelope    json.RawMessage `json:"dsseEnvelope"` // Sigstore

	Type          string          `json:"_type"` // in-toto
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
	Subject       json.RawMessage `json:"subject"`

	Data json.RawMessage `json:"Data"` // cosign, of old

	Scanner  json.RawMessage `json:"scanner"` // cosign
	Metadata json.RawMessage `json:"metadata"`

	SPDXVersion string          `json:"spdxVersion"`
	BOMFormat   string          `json:"bomFormat"`
	Matches     json.RawMessage `json:"matches"`
	Descriptor  json.RawMessage `json:"descriptor"`
	Results     json.RawMessage `json:"Results"`
	Artifact    json.RawMessage `json:"ArtifactName"`
	Runs        json.RawMessage `json:"runs"`
}

// Open takes a document out of its envelopes. It returns ErrUnknown if there is
// none that is read in them.
func Open(body []byte) (Document, error) {
	if len(body) > MaxDocument {
		return Document{}, fmt.Errorf("larger than %d bytes", MaxDocument)
	}
	doc := Document{Raw: body}
	for range maxEnvelopes + 1 {
		if bytes.Count(doc.Raw, []byte(",")) > maxValues {
			return Document{}, fmt.Errorf("more than %d values", maxValues)
		}
		var h head
		if err := json.Unmarshal(doc.Raw, &h); err != nil {
			return Document{}, errors.Join(ErrUnknown, err)
		}
		inner, err := doc.unwrap(h)
		if err != nil {
			return Document{}, err
		}
		if inner == nil {
			doc.Format = h.format()
			if doc.Format == "" {
				return Document{}, ErrUnknown
			}
			return doc, nil
		}
		doc.Raw = inner
	}
	return Document{}, errors.New("too many envelopes around it")
}

func (h head) format() Format {
	switch {
	case strings.HasPrefix(h.SPDXVersion, "SPDX-2."):
		return SPDX
	case h.BOMFormat == "CycloneDX":
		return CycloneDX
	case h.Matches != nil && h.Descriptor != nil:
		return Grype
	case h.Artifact != nil: // one in which nothing was found has no results
		return Trivy
	case h.Runs != nil:
		return SARIF
	}
	return ""
}

// unwrap returns what is in an envelope, having noted what is written on it, or
// nil if there is none.
func (d *Document) unwrap(h head) ([]byte, error) {
	switch {
	case h.Envelope != nil:
		return h.Envelope, nil
	case h.Payload != "":
		inner, err := base64.StdEncoding.DecodeString(h.Payload)
		if err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
		return inner, nil
	case strings.HasPrefix(h.Type, "https://in-toto.io/Statement/"):
		d.Subjects = subjects(h.Subject)
		return document(h.Predicate), nil
	case h.Data != nil && h.format() == "":
		return document(h.Data), nil
	case h.Scanner != nil && h.format() == "":
		return d.scan(h)
	}
	return nil, nil
}

// document is a value that may also be written as a text of itself.
func document(v json.RawMessage) []byte {
	var text string
	if json.Unmarshal(v, &text) == nil && text != "" {
		return []byte(text)
	}
	return v
}

// subjects are the digests that a statement names.
func subjects(raw json.RawMessage) []string {
	var list []struct {
		Digest map[string]string `json:"digest"`
	}
	_ = json.Unmarshal(raw, &list) // what cannot be read names nothing
	all := []string{}
	for _, s := range list {
		for algorithm, hex := range s.Digest {
			all = append(all, algorithm+":"+hex)
		}
	}
	return all
}

// scan opens cosign's predicate of a scan.
func (d *Document) scan(h head) ([]byte, error) {
	var s struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(h.Scanner, &s); err != nil || s.Result == nil {
		return nil, ErrUnknown
	}
	var m struct {
		Finished string `json:"scanFinishedOn"`
		Started  string `json:"scanStartedOn"`
	}
	_ = json.Unmarshal(h.Metadata, &m)
	if d.Scanned = moment(m.Finished); d.Scanned.IsZero() {
		d.Scanned = moment(m.Started)
	}
	return document(s.Result), nil
}

// decode reads a document. Tools differ in small things, and change them: a value
// of another type deep inside is passed over, but not a list as a whole.
func decode(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && strings.Contains(odd.Field, ".") {
		return nil
	}
	return err
}

// moment reads a time, or none if it is not one that can be told.
func moment(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UTC().Year() < 1970 || t.UTC().Year() > 9999 {
		return time.Time{}
	}
	return t.UTC()
}

// first returns the first text that says something. SPDX has two words for
// nothing.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" && t != "NOASSERTION" && t != "NONE" {
			return t
		}
	}
	return ""
}
