package query

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	maxImages   = 200_000 // maximum number of images in one query
	maxFindings = 500_000 // maximum number of findings in one query
	someImages  = 5       // maximum number of images that are shown with a finding of a group
)

var errTooManyFindings = fault.Unmet("TOO_MANY_FINDINGS",
	"there are more than %d findings; select a smaller group, a repo, or fewer severities", maxFindings)

// groupKey returns a text that sorts findings like Key. It also distinguishes packages that differ only in their source
// package.
func (v GroupFinding) groupKey() string {
	return v.Key() + "\x00" + v.Package.Ecosystem + "\x00" + v.Package.SourceName + "\x00" + v.Package.SourceVersion
}

// A GroupFinding is a finding in images of a group.
type GroupFinding struct {
	finding.Finding
	Images     int             // number of images with the finding
	Excepted   int             // number of these images in which an exception holds for the finding
	SomeImages []AffectedImage // the latest images, without packages; images in which the finding is open come first
	FromFiles  bool            // whether the package is in the files of one of the images
	FromSBOMs  bool            // whether an SBOM attached to one of the images lists the package
	number     int64           // ID of the package
	shown      []int64         // numbers of the images in SomeImages; set if an exception holds in some of the images
	exceptedIn []int64         // numbers of the images in which an exception holds
	local      bool            // whether the severity is not the same in all images
}

// A groupSelection selects findings of a group. It is stored in page tokens.
type groupSelection struct {
	Place
	Filter
}

// groupFindingList orders findings in the same way as findingList.
var groupFindingList = page.List{Kind: "group_findings", Fields: findingList.Fields, Default: findingList.Default}

// A GroupAnswer contains the findings in the images of a group that a filter selects.
type GroupAnswer struct {
	Findings []GroupFinding // without the texts that Complete adds
	Coverage AnswerCoverage

	service  *Service
	contents *groupContents
	seen     []resource.UID
}

// ListGroup returns a page of the findings in all images of a group or repo that have a tag, directly or through an
// index. There is one finding for each version of a package and each vulnerability, with the number of images. It uses
// only images on which the caller has repo.list and vuln_report.list, and advisories on which the caller has
// advisories.list. It returns fault.FailedPrecondition if there are too many images or findings.
func (s *Service) ListGroup(
	ctx context.Context, place Place, f Filter, p page.Params,
) (got page.Page[GroupFinding], c AnswerCoverage, _ error) {
	selected, req, err := page.Resume(s.pages, groupFindingList, groupSelection{place, f}, p)
	if err != nil {
		return got, c, err
	}
	err = s.Group(ctx, selected.Place, selected.Filter, func(a GroupAnswer) error {
		shown := page.Cut(a.Findings, req, GroupFinding.groupKey)
		if err := a.Complete(ctx, shown.Items); err != nil {
			return err
		}
		got, c = page.Finish(s.pages, req, shown), a.Coverage
		return nil
	})
	return got, c, err
}

// Group calls use with the findings that ListGroup lists, in no order. Other expensive queries of the tenant wait until
// use returns.
func (s *Service) Group(ctx context.Context, place Place, f Filter, use func(GroupAnswer) error) error {
	if err := f.checkGroup(); err != nil {
		return err
	}
	reach, err := finding.Reach(ctx, s.authz, place.Group, resource.RepoList, resource.ReportsList)
	if err != nil {
		return err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return err
	}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return err
	}
	defer done()
	a := GroupAnswer{service: s, seen: seen}
	if a.contents, err = s.count(ctx, reach); err != nil {
		return err
	}
	if a.Coverage, err = s.groupCoverage(ctx, a.contents, seen); err != nil {
		return err
	}
	if a.Findings, err = s.groupFindings(ctx, a.contents, seen, f); err != nil {
		return err
	}
	if a.Coverage.NoDue, err = s.addGroupDue(ctx, f, a.Findings, reach, seen); err != nil {
		return err
	}
	if a.Findings, err = s.judged(ctx, a.contents, a.Findings, f); err != nil {
		return err
	}
	return use(a)
}

