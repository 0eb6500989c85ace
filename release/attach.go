package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// An artifact is a manifest with one document, as the OCI image specification 1.1 defines
// it. Its config is empty, and its artifact type is the type of the document.
type artifact struct {
	manifest []byte
	document v1.Layer
}

var emptyConfig = []byte("{}")

// attach returns an artifact that a registry lists among the referrers of img.
func attach(img v1.Image, document []byte, date time.Time) (v1.Image, error) {
	subject, err := partial.Descriptor(img)
	if err != nil {
		return nil, err
	}
	subject.ArtifactType, subject.Annotations, subject.Platform = "", nil, nil
	layer := static.NewLayer(document, sbomType)
	described, err := partial.Descriptor(layer)
	if err != nil {
		return nil, err
	}
	config, err := partial.Descriptor(static.NewLayer(emptyConfig, "application/vnd.oci.empty.v1+json"))
	if err != nil {
		return nil, err
	}
	config.Data = emptyConfig
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: sbomType,
		Config: *config, Layers: []v1.Descriptor{*described}, Subject: subject,
		Annotations: map[string]string{"org.opencontainers.image.created": date.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&artifact{manifest, layer})
}

// RawManifest implements partial.CompressedImageCore.
func (a *artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (a *artifact) RawConfigFile() ([]byte, error) { return emptyConfig, nil }

// MediaType implements partial.CompressedImageCore.
func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// LayerByDigest implements partial.CompressedImageCore. There is one layer.
func (a *artifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.document, nil }

// compressedLayer returns a layer of a tar. The library would compress it as fast as
// possible, but it is pulled more often than it is made.
func compressedLayer(tar []byte) (v1.Layer, error) {
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(tar)), nil },
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressedCaching)
}
