package finding

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/findingdb"
	"github.com/holdfast-dev/holdfast/store/registrydb"
)

const (
	maxImages   = 200_000 // that one question may be about
	maxFindings = 500_000 // of them
	someImages  = 5       // that are shown with a finding of a group
)

var errTooManyFindings = fault.Unmet("TOO_MANY_FINDINGS",
	"there are more than %d findings; ask for a group or repo below, or for some severities", maxFindings)

// groupKey orders findings as key. Packages that differ in their source alone have keys that
// differ.
func (v Finding) groupKey() string {
	return v.key() + "\x00" + v.Package.Ecosystem + "\x00" + v.Package.SourceName + "\x00" + v.Package.SourceVersion
}

// A GroupCoverage says what the findings of a group are worth.
type GroupCoverage struct {
	Images        int // that a tag stands for
	Indexed       int // whose packages are known
	Waiting       int // to be inspected
	NotUnderstood int
	Packages      Coverage // each version of a package counts once
}

// A groupSelection is what a list of findings of a group is of.
type groupSelection struct {
	Place
	Filter
}

// groupFindingList is ordered as findingList.
var groupFindingList = page.List{Kind: "group_findings", Fields: findingList.Fields, Default: findingList.Default}

// ListGroup returns a page of the findings of all images in a group, or repo, that a tag
// stands for now, directly or through an index: one for each version of a package and what
// is wrong with it, with the number of images that have it. Images count that the caller
// has repo.list and vuln_report.list on, and advisories that the caller has advisories.list
// on. It returns fault.FailedPrecondition if there are too many.
func (s *Service) ListGroup(
	ctx context.Context, at Place, f Filter, p page.Params,
) (none page.Page[Finding], _ GroupCoverage, _ error) {
	of, req, err := page.Resume(s.pages, groupFindingList, groupSelection{at, f}, p)
	if err != nil {
		return none, GroupCoverage{}, err
	}
	if len(of.Package) > maxName {
		return none, GroupCoverage{}, fault.Field("package", "must have at most %d bytes", maxName)
	}
	reach, err := s.imageReach(ctx, of.Place, resource.RepoList, resource.ReportsList)
	if err != nil {
		return none, GroupCoverage{}, err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return none, GroupCoverage{}, err
	}
	done, err := s.takeTurn(ctx, reach)
	if err != nil {
		return none, GroupCoverage{}, err
	}
	defer done()
	c, err := s.count(ctx, reach)
	if err != nil {
		return none, GroupCoverage{}, err
	}
	covered, err := s.groupCoverage(ctx, c, seen)
	if err != nil {
		return none, covered, err
	}
	all, err := s.groupFindings(ctx, c, seen, of.Filter)
	if err != nil {
		return none, covered, err
	}
	if all, err = s.judged(ctx, all, of.Filter); err != nil {
		return none, covered, err
	}
	got := page.Cut(all, req, Finding.groupKey)
	return page.Finish(s.pages, req, got), covered, s.complete(ctx, c, got.Items)
}

// A census has the images of a group, and how many of them have each package.
type census struct {
	images   []registrydb.TaggedImage
	packages map[int64]*tally // by number
	indexed  int
}

// A tally counts the images that have a package. some are the numbers of those that were
// inspected last.
type tally struct {
	images int
	some   []int64
}

func (t *tally) add(number int64) {
	t.images++
	at, _ := slices.BinarySearchFunc(t.some, number, func(a, b int64) int { return cmp.Compare(b, a) })
	if at < someImages {
		t.some = slices.Insert(t.some, at, number)[:min(len(t.some)+1, someImages)]
	}
}

// count reads which packages the images in reach have.
func (s *Service) count(ctx context.Context, reach []resource.UID) (*census, error) {
	images, err := s.images.TaggedImages(ctx, reach, maxImages)
	if err != nil {
		return nil, err
	}
	c := &census{images: images, packages: map[int64]*tally{}}
	numbers := map[string][]int64{}
	for _, i := range images {
		if i.State == resource.ImageIndexed {
			numbers[i.Digest] = append(numbers[i.Digest], i.Number)
		}
	}
	err = s.packages.Contents(ctx, slices.Collect(maps.Keys(numbers)), func(digest string, packages []int64) error {
		c.indexed += len(numbers[digest])
		for _, id := range packages {
			t := c.packages[id]
			if t == nil {
				t = &tally{}
				c.packages[id] = t
			}
			for _, n := range numbers[digest] {
				t.add(n)
			}
		}
		return ctx.Err()
	})
	return c, err
}