// Complete adds texts, images and the advice to findings of the answer.
func (a GroupAnswer) Complete(ctx context.Context, findings []GroupFinding) error {
	if err := a.service.complete(ctx, a.contents, findings); err != nil {
		return err
	}
	return a.Advise(ctx, findings)
}

// Advise sets the advice of findings of the answer.
func (a GroupAnswer) Advise(ctx context.Context, findings []GroupFinding) error {
	return a.service.adviseGroup(ctx, a.contents, a.seen, findings)
}

// ImagesOf returns the numbers of the images in which each finding is open, by its index in findings.
func (a GroupAnswer) ImagesOf(ctx context.Context, findings []GroupFinding) ([][]int64, error) {
	var numbers, packages []int64
	for _, i := range a.contents.images {
		if a.contents.counts(i) {
			numbers = append(numbers, i.Number)
		}
	}
	for _, v := range findings {
		packages = append(packages, v.number)
	}
	slices.Sort(packages)
	having, err := a.service.packages.HavingEach(ctx, numbers, slices.Compact(packages))
	if err != nil {
		return nil, err
	}
	open := make([][]int64, len(findings))
	for i, v := range findings {
		open[i] = having[v.number]
		if len(v.exceptedIn) > 0 {
			excepted := map[int64]bool{}
			for _, n := range v.exceptedIn {
				excepted[n] = true
			}
			open[i] = slices.DeleteFunc(slices.Clone(open[i]), func(n int64) bool { return excepted[n] })
		}
	}
	return open, nil
}

// Images returns the images with these numbers, by number and without packages.
func (a GroupAnswer) Images(ctx context.Context, numbers []int64) (map[int64]AffectedImage, error) {
	return a.service.imagesNumbered(ctx, numbers)
}

// checkGroup returns an error if a filter cannot be applied to a group.
func (f Filter) checkGroup() error {
	switch {
	case len(f.Package) > maxName:
		return fault.Field("package", "must have at most %d bytes", maxName)
	case slices.Contains(f.States, finding.StateClosed):
		return fault.Field("states", "closed findings can only be listed for one image")
	}
	return nil
}

// A groupContents contains the images of a group, and the number of images that have each package.
type groupContents struct {
	images   []imagedb.TaggedImage
	claims   map[int64][]findingdb.Claim // packages in attached SBOMs, by image number
	packages map[int64]*packageCount     // image counts by package ID
	groups   map[int64]resource.UID      // groups of the images, by image number; set by rateIn
	indexed  int
}

// A packageCount counts the images that have a package. latest contains the numbers of the latest of these images.
type packageCount struct {
	images        int
	latest        []int64
	files, claims bool // whether the files, or the SBOMs, of one of the images contain the package
}

// repos returns the repos of the images.
func (c *groupContents) repos() []resource.UID {
	found := map[resource.UID]bool{}
	for _, i := range c.images {
		found[i.Repo] = true
	}
	return slices.Collect(maps.Keys(found))
}

// counts reports whether the packages of an image count. These are the packages in its files, or the packages in its
// SBOMs if its files could not be read.
func (c *groupContents) counts(i imagedb.TaggedImage) bool {
	return i.State == registry.ImageIndexed || i.State != registry.ImageWaiting && len(c.claims[i.Number]) > 0
}

// tally returns the packageCount of a package. It creates one if there is none.
func (c *groupContents) tally(id int64) *packageCount {
	t := c.packages[id]
	if t == nil {
		t = &packageCount{}
		c.packages[id] = t
	}
	return t
}

// addClaims counts the packages in the SBOMs of an image. files are the packages in the image's files, which are
// already counted.
func (c *groupContents) addClaims(number int64, files []int64) {
	for _, claim := range c.claims[number] {
		t := c.tally(claim.Package)
		t.claims = true
		if _, both := slices.BinarySearch(files, claim.Package); !both {
			t.add(number)
		}
	}
}

