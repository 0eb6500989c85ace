package query

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// An AffectedImage is an image with the packages that make it affected.
type AffectedImage struct {
	Repo     resource.UID
	Path     string // path of the repo
	Digest   string
	Tags     []string
	Packages []registry.Package // those packages of the query that the image has
	PastTags []registry.PastTag // tags that pointed to the image in the past
	Platform string             // platform such as linux/arm64/v8; "" if unknown
	Claimed  bool               // whether only attached SBOMs list these packages
}

// imageList orders images by the time of their inspection. By default the latest comes first.
var imageList = page.List{Kind: "affected_images", Fields: []string{"time"},
	Default: page.Order{Field: "time", Desc: true}}

// A Place restricts a query to images of a group.
type Place struct {
	Group resource.UID `json:"group,omitempty"` // a group or repo; "" means every group that the caller may list
}

// A question selects images by an advisory or by a package. It is stored in page
// tokens.
type question struct {
	ID    string `json:"id,omitempty"`
	PURL  string `json:"purl,omitempty"`
	Range string `json:"range,omitempty"`
	Place
}

// AffectedImages returns a page of the images that an advisory affects. id is the ID of the advisory or one of its
// aliases. It returns only images on which the caller has repo.list and vuln_report.list, and uses only advisories on
// which the caller has advisories.list.
func (s *Service) AffectedImages(
	ctx context.Context, id string, place Place, p page.Params,
) (zero page.Page[AffectedImage], c AnswerCoverage, _ error) {
	selected, req, err := page.Resume(s.pages, imageList, question{ID: id, Place: place}, p)
	if err != nil {
		return zero, c, err
	}
	reach, err := finding.Reach(ctx, s.authz, selected.Group, resource.RepoList, resource.ReportsList)
	if err != nil {
		return zero, c, err
	}
	ids, err := s.PackagesAffectedBy(ctx, reach, selected.ID)
	if err != nil {
		return zero, c, err
	}
	if c, err = s.CoverageOf(ctx, reach, true); err != nil {
		return zero, c, err
	}
	got, err := s.having(ctx, reach, ids, req)
	return got, c, err
}

// PackagesAffectedBy returns the IDs of the packages that an advisory affects. id is the ID of the advisory or one of
// its aliases. The result contains at least those packages that images in reach have. It returns fault.NotFound if no
// advisory that the caller may list has that name, and fault.FailedPrecondition if the name is known, but no advisory
// says which packages are affected. So an empty result always means that nothing is affected.
func (s *Service) PackagesAffectedBy(
	ctx context.Context, reach []resource.UID, id string,
) ([]int64, error) {
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return nil, err
	}
	if id = strings.TrimSpace(id); id == "" || len(id) > maxName {
		return nil, fault.Field("advisory_id", "must have 1 to %d bytes", maxName)
	}
	keys, err := s.advisories.KeysByName(ctx, store.Reach{Under: seen}, id)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, s.unknown(ctx, seen, id)
	}
	if err := s.checkAffected(ctx, keys, id); err != nil {
		return nil, err
	}
	return s.packages.AffectedBy(ctx, reach, keys)
}

// having returns a page of those images in reach that have one of the packages.
func (s *Service) having(
	ctx context.Context, reach []resource.UID, packages []int64, r page.Request,
) (zero page.Page[AffectedImage], _ error) {
	slices.Sort(packages)
	packages = slices.Compact(packages)
	numbers, err := s.packages.Having(ctx, reach, packages)
	if err != nil {
		return zero, err
	}
	out := page.Page[AffectedImage]{Total: int64(len(numbers))}
	if r.Order.Desc {
		slices.Reverse(numbers)
	}
	if r.After != nil {
		numbers = slices.DeleteFunc(numbers, func(n int64) bool {
			return n == r.After.Number || n > r.After.Number == r.Order.Desc
		})
	}
	numbers = numbers[min(r.Skip, len(numbers)):]
	if len(numbers) > r.Size {
		numbers = numbers[:r.Size]
		out.Last = &page.Cursor{Number: numbers[r.Size-1]}
	}
	if out.Items, err = s.DescribeImages(ctx, numbers, packages); err != nil {
		return zero, err
	}
	return page.Finish(s.pages, r, out), nil
}

// DescribeImages returns the images with these numbers. Each image lists the given packages that it has.
func (s *Service) DescribeImages(ctx context.Context, numbers, packages []int64) (affected []AffectedImage, _ error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	images, err := s.images.NumberedImages(ctx, numbers)
	if err != nil {
		return nil, err
	}
	var repos []resource.UID
	for _, i := range images {
		repos = append(repos, i.Repo)
	}
	paths, err := s.registry.Paths(ctx, repos)
	if err != nil {
		return nil, err
	}
	which, err := s.packages.PackagesIn(ctx, numbers, packages)
	if err != nil {
		return nil, err
	}
	inFiles, err := s.packages.FromFiles(ctx, numbers)
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		affected = append(affected, AffectedImage{Repo: i.Repo, Path: paths[i.Repo], Digest: i.Digest, Tags: i.Tags,
			Packages: which[i.Number], Platform: i.Platform, Claimed: isClaimed(inFiles, i.Number, packages...)})
	}
	return affected, s.addPastTags(ctx, images, affected)
}

// isClaimed reports whether only SBOMs list the packages of an image. inFiles contains the packages in the files of
// images, by image number. It has only images with SBOMs.
func isClaimed(inFiles map[int64][]int64, number int64, packages ...int64) bool {
	files, ok := inFiles[number]
	return ok && !slices.ContainsFunc(packages, func(id int64) bool {
		_, has := slices.BinarySearch(files, id)
		return has
	})
}
