// Package blast answers how far a vulnerability has spread, and which identities can act on it.
package blast

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// A Stage is a step on the way from a vulnerability to the people who can act on it.
type Stage int

// The stages, in order.
const (
	StagePackages Stage = 1 + iota // affected versions of packages
	StageImages                    // images with these packages
	StageTags                      // tags that point to these images
	StageRunning                   // where these images run, and how they are deployed
	StagePulled                    // identities that pulled these images
	StageCanPull                   // identities that can pull from the repos of these images
	StageCanPush                   // identities that can push to the repos of these images, and so replace the images
	StageOwners                    // owners of the groups that contain these repos
)

// Stages are all stages.
var Stages = []Stage{
	StagePackages, StageImages, StageTags, StageRunning, StagePulled, StageCanPull, StageCanPush, StageOwners,
}

// A Vulnerability selects a blast radius by the ID or an alias of an advisory, or by a
// package and a range of its versions.
type Vulnerability struct {
	ID    string `json:"id,omitempty"`
	PURL  string `json:"purl,omitempty"`
	Range string `json:"range,omitempty"`
	query.Place
	Days  int   `json:"days,omitempty"` // number of days in which pulls count; 0 means 30
	Stage Stage `json:"stage,omitempty"`
}

// A Gap is a reason why a stage may be incomplete.
type Gap struct {
	Code  string
	Text  string
	Count int64 // number of missing items, if known
}

// A Page is a page of a stage. If it has no gaps, the stage contains everything that the caller may see.
type Page struct {
	Stage Stage
	page.Page[Item]
	Gaps     []Gap
	Coverage query.AnswerCoverage // set by List
}

// An Item is a part of a stage. One of its fields is set.
type Item struct {
	Package    *SpreadPackage
	Image      *query.AffectedImage
	Tag        *AffectedTag
	Running    *findingdb.RunningImage
	Deployment *AffectedDeployment
	Identity   *Identity

	key string
}

// A SpreadPackage is a version of a package, with the number of images that have it.
type SpreadPackage struct {
	registry.Package
	Images int
}

// An AffectedTag is a tag that points to an affected image, or to an index that lists
// one.
type AffectedTag struct {
	Repo         resource.UID
	Path         string
	Name, Digest string
}

// An AffectedDeployment says how the images of a repo are deployed.
type AffectedDeployment struct {
	registry.Deployment
	Path string
}

// An Identity is an identity with access to affected images. Its UID is "" for
// anonymous access.
type Identity struct {
	UID               resource.UID
	Name, DisplayName string         // empty if the caller may not see them
	LastPull          time.Time      // last pull of an affected image
	Groups            []resource.UID // groups on which the identity holds a sufficient role; at most shownGroups
	Repos             int            // number of repos with affected images to which the identity has access
}

// Limits of a blast radius.
const (
	maxBlastDays   = 365
	maxTagImages   = 20_000  // maximum number of images whose tags are read
	maxPullImages  = 5_000   // maximum number of images for which pulls are looked up image by image
	maxPullRecords = 300_000 // maximum number of pull records that are read if there are more images
	maxRunning     = 10_000  // maximum number of inventory entries that are read
	maxGroupRoles  = 20_000  // maximum number of role bindings that are read
	maxBlastGroups = 1_000   // maximum number of groups whose settings are read
	shownGroups    = 5       // maximum number of groups in an Identity
	stagePage      = 10      // default number of items per stage
)

// A Service answers how far a vulnerability has spread, and which identities can act on it. It is
// safe for concurrent use.
type Service struct {
	queries   *query.Service
	packages  *findingdb.Store
	repoStore *registrydb.Store
	images    *imagedb.Store
	pulls     *pulldb.Store
	registry  *metadata.Service
	iam       *iam.Service
	roles     *iamdb.Store
	authz     *authz.Checker
	pages     *page.Tokens
	keepPulls time.Duration
}

