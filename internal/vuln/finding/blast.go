package finding

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A BlastStage is a step from a vulnerability to the people who can do something about it.
type BlastStage int

// The stages, in their order.
const (
	BlastPackages BlastStage = 1 + iota // versions of packages
	BlastImages                         // images that have them
	BlastTags                           // tags that stand for these
	BlastRunning                        // where these run, and how they are deployed
	BlastPulled                         // who has pulled these
	BlastCanPull                        // who can pull from the repos of these
	BlastCanPush                        // who can push to them, and so replace what is wrong
	BlastOwners                         // who owns the groups that they are in
)

// BlastStages are all stages.
var BlastStages = []BlastStage{
	BlastPackages, BlastImages, BlastTags, BlastRunning, BlastPulled, BlastCanPull, BlastCanPush, BlastOwners,
}

// A Vulnerability is what a blast radius is asked of: an advisory by its ID or an alias, or
// a package and a range of its versions.
type Vulnerability struct {
	ID    string `json:"id,omitempty"`
	PURL  string `json:"purl,omitempty"`
	Range string `json:"range,omitempty"`
	Place
	Days  int        `json:"days,omitempty"` // for which pulls count; 0 means 30
	Stage BlastStage `json:"stage,omitempty"`
}

// A Gap is a reason why a stage may not have everything.
type Gap struct {
	Code  string
	Text  string
	Count int64 // of what is missing, if that is known
}

// A BlastPage is a page of a stage. It is complete, within the caller's reach, if it has no
// gaps.
type BlastPage struct {
	Stage BlastStage
	page.Page[BlastItem]
	Gaps []Gap
}

