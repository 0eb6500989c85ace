package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// A ChangeKind says what differs between two images.
type ChangeKind int

// The kinds of changes, in the order in which they are listed.
const (
	FindingNew ChangeKind = 1 + iota
	FindingFixed
	FindingRemaining
	PackageChanged
	PackageAdded
	PackageRemoved
	changeKinds
)

// A Change is a difference between two images: in a package, or in a finding of one.
type Change struct {
	Kind      ChangeKind
	Ecosystem string             // of the package, without the release of a distribution
	Name      string             // of the package
	From, To  []registry.Package // versions that each image has; of a finding, those affected
	Finding   *finding.Finding   // that of the second image, if it has it
}

// A Comparison is a page of what differs, and what is known about both images.
type Comparison struct {
	page.Page[Change]
	From, To ImageDetails
	Counts   [changeKinds]int // by kind, whichever kinds were asked for
}

// A Pair is what is compared: two images, each now or at a time. A second image without a
// repo is in that of the first.
type Pair struct {
	From  PastImage    `json:"from,omitzero"`
	To    PastImage    `json:"to,omitzero"`
	Kinds []ChangeKind `json:"kinds,omitempty"`
}

// A PastImage is an image, or what a tag stood for at a time.
type PastImage struct {
	finding.Image
	Time time.Time `json:"time,omitzero"` // zero means now
}

// changeList is how changes are ordered.
var changeList = page.List{Kind: "image_changes", Fields: []string{"kind"}, Default: page.Order{Field: "kind"}}

// Compare returns a page of what differs between two images. Findings are those of the
// advisories, and have the states, as they are now. The caller needs on both repos what List and ListPackages
// need, and tag.list for what a tag stood for. A page token has what is left out of p.
// It returns fault.FailedPrecondition if the packages of one are not known, or if what
// a tag stood for is no longer there.
func (s *Service) Compare(ctx context.Context, of Pair, p page.Params) (c Comparison, _ error) {
	of, req, err := page.Resume(s.pages, changeList, of, p)
	if err != nil {
		return c, err
	}
	of.To.Repo = cmp.Or(of.To.Repo, of.From.Repo)
	for _, i := range []PastImage{of.From, of.To} {
		if err := s.mayCompare(ctx, i); err != nil {
			return c, err
		}
	}
	var from, to []finding.Finding
	var before, after []registry.ImagePackage
	if c.From, before, from, err = s.side(ctx, of.From); err != nil {
		return c, onSide("from", err)
	}
	if c.To, after, to, err = s.side(ctx, of.To); err != nil {
		return c, onSide("to", err)
	}
	all := append(compareFindings(from, to), comparePackages(before, after)...)
	for _, v := range all {
		c.Counts[v.Kind]++
	}
	if len(of.Kinds) > 0 {
		all = slices.DeleteFunc(all, func(v Change) bool { return !slices.Contains(of.Kinds, v.Kind) })
	}
	c.Page = page.Finish(s.pages, req, page.Cut(all, req, Change.key))
	return c, nil
}

func (s *Service) mayCompare(ctx context.Context, i PastImage) error {
	need := resource.NewCapabilities(resource.RepoList, resource.SBOMsList, resource.ManifestMetadataList,
		resource.ImageReportsList)
	if !i.Time.IsZero() {
		need = need.Union(resource.NewCapabilities(resource.TagList))
	}
	return s.authz.RequireAll(ctx, need, i.Repo)
}

// onSide names the image that an error is about.
func onSide(side string, err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code == fault.Internal {
		return err
	}
	told := *f
	told.Message = side + ": " + f.Message
	told.Fields, told.Unmet = slices.Clone(f.Fields), slices.Clone(f.Unmet)
	for i, v := range told.Fields {
		told.Fields[i].Subject = side + "_" + v.Subject
	}
	if len(told.Fields) > 0 {
		return fault.Fields(told.Fields)
	}
	for i, v := range told.Unmet {
		told.Unmet[i].Description = side + ": " + v.Description
	}
	return &told
}

// side returns what one of the images has.
func (s *Service) side(
	ctx context.Context, i PastImage,
) (k ImageDetails, has []registry.ImagePackage, all []finding.Finding, _ error) {
	var err error
	if !i.Time.IsZero() {
		if i.Image, err = s.stoodFor(ctx, i); err != nil {
			return k, nil, nil, err
		}
	}
	k, found, err := s.look(ctx, i.Image)
	if err != nil {
		if !i.Time.IsZero() && errors.Is(err, fault.NotFound) {
			err = fault.Unmet("IMAGE_GONE", "the tag stood for %s then, which is no longer there", i.Reference)
		}
		return k, nil, nil, err
	}
	if err := k.unavailable(); err != nil {
		return k, nil, nil, err
	}
	if k.Coverage, err = s.coverage(ctx, found); err != nil {
		return k, nil, nil, err
	}
	if all, err = s.findings(ctx, found); err != nil {
		return k, nil, nil, err
	}
	if err := s.judge(ctx, k.Repo, k.Digest, all, s.packages.Time()); err != nil {
		return k, nil, nil, err
	}
	return k, found.Packages, all, s.addExploits(ctx, pointers(all))
}

