package query

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/exception"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// judge sets the states that the findings of one image have at a time.
func (s *Service) judge(
	ctx context.Context, repo resource.UID, digest string, findings []finding.Finding, asOf time.Time,
) error {
	return s.judgeAt(ctx, repo, digest, findings, time.Time{}, asOf)
}

// judgeAt sets the states that the findings of one image had at the time past, according to the tags of that time. If
// past is zero, it uses the time current and the current tags.
func (s *Service) judgeAt(
	ctx context.Context, repo resource.UID, digest string, findings []finding.Finding, past, current time.Time,
) error {
	asOf := current
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
	for i := range findings {
		findings[i].State = finding.StateOpen
		if e, ok := x.Holding(exception.CaseOf(findings[i], repo, digest, tags), asOf, nil); ok {
			findings[i].State, findings[i].Exception, findings[i].ExceptionExpires = finding.StateExcepted, e.UID, e.ExpireTime
		}
	}
	return nil
}
