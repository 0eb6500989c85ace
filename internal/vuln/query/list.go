package query

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/timeline"
)

// inStates reports whether v is one of the wanted states. If wanted is empty, the open and the excepted state are
// wanted.
func inStates(v finding.State, wanted []finding.State) bool {
	if len(wanted) == 0 {
		return v != finding.StateClosed
	}
	return slices.Contains(wanted, cmp.Or(v, finding.StateOpen))
}

const maxName = 1024 // maximum length of a name in a request, in bytes

// A Filter selects findings.
type Filter struct {
	Severities []finding.Severity `json:"severities,omitempty"`
	Fixable    bool               `json:"fixable,omitempty"`
	KEV        bool               `json:"kev,omitempty"`     // only vulnerabilities that are known to be exploited
	Package    string             `json:"package,omitempty"` // name of the package or of its source package
	States     []finding.State    `json:"states,omitempty"`  // empty means all but StateClosed
	At         time.Time          `json:"at,omitzero"`       // selects the findings at this time; zero means now
	Due        bool               `json:"due,omitempty"`     // whether to compute when findings must be fixed
	Overdue    bool               `json:"overdue,omitempty"` // only overdue findings; implies Due
}

func (f Filter) has(v finding.Finding) bool {
	return inStates(v.State, f.States) && (len(f.Severities) == 0 || slices.Contains(f.Severities, v.Severity)) &&
		(!f.Fixable || len(v.Fixed) > 0) && (!f.KEV || v.Known) && (!f.Overdue || v.Overdue) &&
		(f.Package == "" || f.Package == v.Package.Name || f.Package == v.Package.SourceName)
}

// findingList orders findings by urgency: known to be exploited, fixable,
// probability of exploitation, score.
var findingList = page.List{Kind: "findings", Fields: []string{"urgency"},
	Default: page.Order{Field: "urgency", Desc: true}}

// List returns a page of the findings of an image, the most urgent first. The caller needs repo.list and
// vuln_reports.list on the repo. List uses only advisories on which the caller has advisories.list. A page token
// replaces the fields that the image and the filter leave out. List returns fault.FailedPrecondition if the packages of
// the image are not known.
//
// To list findings at a time in the past, or closed findings, the caller also needs tag.list on the repo. To compute
// when findings must be fixed, the caller also needs vuln_report.list, as for the summary, which reveals the same.
func (s *Service) List(
	ctx context.Context, i finding.Image, f Filter, p page.Params,
) (zero page.Page[finding.Finding], k ImageDetails, _ error) {
	selected, req, err := page.Resume(s.pages, findingList, selection{i, f}, p)
	if err != nil {
		return zero, k, err
	}
	i, f = selected.Image, selected.Filter
	if err := s.authz.RequireAll(ctx, f.capabilities(), i.Repo); err != nil {
		return zero, k, err
	}
	asOf := s.packages.Time()
	if err := f.check(asOf); err != nil {
		return zero, k, err
	}
	k, found, err := s.lookAt(ctx, i, f.At)
	if err != nil {
		return zero, k, err
	}
	if k.Coverage, err = s.coverage(ctx, found); err != nil {
		return zero, k, err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return zero, k, err
	}
	if k.Answer, err = s.imageCoverage(ctx, k, seen); err != nil {
		return zero, k, err
	}
	listed, err := s.findingsAt(ctx, k.StoredImage, found, f.At)
	if err != nil {
		return zero, k, err
	}
	if err := s.judgeAt(ctx, i.Repo, k.Digest, listed, f.At, asOf); err != nil {
		return zero, k, err
	}
	if k.Answer.NoDue, err = s.addDue(f, pointers(listed), asOf, func() (*timeline.Deadlines, error) {
		return s.imageDeadlines(ctx, i.Repo, k.Digest, seen)
	}); err != nil {
		return zero, k, err
	}
	current := len(listed)
	if slices.Contains(f.States, finding.StateClosed) {
		closed, err := s.closed(ctx, i, &k, found, listed)
		if err != nil {
			return zero, k, err
		}
		listed = append(listed, closed...)
	}
	judged := pointers(listed)
	if err := s.addExploits(ctx, judged); err != nil {
		return zero, k, err
	}
	matching := slices.DeleteFunc(slices.Clone(judged), func(v *finding.Finding) bool { return !f.has(*v) })
	got := page.Cut(matching, req, (*finding.Finding).Key)
	if err := s.describe(ctx, got.Items, judged[:current]); err != nil {
		return zero, k, err
	}
	items := make([]finding.Finding, len(got.Items))
	for n, v := range got.Items {
		items[n] = *v
	}
	return page.Finish(s.pages, req, page.With(got, items)), k, nil
}

