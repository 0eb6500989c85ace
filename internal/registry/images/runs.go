package images

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

// knownConfigs is the number of configurations for which a Reader remembers whether they describe images.
const knownConfigs = 1 << 12

// configCache remembers by digest whether configurations describe images.
type configCache = lru.Cache[string, bool]

func newConfigCache() *configCache {
	cache, _ := lru.New[string, bool](knownConfigs) // New fails only if the size is below one
	return cache
}

// DescribesImage reports whether the configuration of a manifest describes an image, or cannot be read. Some clients
// ignore the media types of an artifact: containerd runs it if its configuration names only layers that the node
// already has. If the configuration was not fetched from an upstream yet, DescribesImage fetches it, unless the caller
// may pull only because the repo is public.
func (r *Reader) DescribesImage(
	ctx context.Context, repo resource.UID, m registry.Manifest, public bool,
) (bool, error) {
	var doc oci.Document
	if err := json.Unmarshal(m.Body, &doc); err != nil {
		return true, nil //nolint:nilerr // an error is not a failure, because a client can push anything
	}
	if doc.Config == nil {
		return false, nil // an index, or a manifest without content
	}
	name := doc.Config.Digest
	if describes, ok := r.configs.Get(name.String()); ok {
		return describes, nil
	}
	config, err := r.readBlob(ctx, repo, name.String(), maxConfig)
	if err != nil {
		return false, err
	}
	if config == nil && !public {
		config = r.fetchConfig(ctx, repo, name)
	}
	if config == nil {
		return true, nil
	}
	describes := describesImage(config)
	r.configs.Add(name.String(), describes)
	return describes, nil
}

// fetchConfig returns a configuration from the upstream of a repo, or nil if that is not possible.
func (r *Reader) fetchConfig(ctx context.Context, repo resource.UID, name godigest.Digest) []byte {
	body, err := r.fetch(ctx, repo, name.String())
	if err != nil || body == nil {
		return nil
	}
	defer body.Close()
	config, err := io.ReadAll(io.LimitReader(body, maxConfig))
	if err != nil || name.Validate() != nil || name.Algorithm().FromBytes(config) != name {
		return nil
	}
	return config
}

// describesImage reports whether a configuration names the layers of an image. Names of members are compared as Go's
// clients compare them, without regard to case.
func describesImage(config []byte) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(config, &members) != nil {
		return false
	}
	for name := range members {
		if strings.EqualFold(name, "rootfs") {
			return true
		}
	}
	return false
}

// NamesOtherLayers reports whether the configuration of an image names layers whose digests are not in its manifest, or
// cannot be read. A client that has the other layers would run them. It is meant for images without compressed layers.
func (r *Reader) NamesOtherLayers(ctx context.Context, repo resource.UID, digest string) (bool, error) {
	_, doc, err := r.document(ctx, repo, digest)
	if err != nil || doc.Config == nil {
		return false, err
	}
	config, err := r.readBlob(ctx, repo, doc.Config.Digest.String(), maxConfig)
	if err != nil {
		return false, err
	}
	var image struct{ RootFS ocispec.RootFS }
	if json.Unmarshal(config, &image) != nil {
		return true, nil
	}
	return slices.ContainsFunc(image.RootFS.DiffIDs, func(name godigest.Digest) bool {
		return !slices.ContainsFunc(doc.Layers, func(l ocispec.Descriptor) bool { return l.Digest == name })
	}), nil
}