// NewService returns a Service over a database. keepPulls is the time after which records of pulls are deleted; 0 means
// never.
func NewService(
	queries *query.Service, packages *findingdb.Store, repos *registrydb.Store, r *metadata.Service,
	i *iam.Service, c *authz.Checker, p *page.Tokens, keepPulls time.Duration,
) *Service {
	return &Service{queries, packages, repos, imagedb.New(repos.DB), pulldb.New(repos.DB), r, i, iamdb.New(packages.DB),
		c, p, keepPulls}
}

// Get returns the first page of every stage. An image counts if the caller has repo.list on it, and also
// vuln_report.list if v names an advisory, or sboms.list if v names a package. Later stages also need the capabilities
// to list their items. If the caller may not see a stage, its page has a gap that says so.
func (s *Service) Get(
	ctx context.Context, v Vulnerability, size int32,
) (pages []Page, c query.AnswerCoverage, _ error) {
	v.Stage = 0
	var b *radius
	for _, stage := range Stages {
		v.Stage = stage
		_, req, err := page.Resume(s.pages, blastList, v, page.Params{Size: orStagePage(size)})
		if err != nil {
			return nil, c, err
		}
		if b == nil {
			if b, err = s.newBlast(ctx, v); err != nil {
				return nil, c, err
			}
		}
		got, err := b.page(ctx, stage, req)
		if err != nil {
			return nil, c, err
		}
		pages = append(pages, got)
	}
	c, err := b.coverage(ctx)
	return pages, c, err
}

// coverage returns the coverage of the blast radius.
func (b *radius) coverage(ctx context.Context) (query.AnswerCoverage, error) {
	return b.queries.CoverageOf(ctx, b.reach, b.query.PURL == "")
}

func orStagePage(size int32) int32 {
	if size == 0 {
		return stagePage
	}
	return size
}

// blastList orders the items of a stage. Each stage has its own order.
var blastList = page.List{Kind: "blast", Fields: []string{"stage"}, Default: page.Order{Field: "stage"}}

// List returns a page of one stage. A page token replaces the fields that v leaves out.
func (s *Service) List(ctx context.Context, v Vulnerability, p page.Params) (zero Page, _ error) {
	v, req, err := page.Resume(s.pages, blastList, v, p)
	if err != nil {
		return zero, err
	}
	if !slices.Contains(Stages, v.Stage) {
		return zero, fault.Field("stage", "is required")
	}
	b, err := s.newBlast(ctx, v)
	if err != nil {
		return zero, err
	}
	out, err := b.page(ctx, v.Stage, req)
	if err == nil {
		out.Coverage, err = b.coverage(ctx)
	}
	return out, err
}

// A radius holds the data of one request.
type radius struct {
	*Service
	query  Vulnerability
	reach  []resource.UID // groups and repos whose images count
	spread findingdb.Spread
	number []int64              // numbers of the affected images, in order
	gaps   []Gap                // gaps in the list of images
	repos  map[resource.UID]int // number of affected images, by repo
	held   *holderIndex         // roles on the groups of the repos; nil until they are read
}

func (s *Service) newBlast(ctx context.Context, v Vulnerability) (*radius, error) {
	b := &radius{Service: s, query: v}
	if v.Days < 0 || v.Days > maxBlastDays {
		return nil, fault.Field("days", "must be between 1 and %d", maxBlastDays)
	}
	if (v.ID == "") == (v.PURL == "") {
		return nil, fault.Field("advisory_id", "must be set if purl is empty, and must be empty otherwise")
	}
	ids, err := b.packageIDs(ctx)
	if err != nil {
		return nil, err
	}
	if b.spread, err = s.packages.SpreadOf(ctx, b.reach, ids); err != nil {
		return nil, err
	}
	b.number = b.spread.Numbers()
	if b.repos, err = s.images.RepoImages(ctx, b.number); err != nil {
		return nil, err
	}
	return b, b.findGaps(ctx)
}

