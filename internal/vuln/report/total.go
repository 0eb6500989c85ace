// Package report summarizes the findings of a group for people: by package, by vulnerability and by image, and as a
// report of open, overdue and fixed findings with their owners.
package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// By says what a Total counts. Its values are equal to the values in the API.
type By int

// The kinds of totals.
const (
	ByPackage       By = 1 + iota // the findings of a version of a package
	ByVulnerability               // the findings with the same name
	ByImage                       // the findings of an image in a repo
)

// maxNames is the largest number of names in a Total.
const maxNames = 5

// A Total counts open findings.
type Total struct {
	Package       registry.Package    // the package of the findings, by package
	Vulnerability string              // the ID of the findings, by vulnerability
	Summary       string              // the title of the vulnerability, by vulnerability
	Image         query.AffectedImage // the image, without packages, by image

	Open     query.BySeverity
	KEV      int       // findings that are known to be exploited
	Fixable  int       // findings with a fix
	Overdue  int       // findings that are overdue
	Due      time.Time // when the first of the findings must be fixed; zero if there is no limit, or if nobody asked
	Images   int       // images in which one of the findings is open
	Packages int       // versions of packages with one of the findings
	Advice   string    // the smallest version without any finding that has a fix; "" if there is none; by package

	// Names are the vulnerabilities of the package, or the packages with the vulnerability, at most maxNames and the most
	// urgent first. By image, they are empty.
	Names []string
}

// key returns a text by which totals are sorted. A more urgent total has a greater key.
func (t Total) key() string {
	o := t.Open
	return fmt.Sprintf("%08d%08d%08d%08d%08d%08d\x00%s\x00%s\x00%s%s\x00%s%s", t.KEV, o[finding.SeverityCritical],
		o[finding.SeverityHigh], o[finding.SeverityMedium], o[finding.SeverityLow], o[finding.SeverityUnknown],
		t.Vulnerability, t.Package.Name, t.Package.Version, t.Package.PURL, t.Image.Repo, t.Image.Digest)
}

// count adds a finding with its severity.
func (t *Total) count(v query.GroupFinding, severity finding.Severity) {
	t.Open[severity]++
	if v.Known {
		t.KEV++
	}
	if len(v.Fixed) > 0 {
		t.Fixable++
	}
	if v.Overdue {
		t.Overdue++
	}
	if !v.DueTime.IsZero() && (t.Due.IsZero() || v.DueTime.Before(t.Due)) {
		t.Due = v.DueTime
	}
}

// A Service summarizes findings. It is safe for concurrent use.
type Service struct {
	queries  *query.Service
	packages *findingdb.Store
	images   *metadata.Service
	iam      *iam.Service
	roles    *iamdb.Store
	authz    *authz.Checker
	pages    *page.Tokens

	sendsMail bool // whether the server sends e-mail; set by NewMailer
}

// NewService returns a Service over a database.
func NewService(
	queries *query.Service, packages *findingdb.Store, images *metadata.Service, people *iam.Service, c *authz.Checker,
	pages *page.Tokens,
) *Service {
	return &Service{queries: queries, packages: packages, images: images, iam: people, roles: iamdb.New(packages.DB),
		authz: c, pages: pages}
}

// A selection selects totals. It is stored in page tokens.
type selection struct {
	query.Place
	query.Filter
	By By `json:"by,omitempty"`
}

// totalList orders totals by urgency: known to be exploited, and then by the number of findings of each severity.
var totalList = page.List{Kind: "finding_totals", Fields: []string{"urgency"},
	Default: page.Order{Field: "urgency", Desc: true}}

// Totals returns a page of totals of the open findings in a group or repo. It uses the same images and advisories as
// query.Service.ListGroup, and returns the same errors. The states in the filter are ignored.
func (s *Service) Totals(
	ctx context.Context, place query.Place, by By, f query.Filter, p page.Params,
) (got page.Page[Total], c query.AnswerCoverage, _ error) {
	selected, req, err := page.Resume(s.pages, totalList, selection{place, f, by}, p)
	if err != nil {
		return got, c, err
	}
	if selected.By < ByPackage || selected.By > ByImage {
		return got, c, fault.Field("by", "must be BY_PACKAGE, BY_VULNERABILITY or BY_IMAGE")
	}
	selected.States = []finding.State{finding.StateOpen}
	wanted := selected.Severities
	if selected.By == ByImage {
		selected.Severities = nil // a finding may have a lower severity in some images
	}
	err = s.queries.Group(ctx, selected.Place, selected.Filter, func(a query.GroupAnswer) error {
		var shown page.Page[Total]
		var err error
		if selected.By == ByImage {
			shown, err = imageTotals(ctx, a, wanted, req, s.pages)
		} else {
			shown, err = namedTotals(ctx, a, selected.By, req, s.pages)
		}
		got, c = shown, a.Coverage
		return err
	})
	return got, c, err
}

