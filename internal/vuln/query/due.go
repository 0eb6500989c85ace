package query

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/timeline"
)

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
	f Filter, findings []*finding.Finding, now time.Time, read func() (*timeline.Deadlines, error),
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
		d.Set(v, v.Package.ID, now)
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
	return s.addDue(f, pointers, s.packages.Time(), func() (*timeline.Deadlines, error) {
		return s.groupDeadlines(ctx, reach, seen)
	})
}

// groupDeadlines returns the deadlines of findings in the images in reach.
func (s *Service) groupDeadlines(ctx context.Context, reach, seen []resource.UID) (*timeline.Deadlines, error) {
	c, err := s.limitedTimeline(ctx, reach)
	if err != nil {
		return nil, err
	}
	if err := s.readTimeline(ctx, c, reach, seen); err != nil {
		return nil, err
	}
	return c.Deadlines, c.Summarize(ctx)
}

// limitedTimeline returns an empty timeline that collects deadlines. It returns errNoSLA if there are none.
func (s *Service) limitedTimeline(ctx context.Context, reach []resource.UID) (*tagPast, error) {
	c := newTagPast(s.packages.Time(), 1, "")
	var err error
	if c.SLAs, err = s.readSLAs(ctx, reach); err != nil {
		return nil, err
	}
	if len(c.SLAs) == 0 {
		return nil, errNoSLA
	}
	c.ByRepo, c.Deadlines = true, timeline.NewDeadlines()
	return c, nil
}

// imageDeadlines returns the deadlines of findings in an image, from the tags that point to it.
func (s *Service) imageDeadlines(
	ctx context.Context, repo resource.UID, digest string, seen []resource.UID,
) (*timeline.Deadlines, error) {
	reach := []resource.UID{repo}
	c, err := s.limitedTimeline(ctx, reach)
	if err != nil {
		return nil, err
	}
	c.Deadlines.Digest = digest
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
		return c.Deadlines, c.Summarize(ctx)
	}
	if c.Periods, err = s.images.TagPeriodsOf(ctx, repo, tags[digest], c.Since(), maxPeriods); err != nil {
		return nil, err
	}
	if err := s.readPeriods(ctx, c, seen, c.Since()); err != nil {
		return nil, err
	}
	return c.Deadlines, c.Summarize(ctx)
}
