package query

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// deadlines contains the times by which findings that are open now must be fixed. If a finding is open in several tags,
// it is the earliest of their times. So a finding is overdue if the summary counts it as overdue in one of its tags.
type deadlines struct {
	digest string // if set, only tags of this image count
	times  map[deadlineKey]time.Time
}

// A deadlineKey is the ID of a package, and a name of a vulnerability.
type deadlineKey struct {
	pkg  int64
	name string
}

// add adds a finding of a tag. days contains the days of the SLA, by severity.
func (d *deadlines) add(v tagFinding, days [5]int32) {
	if d == nil {
		return
	}
	severity, _ := v.rating()
	if days[severity] == 0 {
		return
	}
	due := v.Since.Add(time.Duration(days[severity]) * day)
	for _, s := range v.spans {
		if s.to != imagedb.Now || d.digest != "" && s.digest != d.digest {
			continue
		}
		for _, name := range v.names {
			key := deadlineKey{s.id, name}
			if known, ok := d.times[key]; !ok || due.Before(known) {
				d.times[key] = due
			}
		}
	}
}

// visitOpen calls visit with a finding that is open now.
func (c *timeline) visitOpen(v tagFinding, days [5]int32) {
	if c.visit == nil {
		return
	}
	o := finding.OfTag{Open: v.Open, KEV: v.known}
	if o.Severity, o.Fixable = v.rating(); days[o.Severity] > 0 {
		o.Due = v.Since.Add(time.Duration(days[o.Severity]) * day)
	}
	c.visit(o)
}

// visitFixed calls visit with a finding that was open from start to end.
func (c *timeline) visitFixed(v tagFinding, start, end int64) {
	if c.visit == nil {
		return
	}
	var last finding.Ranks
	for _, s := range v.spans {
		if s.to == end {
			last = last.Max(s.ranks)
		}
	}
	v.Since = time.UnixMilli(start).UTC()
	c.visit(finding.OfTag{Open: v.Open, Severity: last.Severity(v.counting), Fixed: time.UnixMilli(end).UTC()})
}

// set sets the time by which a finding must be fixed. pkg is the ID of its package.
func (d *deadlines) set(v *finding.Finding, pkg int64, now time.Time) {
	v.DueTime = d.times[deadlineKey{pkg, v.ID}]
	v.Overdue = !v.DueTime.IsZero() && !now.Before(v.DueTime)
}

var (
	errNoSLA = fault.Unmet("NO_SLA",
		"no SLA applies here, so no finding has to be fixed within a time; an SLA can be set for a group")
	errNotTagged = fault.Unmet("IMAGE_NOT_TAGGED",
		"no tag points to the image, and only findings of tags have an age")
)

// addDue sets when findings must be fixed, if the filter needs that. read reads the deadlines. If they are unknown, for
// example because no SLA applies, addDue returns the reason. If the filter selects overdue findings, the reason is an
// error, because an empty list would wrongly say that nothing is overdue.
func (s *Service) addDue(
	f Filter, findings []*finding.Finding, now time.Time, read func() (*deadlines, error),
) (reason string, _ error) {
	if !f.Due && !f.Overdue {
		return "", nil
	}
	d, err := read()
	if unmet, ok := errors.AsType[*fault.Error](err); ok && len(unmet.Unmet) > 0 && !f.Overdue {
		return unmet.Unmet[0].Description, nil
	}
	if err != nil {
		return "", err
	}
	for _, v := range findings {
		d.set(v, v.Package.ID, now)
	}
	return "", nil
}

// addGroupDue is like addDue, for findings of the images in reach.
func (s *Service) addGroupDue(
	ctx context.Context, f Filter, findings []GroupFinding, reach, seen []resource.UID,
) (reason string, _ error) {
	pointers := make([]*finding.Finding, len(findings))
	for i := range findings {
		pointers[i] = &findings[i].Finding
	}
	return s.addDue(f, pointers, s.packages.Time(), func() (*deadlines, error) {
		return s.groupDeadlines(ctx, reach, seen)
	})
}

// groupDeadlines returns the deadlines of findings in the images in reach.
func (s *Service) groupDeadlines(ctx context.Context, reach, seen []resource.UID) (*deadlines, error) {
	c, err := s.limitedTimeline(ctx, reach)
	if err != nil {
		return nil, err
	}
	if err := s.readTimeline(ctx, c, reach, seen); err != nil {
		return nil, err
	}
	return c.deadlines, c.summarize(ctx)
}

// limitedTimeline returns an empty timeline that collects deadlines. It returns errNoSLA if there are none.
func (s *Service) limitedTimeline(ctx context.Context, reach []resource.UID) (*timeline, error) {
	c := newTimeline(s.packages.Time(), 1, "")
	var err error
	if c.slas, err = s.readSLAs(ctx, reach); err != nil {
		return nil, err
	}
	if len(c.slas) == 0 {
		return nil, errNoSLA
	}
	c.byRepo, c.deadlines = true, &deadlines{times: map[deadlineKey]time.Time{}}
	return c, nil
}

// imageDeadlines returns the deadlines of findings in an image, from the tags that point to it.
func (s *Service) imageDeadlines(
	ctx context.Context, repo resource.UID, digest string, seen []resource.UID,
) (*deadlines, error) {
	reach := []resource.UID{repo}
	c, err := s.limitedTimeline(ctx, reach)
	if err != nil {
		return nil, err
	}
	c.deadlines.digest = digest
	tags, err := s.images.TagsOf(ctx, repo, []string{digest})
	if err != nil {
		return nil, err
	}
	if tags != nil && len(tags[digest]) == 0 {
		return nil, errNotTagged
	}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return nil, err
	}
	defer done()
	if tags == nil { // the image has very many tags
		if err := s.readTimeline(ctx, c, reach, seen); err != nil {
			return nil, err
		}
		return c.deadlines, c.summarize(ctx)
	}
	if c.periods, err = s.images.TagPeriodsOf(ctx, repo, tags[digest], c.since(), maxPeriods); err != nil {
		return nil, err
	}
	if err := s.readPeriods(ctx, c, seen, c.since()); err != nil {
		return nil, err
	}
	return c.deadlines, c.summarize(ctx)
}
