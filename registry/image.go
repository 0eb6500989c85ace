package registry

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// defaultArchitecture is the one whose size is told when none is asked for.
const defaultArchitecture = "amd64"

// Architectures returns what an image was made for, each once. The caller needs
// repo.list and manifest.metadata.list on its repo.
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

// Size returns the bytes of the layers and the configuration of an image, and
// the architecture it was made for: of an index, the image for the one asked
// for, or else amd64. The caller needs repo.list and manifest.metadata.list on
// its repo. It returns fault.NotFound if the index has no such image.
func (s *Service) Size(ctx context.Context, repo resource.UID, digest, architecture string) (int64, string, error) {
	image, err := s.image(ctx, repo, digest)
	if err != nil {
		return 0, "", err
	}
	v, err := choose(image, architecture)
	return v.Size, v.Architecture, err
}

// Config returns how an image runs: of an index, the one that Size would choose.
// The caller needs what Size needs.
func (s *Service) Config(ctx context.Context, repo resource.UID, digest, architecture string) (ImageConfig, error) {
	image, err := s.image(ctx, repo, digest)
	if err != nil {
		return ImageConfig{}, err
	}
	v, err := choose(image, architecture)
	return readConfig(v.Config), err
}

// choose returns the image for an architecture: the only one, or else amd64, if
// none is asked for.
func choose(image resource.Image, architecture string) (resource.Variant, error) {
	if architecture == "" && len(image.Variants) == 1 {
		return image.Variants[0], nil
	}
	if architecture == "" {
		architecture = defaultArchitecture
	}
	for _, v := range image.Variants {
		if v.Architecture == architecture {
			return v, nil
		}
	}
	return resource.Variant{}, fault.Missing("image for "+printed(architecture)+" in", image.Digest)
}

// printed keeps what came from outside short.
func printed(s string) string { return s[:min(len(s), 64)] }

func (s *Service) image(ctx context.Context, repo resource.UID, digest string) (resource.Image, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ManifestMetadataList); err != nil {
		return resource.Image{}, err
	}
	if err := validDigest(digest); err != nil {
		return resource.Image{}, err
	}
	return s.images.Image(ctx, repo, digest)
}

// A Description is what there is to say about an image, an index of images or
// another artifact.
type Description struct {
	resource.Manifest
	Annotations map[string]string
	Variants    []DescribedVariant
}

// A DescribedVariant is an image for one system and how it runs.
type DescribedVariant struct {
	resource.Variant
	Config ImageConfig
}

// An ImageConfig is as much of the configuration of an image as people look at.
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

// Describe returns what there is to say about the manifest of a repo that a
// digest or a tag names. The caller needs repo.list and manifest.metadata.list on
// the repo.
func (s *Service) Describe(ctx context.Context, repo resource.UID, reference string) (Description, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ManifestMetadataList); err != nil {
		return Description{}, err
	}
	if !resource.ValidDigest(reference) && !resource.ValidTag(reference) {
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
		d.Variants = append(d.Variants, DescribedVariant{v, readConfig(v.Config)})
	}
	return d, nil
}

// readConfig reads the configuration of an image. What cannot be read of it is
// not there: whoever pushed it could write what they liked.
func readConfig(text []byte) ImageConfig {
	var c struct {
		Created string      `json:"created"`
		Config  ImageConfig `json:"config"`
	}
	_ = json.Unmarshal(text, &c) // a value of the wrong type is passed over
	if at, err := time.Parse(time.RFC3339, c.Created); err == nil && at.UTC().Year() >= 1 && at.UTC().Year() <= 9999 {
		c.Config.Created = at
	}
	return c.Config
}
