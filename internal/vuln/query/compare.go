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

// A ChangeKind is a kind of difference between two images.
type ChangeKind int

// The kinds of changes, in the order of the list.
const (
	FindingNew ChangeKind = 1 + iota
	FindingFixed
	FindingRemaining
	PackageChanged
	PackageAdded
	PackageRemoved
	changeKinds
)

// A Change is a difference between two images in a package or in a finding.
type Change struct {
	Kind      ChangeKind
	Ecosystem string             // ecosystem of the package, without the release of a distribution
	Name      string             // name of the package
	From, To  []registry.Package // versions in the first and in the second image; for a finding, the affected versions
	Finding   *finding.Finding   // the finding in the second image, or in the first if the second does not have it
}

// A Comparison is a page of changes, with details of both images.
type Comparison struct {
	page.Page[Change]
	From, To ImageDetails
	Coverage AnswerCoverage
	Counts   [changeKinds]int // number of changes by kind, including kinds that the filter leaves out
}

// A Pair selects two images to compare. Each is selected now or at a time. If To has no repo, it is in the repo of
// From.
type Pair struct {
	From  PastImage    `json:"from,omitzero"`
	To    PastImage    `json:"to,omitzero"`
	Kinds []ChangeKind `json:"kinds,omitempty"`
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
	changes := append(compareFindings(from, to), comparePackages(before, after)...)
	for _, v := range changes {
		c.Counts[v.Kind]++
	}
	if len(pair.Kinds) > 0 {
		changes = slices.DeleteFunc(changes, func(v Change) bool { return !slices.Contains(pair.Kinds, v.Kind) })
	}
	c.Page = page.Finish(s.pages, req, page.Cut(changes, req, Change.key))
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
	if findings, err = s.findings(ctx, found); err != nil {
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

// family returns an ecosystem without the release of a distribution.
func family(ecosystem string) string {
	name, _, _ := strings.Cut(ecosystem, ":")
	return name
}

// A packageName identifies all versions of a package.
type packageName struct{ ecosystem, name string }

func nameOf(p registry.Package) packageName { return packageName{family(p.Ecosystem), p.Name} }

// comparePackages returns a change for every package that differs. An image can have several versions of a package. A
// package of a distribution also counts as changed if the release of the distribution changed.
func comparePackages(from, to []registry.ImagePackage) (changes []Change) {
	before, after := byName(from), byName(to)
	for name, had := range before {
		has, ok := after[name]
		switch {
		case !ok:
			changes = append(changes, Change{Kind: PackageRemoved, Ecosystem: name.ecosystem, Name: name.name, From: had})
		case !slices.EqualFunc(had, has, sameVersion):
			changes = append(changes,
				Change{Kind: PackageChanged, Ecosystem: name.ecosystem, Name: name.name, From: had, To: has})
		}
	}
	for name, has := range after {
		if _, ok := before[name]; !ok {
			changes = append(changes, Change{Kind: PackageAdded, Ecosystem: name.ecosystem, Name: name.name, To: has})
		}
	}
	return changes
}

func sameVersion(a, b registry.Package) bool {
	return a.Version == b.Version && a.Ecosystem == b.Ecosystem
}

// byName returns the versions of each package, in alphabetical order.
func byName(packages []registry.ImagePackage) map[packageName][]registry.Package {
	named := map[packageName][]registry.Package{}
	for _, p := range packages {
		named[nameOf(p.Package)] = append(named[nameOf(p.Package)], p.Package)
	}
	for name := range named {
		named[name] = distinct(named[name])
	}
	return named
}

// distinct sorts versions and removes duplicates.
func distinct(versions []registry.Package) []registry.Package {
	slices.SortFunc(versions, func(a, b registry.Package) int {
		return cmp.Or(cmp.Compare(a.Ecosystem, b.Ecosystem), cmp.Compare(a.Version, b.Version), cmp.Compare(a.PURL, b.PURL))
	})
	return slices.CompactFunc(versions, sameVersion)
}

// compareFindings returns a change for every finding of either image. Findings of one
// package are the same if they share a name, directly or through other findings.
func compareFindings(from, to []finding.Finding) (changes []Change) {
	type side struct{ from, to []finding.Finding }
	var groups []side
	index := map[packageName]map[string]int{} // index in groups, by package and by name of the finding
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
			if pos, ok := index[p][name]; ok && pos != into { // the two groups are the same finding
				groups[into] = side{append(groups[pos].from, groups[into].from...), append(groups[pos].to, groups[into].to...)}
				groups[pos] = side{}
				for n, g := range index[p] {
					if g == pos {
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
			changes = append(changes, findingChange(g.from, g.to))
		}
	}
	return changes
}

// findingChange returns the change of a finding. from and to are the finding in the affected versions of a package in
// each image. The finding is open if it is open in one of these versions.
func findingChange(from, to []finding.Finding) Change {
	urgent := func(findings []finding.Finding) *finding.Finding {
		f := slices.MaxFunc(findings, func(a, b finding.Finding) int {
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

func packagesOf(findings []finding.Finding) (packages []registry.Package) {
	for _, f := range findings {
		packages = append(packages, f.Package.Package)
	}
	return distinct(packages)
}

// key returns a text by which changes are sorted: by kind, then findings by urgency, the most urgent first, and
// packages by name.
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