// A bucket contains the findings of a Total.
type bucket struct {
	Total
	name     string
	findings []query.GroupFinding
}

// namedTotals returns a page of totals by package or by vulnerability.
func namedTotals(
	ctx context.Context, a query.GroupAnswer, by By, req page.Request, tokens *page.Tokens,
) (got page.Page[Total], _ error) {
	byName := map[string]*bucket{}
	var all []*bucket
	for _, v := range a.Findings {
		named := bucket{name: v.ID, Total: Total{Vulnerability: v.ID}}
		if by == ByPackage {
			named = bucket{name: fmt.Sprint(v.Package.ID), Total: Total{Package: v.Package.Package}}
		}
		b := byName[named.name]
		if b == nil {
			b = &named
			byName[b.name], all = b, append(all, b)
		}
		b.count(v, v.Severity)
		b.findings = append(b.findings, v)
	}
	cut := page.Cut(all, req, func(b *bucket) string { return b.key() + "\x00" + b.name })
	if err := complete(ctx, a, by, cut.Items); err != nil {
		return got, err
	}
	totals := make([]Total, len(cut.Items))
	for i, b := range cut.Items {
		totals[i] = b.Total
	}
	return page.Finish(tokens, req, page.With(cut, totals)), nil
}

// complete sets the fields that only the totals of a page need.
func complete(ctx context.Context, a query.GroupAnswer, by By, buckets []*bucket) error {
	var shown, first []query.GroupFinding
	for _, b := range buckets {
		slices.SortFunc(b.findings, func(x, y query.GroupFinding) int {
			return cmp.Or(cmp.Compare(y.Key(), x.Key()), cmp.Compare(x.Package.ID, y.Package.ID))
		})
		shown, first = append(shown, b.findings...), append(first, b.findings[0])
	}
	images, err := a.ImagesOf(ctx, shown)
	if err != nil {
		return err
	}
	if by == ByPackage {
		err = a.Advise(ctx, shown)
	} else {
		err = a.Complete(ctx, first)
	}
	for i, b := range buckets {
		n := len(b.findings)
		b.describe(by, shown[:n], images[:n])
		b.Summary = first[i].Summary
		shown, images = shown[n:], images[n:]
	}
	return err
}

// describe sets the fields of a Total that depend on all of its findings. images contains the images of each finding.
func (t *Total) describe(by By, findings []query.GroupFinding, images [][]int64) {
	open, packages := map[int64]bool{}, map[int64]bool{}
	for i, v := range findings {
		packages[v.Package.ID] = true
		for _, n := range images[i] {
			open[n] = true
		}
		name := v.ID
		if by == ByVulnerability {
			name = v.Package.Name + " " + v.Package.Version
		}
		if len(t.Names) < maxNames && !slices.Contains(t.Names, name) {
			t.Names = append(t.Names, name)
		}
		t.Advice = cmp.Or(t.Advice, v.Advice)
	}
	t.Images, t.Packages = len(open), len(packages)
	if by == ByVulnerability {
		t.Advice = ""
	}
}

// imageTotals returns a page of totals by image. wanted are the severities that count; none means all.
func imageTotals(
	ctx context.Context, a query.GroupAnswer, wanted []finding.Severity, req page.Request, tokens *page.Tokens,
) (got page.Page[Total], _ error) {
	type imageTotal struct {
		Total
		number int64
	}
	images, err := a.ImagesOf(ctx, a.Findings)
	if err != nil {
		return got, err
	}
	byNumber, seen := map[int64]*imageTotal{}, map[[2]int64]bool{}
	var all []*imageTotal
	for i, v := range a.Findings {
		for _, n := range images[i] {
			severity := a.SeverityIn(v, n)
			if len(wanted) > 0 && !slices.Contains(wanted, severity) {
				continue
			}
			t := byNumber[n]
			if t == nil {
				t = &imageTotal{number: n, Total: Total{Images: 1}}
				byNumber[n], all = t, append(all, t)
			}
			t.count(v, severity)
			if key := [2]int64{n, v.Package.ID}; !seen[key] {
				seen[key] = true
				t.Packages++
			}
		}
		if err := ctx.Err(); err != nil {
			return got, err
		}
	}
	cut := page.Cut(all, req, func(t *imageTotal) string { return fmt.Sprintf("%s%020d", t.key(), t.number) })
	var numbers []int64
	for _, t := range cut.Items {
		numbers = append(numbers, t.number)
	}
	described, err := a.Images(ctx, slices.Sorted(slices.Values(numbers)))
	if err != nil {
		return got, err
	}
	totals := make([]Total, 0, len(cut.Items))
	for _, t := range cut.Items {
		if t.Image = described[t.number]; t.Image.Digest != "" { // else the image has been deleted
			totals = append(totals, t.Total)
		}
	}
	return page.Finish(tokens, req, page.With(cut, totals)), nil
}
