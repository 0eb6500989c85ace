package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// ExportVEX returns the findings of an image as an OpenVEX document. The caller needs the same capabilities as for
// List. The document contains the reasons of those exceptions that the caller may list, and says how much was
// compared. ExportVEX also returns the details of the image.
func (s *Service) ExportVEX(ctx context.Context, i finding.Image) (text []byte, k ImageDetails, _ error) {
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(resource.RepoList, resource.ImageReportsList),
		i.Repo); err != nil {
		return nil, k, err
	}
	k, found, err := s.look(ctx, i)
	if err != nil {
		return nil, k, err
	}
	if err := k.unavailable(); err != nil {
		return nil, k, err
	}
	if err := s.addCoverage(ctx, &k, found); err != nil {
		return nil, k, err
	}
	listed, err := s.findings(ctx, i.Repo, found)
	if err != nil {
		return nil, k, err
	}
	asOf := s.packages.Time()
	if err := s.judge(ctx, i.Repo, k.Digest, listed, asOf); err != nil {
		return nil, k, err
	}
	paths, err := s.registry.Paths(ctx, []resource.UID{i.Repo})
	if err != nil {
		return nil, k, err
	}
	slices.SortFunc(listed, func(a, b finding.Finding) int { return cmp.Compare(b.Key(), a.Key()) })
	reasons, err := s.reasons(ctx, listed)
	if err != nil {
		return nil, k, err
	}
	image := finding.ImagePURL(paths[i.Repo], k.Digest)
	var statements []format.Statement
	for _, v := range listed {
		statements = append(statements, v.Statement(image, k.Digest, reasons[v.Exception]))
	}
	text, err = format.WriteStatements(format.Options{Time: asOf, ID: "urn:holdfast:openvex:" + k.Digest + ":" +
		asOf.Format("20060102T150405.000Z"), Tooling: "holdfast; " + k.Answer.text()}, statements)
	return text, k, err
}

// text describes the coverage of an answer about one image. A document without statements says with it whether nothing
// was found, or nothing is known.
func (c AnswerCoverage) text() string {
	compared := map[Extent]string{ExtentNothing: "nothing", ExtentPart: "not everything", ExtentEverything: "everything"}
	p := c.Packages
	return fmt.Sprintf("%s was compared with advisories: packages %d, with advisories for their ecosystem %d, "+
		"without %d, part of another package %d, not compared yet %d", compared[c.Extent], p.Packages, p.Covered, p.Bare,
		p.Owned, p.Waiting)
}

// reasons returns those exceptions of findings that the caller may list, by UID.
func (s *Service) reasons(ctx context.Context, findings []finding.Finding) (map[resource.UID]vuln.Exception, error) {
	seen := map[resource.UID]vuln.Exception{}
	for _, v := range findings {
		if v.Exception != "" && s.authz.Require(ctx, resource.OverrideList, v.Exception) == nil {
			seen[v.Exception] = vuln.Exception{}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(seen)) {
		e, err := s.packages.Exception(ctx, uid)
		if err != nil && !errors.Is(err, fault.NotFound) { // NotFound means that the exception was just deleted
			return nil, err
		}
		seen[uid] = e
	}
	return seen, nil
}
