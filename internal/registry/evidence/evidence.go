// Package evidence parses the documents that clients attach to images: SBOMs (SPDX, CycloneDX) and the reports of
// scanners (Grype, Trivy, SARIF), alone or in the envelopes of in-toto, DSSE, Sigstore and cosign. It also parses
// Helm charts.
//
// The documents are untrusted input, and no signature is verified: whoever may push
// to a repo can attach any statement about its images.
package evidence

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// MaxDocument is the largest document, in bytes, including its envelopes.
	MaxDocument = 16 << 20

	// maxValues is the largest number of values in a document. An empty value needs three
	// bytes in the document and a hundred in memory.
	maxValues = 1_000_000

	maxEnvelopes = 4 // most envelopes inside each other; real documents have three
)

// A Format is the format of a document.
type Format string

// The formats that can be parsed.
const (
	SPDX      Format = "SPDX"
	CycloneDX Format = "CycloneDX"
	Grype     Format = "Grype"
	Trivy     Format = "Trivy"
	SARIF     Format = "SARIF"
	OpenVEX   Format = "OpenVEX"
)

// ErrUnknown is returned for a document of an unknown format.
var ErrUnknown = errors.New("neither an SBOM nor a report of a scanner")

// A Document is a document without its envelopes.
type Document struct {
	Format   Format
	Raw      []byte
	Subjects []string  // digests of the images that it describes; nil if unknown
	Scanned  time.Time // time of the scan, if the envelope contains it
}

// head has the keys that identify the format of a document or an envelope. Decoding ignores the case of keys, so no
// two of these keys differ only in case.
type head struct {
	PayloadType, Payload string          // keys of DSSE
	DSSEEnvelope         json.RawMessage // key of Sigstore

	Type               string `json:"_type"` // key of in-toto
	PredicateType      string
	Predicate, Subject json.RawMessage

	Data              json.RawMessage // key of old versions of cosign
	Scanner, Metadata json.RawMessage // keys of cosign

	Context    json.RawMessage `json:"@context"`
	Statements json.RawMessage // key of OpenVEX

	SPDXVersion         string
	BOMFormat           string
	Matches, Descriptor json.RawMessage // keys of Grype
	ArtifactName        json.RawMessage // key of Trivy
	Runs                json.RawMessage // key of SARIF
}

// Open removes the envelopes of a document. It returns ErrUnknown if the document inside has an unknown format.
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
	case h.ArtifactName != nil: // a report without findings has no Results
		return Trivy
	case h.Runs != nil:
		return SARIF
	case h.Statements != nil && bytes.HasPrefix(h.Context, []byte(`"https://openvex.dev/ns`)):
		return OpenVEX
	}
	return ""
}

// unwrap returns the content of an envelope, and sets the fields of d from it. It returns nil if h is not the head of
// an envelope.
func (d *Document) unwrap(h head) ([]byte, error) {
	switch {
	case h.DSSEEnvelope != nil:
		return h.DSSEEnvelope, nil
	case h.Payload != "":
		inner, err := base64.StdEncoding.DecodeString(h.Payload)
		if err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
		return inner, nil
	case strings.HasPrefix(h.Type, "https://in-toto.io/Statement/"):
		d.Subjects = subjects(h.Subject)
		return unquote(h.Predicate), nil
	case h.Data != nil && h.format() == "":
		return unquote(h.Data), nil
	case h.Scanner != nil && h.format() == "":
		return d.scan(h)
	}
	return nil, nil
}

// unquote returns the JSON in v. If v is a JSON string, that is the content of the string.
func unquote(v json.RawMessage) []byte {
	var text string
	if json.Unmarshal(v, &text) == nil && text != "" {
		return []byte(text)
	}
	return v
}

// subjects returns the digests of the subjects of a statement.
func subjects(raw json.RawMessage) []string {
	var list []struct{ Digest map[string]string }
	_ = json.Unmarshal(raw, &list) // on failure there are no subjects
	digests := []string{}
	for _, s := range list {
		for algorithm, hex := range s.Digest {
			digests = append(digests, algorithm+":"+hex)
		}
	}
	return digests
}

// scan returns the report of a scanner that cosign's predicate for scans contains.
func (d *Document) scan(h head) ([]byte, error) {
	var s struct{ Result json.RawMessage }
	if err := json.Unmarshal(h.Scanner, &s); err != nil || s.Result == nil {
		return nil, ErrUnknown
	}
	var m struct{ ScanFinishedOn, ScanStartedOn string }
	_ = json.Unmarshal(h.Metadata, &m)
	d.Scanned = cmp.Or(parseTime(m.ScanFinishedOn), parseTime(m.ScanStartedOn))
	return unquote(s.Result), nil
}

// decode parses a document. Because tools differ in details, it skips values of an
// unexpected type, except at the top level.
func decode(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && strings.Contains(odd.Field, ".") {
		return nil
	}
	return err
}

// parseTime parses a time. It returns the zero time if text is not a time, or if protobuf cannot represent the time.
func parseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UTC().Year() < 1970 || t.UTC().Year() > 9999 {
		return time.Time{}
	}
	return t.UTC()
}

// first returns the first text that is neither empty nor a word by which SPDX marks an unknown value.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" && t != "NOASSERTION" && t != "NONE" {
			return t
		}
	}
	return ""
}
