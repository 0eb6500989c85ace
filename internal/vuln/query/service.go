// Package query answers questions about the packages and findings of images.
package query

import (
	"cmp"
	"context"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// join adds the packages of SBOMs to the packages found in an image.
func (s *Service) join(ctx context.Context, found *registry.Inspection, sboms []registry.SBOM) error {
	places := map[int64]int{}
	for i, p := range found.Packages {
		places[p.ID] = i
		found.Packages[i].Origins = []registry.Origin{{}}
	}
	var fresh []int64
	for _, b := range sboms {
		for _, id := range b.IDs {
			if _, ok := places[id]; !ok {
				places[id] = len(found.Packages) + len(fresh)
				fresh = append(fresh, id)
			}
		}
	}
	known, err := s.packages.ByID(ctx, fresh)
	if err != nil {
		return err
	}
	for _, id := range fresh {
		found.Packages = append(found.Packages, registry.ImagePackage{ID: id, Package: known[id]})
	}
	for _, b := range sboms {
		for _, id := range b.IDs {
			p := &found.Packages[places[id]]
			p.Origins = append(p.Origins, b.Origin)
		}
	}
	return nil
}

// countOrigins counts the packages that only files, or only SBOMs, contain.
func (c *Coverage) countOrigins(packages []registry.ImagePackage) {
	listed, onlyFiles := false, 0
	for _, p := range packages {
		files := p.Origins[0].Manifest == ""
		switch {
		case !files:
			c.OnlySBOMs++
		case len(p.Origins) == 1:
			onlyFiles++
		}
		listed = listed || !files || len(p.Origins) > 1
	}
	if listed {
		c.OnlyFiles = onlyFiles
	}
}

// A Service answers questions about the packages and findings of images. It is safe for
// concurrent use.
//
// The result of inspecting an image is stored by digest, once for all repos. So every method first finds the image in a
// repo on which the caller has the needed capabilities.
type Service struct {
	packages   *findingdb.Store
	repoStore  *registrydb.Store
	images     *imagedb.Store
	advisories *advisorydb.Store
	registry   *metadata.Service
	authz      *authz.Checker
	pages      *page.Tokens
	turns      *finding.Limiter
	counts     *lru.Cache[string, cachedCount] // counts of packages, by the groups and repos of the images
}

// NewService returns a Service over a database.
func NewService(
	packages *findingdb.Store, repos *registrydb.Store, advisories *advisorydb.Store, r *metadata.Service,
	c *authz.Checker, p *page.Tokens, t *finding.Limiter,
) *Service {
	counts, _ := lru.New[string, cachedCount](countsCached) // New fails only for sizes below one
	return &Service{packages, repos, imagedb.New(repos.DB), advisories, r, c, p, t, counts}
}

// ImageDetails describes an image and its inspection.
type ImageDetails struct {
	registry.StoredImage
	Platform string
	// OtherPlatforms are the platforms of the other images of the index, which these details omit.
	OtherPlatforms []string
	Distribution   registry.Distribution
	Warnings       []string
	Coverage       Coverage
	Answer         AnswerCoverage  // set by List and ExportVEX
	Incomplete     string          // reason why closed findings may be missing; "" if none are missing
	SBOMs          []registry.SBOM // SBOMs that are attached to the image in the repo
}

// A Coverage counts the packages of an image.
type Coverage struct {
	Packages int // number of all packages
	Covered  int // packages in ecosystems for which the caller sees advisories
	Bare     int // packages in other ecosystems, for which nothing is known
	Owned    int // packages that a package of the distribution installed; the advisories about that package cover them
	Waiting  int // packages that were not compared with the advisories yet

	// OnlySBOMs is the number of packages that only SBOMs list. OnlyFiles is the number of packages that no SBOM lists.
	// Both are 0 if the image has no SBOMs.
	OnlySBOMs, OnlyFiles int
}

// Inspect returns the details of an image. The caller needs repo.list, sboms.list and
// manifest.metadata.list on the repo.
func (s *Service) Inspect(ctx context.Context, i finding.Image) (ImageDetails, error) {
	k, found, err := s.inspect(ctx, i)
	if err != nil || k.unavailable() != nil {
		return k, err
	}
	k.Coverage, err = s.coverage(ctx, found)
	return k, err
}

// inspect returns the details of an image that the caller may see. If the image was inspected, inspect also returns its
// packages.
func (s *Service) inspect(ctx context.Context, i finding.Image) (k ImageDetails, found registry.Inspection, _ error) {
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(resource.RepoList, resource.SBOMsList,
		resource.ManifestMetadataList), i.Repo); err != nil {
		return k, found, err
	}
	return s.look(ctx, i)
}

