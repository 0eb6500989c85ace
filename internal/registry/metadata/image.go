package metadata

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
)

// Architectures returns the architectures of an image, sorted. The caller needs repo.list and manifest.metadata.list
// on the repo.
func (s *Service) Architectures(ctx context.Context, repo resource.UID, digest string) ([]string, error) {
	image, err := s.image(ctx, repo, digest)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, v := range image.Variants {
		if v.Architecture != "" {
			all = append(all, v.Architecture)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Size returns the number of bytes of the layers and the configuration of an image, and the architecture of the
// image. For an index, it uses the image for the given architecture, or for amd64 if architecture is "". The caller
// needs repo.list and manifest.metadata.list on the repo. It returns fault.NotFound if the index has no such image.
func (s *Service) Size(ctx context.Context, repo resource.UID, digest, architecture string) (int64, string, error) {
	v, err := s.variant(ctx, repo, digest, architecture)
	return v.Size, v.Architecture, err
}

// Config returns the configuration of an image. For an index, it chooses an image as Size does. The caller needs the
// same capabilities as for Size.
func (s *Service) Config(ctx context.Context, repo resource.UID, digest, architecture string) (ImageConfig, error) {
	v, err := s.variant(ctx, repo, digest, architecture)
	return readConfig(v.Config), err
}

func (s *Service) variant(ctx context.Context, repo resource.UID, digest, arch string) (registry.Variant, error) {
	image, err := s.image(ctx, repo, digest)
	if err != nil {
		return registry.Variant{}, err
	}
	return images.Choose(image, arch)
}

// Variant returns the image that a tag or a digest names. For an index, it returns the image for an architecture,
// which it chooses as Size does. It returns fault.NotFound if there is no such image. It does not authorize the
// caller.
func (s *Service) Variant(
	ctx context.Context, repo resource.UID, reference, architecture string,
) (registry.Variant, error) {
	chosen, _, err := s.ChooseVariant(ctx, repo, reference, architecture)
	return chosen, err
}

// ChooseVariant is like Variant. It also returns the other images of the index.
func (s *Service) ChooseVariant(
	ctx context.Context, repo resource.UID, reference, architecture string,
) (chosen registry.Variant, others []registry.Variant, _ error) {
	if _, err := s.store.Repo(ctx, repo); err != nil { // checks the whole UID, not only its last segment
		return chosen, nil, err
	}
	if !resource.ValidDigest(reference) && !registry.ValidTag(reference) {
		return chosen, nil, fault.Field("reference", "is neither a digest nor a tag")
	}
	m, err := s.store.StatManifest(ctx, repo, reference)
	if err != nil {
		return chosen, nil, err
	}
	image, err := s.images.Image(ctx, repo, m.Digest)
	if err != nil {
		return chosen, nil, err
	}
	if chosen, err = images.Choose(image, architecture); err != nil {
		return chosen, nil, err
	}
	for _, v := range image.Variants {
		if v.Digest != chosen.Digest {
			others = append(others, v)
		}
	}
	return chosen, others, nil
}

// clip shortens a text that a client has sent, for an error message.
func clip(s string) string { return s[:min(len(s), 64)] }

func (s *Service) image(ctx context.Context, repo resource.UID, digest string) (registry.Image, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ManifestMetadataList); err != nil {
		return registry.Image{}, err
	}
	if err := images.CheckDigest(digest); err != nil {
		return registry.Image{}, err
	}
	return s.images.Image(ctx, repo, digest)
}

// A Description describes an image, an index of images, or another artifact.
type Description struct {
	registry.Manifest
	Annotations map[string]string
	Variants    []DescribedVariant
}

// A DescribedVariant is an image for one platform, with its configuration and its build steps.
type DescribedVariant struct {
	registry.Variant
	Config ImageConfig
	Steps  []Step
}

// An ImageConfig is the part of an image's configuration that the API returns.
type ImageConfig struct {
	Created      time.Time `json:"-"`
	User         string
	Env          []string
	Entrypoint   []string
	Cmd          []string
	WorkingDir   string
	ExposedPorts map[string]struct{}
	Volumes      map[string]struct{}
	Labels       map[string]string
	StopSignal   string
}

// Describe describes the manifest that a digest or a tag names. The caller needs
// repo.list and manifest.metadata.list on the repo.
func (s *Service) Describe(ctx context.Context, repo resource.UID, reference string) (Description, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ManifestMetadataList); err != nil {
		return Description{}, err
	}
	if !resource.ValidDigest(reference) && !registry.ValidTag(reference) {
		return Description{}, fault.Field("reference", "is neither a digest nor a tag")
	}
	m, err := s.store.Manifest(ctx, repo, reference)
	if err != nil {
		return Description{}, err
	}
	d := Description{Manifest: m}
	if m.Annotations != "" {
		if err := json.Unmarshal([]byte(m.Annotations), &d.Annotations); err != nil {
			return Description{}, err
		}
	}
	image, err := s.images.Image(ctx, repo, m.Digest)
	if err != nil {
		return Description{}, err
	}
	for _, v := range image.Variants {
		d.Variants = append(d.Variants, DescribedVariant{v, readConfig(v.Config), steps(v.Stack, v.Config)})
	}
	return d, nil
}

// readConfig parses the configuration of an image. It leaves out fields that it cannot parse, because a client can
// push anything.
func readConfig(text []byte) ImageConfig {
	var c struct {
		Created string      `json:"created"`
		Config  ImageConfig `json:"config"`
	}
	_ = json.Unmarshal(text, &c) // skips values of the wrong type
	c.Config.Created = madeAt(c.Created)
	return c.Config
}
