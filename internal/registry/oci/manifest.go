// Package oci reads the names, digests, manifests and errors of the OCI distribution protocol.
package oci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

const (
	dockerImage = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex = "application/vnd.docker.distribution.manifest.list.v2+json"

	// MaxManifest is the largest manifest, in bytes. The specification expects every registry to accept this size.
	MaxManifest = 4 << 20

	// MaxVariants is the largest number of images in an index that the server reads.
	MaxVariants = 256

	maxNeeds = 4096 // largest number of blobs and children of one manifest

	// AttestedImage is the annotation of an attestation in an index. BuildKit stores in it the digest of the image
	// that the attestation describes.
	AttestedImage = "vnd.docker.reference.digest"
)

// IndexTypes are the media types of an index.
var IndexTypes = []string{ocispec.MediaTypeImageIndex, dockerIndex}

// A Document is a parsed manifest of any kind: an OCI image or index, its Docker predecessors, or an unknown kind
// with the same fields.
type Document struct {
	SchemaVersion int                  `json:"schemaVersion"`
	MediaType     string               `json:"mediaType"`
	ArtifactType  string               `json:"artifactType"`
	Config        *ocispec.Descriptor  `json:"config"`
	Layers        []ocispec.Descriptor `json:"layers"`
	Blobs         []ocispec.Descriptor `json:"blobs"`
	Manifests     []ocispec.Descriptor `json:"manifests"`
	Subject       *ocispec.Descriptor  `json:"subject"`
	Annotations   map[string]string    `json:"annotations"`
}

// Size returns the size of the layers and the configuration of an image, in bytes.
func (doc Document) Size() (n int64) {
	if doc.Config != nil {
		n = doc.Config.Size
	}
	for _, l := range doc.Layers {
		n += l.Size
	}
	return n
}

// BadManifest returns the Problem for a manifest that cannot be accepted.
func BadManifest(format string, args ...any) error {
	return NewProblem(http.StatusBadRequest, ManifestInvalid, format, args...)
}

// ParseManifest parses body, whose media type is contentType. It returns a Problem if the manifest is not valid. If
// sparse is true, all needs of the manifest are optional.
func ParseManifest(contentType string, body []byte, sparse bool) (registry.Manifest, error) {
	if err := unambiguous(body); err != nil {
		return registry.Manifest{}, err
	}
	var doc Document
	if err := json.Unmarshal(body, &doc); err != nil {
		return registry.Manifest{}, BadManifest("not a manifest: %.200v", err)
	}
	mediaType, err := doc.check(contentType)
	if err != nil {
		return registry.Manifest{}, err
	}
	m := registry.Manifest{MediaType: mediaType, Size: int64(len(body)), ArtifactType: doc.ArtifactType, Body: body}
	if m.ArtifactType == "" && doc.Config != nil {
		m.ArtifactType = doc.Config.MediaType
	}
	if len(doc.Annotations) > 0 {
		a, err := json.Marshal(doc.Annotations)
		if err != nil {
			return registry.Manifest{}, fmt.Errorf("encode annotations: %w", err)
		}
		m.Annotations = string(a)
	}
	if doc.Subject != nil {
		d, err := ParseDigest(doc.Subject.Digest.String())
		if err != nil {
			return registry.Manifest{}, err
		}
		m.Subject = d.String()
	}
	if strings.Contains(m.Annotations+m.ArtifactType, "\x00") || strings.Contains(m.Annotations, `\u0000`) {
		return registry.Manifest{}, BadManifest("a NUL character cannot be stored")
	}
	for _, d := range doc.Manifests {
		if image := d.Annotations[AttestedImage]; resource.ValidDigest(image) && len(m.About) < MaxVariants {
			m.About = append(m.About, image)
		}
	}
	m.Needs, err = doc.needs(sparse)
	return m, err
}