// look is like inspect, but does not authorize the caller.
func (s *Service) look(ctx context.Context, i finding.Image) (k ImageDetails, found registry.Inspection, _ error) {
	v, siblings, err := s.registry.ChooseVariant(ctx, i.Repo, i.Reference, i.Architecture)
	if err != nil {
		return k, found, err
	}
	images, err := s.images.Images(ctx, i.Repo, []string{v.Digest})
	if err != nil {
		return k, found, err
	}
	stored, ok := images[v.Digest]
	if !ok {
		stored = registry.StoredImage{Repo: i.Repo, Digest: v.Digest, State: registry.ImageNone}
	}
	k = ImageDetails{StoredImage: stored, Platform: v.Platform()}
	for _, o := range siblings {
		if p := o.Platform(); !slices.Contains(k.OtherPlatforms, p) && p != k.Platform {
			k.OtherPlatforms = append(k.OtherPlatforms, p)
		}
	}
	found.Digest = v.Digest
	if stored.State == registry.ImageIndexed {
		if found, ok, err = s.packages.Inspection(ctx, v.Digest); err == nil && !ok {
			k.State = registry.ImageWaiting
		}
		if err != nil {
			return k, found, err
		}
	}
	k.Distribution, k.Warnings = found.Distribution, found.Warnings
	if k.SBOMs, err = s.packages.SBOMs(ctx, i.Repo, v.Digest); err != nil {
		return k, found, err
	}
	err = s.join(ctx, &found, k.SBOMs)
	return k, found, err
}

// coverage counts the packages of an image.
func (s *Service) coverage(ctx context.Context, found registry.Inspection) (c Coverage, _ error) {
	reach, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return c, err
	}
	var about []string
	for _, p := range found.Packages {
		if !slices.Contains(about, p.Ecosystem) {
			about = append(about, p.Ecosystem)
		}
	}
	covered, err := s.advisories.CoveredEcosystems(ctx, store.Reach{Under: reach}, about)
	if err != nil {
		return c, err
	}
	c.Waiting, err = s.packages.Waiting(ctx, found.IDs())
	c.Packages = len(found.Packages)
	c.countOrigins(found.Packages)
	for _, p := range found.Packages {
		switch {
		case p.Owned:
			c.Owned++
		case covered[p.Ecosystem]:
			c.Covered++
		default:
			c.Bare++
		}
	}
	return c, err
}

// packageList orders packages by name.
var packageList = page.List{Kind: "image_packages", Fields: []string{"name"}, Default: page.Order{Field: "name"}}

// ListPackages returns a page of the packages of an image, ordered by name. The caller needs the same capabilities as
// for Inspect. A page token replaces the fields that i leaves out. It returns fault.FailedPrecondition if the packages
// are not known.
func (s *Service) ListPackages(
	ctx context.Context, i finding.Image, p page.Params,
) (zero page.Page[registry.ImagePackage], c AnswerCoverage, _ error) {
	i, req, err := page.Resume(s.pages, packageList, i, p)
	if err != nil {
		return zero, c, err
	}
	k, found, err := s.inspect(ctx, i)
	if err != nil {
		return zero, c, err
	}
	if err := k.unavailable(); err != nil {
		return zero, c, err
	}
	if err := s.addCoverage(ctx, &k, found); err != nil {
		return zero, c, err
	}
	slices.SortStableFunc(found.Packages, func(a, b registry.ImagePackage) int { return cmp.Compare(a.Name, b.Name) })
	got := page.Cut(found.Packages, req, func(p registry.ImagePackage) string {
		return p.Name + "\x00" + p.Ecosystem + "\x00" + p.Version + "\x00" + p.PURL + "\x00" + p.SourceVersion
	})
	return page.Finish(s.pages, req, got), k.Answer, nil
}

// unavailable returns an error that says why the packages of an image are not known, or nil if they are known. If the
// files of an image could not be read, the packages in its SBOMs count.
func (k ImageDetails) unavailable() error {
	claimed := slices.ContainsFunc(k.SBOMs, func(b registry.SBOM) bool { return len(b.IDs) > 0 })
	if claimed && k.State != registry.ImageWaiting {
		return nil
	}
	switch k.State {
	case registry.ImageWaiting:
		return fault.Unmet("IMAGE_NOT_INDEXED", "the image is waiting to be inspected; try again in a few seconds")
	case registry.ImageNotUnderstood:
		return fault.Unmet("IMAGE_NOT_UNDERSTOOD", "the image is not understood: %s", k.Reason)
	case registry.ImageNone:
		return fault.Unmet("NOT_AN_IMAGE", "the manifest is not an image with files")
	}
	return nil
}
