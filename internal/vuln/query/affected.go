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

// An AffectedImage is an image with what makes it affected.
type AffectedImage struct {
	Repo     resource.UID
	Path     string // of the repo
	Digest   string
	Tags     []string
	Packages []registry.Package // of the image, among those that were asked for
	PastTags []registry.PastTag // that stood for it, and no longer do
	Platform string             // such as linux/arm64/v8; "" if it is not known
	Claimed  bool               // attached SBOMs alone say that it has them
}

// imageList is how images are ordered: those that were inspected last come first.
var imageList = page.List{Kind: "affected_images", Fields: []string{"time"}, Default: page.Order{Field: "time", Desc: true}}

// A Place is where images are looked for.
type Place struct {
	Group resource.UID `json:"group,omitempty"` // a group or repo; "" means wherever the caller may look
}

// A question selects images, by an advisory or by a package. A page token has what is left
// out of it.
type question struct {
	ID    string `json:"id,omitempty"`
	PURL  string `json:"purl,omitempty"`
	Range string `json:"range,omitempty"`
	Place
}

// AffectedImages returns a page of the images that an advisory affects, by its ID or one of
// its aliases. Images count that the caller has repo.list and vuln_report.list on, and
// advisories that the caller has advisories.list on.
func (s *Service) AffectedImages(
	ctx context.Context, id string, at Place, p page.Params,
) (none page.Page[AffectedImage], _ error) {
	of, req, err := page.Resume(s.pages, imageList, question{ID: id, Place: at}, p)
	if err != nil {
		return none, err
	}
	reach, err := finding.Reach(ctx, s.authz, of.Group, resource.RepoList, resource.ReportsList)
	if err != nil {
		return none, err
	}
	ids, err := s.PackagesAffectedBy(ctx, reach, of.ID)
	if err != nil {
		return none, err
	}
	return s.having(ctx, reach, ids, req)
}

// PackagesAffectedBy returns the IDs of the packages of images in reach that an advisory
// affects, by its ID or one of its aliases.
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
	return s.packages.AffectedBy(ctx, reach, keys)
}

// having returns a page of the images in reach that have one of the packages.
func (s *Service) having(
	ctx context.Context, reach []resource.UID, packages []int64, r page.Request,
) (none page.Page[AffectedImage], _ error) {
	slices.Sort(packages)
	packages = slices.Compact(packages)
	numbers, err := s.packages.Having(ctx, reach, packages)
	if err != nil {
		return none, err
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
		return none, err
	}
	return page.Finish(s.pages, r, out), nil
}

// DescribeImages returns images by their numbers, with those of the packages that each has.
func (s *Service) DescribeImages(ctx context.Context, numbers, packages []int64) (all []AffectedImage, _ error) {
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
	which, err := s.packages.Which(ctx, numbers, packages)
	if err != nil {
		return nil, err
	}
	told, err := s.packages.FromFiles(ctx, numbers)
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		all = append(all, AffectedImage{Repo: i.Repo, Path: paths[i.Repo], Digest: i.Digest, Tags: i.Tags,
			Packages: which[i.Number], Platform: i.Platform, Claimed: isClaimed(told, i.Number, packages...)})
	}
	return all, s.addPastTags(ctx, images, all)
}

// isClaimed reports whether SBOMs alone tell that an image has one of the packages. told are
// the packages in the files of those images that have SBOMs.
func isClaimed(told map[int64][]int64, number int64, packages ...int64) bool {
	files, ok := told[number]
	return ok && !slices.ContainsFunc(packages, func(id int64) bool {
		_, has := slices.BinarySearch(files, id)
		return has
	})
}