// check returns the media type of a manifest, without parameters. It returns an error if the header and the document
// have different media types. It refuses a document that is both an image and an index, because two clients must
// never see different content under one digest.
func (doc Document) check(contentType string) (string, error) {
	if doc.Manifests != nil && (doc.Config != nil || doc.Layers != nil) {
		return "", BadManifest("the manifest is both an image and an index")
	}
	if contentType == "" {
		contentType = doc.MediaType
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || len(mediaType) > MaxName {
		return "", BadManifest("Content-Type %.200q is not a media type", contentType)
	}
	if doc.MediaType != "" && !strings.EqualFold(doc.MediaType, mediaType) {
		return "", BadManifest("Content-Type is %.200q, mediaType %.200q", mediaType, doc.MediaType)
	}
	known := false
	switch mediaType {
	case ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, dockerImage, dockerIndex:
		known = true
	}
	if doc.SchemaVersion != 2 && (known || doc.SchemaVersion != 0) {
		return "", BadManifest("schemaVersion is %d, not 2", doc.SchemaVersion)
	}
	return mediaType, nil
}

// needs returns the blobs and manifests to which the document refers, without duplicates.
func (doc Document) needs(sparse bool) ([]registry.Need, error) {
	var list []registry.Need
	added := map[string]bool{}
	add := func(d ocispec.Descriptor, manifest bool) error {
		dig, err := ParseDigest(d.Digest.String())
		if err != nil {
			return err
		}
		if d.Size < 0 {
			return BadManifest("the size of %s is negative", dig)
		}
		if !added[dig.String()] {
			added[dig.String()] = true
			optional := sparse || len(d.URLs) > 0 // layers with URLs may be stored elsewhere
			list = append(list, registry.Need{Digest: dig.String(), Manifest: manifest, Optional: optional})
		}
		return nil
	}
	blobs := slices.Concat(doc.Layers, doc.Blobs)
	if doc.Config != nil {
		blobs = append(blobs, *doc.Config)
	}
	if len(blobs)+len(doc.Manifests) > maxNeeds {
		return nil, BadManifest("a manifest refers to at most %d blobs and manifests", maxNeeds)
	}
	for _, d := range blobs {
		if err := add(d, false); err != nil {
			return nil, err
		}
	}
	for _, d := range doc.Manifests {
		if err := add(d, true); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// fields are the names of the fields of manifests. Some parsers ignore the case of names. Therefore a name that
// differs from one of these only in case is refused like a duplicate.
var fields = []string{
	"schemaVersion", "mediaType", "artifactType", "config", "layers", "blobs", "manifests", "subject", "annotations",
	"digest", "size", "urls", "data", "platform",
}

// maxDepth is the deepest nesting of objects in a manifest. Real manifests need four.
const maxDepth = 64

// unambiguous returns an error for JSON that two parsers could read differently: an object that contains a name
// twice, or text after the first value.
func unambiguous(body []byte) error {
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return BadManifest("a manifest is a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := checkValue(dec, false, 1); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return BadManifest("something follows the manifest")
	}
	return nil
}

// checkValue reads a value for unambiguous. If free is true, as in annotations, the names in the value are not names of
// fields.
func checkValue(dec *json.Decoder, free bool, depth int) error {
	if depth > maxDepth {
		return BadManifest("the manifest nests more than %d levels deep", maxDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return BadManifest("not JSON")
	}
	if token != json.Delim('{') && token != json.Delim('[') {
		return nil
	}
	read := map[string]bool{}
	for dec.More() {
		within := free
		if token == json.Delim('{') {
			key, err := dec.Token()
			name, ok := key.(string)
			if err != nil || !ok {
				return BadManifest("not JSON")
			}
			if read[name] {
				return BadManifest("%.100q is there twice", name)
			}
			read[name] = true
			i := slices.IndexFunc(fields, func(field string) bool { return strings.EqualFold(field, name) })
			if i >= 0 && !free && fields[i] != name {
				return BadManifest("%.100q is not %q", name, fields[i])
			}
			within = free || name == "annotations"
		}
		if err := checkValue(dec, within, depth+1); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return BadManifest("not JSON")
	}
	return nil
}
