package finding

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A Finding is something that is wrong with a package of an image, whichever advisories
// say so: those that share an ID or an alias are one.
type Finding struct {
	ID                string   // of the advisory
	Aliases           []string // all other names of it
	Package           registry.ImagePackage
	Fixed             []string // versions in which it is fixed
	Severity          Severity
	Score             float64 // of CVSS; 0 if there is none
	Summary           string
	FirstSeen         time.Time
	Advisories        []resource.UID
	vuln.Exploitation // see addExploits

	State            State
	Exception        resource.UID // that holds for it
	ExceptionExpires time.Time    // when the finding is open again; zero is never
	OpenedBy         string       // what brought the advisory: a feed and its revision, import, api, or image
	Closing                       // how it ended, if it is over

	claims [][]string // see the function claims
	// Of a group.
	Images     int             // how many have it
	Excepted   int             // in how many of these an exception holds for it
	SomeImages []AffectedImage // those in which it is open and that were inspected last, without their packages
	FromFiles  bool            // the files of one of them tell of the package
	FromSBOMs  bool            // an SBOM that is attached to one of them does
	number     int64           // of the package
	some       []int64         // the numbers of SomeImages, if exceptions hold for it in some images
}

// A Severity is a rating by the scale of CVSS.
type Severity int

// The severities.
const (
	SeverityUnknown Severity = iota
	SeverityLow
	SeverityMedium
	SeverityHigh
	SeverityCritical
)

// SeverityOf returns the rating of a score.
func SeverityOf(score float64) Severity {
	switch {
	case score <= 0:
		return SeverityUnknown
	case score < 4:
		return SeverityLow
	case score < 7:
		return SeverityMedium
	case score < 9:
		return SeverityHigh
	}
	return SeverityCritical
}

// A Filter selects findings.
type Filter struct {
	Severities []Severity `json:"severities,omitempty"`
	Fixable    bool       `json:"fixable,omitempty"`
	KEV        bool       `json:"kev,omitempty"`     // only what is known to be exploited
	Package    string     `json:"package,omitempty"` // its name, or that of its source
	States     []State    `json:"states,omitempty"`  // empty is all but StateClosed
	At         time.Time  `json:"at,omitzero"`       // what was open then; zero is now
}

func (f Filter) has(v Finding) bool {
	return v.State.in(f.States) && (len(f.Severities) == 0 || slices.Contains(f.Severities, v.Severity)) &&
		(!f.Fixable || len(v.Fixed) > 0) && (!f.KEV || v.Known) &&
		(f.Package == "" || f.Package == v.Package.Name || f.Package == v.Package.SourceName)
}

// findingList is how findings are ordered: what is known to be exploited, what can be fixed, what is more likely to be
// exploited, and what has the higher score.
var findingList = page.List{Kind: "findings", Fields: []string{"urgency"}, Default: page.Order{Field: "urgency", Desc: true}}

// key orders findings by their urgency.
func (v Finding) key() string {
	known, fixable := 0, 0
	if v.Known {
		known = 1
	}
	if len(v.Fixed) > 0 {
		fixable = 1
	}
	return fmt.Sprintf("%d%d%010d%04.0f\x00%s\x00%s\x00%s\x00%s", known, fixable, v.likelihood(), v.Score*10, v.ID,
		v.Package.Name, v.Package.Version, v.Package.PURL)
}

