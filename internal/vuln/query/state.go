package query

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/exception"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// judge sets the states of findings of one image at a time.
func (s *Service) judge(
	ctx context.Context, repo resource.UID, digest string, all []finding.Finding, at time.Time,
) error {
	return s.judgeAt(ctx, repo, digest, all, time.Time{}, at)
}

// judgeAt is judge for a time in the past, with the tags of that time. If past is zero,
// it judges by the current tags.
func (s *Service) judgeAt(
	ctx context.Context, repo resource.UID, digest string, all []finding.Finding, past, now time.Time,
) error {
	asOf := now
	if !past.IsZero() {
		asOf = past
	}
	x, err := exception.Read(ctx, s.packages, []resource.UID{repo}, asOf, asOf)
	if err != nil {
		return err
	}
	var tags []string
	if x.UsesTags() {
		if tags, err = s.tagsOf(ctx, repo, digest, past); err != nil {
			return err
		}
	}
	for i := range all {
		all[i].State = finding.StateOpen
		if e, ok := x.Holding(exception.CaseOf(all[i], repo, digest, tags), asOf, nil); ok {
			all[i].State, all[i].Exception, all[i].ExceptionExpires = finding.StateExcepted, e.UID, e.ExpireTime
		}
	}
	return nil
}