// packageIDs returns the selected packages in any image, and sets reach.
func (b *radius) packageIDs(ctx context.Context) (ids []int64, err error) {
	if b.query.PURL != "" {
		if b.reach, err = finding.Reach(ctx, b.authz, b.query.Group, resource.RepoList, resource.SBOMsList); err != nil {
			return nil, err
		}
		return b.queries.PackagesInRange(ctx, b.reach, b.query.PURL, b.query.Range)
	}
	if b.reach, err = finding.Reach(ctx, b.authz, b.query.Group, resource.RepoList, resource.ReportsList); err != nil {
		return nil, err
	}
	return b.queries.PackagesAffectedBy(ctx, b.reach, b.query.ID)
}

// findGaps finds the reasons why images may be missing.
func (b *radius) findGaps(ctx context.Context) error {
	if len(b.reach) == 0 {
		b.gaps = []Gap{{Code: "NOT_ALLOWED", Text: "you lack the capabilities to list images in any group"}}
		return nil
	}
	unknown, err := b.images.UnknownImages(ctx, b.reach)
	if err != nil {
		return err
	}
	if n := unknown.Waiting; n > 0 {
		b.gaps = append(b.gaps, Gap{"NOT_INDEXED", fmt.Sprintf("%d images wait to be inspected", n), int64(n)})
	}
	if n := unknown.NotUnderstood; n > 0 {
		b.gaps = append(b.gaps, Gap{"NOT_UNDERSTOOD", fmt.Sprintf("%d images are not understood", n), int64(n)})
	}
	if b.query.PURL != "" {
		return nil
	}
	pending, err := b.comparing(ctx)
	if pending {
		b.gaps = append(b.gaps, Gap{Code: "NOT_COMPARED",
			Text: "changed advisories or packages are still being compared; try again in a few seconds"})
	}
	return err
}

// comparing reports whether packages of images in reach or advisories in reach still
// wait for comparison.
func (b *radius) comparing(ctx context.Context) (bool, error) {
	fresh, err := b.packages.Unmatched(ctx, 1000)
	if err != nil {
		return false, err
	}
	var ids []int64
	for _, p := range fresh {
		ids = append(ids, p.ID)
	}
	if len(ids) > 0 {
		if spread, err := b.packages.SpreadOf(ctx, b.reach, ids); err != nil || len(spread.Packages) > 0 {
			return true, err
		}
	}
	seen, err := b.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil || len(seen) == 0 {
		return false, err
	}
	return b.packages.ChangesPending(ctx, finding.Organizations(seen))
}

// page returns a page of a stage.
func (b *radius) page(ctx context.Context, stage Stage, r page.Request) (out Page, err error) {
	out.Stage = stage
	switch stage {
	case StagePackages:
		out.Page, err = b.packagePage(ctx, r)
		out.Gaps = b.gaps
	case StageImages:
		out.Page, err = b.imagePage(ctx, r)
		out.Gaps = b.gaps
	default:
		find := map[Stage]func(context.Context) (stageItems, error){
			StageTags: b.tags, StageRunning: b.running, StagePulled: b.pulled,
			StageCanPull: b.canPull, StageCanPush: b.canPush, StageOwners: b.owners,
		}[stage]
		var found stageItems
		if found, err = find(ctx); err != nil {
			return out, err
		}
		out.Page = page.Finish(b.pages, r, page.Cut(found.items, r, func(i Item) string { return i.key }))
		out.Total = max(out.Total, found.total)
		if out.Gaps = found.gaps; len(b.gaps) > 0 {
			incomplete := Gap{Code: "IMAGES_INCOMPLETE", Text: "images may be missing; see the gaps of the images"}
			out.Gaps = append([]Gap{incomplete}, out.Gaps...)
		}
		err = b.describePage(ctx, stage, out.Items)
	}
	return out, err
}

// stageItems contains all items of a stage.
type stageItems struct {
	items []Item
	total int64 // number of items, if it is more than len(items)
	gaps  []Gap
}