// List returns a page of the findings of an image, the most urgent first. The caller needs
// repo.list and vuln_reports.list on the repo; of the advisories, those count that the
// caller has advisories.list on. A page token has what is left out of the image and the
// filter. It returns fault.FailedPrecondition if the packages of the image are not known.
//
// For what was open at a time, and for what is closed, the caller needs tag.list on the
// repo, too.
func (s *Service) List(ctx context.Context, i Image, f Filter, p page.Params) (none page.Page[Finding], k Known, _ error) {
	of, req, err := page.Resume(s.pages, findingList, selection{i, f}, p)
	if err != nil {
		return none, k, err
	}
	i, f = of.Image, of.Filter
	if err := s.authz.RequireAll(ctx, f.capabilities(), i.Repo); err != nil {
		return none, k, err
	}
	now := s.packages.Time()
	if err := f.check(now); err != nil {
		return none, k, err
	}
	k, found, err := s.lookAt(ctx, i, f.At)
	if err != nil {
		return none, k, err
	}
	if k.Coverage, err = s.coverage(ctx, found); err != nil {
		return none, k, err
	}
	all, err := s.findingsAt(ctx, k.StoredImage, found, f.At)
	if err != nil {
		return none, k, err
	}
	if err := s.judgeAt(ctx, i.Repo, k.Digest, all, f.At, now); err != nil {
		return none, k, err
	}
	if slices.Contains(f.States, StateClosed) {
		closed, err := s.closed(ctx, i, &k, found, all)
		if err != nil {
			return none, k, err
		}
		all = append(all, closed...)
	}
	if err := s.addExploits(ctx, all); err != nil {
		return none, k, err
	}
	all = slices.DeleteFunc(all, func(v Finding) bool { return !f.has(v) })
	return page.Finish(s.pages, req, page.Cut(all, req, Finding.key)), k, nil
}

// A selection is what a list of findings is of.
type selection struct {
	Image
	Filter
}

// findings joins the packages of an image with the advisories that the caller may see.
func (s *Service) findings(ctx context.Context, found registry.Inspection) ([]Finding, error) {
	return s.findingsAt(ctx, registry.StoredImage{}, found, time.Time{})
}

// findingsAt is findings at a time, or now if that is zero. A finding was first seen no
// earlier than its image.
func (s *Service) findingsAt(
	ctx context.Context, i registry.StoredImage, found registry.Inspection, at time.Time,
) (all []Finding, _ error) {
	reach, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return nil, err
	}
	ids := found.IDs()
	hits, advisories, err := s.hitsAt(ctx, ids, reach, at)
	if err != nil {
		return nil, err
	}
	known, err := s.packages.ByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	places := map[registry.Package]registry.ImagePackage{}
	for _, p := range found.Packages {
		places[p.Package] = p
	}
	byPackage := map[int64][]findingdb.Hit{}
	for _, h := range hits {
		if _, ok := advisories[h.Advisory]; ok {
			byPackage[h.Package] = append(byPackage[h.Package], h)
		}
	}
	for id, of := range byPackage {
		for _, same := range together(of, advisories) {
			v := newFinding(places[known[id]], same, advisories)
			if v.FirstSeen.Before(i.IndexTime) {
				v.FirstSeen = i.IndexTime
			}
			all = append(all, v)
		}
	}
	return all, nil
}