// stoodFor returns the image that a tag stood for at a time, by its digest.
func (s *Service) stoodFor(ctx context.Context, i PastImage) (finding.Image, error) {
	if resource.ValidDigest(i.Reference) {
		return i.Image, fault.Field("time", "only a tag can stand for another image at another time")
	}
	if !registry.ValidTag(i.Reference) {
		return i.Image, fault.Field("reference", "is neither a digest nor a tag")
	}
	digest, err := s.images.TagAt(ctx, i.Repo, i.Reference, i.Time)
	i.Reference = digest
	return i.Image, err
}

// family returns an ecosystem without the release of a distribution.
func family(ecosystem string) string {
	name, _, _ := strings.Cut(ecosystem, ":")
	return name
}

// A packageName is what a package is called in all its versions.
type packageName struct{ ecosystem, name string }

func nameOf(p registry.Package) packageName { return packageName{family(p.Ecosystem), p.Name} }

// comparePackages returns which packages differ. An image can have several versions of a
// package. A package of a distribution has changed if its release has.
func comparePackages(from, to []registry.ImagePackage) (all []Change) {
	before, after := byName(from), byName(to)
	for name, had := range before {
		has, ok := after[name]
		switch {
		case !ok:
			all = append(all, Change{Kind: PackageRemoved, Ecosystem: name.ecosystem, Name: name.name, From: had})
		case !slices.EqualFunc(had, has, sameVersion):
			all = append(all, Change{Kind: PackageChanged, Ecosystem: name.ecosystem, Name: name.name, From: had, To: has})
		}
	}
	for name, has := range after {
		if _, ok := before[name]; !ok {
			all = append(all, Change{Kind: PackageAdded, Ecosystem: name.ecosystem, Name: name.name, To: has})
		}
	}
	return all
}

func sameVersion(a, b registry.Package) bool {
	return a.Version == b.Version && a.Ecosystem == b.Ecosystem
}

// byName returns the versions of each package, in the order of their texts.
func byName(all []registry.ImagePackage) map[packageName][]registry.Package {
	named := map[packageName][]registry.Package{}
	for _, p := range all {
		named[nameOf(p.Package)] = append(named[nameOf(p.Package)], p.Package)
	}
	for name := range named {
		named[name] = distinct(named[name])
	}
	return named
}

// distinct sorts versions and leaves each once.
func distinct(all []registry.Package) []registry.Package {
	slices.SortFunc(all, func(a, b registry.Package) int {
		return cmp.Or(cmp.Compare(a.Ecosystem, b.Ecosystem), cmp.Compare(a.Version, b.Version), cmp.Compare(a.PURL, b.PURL))
	})
	return slices.CompactFunc(all, sameVersion)
}

// compareFindings returns a change for every finding of either image. Findings of one
// package are the same if they share a name, over others if need be.
func compareFindings(from, to []finding.Finding) (all []Change) {
	type side struct{ from, to []finding.Finding }
	var groups []side
	index := map[packageName]map[string]int{} // in groups, by the package and a name of the finding
	add := func(f finding.Finding, second bool) {
		p := nameOf(f.Package.Package)
		if index[p] == nil {
			index[p] = map[string]int{}
		}
		into := len(groups)
		groups = append(groups, side{})
		if second {
			groups[into].to = []finding.Finding{f}
		} else {
			groups[into].from = []finding.Finding{f}
		}
		for _, name := range append([]string{f.ID}, f.Aliases...) {
			if at, ok := index[p][name]; ok && at != into { // both are the same
				groups[into] = side{append(groups[at].from, groups[into].from...), append(groups[at].to, groups[into].to...)}
				groups[at] = side{}
				for n, g := range index[p] {
					if g == at {
						index[p][n] = into
					}
				}
			}
			index[p][name] = into
		}
	}
	for _, f := range from {
		add(f, false)
	}
	for _, f := range to {
		add(f, true)
	}
	for _, g := range groups {
		if len(g.from)+len(g.to) > 0 {
			all = append(all, findingChange(g.from, g.to))
		}
	}
	return all
}

// findingChange makes a change of a finding that each image has in some versions of a
// package. It is open if it is in one of them.
func findingChange(from, to []finding.Finding) Change {
	urgent := func(all []finding.Finding) *finding.Finding {
		f := slices.MaxFunc(all, func(a, b finding.Finding) int {
			return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(a.Key(), b.Key()))
		})
		return &f
	}
	v := Change{Kind: FindingRemaining}
	switch {
	case len(to) == 0:
		v.Kind, v.Finding = FindingFixed, urgent(from)
	case len(from) == 0:
		v.Kind, v.Finding = FindingNew, urgent(to)
	default:
		v.Finding = urgent(to)
	}
	name := nameOf(v.Finding.Package.Package)
	v.Ecosystem, v.Name = name.ecosystem, name.name
	v.From, v.To = packagesOf(from), packagesOf(to)
	return v
}

func packagesOf(all []finding.Finding) (some []registry.Package) {
	for _, f := range all {
		some = append(some, f.Package.Package)
	}
	return distinct(some)
}

// Key orders changes: by kind, findings with the most urgent first, packages by name.
func (c Change) key() string {
	if c.Finding == nil {
		return fmt.Sprintf("%d%s\x00%s", c.Kind, c.Name, c.Ecosystem)
	}
	rank, _, _ := strings.Cut(c.Finding.Key(), "\x00")
	inverse := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '9' - (r - '0')
		}
		return r
	}, rank)
	return fmt.Sprintf("%d%s\x00%s\x00%s\x00%s", c.Kind, inverse, c.Name, c.Ecosystem, c.Finding.ID)
}
