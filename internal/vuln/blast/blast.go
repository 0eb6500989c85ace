// Package blast answers how far a vulnerability has spread, and who can act on it.
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

// A Stage is a step from a vulnerability to the people who can do something about it.
type Stage int

// The stages, in their order.
const (
	StagePackages Stage = 1 + iota // versions of packages
	StageImages                    // images that have them
	StageTags                      // tags that stand for these
	StageRunning                   // where these run, and how they are deployed
	StagePulled                    // who has pulled these
	StageCanPull                   // who can pull from the repos of these
	StageCanPush                   // who can push to them, and so replace what is wrong
	StageOwners                    // who owns the groups that they are in
)

// BlastStages are all stages.
var Stages = []Stage{
	StagePackages, StageImages, StageTags, StageRunning, StagePulled, StageCanPull, StageCanPush, StageOwners,
}

// A Vulnerability is what a blast radius is asked of: an advisory by its ID or an alias, or
// a package and a range of its versions.
type Vulnerability struct {
	ID    string `json:"id,omitempty"`
	PURL  string `json:"purl,omitempty"`
	Range string `json:"range,omitempty"`
	query.Place
	Days  int   `json:"days,omitempty"` // for which pulls count; 0 means 30
	Stage Stage `json:"stage,omitempty"`
}

// A Gap is a reason why a stage may not have everything.
type Gap struct {
	Code  string
	Text  string
	Count int64 // of what is missing, if that is known
}

// A Page is a page of a stage. It is complete, within the caller's reach, if it has no
// gaps.
type Page struct {
	Stage Stage
	page.Page[Item]
	Gaps []Gap
}

// A Item is a part of a stage: one of its fields is set.
type Item struct {
	Package    *SpreadPackage
	Image      *query.AffectedImage
	Tag        *AffectedTag
	Running    *findingdb.RunningImage
	Deployment *AffectedDeployment
	Identity   *Identity

	key string
}

// A SpreadPackage is a version of a package, and how many images have it.
type SpreadPackage struct {
	registry.Package
	Images int
}

// An AffectedTag is a tag that stands for an affected image, or for an index that lists one.
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

// A Identity is somebody who has to do with affected images. Its UID is "" for those
// who need no identity.
type Identity struct {
	UID               resource.UID
	Name, DisplayName string         // as far as the caller may know them
	LastPull          time.Time      // of an affected image
	Groups            []resource.UID // on which they hold a role that lets them, some of them
	Repos             int            // with affected images for which that holds
}

// Bounds of a blast radius.
const (
	maxBlastDays   = 365
	maxTagImages   = 20_000  // whose tags are looked for
	maxPullImages  = 5_000   // whose pulls are looked for one by one
	maxPullRecords = 300_000 // that are looked at otherwise
	maxRunning     = 10_000  // entries of inventories
	maxGroupRoles  = 20_000  // role bindings
	maxBlastGroups = 1_000   // whose settings are read
	shownGroups    = 5       // of an identity
	stagePage      = 10      // items of each stage at first
)

// A Service answers how far something that is wrong has spread, and who can do
// something about it.
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

// NewService returns a BlastService over a database. Records of pulls are kept for a
// time; 0 means forever.
func NewService(
	queries *query.Service, packages *findingdb.Store, repos *registrydb.Store, r *metadata.Service, i *iam.Service, c *authz.Checker, p *page.Tokens,
	keepPulls time.Duration,
) *Service {
	return &Service{queries, packages, repos, imagedb.New(repos.DB), pulldb.New(repos.DB), r, i, iamdb.New(packages.DB), c, p, keepPulls}
}

