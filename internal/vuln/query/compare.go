package query

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// A Comparison is a page of changes, with details of both images.
type Comparison struct {
	page.Page[finding.Change]
	From, To ImageDetails
	Coverage AnswerCoverage
	Counts   [finding.ChangeKinds]int // number of changes by kind, including kinds that the filter leaves out
}

// A Pair selects two images to compare. Each is selected now or at a time. If To has no repo, it is in the repo of
// From.
type Pair struct {
	From  PastImage            `json:"from,omitzero"`
	To    PastImage            `json:"to,omitzero"`
	Kinds []finding.ChangeKind `json:"kinds,omitempty"`
}

// A PastImage is an image, or the image to which a tag pointed at a time.
type PastImage struct {
	finding.Image
	Time time.Time `json:"time,omitzero"` // time at which the image is selected; zero means now
}

// changeList orders changes by kind.
var changeList = page.List{Kind: "image_changes", Fields: []string{"kind"}, Default: page.Order{Field: "kind"}}

// Compare returns a page of the differences between two images, according to the current advisories and exceptions. The
// caller needs the same capabilities as for List and ListPackages on both repos, and tag.list to select the past
// image of a tag. A page token replaces the fields that p leaves out. Compare returns fault.FailedPrecondition if the
// packages of an image are not known, or if the image to which a tag pointed was deleted.
func (s *Service) Compare(ctx context.Context, pair Pair, p page.Params) (c Comparison, _ error) {
	pair, req, err := page.Resume(s.pages, changeList, pair, p)
	if err != nil {
		return c, err
	}
	pair.To.Repo = cmp.Or(pair.To.Repo, pair.From.Repo)
	for _, i := range []PastImage{pair.From, pair.To} {
		if err := s.mayCompare(ctx, i); err != nil {
			return c, err
		}
	}
	var from, to []finding.Finding
	var before, after []registry.ImagePackage
	if c.From, before, from, err = s.side(ctx, pair.From); err != nil {
		return c, onSide("from", err)
	}
	if c.To, after, to, err = s.side(ctx, pair.To); err != nil {
		return c, onSide("to", err)
	}
	changes := append(finding.CompareFindings(from, to), finding.ComparePackages(before, after)...)
	for _, v := range changes {
		c.Counts[v.Kind]++
	}
	if len(pair.Kinds) > 0 {
		changes = slices.DeleteFunc(changes, func(v finding.Change) bool { return !slices.Contains(pair.Kinds, v.Kind) })
	}
	c.Page = page.Finish(s.pages, req, page.Cut(changes, req, finding.Change.Key))
	c.Coverage, err = s.pairCoverage(ctx, c.From, c.To, before, after)
	return c, err
}

func (s *Service) mayCompare(ctx context.Context, i PastImage) error {
	need := resource.NewCapabilities(resource.RepoList, resource.SBOMsList, resource.ManifestMetadataList,
		resource.ImageReportsList)
	if !i.Time.IsZero() {
		need = need.Union(resource.NewCapabilities(resource.TagList))
	}
	return s.authz.RequireAll(ctx, need, i.Repo)
}

// onSide adds the side, from or to, to an error. So the error says which image it is about.
func onSide(side string, err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code == fault.Internal {
		return err
	}
	named := *f
	named.Message = side + ": " + f.Message
	named.Fields, named.Unmet = slices.Clone(f.Fields), slices.Clone(f.Unmet)
	for i, v := range named.Fields {
		named.Fields[i].Subject = side + "_" + v.Subject
	}
	if len(named.Fields) > 0 {
		return fault.Fields(named.Fields)
	}
	for i, v := range named.Unmet {
		named.Unmet[i].Description = side + ": " + v.Description
	}
	return &named
}

// side returns the details, the packages and the findings of one of the images.
func (s *Service) side(
	ctx context.Context, i PastImage,
) (k ImageDetails, has []registry.ImagePackage, findings []finding.Finding, _ error) {
	var err error
	if !i.Time.IsZero() {
		if i.Image, err = s.resolveTag(ctx, i); err != nil {
			return k, nil, nil, err
		}
	}
	k, found, err := s.look(ctx, i.Image)
	if err != nil {
		if !i.Time.IsZero() && errors.Is(err, fault.NotFound) {
			err = fault.Unmet("IMAGE_GONE", "the tag pointed to %s at that time, which was deleted", i.Reference)
		}
		return k, nil, nil, err
	}
	if err := k.unavailable(); err != nil {
		return k, nil, nil, err
	}
	if k.Coverage, err = s.coverage(ctx, found); err != nil {
		return k, nil, nil, err
	}
	if findings, err = s.findings(ctx, k.Repo, found); err != nil {
		return k, nil, nil, err
	}
	if err := s.judge(ctx, k.Repo, k.Digest, findings, s.packages.Time()); err != nil {
		return k, nil, nil, err
	}
	return k, found.Packages, findings, s.addExploits(ctx, pointers(findings))
}

// resolveTag returns the image to which a tag pointed at a time. The result selects the image by its digest.
func (s *Service) resolveTag(ctx context.Context, i PastImage) (finding.Image, error) {
	if resource.ValidDigest(i.Reference) {
		return i.Image, fault.Field("time", "must be empty unless the reference is a tag")
	}
	if !registry.ValidTag(i.Reference) {
		return i.Image, fault.Field("reference", "is neither a digest nor a tag")
	}
	digest, err := s.images.TagAt(ctx, i.Repo, i.Reference, i.Time)
	i.Reference = digest
	return i.Image, err
}