// pointers returns pointers to the elements of findings.
func pointers(findings []finding.Finding) []*finding.Finding {
	out := make([]*finding.Finding, len(findings))
	for i := range findings {
		out[i] = &findings[i]
	}
	return out
}

// A selection selects findings of an image. It is stored in page tokens.
type selection struct {
	finding.Image
	Filter
}

// findings returns the findings of an image in a repo: its packages with the advisories that affect them and that the
// caller may see.
func (s *Service) findings(
	ctx context.Context, repo resource.UID, found registry.Inspection,
) ([]finding.Finding, error) {
	findings, err := s.findingsAt(ctx, registry.StoredImage{Repo: repo}, found, time.Time{})
	if err != nil {
		return nil, err
	}
	return findings, s.describe(ctx, pointers(findings), nil)
}

// findingsAt is like findings, but at a given time. A zero time means now. The first-seen time of a finding is never
// before the inspection of the image. findingsAt does not read the texts of advisories, which describe adds, because
// decoding them takes most of the time, and a page shows few findings.
func (s *Service) findingsAt(
	ctx context.Context, i registry.StoredImage, found registry.Inspection, asOf time.Time,
) (findings []finding.Finding, _ error) {
	reach, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return nil, err
	}
	hits, err := s.hitsAt(ctx, found.IDs(), reach, asOf)
	if err != nil {
		return nil, err
	}
	known, err := s.packages.ByID(ctx, slices.Collect(maps.Keys(hits.ByPackage)))
	if err != nil {
		return nil, err
	}
	places := map[registry.Package]registry.ImagePackage{}
	for _, p := range found.Packages {
		places[p.Package] = p
	}
	advisories := named(hits.Advisories)
	for id, matched := range hits.ByPackage {
		for _, mentions := range finding.ByVulnerability(matched, advisories) {
			v := finding.New(places[known[id]], mentions, advisories)
			v.RateIn(i.Repo)
			if v.FirstSeen.Before(i.IndexTime) {
				v.FirstSeen = i.IndexTime
			}
			findings = append(findings, v)
		}
	}
	return findings, s.addRecords(ctx, pointers(findings), true)
}

// describe adds titles and ratings to findings. If all is set, it adds the advice, too. all are all findings of the
// packages.
func (s *Service) describe(ctx context.Context, findings, all []*finding.Finding) error {
	shown := map[registry.Package]bool{}
	for _, v := range findings {
		shown[v.Package.Package] = true
	}
	advised := slices.DeleteFunc(slices.Clone(all), func(v *finding.Finding) bool { return !shown[v.Package.Package] })
	var keys []int64
	for _, v := range slices.Concat(findings, advised) {
		for _, uid := range v.Advisories {
			keys = append(keys, store.Segment(uid))
		}
	}
	slices.Sort(keys)
	read, err := s.advisories.AdvisoriesByKey(ctx, slices.Compact(keys))
	if err != nil {
		return err
	}
	advisories := make(map[resource.UID]vuln.Advisory, len(read))
	for _, a := range read {
		advisories[a.UID] = a
	}
	for _, v := range findings {
		v.Describe(advisories)
	}
	finding.Advise(advised, advisories)
	return s.addRecords(ctx, findings, false)
}