// roots returns the organizations of groups.
func roots(groups []resource.UID) (all []resource.UID) {
	for _, g := range groups {
		all = append(all, g.Root())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// visible reads the advisories of hits that are in reach, by their keys.
func (s *Service) visible(
	ctx context.Context, hits []findingdb.Hit, reach []resource.UID,
) (map[int64]vuln.Advisory, error) {
	var keys []int64
	for _, h := range hits {
		keys = append(keys, h.Advisory)
	}
	slices.Sort(keys)
	found, err := s.advisories.AdvisoriesByKey(ctx, slices.Compact(keys))
	all := map[int64]vuln.Advisory{}
	for _, a := range found {
		if store.Covered(reach, a.UID.Parent()) {
			all[store.Segment(a.UID)] = a
		}
	}
	return all, err
}

// names returns what an advisory is called.
func names(a vuln.Advisory) []string {
	all := append([]string{a.ID}, a.Aliases...)
	if a.LegacyID != "" {
		all = append(all, a.LegacyID)
	}
	return all
}

// together groups hits of one package whose advisories share a name, over others if need
// be.
func together(hits []findingdb.Hit, advisories map[int64]vuln.Advisory) (all [][]findingdb.Hit) {
	slices.SortFunc(hits, func(a, b findingdb.Hit) int {
		return cmp.Or(cmp.Compare(advisories[a.Advisory].ID, advisories[b.Advisory].ID), cmp.Compare(a.Advisory, b.Advisory))
	})
	group := map[string]int{} // the index in all, by name
	for _, h := range hits {
		into := -1
		for _, name := range names(advisories[h.Advisory]) {
			at, ok := group[name]
			switch {
			case !ok:
			case into < 0:
				into = at
			case at != into: // this advisory joins two groups
				all[into], all[at] = append(all[into], all[at]...), nil
				for n, g := range group {
					if g == at {
						group[n] = into
					}
				}
			}
		}
		if into < 0 {
			into, all = len(all), append(all, nil)
		}
		all[into] = append(all[into], h)
		for _, name := range names(advisories[h.Advisory]) {
			group[name] = into
		}
	}
	return slices.DeleteFunc(all, func(of []findingdb.Hit) bool { return of == nil })
}

// newFinding makes one finding of the advisories that say the same.
func newFinding(p registry.ImagePackage, hits []findingdb.Hit, advisories map[int64]vuln.Advisory) Finding {
	v := Finding{Package: p, claims: claims(hits, advisories)}
	first := int64(0)
	for _, h := range hits {
		a := advisories[h.Advisory]
		v.Advisories = append(v.Advisories, a.UID)
		v.Aliases = append(v.Aliases, names(a)...)
		if v.ID == "" || a.ID < v.ID {
			v.ID = a.ID
		}
		v.Summary = cmp.Or(v.Summary, a.Summary)
		v.Score = max(v.Score, float64(h.Score)/10)
		for _, fixed := range h.Fixed {
			if !slices.Contains(v.Fixed, fixed) {
				v.Fixed = append(v.Fixed, fixed)
			}
		}
		if first == 0 || h.Since < first {
			first, v.OpenedBy = h.Since, h.OpenedBy
		}
	}
	slices.Sort(v.Aliases)
	v.Aliases = slices.DeleteFunc(slices.Compact(v.Aliases), func(s string) bool { return s == v.ID })
	slices.Sort(v.Advisories)
	v.Advisories = slices.Compact(v.Advisories)
	v.Severity, v.FirstSeen = SeverityOf(v.Score), store.FromMS(first)
	return v
}

// scoreOf returns the score that an advisory gives, by the newest version of CVSS that it
// has one of. One for the package of that name comes before one for all.
func scoreOf(a vuln.Advisory, name string) float64 {
	for _, affected := range a.Affected {
		if affected.Name == name {
			if score := newest(affected.Severities); score > 0 {
				return score
			}
		}
	}
	return newest(a.Severities)
}

func newest(all []vuln.Severity) (score float64) {
	for _, t := range []vuln.SeverityType{vuln.CVSSv4, vuln.CVSSv3, vuln.CVSSv2} {
		for _, s := range all {
			if s.Type == t {
				score = max(score, format.Score(s))
			}
		}
		if score > 0 {
			return score
		}
	}
	return 0
}

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
	id = of.ID
	reach, err := s.imageReach(ctx, of.Place, resource.RepoList, resource.ReportsList)
	if err != nil {
		return none, err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return none, err
	}
	if id = strings.TrimSpace(id); id == "" || len(id) > maxName {
		return none, fault.Field("advisory_id", "must have 1 to %d bytes", maxName)
	}
	keys, err := s.advisories.KeysByName(ctx, store.Reach{Under: seen}, id)
	if err != nil {
		return none, err
	}
	ids, err := s.packages.AffectedBy(ctx, reach, keys)
	if err != nil {
		return none, err
	}
	return s.having(ctx, reach, ids, req)
}

// imageReach returns the groups and repos whose images count.
func (s *Service) imageReach(ctx context.Context, at Place, want ...resource.Capability) (all []resource.UID, _ error) {
	for i, c := range want {
		under, err := s.authz.Reach(ctx, c)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all = under
		} else {
			all = store.Overlap(all, under)
		}
	}
	if at.Group != "" {
		all = store.Overlap(all, []resource.UID{at.Group})
	}
	return all, nil
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
	if out.Items, err = s.describe(ctx, numbers, packages); err != nil {
		return none, err
	}
	return page.Finish(s.pages, r, out), nil
}

// describe returns images by their numbers, with those of the packages that each has.
func (s *Service) describe(ctx context.Context, numbers, packages []int64) (all []AffectedImage, _ error) {
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