func (t *packageCount) add(number int64) {
	t.images++
	index, _ := slices.BinarySearchFunc(t.latest, number, func(a, b int64) int { return cmp.Compare(b, a) })
	if index < someImages {
		t.latest = slices.Insert(t.latest, index, number)[:min(len(t.latest)+1, someImages)]
	}
}

// count reads the packages of the images in reach that have a tag, and counts the images of each package.
func (s *Service) count(ctx context.Context, reach []resource.UID) (*groupContents, error) {
	images, err := s.images.TaggedImages(ctx, reach, maxImages)
	if err != nil {
		return nil, err
	}
	return s.countImages(ctx, images)
}

// countImages reads the packages of images, and counts the images of each package.
func (s *Service) countImages(ctx context.Context, images []imagedb.TaggedImage) (_ *groupContents, err error) {
	c := &groupContents{images: images, packages: map[int64]*packageCount{}}
	if c.claims, err = s.claimsOf(ctx, images); err != nil {
		return nil, err
	}
	numbers := map[string][]int64{}
	for _, i := range images {
		switch {
		case i.State == registry.ImageIndexed:
			numbers[i.Digest] = append(numbers[i.Digest], i.Number)
		case c.counts(i):
			c.addClaims(i.Number, nil)
		}
	}
	err = s.packages.Contents(ctx, slices.Collect(maps.Keys(numbers)), func(digest string, packages []int64) error {
		c.indexed += len(numbers[digest])
		for _, id := range packages {
			t := c.tally(id)
			t.files = true
			for _, n := range numbers[digest] {
				t.add(n)
			}
		}
		for _, n := range numbers[digest] {
			c.addClaims(n, packages)
		}
		return ctx.Err()
	})
	return c, err
}

// claimsOf returns the packages in attached SBOMs, by image number.
func (s *Service) claimsOf(
	ctx context.Context, images []imagedb.TaggedImage,
) (map[int64][]findingdb.Claim, error) {
	c := groupContents{images: images}
	have, err := s.packages.HaveSBOMs(ctx, c.repos())
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, i := range images {
		if have[i.Repo] && i.Number >= 0 {
			numbers = append(numbers, i.Number)
		}
	}
	slices.Sort(numbers)
	return s.packages.Claims(ctx, slices.Compact(numbers))
}

// groupCoverage counts the images by state, and the packages by coverage.
func (s *Service) groupCoverage(
	ctx context.Context, c *groupContents, seen []resource.UID,
) (g AnswerCoverage, err error) {
	g.Indexed = c.indexed
	for _, i := range c.images {
		switch i.State {
		case registry.ImageNone:
			continue
		case registry.ImageNotUnderstood:
			g.NotUnderstood++
		case registry.ImageWaiting:
			if pushed := store.FromMS(i.Pushed); g.Oldest.IsZero() || pushed.Before(g.Oldest) {
				g.Oldest = pushed
			}
		}
		g.Images++
	}
	g.Waiting = g.Images - g.Indexed - g.NotUnderstood
	if err = s.addBacklogEnd(ctx, &g, c.repos()); err != nil {
		return g, err
	}
	if g.Packages, err = s.countKinds(ctx, c, seen); err != nil {
		return g, err
	}
	return s.completeCoverage(ctx, g, seen, true)
}

// countKinds counts the packages by coverage.
func (s *Service) countKinds(ctx context.Context, c *groupContents, seen []resource.UID) (p Coverage, _ error) {
	kinds, err := s.packages.CountKinds(ctx, slices.Collect(maps.Keys(c.packages)))
	if err != nil {
		return p, err
	}
	return s.countCovered(ctx, kinds, seen)
}