// Get returns the first page of every stage. Images count that the caller has repo.list
// on, and vuln_report.list if asked for an advisory or sboms.list if asked for a package.
// Later stages also need the capabilities that the lists of their things need elsewhere;
// one that the caller may not see says so, and the others are answered.
func (s *Service) Get(ctx context.Context, of Vulnerability, size int32) (all []Page, _ error) {
	of.Stage = 0
	var b *radius
	for _, stage := range Stages {
		of.Stage = stage
		_, req, err := page.Resume(s.pages, blastList, of, page.Params{Size: orStagePage(size)})
		if err != nil {
			return nil, err
		}
		if b == nil {
			if b, err = s.newBlast(ctx, of); err != nil {
				return nil, err
			}
		}
		got, err := b.page(ctx, stage, req)
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

func orStagePage(size int32) int32 {
	if size == 0 {
		return stagePage
	}
	return size
}

// blastList is how the items of a stage are ordered: each stage has its own order.
var blastList = page.List{Kind: "blast", Fields: []string{"stage"}, Default: page.Order{Field: "stage"}}

// List returns a page of one stage. A page token has what is left out of the question.
func (s *Service) List(ctx context.Context, of Vulnerability, p page.Params) (none Page, _ error) {
	of, req, err := page.Resume(s.pages, blastList, of, p)
	if err != nil {
		return none, err
	}
	if !slices.Contains(Stages, of.Stage) {
		return none, fault.Field("stage", "is required")
	}
	b, err := s.newBlast(ctx, of)
	if err != nil {
		return none, err
	}
	return b.page(ctx, of.Stage, req)
}

// A radius is what is known while a question is answered.
type radius struct {
	*Service
	of     Vulnerability
	reach  []resource.UID // where images count
	spread findingdb.Spread
	number []int64              // of the images, in order
	gaps   []Gap                // of the images
	repos  map[resource.UID]int // with how many of the images
	held   *holderIndex         // once it was read
}

func (s *Service) newBlast(ctx context.Context, of Vulnerability) (*radius, error) {
	b := &radius{Service: s, of: of}
	if of.Days < 0 || of.Days > maxBlastDays {
		return nil, fault.Field("days", "must be between 1 and %d", maxBlastDays)
	}
	if (of.ID == "") == (of.PURL == "") {
		return nil, fault.Field("advisory_id", "is required, or purl, and not both")
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

// packageIDs returns the packages that are asked for, whoever has them, and sets where
// images count.
func (b *radius) packageIDs(ctx context.Context) (ids []int64, err error) {
	if b.of.PURL != "" {
		if b.reach, err = finding.Reach(ctx, b.authz, b.of.Group, resource.RepoList, resource.SBOMsList); err != nil {
			return nil, err
		}
		return b.queries.PackagesInRange(ctx, b.reach, b.of.PURL, b.of.Range)
	}
	if b.reach, err = finding.Reach(ctx, b.authz, b.of.Group, resource.RepoList, resource.ReportsList); err != nil {
		return nil, err
	}
	return b.queries.PackagesAffectedBy(ctx, b.reach, b.of.ID)
}

// findGaps finds out which images may be missing.
func (b *radius) findGaps(ctx context.Context) error {
	if len(b.reach) == 0 {
		b.gaps = []Gap{{Code: "NOT_ALLOWED", Text: "there is no group whose images you may look at for this"}}
		return nil
	}
	waiting, unclear, err := b.images.UnknownImages(ctx, b.reach)
	if err != nil {
		return err
	}
	if waiting > 0 {
		b.gaps = append(b.gaps, Gap{"NOT_INDEXED", fmt.Sprintf("%d images wait to be inspected", waiting), int64(waiting)})
	}
	if unclear > 0 {
		b.gaps = append(b.gaps, Gap{"NOT_UNDERSTOOD", fmt.Sprintf("%d images are not understood", unclear), int64(unclear)})
	}
	if b.of.PURL != "" {
		return nil
	}
	pending, err := b.comparing(ctx)
	if pending {
		b.gaps = append(b.gaps, Gap{Code: "NOT_COMPARED",
			Text: "advisories or packages that have just changed are being compared; ask again in some seconds"})
	}
	return err
}

// comparing reports whether packages of images in reach were not compared with advisories
// yet, or advisories in reach with packages.
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
		if of, err := b.packages.SpreadOf(ctx, b.reach, ids); err != nil || len(of.Packages) > 0 {
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
		var of stageItems
		if of, err = find(ctx); err != nil {
			return out, err
		}
		out.Page = page.Finish(b.pages, r, page.Cut(of.items, r, func(i Item) string { return i.key }))
		out.Total = max(out.Total, of.total)
		if out.Gaps = of.gaps; len(b.gaps) > 0 {
			out.Gaps = append([]Gap{{Code: "IMAGES_INCOMPLETE", Text: "images may be missing; see there"}}, out.Gaps...)
		}
		err = b.describePage(ctx, stage, out.Items)
	}
	return out, err
}

// stageItems is all of a stage.
type stageItems struct {
	items []Item
	total int64 // if there are more than items
	gaps  []Gap
}

func (b *radius) packagePage(ctx context.Context, r page.Request) (none page.Page[Item], _ error) {
	var ids []int64
	for id := range b.spread.Packages {
		ids = append(ids, id)
	}
	known, err := b.packages.ByID(ctx, ids)
	if err != nil {
		return none, err
	}
	var all []Item
	for id, p := range known {
		all = append(all, Item{Package: &SpreadPackage{p, b.spread.Packages[id]},
			key: strings.Join([]string{p.Name, p.Ecosystem, p.Version, p.PURL, fmt.Sprint(id)}, "\x00")})
	}
	return page.Finish(b.pages, r, page.Cut(all, r, func(i Item) string { return i.key })), nil
}

// imagePage lists the images, the last inspected first.
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

// tags finds the tags that stand for the images.
func (b *radius) tags(ctx context.Context) (of stageItems, _ error) {
	numbers := b.number
	if len(numbers) > maxTagImages {
		numbers = numbers[len(numbers)-maxTagImages:]
		of.gaps = append(of.gaps, Gap{"TOO_MANY_IMAGES", fmt.Sprintf("only the tags of the %d images that were inspected last",
			maxTagImages), int64(len(b.number) - maxTagImages)})
	}
	all, err := b.images.ImageTags(ctx, numbers)
	for _, t := range all {
		of.items = append(of.items, Item{Tag: &AffectedTag{Repo: t.Repo, Name: t.Name, Digest: t.Digest},
			key: string(t.Repo) + "\x00" + t.Name})
	}
	return of, err
}

// describePage fills in names of what a page has.
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

// addNames looks up the names of identities, as far as the caller may know them.
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