// A BlastItem is a part of a stage: one of its fields is set.
type BlastItem struct {
	Package    *SpreadPackage
	Image      *AffectedImage
	Tag        *AffectedTag
	Running    *Running
	Deployment *AffectedDeployment
	Identity   *BlastIdentity

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

// A BlastIdentity is somebody who has to do with affected images. Its UID is "" for those
// who need no identity.
type BlastIdentity struct {
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

// A BlastService answers how far something that is wrong has spread, and who can do
// something about it.
type BlastService struct {
	*Service
	iam       *iam.Service
	roles     *iamdb.Store
	keepPulls time.Duration
}

// NewBlastService returns a BlastService over a Service. Records of pulls are kept for a
// time; 0 means forever.
func NewBlastService(s *Service, i *iam.Service, keepPulls time.Duration) *BlastService {
	return &BlastService{s, i, iamdb.New(s.packages.DB), keepPulls}
}

// Get returns the first page of every stage. Images count that the caller has repo.list
// on, and vuln_report.list if asked for an advisory or sboms.list if asked for a package.
// Later stages also need the capabilities that the lists of their things need elsewhere;
// one that the caller may not see says so, and the others are answered.
func (s *BlastService) Get(ctx context.Context, of Vulnerability, size int32) (all []BlastPage, _ error) {
	of.Stage = 0
	var b *blast
	for _, stage := range BlastStages {
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
func (s *BlastService) List(ctx context.Context, of Vulnerability, p page.Params) (none BlastPage, _ error) {
	of, req, err := page.Resume(s.pages, blastList, of, p)
	if err != nil {
		return none, err
	}
	if !slices.Contains(BlastStages, of.Stage) {
		return none, fault.Field("stage", "is required")
	}
	b, err := s.newBlast(ctx, of)
	if err != nil {
		return none, err
	}
	return b.page(ctx, of.Stage, req)
}

// A blast is what is known while a question is answered.
type blast struct {
	*BlastService
	of     Vulnerability
	reach  []resource.UID // where images count
	spread findingdb.Spread
	number []int64              // of the images, in order
	gaps   []Gap                // of the images
	repos  map[resource.UID]int // with how many of the images
	held   *holderIndex         // once it was read
}

func (s *BlastService) newBlast(ctx context.Context, of Vulnerability) (*blast, error) {
	b := &blast{BlastService: s, of: of}
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
func (b *blast) packageIDs(ctx context.Context) (ids []int64, err error) {
	if b.of.PURL != "" {
		return b.searched(ctx)
	}
	if b.reach, err = b.imageReach(ctx, b.of.Place, resource.RepoList, resource.ReportsList); err != nil {
		return nil, err
	}
	seen, err := b.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return nil, err
	}
	id := strings.TrimSpace(b.of.ID)
	if id == "" || len(id) > maxName {
		return nil, fault.Field("advisory_id", "must have 1 to %d bytes", maxName)
	}
	keys, err := b.advisories.KeysByName(ctx, store.Reach{Under: seen}, id)
	if err != nil {
		return nil, err
	}
	return b.packages.AffectedBy(ctx, b.reach, keys)
}

// searched returns the packages with a name and with versions in a range.
func (b *blast) searched(ctx context.Context) (ids []int64, err error) {
	if b.reach, err = b.imageReach(ctx, b.of.Place, resource.RepoList, resource.SBOMsList); err != nil {
		return nil, err
	}
	ecosystem, name, exact, err := version.ParsePURL(b.of.PURL)
	if err != nil {
		return nil, fault.Field("purl", "is not a package URL such as pkg:npm/lodash")
	}
	want, err := parseRange(ecosystem, b.of.Range)
	if err != nil {
		return nil, err
	}
	known, err := b.packages.PackagesNamed(ctx, b.reach, name, maxVersions+1)
	if len(known) > maxVersions {
		return nil, fault.Unmet("TOO_MANY_VERSIONS", "images have more than %d versions of this package", maxVersions)
	}
	for _, k := range known {
		if version.SameEcosystem(ecosystem, k.Ecosystem) && (exact == "" || exact == k.Version) &&
			want.has(k.Ecosystem, k.Version) {
			ids = append(ids, k.ID)
		}
	}
	return ids, err
}

// findGaps finds out which images may be missing.
func (b *blast) findGaps(ctx context.Context) error {
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
func (b *blast) comparing(ctx context.Context) (bool, error) {
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
	return b.packages.ChangesPending(ctx, roots(seen))
}

// page returns a page of a stage.
func (b *blast) page(ctx context.Context, stage BlastStage, r page.Request) (out BlastPage, err error) {
	out.Stage = stage
	switch stage {
	case BlastPackages:
		out.Page, err = b.packagePage(ctx, r)
		out.Gaps = b.gaps
	case BlastImages:
		out.Page, err = b.imagePage(ctx, r)
		out.Gaps = b.gaps
	default:
		find := map[BlastStage]func(context.Context) (found, error){
			BlastTags: b.tags, BlastRunning: b.running, BlastPulled: b.pulled,
			BlastCanPull: b.canPull, BlastCanPush: b.canPush, BlastOwners: b.owners,
		}[stage]
		var of found
		if of, err = find(ctx); err != nil {
			return out, err
		}
		out.Page = page.Finish(b.pages, r, page.Cut(of.items, r, func(i BlastItem) string { return i.key }))
		out.Total = max(out.Total, of.total)
		if out.Gaps = of.gaps; len(b.gaps) > 0 {
			out.Gaps = append([]Gap{{Code: "IMAGES_INCOMPLETE", Text: "images may be missing; see there"}}, out.Gaps...)
		}
		err = b.describePage(ctx, stage, out.Items)
	}
	return out, err
}

// found is all of a stage.
type found struct {
	items []BlastItem
	total int64 // if there are more than items
	gaps  []Gap
}

func (b *blast) packagePage(ctx context.Context, r page.Request) (none page.Page[BlastItem], _ error) {
	var ids []int64
	for id := range b.spread.Packages {
		ids = append(ids, id)
	}
	known, err := b.packages.ByID(ctx, ids)
	if err != nil {
		return none, err
	}
	var all []BlastItem
	for id, p := range known {
		all = append(all, BlastItem{Package: &SpreadPackage{p, b.spread.Packages[id]},
			key: strings.Join([]string{p.Name, p.Ecosystem, p.Version, p.PURL, fmt.Sprint(id)}, "\x00")})
	}
	return page.Finish(b.pages, r, page.Cut(all, r, func(i BlastItem) string { return i.key })), nil
}

// imagePage lists the images, the last inspected first.
func (b *blast) imagePage(ctx context.Context, r page.Request) (out page.Page[BlastItem], _ error) {
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
	images, err := b.describe(ctx, numbers, ids)
	for _, i := range images {
		out.Items = append(out.Items, BlastItem{Image: &i})
	}
	return page.Finish(b.pages, r, out), err
}

// tags finds the tags that stand for the images.
func (b *blast) tags(ctx context.Context) (of found, _ error) {
	numbers := b.number
	if len(numbers) > maxTagImages {
		numbers = numbers[len(numbers)-maxTagImages:]
		of.gaps = append(of.gaps, Gap{"TOO_MANY_IMAGES", fmt.Sprintf("only the tags of the %d images that were inspected last",
			maxTagImages), int64(len(b.number) - maxTagImages)})
	}
	all, err := b.images.ImageTags(ctx, numbers)
	for _, t := range all {
		of.items = append(of.items, BlastItem{Tag: &AffectedTag{Repo: t.Repo, Name: t.Name, Digest: t.Digest},
			key: string(t.Repo) + "\x00" + t.Name})
	}
	return of, err
}

// describePage fills in names of what a page has.
func (b *blast) describePage(ctx context.Context, stage BlastStage, items []BlastItem) error {
	switch stage {
	case BlastTags, BlastRunning:
		return b.addPaths(ctx, items)
	}
	return b.addNames(ctx, items)
}

func (b *blast) addPaths(ctx context.Context, items []BlastItem) error {
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
func (b *blast) addNames(ctx context.Context, items []BlastItem) error {
	byUID := map[resource.UID]*BlastIdentity{}
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