func (b *radius) packagePage(ctx context.Context, r page.Request) (zero page.Page[Item], _ error) {
	var ids []int64
	for id := range b.spread.Packages {
		ids = append(ids, id)
	}
	known, err := b.packages.ByID(ctx, ids)
	if err != nil {
		return zero, err
	}
	var items []Item
	for id, p := range known {
		items = append(items, Item{Package: &SpreadPackage{p, b.spread.Packages[id]},
			key: strings.Join([]string{p.Name, p.Ecosystem, p.Version, p.PURL, fmt.Sprint(id)}, "\x00")})
	}
	return page.Finish(b.pages, r, page.Cut(items, r, func(i Item) string { return i.key })), nil
}

// imagePage returns a page of the images, the latest first.
func (b *radius) imagePage(ctx context.Context, r page.Request) (out page.Page[Item], _ error) {
	numbers := slices.Clone(b.number)
	if out.Total = int64(len(numbers)); !r.Order.Desc {
		slices.Reverse(numbers)
	}
	if r.After != nil {
		numbers = slices.DeleteFunc(numbers, func(n int64) bool {
			return n == r.After.Number || n > r.After.Number != r.Order.Desc
		})
	}
	numbers = numbers[min(r.Skip, len(numbers)):]
	if len(numbers) > r.Size {
		numbers = numbers[:r.Size]
		out.Last = &page.Cursor{Number: numbers[r.Size-1]}
	}
	var ids []int64
	for id := range b.spread.Packages {
		ids = append(ids, id)
	}
	images, err := b.queries.DescribeImages(ctx, numbers, ids)
	for _, i := range images {
		out.Items = append(out.Items, Item{Image: &i})
	}
	return page.Finish(b.pages, r, out), err
}

// tags returns the tags that point to the images.
func (b *radius) tags(ctx context.Context) (stage stageItems, _ error) {
	numbers := b.number
	if len(numbers) > maxTagImages {
		numbers = numbers[len(numbers)-maxTagImages:]
		stage.gaps = append(stage.gaps,
			Gap{"TOO_MANY_IMAGES", fmt.Sprintf("only tags of the %d images that were inspected last",
				maxTagImages), int64(len(b.number) - maxTagImages)})
	}
	found, err := b.images.ImageTags(ctx, numbers)
	for _, t := range found {
		stage.items = append(stage.items, Item{Tag: &AffectedTag{Repo: t.Repo, Name: t.Name, Digest: t.Digest},
			key: string(t.Repo) + "\x00" + t.Name})
	}
	return stage, err
}

// describePage adds names to the items of a page.
func (b *radius) describePage(ctx context.Context, stage Stage, items []Item) error {
	switch stage {
	case StageTags, StageRunning:
		return b.addPaths(ctx, items)
	}
	return b.addNames(ctx, items)
}

func (b *radius) addPaths(ctx context.Context, items []Item) error {
	var repos []resource.UID
	for _, i := range items {
		switch {
		case i.Tag != nil:
			repos = append(repos, i.Tag.Repo)
		case i.Deployment != nil:
			repos = append(repos, i.Deployment.UID)
		}
	}
	if len(repos) == 0 {
		return nil
	}
	paths, err := b.registry.Paths(ctx, repos)
	for _, i := range items {
		switch {
		case i.Tag != nil:
			i.Tag.Path = paths[i.Tag.Repo]
		case i.Deployment != nil:
			i.Deployment.Path = paths[i.Deployment.UID]
		}
	}
	return err
}

// addNames adds the names of identities that the caller may see.
func (b *radius) addNames(ctx context.Context, items []Item) error {
	byUID := map[resource.UID]*Identity{}
	var uids []resource.UID
	for _, i := range items {
		if i.Identity != nil && i.Identity.UID != "" {
			byUID[i.Identity.UID] = i.Identity
			uids = append(uids, i.Identity.UID)
		}
	}
	if len(uids) == 0 {
		return nil
	}
	names, err := b.iam.LookupNames(ctx, uids)
	for _, n := range names {
		byUID[n.UID].Name, byUID[n.UID].DisplayName = n.Name, n.DisplayName
	}
	return err
}
