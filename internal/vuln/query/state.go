package query

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/exception"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// judge sets the states of findings of one image, as they are at a time.
func (s *Service) judge(ctx context.Context, repo resource.UID, digest string, all []finding.Finding, at time.Time) error {
	return s.judgeAt(ctx, repo, digest, all, time.Time{}, at)
}

// judgeAt is judge at a time in the past, unless that is zero, with the tags of that time.
func (s *Service) judgeAt(
	ctx context.Context, repo resource.UID, digest string, all []finding.Finding, past, now time.Time,
) error {
	at := now
	if !past.IsZero() {
		at = past
	}
	x, err := exception.Read(ctx, s.packages, []resource.UID{repo}, at, at)
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
		if e, ok := x.Holding(exception.CaseOf(all[i], repo, digest, tags), at, nil); ok {
			all[i].State, all[i].Exception, all[i].ExceptionExpires = finding.StateExcepted, e.UID, e.ExpireTime
		}
	}
	return nil
}
