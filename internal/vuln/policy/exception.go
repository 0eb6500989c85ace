package policy

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	maxListed   = 200    // images of an index that an exception may be about
	countPage   = 50     // exceptions that are counted at once
	tagBatch    = 200    // images whose tags are read at once
	maxVersions = 20_000 // of one package that an exception is counted for
)

// CreateException adds an exception to a group. The caller needs policies.override.create
// there. If the caller also holds advisories.approve there, it is approved.
func (s *Service) CreateException(
	ctx context.Context, parent resource.UID, e vuln.Exception,
) (none CountedException, _ error) {
	if err := s.authz.Require(ctx, resource.OverrideCreate, parent); err != nil {
		return none, err
	}
	e, err := s.newException(ctx, parent, e)
	if err != nil {
		return none, err
	}
	if err := s.packages.InsertExceptions(ctx, parent, []vuln.Exception{e}); err != nil {
		return none, err
	}
	return s.counted(ctx, e)
}

// newException completes what a caller has asked for, and checks it.
func (s *Service) newException(
	ctx context.Context, parent resource.UID, e vuln.Exception,
) (vuln.Exception, error) {
	now := s.packages.Time()
	caller, _ := authz.CallerFrom(ctx)
	e.UID, e.Author, e.CreateTime, e.UpdateTime = parent.NewChild(), caller.Identity, now, now
	if e.Target == "" {
		e.Target = parent
	}
	if strings.HasPrefix(strings.ToUpper(e.Advisory), "CVE-") {
		e.Advisory = strings.ToUpper(e.Advisory)
	}
	e.ExpireTime = e.ExpireTime.Truncate(time.Second)
	if err := e.Validate(); err != nil {
		return e, err
	}
	if !e.ExpireTime.IsZero() && !e.ExpireTime.After(now) {
		return e, fault.Field("expire_time", "is over already")
	}
	if e.PURL != "" {
		if _, name, _, err := version.ParsePURL(e.PURL); err != nil || name == "" {
			return e, fault.Field("purl", "is not a package URL such as pkg:npm/lodash")
		}
	}
	if e.TagPattern != "" || e.Digest != "" {
		if _, err := s.repoStore.Repo(ctx, e.Target); err != nil {
			return e, err
		}
	}
	if e.Digest != "" {
		var err error
		if e.Images, err = s.images.ListedBy(ctx, e.Target, e.Digest, maxListed); err != nil {
			return e, err
		}
	}
	if s.authz.Require(ctx, resource.AdvisoriesApprove, parent) == nil {
		e.Approver, e.ApproveTime = caller.Identity, now
	}
	return e, nil
}

// GetException returns an exception, also one that is over. The caller needs
// policies.override.list on it.
func (s *Service) GetException(ctx context.Context, uid resource.UID) (none CountedException, _ error) {
	e, err := authz.Get(ctx, s.authz, resource.OverrideList, uid, s.packages.Exception)
	if err != nil {
		return none, err
	}
	return s.counted(ctx, e)
}

// ApproveException lets an exception take effect. The caller needs advisories.approve on
// it.
func (s *Service) ApproveException(ctx context.Context, uid resource.UID) (none CountedException, _ error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesApprove, uid); err != nil {
		return none, err
	}
	caller, _ := authz.CallerFrom(ctx)
	e, err := s.packages.ApproveException(ctx, uid, caller.Identity)
	return CountedException{Exception: e, Now: s.packages.Time()}, err
}

// DeleteException ends an exception. The caller needs policies.override.delete on it.
func (s *Service) DeleteException(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.OverrideDelete, uid, func(ctx context.Context, uid resource.UID) error {
		caller, _ := authz.CallerFrom(ctx)
		return s.packages.DeleteException(ctx, uid, caller.Identity)
	})
}

// An ExceptionFilter selects exceptions, and says whether to count what they match.
type ExceptionFilter struct {
	resource.Filter
	Count bool
}

// ListExceptions returns a page of the exceptions that the caller holds
// policies.override.list on.
func (s *Service) ListExceptions(
	ctx context.Context, f ExceptionFilter, p page.Params,
) (out page.Page[CountedException], _ error) {
	if f.Count && p.Size > countPage {
		p.Size = countPage
	}
	got, err := authz.List(ctx, s.authz, s.pages, findingdb.ExceptionList, resource.OverrideList, f.Filter, p,
		s.packages.Exceptions)
	if err != nil {
		return out, err
	}
	var all []CountedException
	for _, e := range got.Items {
		c := CountedException{Exception: e, Now: s.packages.Time()}
		if f.Count {
			if c, err = s.counted(ctx, e); err != nil {
				return out, err
			}
		}
		all = append(all, c)
	}
	return page.With(got, all), nil
}