// countCovered counts packages by whether advisories in reach cover them.
func (s *Service) countCovered(
	ctx context.Context, kinds map[findingdb.PackageKind]int, seen []resource.UID,
) (p Coverage, _ error) {
	about := map[string]bool{}
	for k := range kinds {
		about[k.Ecosystem] = true
	}
	covered, err := s.advisories.CoveredEcosystems(ctx, store.Reach{Under: seen}, slices.Collect(maps.Keys(about)))
	return coveredOf(kinds, covered), err
}

// coveredOf counts packages by whether advisories cover their ecosystem.
func coveredOf(kinds map[findingdb.PackageKind]int, covered map[string]bool) (p Coverage) {
	for k, n := range kinds {
		p.Packages += n
		if !k.Matched {
			p.Waiting += n
		}
		switch {
		case k.Owned:
			p.Owned += n
		case covered[k.Ecosystem]:
			p.Covered += n
		default:
			p.Bare += n
		}
	}
	return p
}

// groupFindings returns the findings of a group: its packages with the advisories in reach that affect them. It does
// not read the texts of advisories, which complete adds.
func (s *Service) groupFindings(
	ctx context.Context, c *groupContents, seen []resource.UID, f Filter,
) (found []GroupFinding, _ error) {
	hits, err := s.packages.Hits(ctx, slices.Collect(maps.Keys(c.packages)), seen)
	if err != nil {
		return nil, err
	}
	known, err := s.packages.ByID(ctx, slices.Collect(maps.Keys(hits.ByPackage)))
	if err != nil {
		return nil, err
	}
	advisories := named(hits.Advisories)
	byPackage := Filter{Fixable: f.Fixable, Package: f.Package}
	for id, matched := range hits.ByPackage {
		for _, mentions := range finding.ByVulnerability(matched, advisories) {
			v := c.findingOf(id, finding.New(registry.ImagePackage{Package: known[id], ID: id}, mentions, advisories))
			if byPackage.has(v.Finding) {
				found = append(found, v)
			}
		}
		if len(found) > maxFindings {
			return nil, errTooManyFindings
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	pointers := make([]*finding.Finding, len(found))
	for i := range found {
		pointers[i] = &found[i].Finding
	}
	if err := s.addRecords(ctx, pointers, true); err != nil {
		return nil, err
	}
	if err := s.rateIn(ctx, c, found); err != nil {
		return nil, err
	}
	bySeverity := Filter{Severities: f.Severities}
	return slices.DeleteFunc(found, func(v GroupFinding) bool { return !bySeverity.has(v.Finding) }), nil
}

// findingOf adds the number of images to a finding in the package with that ID.
func (c *groupContents) findingOf(id int64, v finding.Finding) GroupFinding {
	t := c.packages[id]
	return GroupFinding{Finding: v, number: id, Images: t.images, FromFiles: t.files, FromSBOMs: t.claims}
}

// named returns advisories that have only names.
func named(advisories map[int64]findingdb.NamedAdvisory) map[int64]vuln.Advisory {
	out := make(map[int64]vuln.Advisory, len(advisories))
	for key, a := range advisories {
		out[key] = vuln.Advisory{UID: a.UID, ID: a.Names[0], Aliases: a.Names[1:], Fixes: a.Fixes}
	}
	return out
}

// judged adds states and data from exploit lists to the findings of a group. It returns those findings that the filter
// selects.
func (s *Service) judged(
	ctx context.Context, c *groupContents, findings []GroupFinding, f Filter,
) ([]GroupFinding, error) {
	found := make([]*finding.Finding, len(findings))
	for i := range findings {
		found[i] = &findings[i].Finding
	}
	if err := s.addExploits(ctx, found); err != nil {
		return nil, err
	}
	if err := s.judgeGroup(ctx, c, findings, s.packages.Time()); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(findings, func(v GroupFinding) bool { return !f.has(v.Finding) }), nil
}

// shownImages returns the numbers of the images that are shown with a finding.
func (c *groupContents) shownImages(v GroupFinding) []int64 {
	if v.shown != nil {
		return v.shown
	}
	return c.packages[v.number].latest
}

// complete adds summaries and images to the findings of a page.
func (s *Service) complete(ctx context.Context, c *groupContents, findings []GroupFinding) error {
	var keys, numbers []int64
	for _, v := range findings {
		for _, uid := range v.Advisories {
			keys = append(keys, store.Segment(uid))
		}
		numbers = append(numbers, c.shownImages(v)...)
	}
	slices.Sort(keys)
	advisories, err := s.advisories.AdvisoriesByKey(ctx, slices.Compact(keys))
	if err != nil {
		return err
	}
	byUID := map[resource.UID]vuln.Advisory{}
	for _, a := range advisories {
		byUID[a.UID] = a
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	images, err := s.imagesNumbered(ctx, numbers)
	if err != nil {
		return err
	}
	inFiles, err := s.packages.FromFiles(ctx, numbers)
	if err != nil {
		return err
	}
	described := make([]*finding.Finding, len(findings))
	for i := range findings {
		described[i] = &findings[i].Finding
		described[i].Describe(byUID)
	}
	if err := s.addRecords(ctx, described, false); err != nil {
		return err
	}
	for i := range findings {
		for _, n := range c.shownImages(findings[i]) {
			if found, ok := images[n]; ok {
				found.Claimed = isClaimed(inFiles, n, findings[i].number)
				findings[i].SomeImages = append(findings[i].SomeImages, found)
			}
		}
	}
	return nil
}

// adviseGroup sets the advice of the findings of a page. An advice considers all findings of a package, including those
// that are on other pages or that the filter leaves out.
func (s *Service) adviseGroup(ctx context.Context, c *groupContents, seen []resource.UID, shown []GroupFinding) error {
	var ids []int64
	for _, v := range shown {
		ids = append(ids, v.number)
	}
	slices.Sort(ids)
	hits, err := s.packages.Hits(ctx, slices.Compact(ids), seen)
	if err != nil {
		return err
	}
	full, err := s.advisories.AdvisoriesByKey(ctx, slices.Sorted(maps.Keys(hits.Advisories)))
	if err != nil {
		return err
	}
	advisories := map[int64]vuln.Advisory{}
	for _, a := range full {
		advisories[store.Segment(a.UID)] = a
	}
	known := map[int64]registry.Package{}
	for _, v := range shown {
		known[v.number] = v.Package.Package
	}
	var found []GroupFinding
	for id, matched := range hits.ByPackage {
		for _, mentions := range finding.ByVulnerability(matched, advisories) {
			found = append(found,
				c.findingOf(id, finding.New(registry.ImagePackage{Package: known[id], ID: id}, mentions, advisories)))
		}
	}
	if err := s.judgeGroup(ctx, c, found, s.packages.Time()); err != nil {
		return err
	}
	pointers := make([]*finding.Finding, len(found))
	byName := map[string]string{}
	for i := range found {
		pointers[i] = &found[i].Finding
	}
	finding.Advise(pointers, finding.ByUID(advisories))
	for _, v := range found {
		byName[v.groupName()] = v.Advice
	}
	for i := range shown {
		shown[i].Advice = byName[shown[i].groupName()]
	}
	return nil
}

// groupName returns a text that identifies a finding in a group.
func (v GroupFinding) groupName() string { return fmt.Sprint(v.number, " ", v.ID) }

// imagesNumbered returns the images with these numbers, by number and without packages.
func (s *Service) imagesNumbered(ctx context.Context, numbers []int64) (map[int64]AffectedImage, error) {
	described := map[int64]AffectedImage{}
	if len(numbers) == 0 {
		return described, nil
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
		described[i.Number] = AffectedImage{Repo: i.Repo, Path: paths[i.Repo], Digest: i.Digest, Tags: i.Tags}
	}
	return described, err
}
