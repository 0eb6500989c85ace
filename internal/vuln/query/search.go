package query

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

const maxVersions = 20_000 // maximum number of versions of one package in a search

// SearchWithCoverage is like Search. It also returns the coverage of the answer.
func (s *Service) SearchWithCoverage(
	ctx context.Context, purl, in string, place Place, p page.Params,
) (got page.Page[AffectedImage], c AnswerCoverage, _ error) {
	got, reach, err := s.search(ctx, purl, in, place, p)
	if err != nil {
		return got, c, err
	}
	c, err = s.CoverageOf(ctx, reach, false)
	return got, c, err
}

// Search returns a page of the images that have a package. The package must have the name in a package URL and, if the
// URL contains a version, that version. Its version must also be in a range such as ">=4.0.0 <4.17.21 || 5.0.0".
// Advisories do not matter. Search returns only images on which the caller has repo.list and sboms.list.
func (s *Service) Search(
	ctx context.Context, purl, in string, place Place, p page.Params,
) (page.Page[AffectedImage], error) {
	got, _, err := s.search(ctx, purl, in, place, p)
	return got, err
}

// search is like Search. It also returns the groups and repos in which it has searched.
func (s *Service) search(
	ctx context.Context, purl, in string, place Place, p page.Params,
) (zero page.Page[AffectedImage], reach []resource.UID, _ error) {
	selected, req, err := page.Resume(s.pages, imageList, question{PURL: purl, Range: in, Place: place}, p)
	if err != nil {
		return zero, nil, err
	}
	reach, err = finding.Reach(ctx, s.authz, selected.Group, resource.RepoList, resource.SBOMsList)
	if err != nil {
		return zero, nil, err
	}
	ids, err := s.PackagesInRange(ctx, reach, selected.PURL, selected.Range)
	if err != nil {
		return zero, nil, err
	}
	got, err := s.having(ctx, reach, ids, req)
	return got, reach, err
}

// PackagesInRange returns the IDs of the packages that images in reach have, whose name is the name in a package URL,
// and whose version is in a range. If the URL contains a version, only packages with that version are returned.
func (s *Service) PackagesInRange(
	ctx context.Context, reach []resource.UID, purl, in string,
) (ids []int64, _ error) {
	ecosystem, name, exact, err := version.ParsePURL(purl)
	if err != nil {
		return nil, fault.Field("purl", "is not a package URL such as pkg:npm/lodash")
	}
	want, err := version.ParseRange(ecosystem, in)
	if err != nil {
		return nil, err
	}
	known, err := s.packages.PackagesNamed(ctx, reach, name, maxVersions+1)
	if err != nil {
		return nil, err
	}
	if len(known) > maxVersions {
		return nil, fault.Unmet("TOO_MANY_VERSIONS", "images have more than %d versions of this package", maxVersions)
	}
	for _, k := range known {
		if version.SameEcosystem(ecosystem, k.Ecosystem) && (exact == "" || exact == k.Version) &&
			want.Has(k.Ecosystem, k.Version) {
			ids = append(ids, k.ID)
		}
	}
	return ids, nil
}