// groupCoverage counts images and packages by what can be said about them.
func (s *Service) groupCoverage(ctx context.Context, c *census, seen []resource.UID) (g GroupCoverage, _ error) {
	g.Images, g.Indexed = len(c.images), c.indexed
	for _, i := range c.images {
		if i.State == resource.ImageNotUnderstood {
			g.NotUnderstood++
		}
	}
	g.Waiting = g.Images - g.Indexed - g.NotUnderstood
	kinds, err := s.packages.Kinds(ctx, slices.Collect(maps.Keys(c.packages)))
	if err != nil {
		return g, err
	}
	about := map[string]bool{}
	for k := range kinds {
		about[k.Ecosystem] = true
	}
	covered, err := s.advisories.Covered(ctx, store.Reach{Under: seen}, slices.Collect(maps.Keys(about)))
	for k, n := range kinds {
		g.Packages.Packages += n
		if !k.Matched {
			g.Packages.Waiting += n
		}
		switch {
		case k.Owned:
			g.Packages.Owned += n
		case covered[k.Ecosystem]:
			g.Packages.Covered += n
		default:
			g.Packages.Bare += n
		}
	}
	return g, err
}

// groupFindings joins the packages of a census with the advisories in reach. Texts of
// advisories are not read; see complete.
func (s *Service) groupFindings(
	ctx context.Context, c *census, seen []resource.UID, f Filter,
) (all []Finding, _ error) {
	hits, err := s.packages.Hits(ctx, slices.Collect(maps.Keys(c.packages)), seen)
	if err != nil {
		return nil, err
	}
	known, err := s.packages.ByID(ctx, slices.Collect(maps.Keys(hits.ByPackage)))
	if err != nil {
		return nil, err
	}
	advisories := named(hits.Advisories)
	basic := Filter{Severities: f.Severities, Fixable: f.Fixable, Package: f.Package}
	for id, of := range hits.ByPackage {
		for _, same := range together(of, advisories) {
			v := newFinding(resource.ImagePackage{Package: known[id]}, same, advisories)
			v.number, v.Images = id, c.packages[id].images
			if basic.has(v) {
				all = append(all, v)
			}
		}
		if len(all) > maxFindings {
			return nil, errTooManyFindings
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// named returns advisories that have nothing but their names.
func named(all map[int64]findingdb.NamedAdvisory) map[int64]resource.Advisory {
	out := make(map[int64]resource.Advisory, len(all))
	for key, a := range all {
		out[key] = resource.Advisory{UID: a.UID, ID: a.Names[0], Aliases: a.Names[1:]}
	}
	return out
}

// judged returns those of the findings of a group that a filter selects. Whatever is not
// known from the advisories alone is added here, to all findings at once.
func (s *Service) judged(ctx context.Context, all []Finding, f Filter) ([]Finding, error) {
	if err := s.Judge(ctx, all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(v Finding) bool { return !f.has(v) }), nil
}

// complete adds what only the findings of a page have: a summary, and some of the images.
func (s *Service) complete(ctx context.Context, c *census, all []Finding) error {
	var keys, numbers []int64
	for _, v := range all {
		for _, uid := range v.Advisories {
			keys = append(keys, store.Segment(uid))
		}
		numbers = append(numbers, c.packages[v.number].some...)
	}
	slices.Sort(keys)
	advisories, err := s.advisories.WithKeys(ctx, slices.Compact(keys))
	if err != nil {
		return err
	}
	byUID := map[resource.UID]resource.Advisory{}
	for _, a := range advisories {
		byUID[a.UID] = a
	}
	slices.Sort(numbers)
	images, err := s.imagesNumbered(ctx, slices.Compact(numbers))
	if err != nil {
		return err
	}
	for i := range all {
		for _, uid := range all[i].Advisories {
			all[i].Summary = cmp.Or(all[i].Summary, byUID[uid].Summary)
		}
		for _, n := range c.packages[all[i].number].some {
			if found, ok := images[n]; ok {
				all[i].SomeImages = append(all[i].SomeImages, found)
			}
		}
	}
	return nil
}

// imagesNumbered returns images by their numbers, without their packages.
func (s *Service) imagesNumbered(ctx context.Context, numbers []int64) (map[int64]AffectedImage, error) {
	all := map[int64]AffectedImage{}
	if len(numbers) == 0 {
		return all, nil
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
	for _, i := range images {
		all[i.Number] = AffectedImage{Repo: i.Repo, Path: paths[i.Repo], Digest: i.Digest, Tags: i.Tags}
	}
	return all, err
}
