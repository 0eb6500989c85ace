package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	maxListed   = 200    // maximum number of images in an index for which an exception is created
	countPage   = 50     // maximum number of exceptions on a page if their matches are counted
	tagBatch    = 200    // number of images per query for tags
	maxNamed    = 20     // maximum number of vulnerabilities of an advisory that a refusal names
	maxVersions = 20_000 // maximum number of versions of one package that are counted for an exception
)

// CreateException adds an exception to a group. The caller needs
// policies.override.create on the group. The exception is approved if the caller also
// has advisories.approve there.
func (s *Service) CreateException(
	ctx context.Context, parent resource.UID, e vuln.Exception,
) (zero CountedException, _ error) {
	if err := s.authz.Require(ctx, resource.OverrideCreate, parent); err != nil {
		return zero, err
	}
	e, err := s.newException(ctx, parent, e)
	if err != nil {
		return zero, err
	}
	if err := s.packages.InsertExceptions(ctx, parent, []vuln.Exception{e}); err != nil {
		return zero, err
	}
	return s.counted(ctx, e)
}

// newException returns e with all fields set, or an error if e is invalid.
func (s *Service) newException(
	ctx context.Context, parent resource.UID, e vuln.Exception,
) (vuln.Exception, error) {
	asOf := s.packages.Time()
	caller, _ := authz.CallerFrom(ctx)
	e.UID, e.Author, e.CreateTime, e.UpdateTime = parent.NewChild(), caller.Identity, asOf, asOf
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
	if !e.ExpireTime.IsZero() && !e.ExpireTime.After(asOf) {
		return e, fault.Field("expire_time", "is in the past")
	}
	if err := s.refuseAdvisory(ctx, e.Advisory); err != nil {
		return e, err
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
		e.Approver, e.ApproveTime = caller.Identity, asOf
	}
	return e, nil
}

// refuseAdvisory returns fault.InvalidArgument if id is the ID of an advisory that fixes vulnerabilities, and of no
// vulnerability. An exception accepts vulnerabilities, so it must name each of them. It considers only advisories that
// the caller may list.
func (s *Service) refuseAdvisory(ctx context.Context, id string) error {
	reach, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil || id == "" || len(reach) == 0 {
		return err
	}
	found, err := s.advisories.Advisories(ctx, store.Reach{Under: reach}, vuln.AdvisoryFilter{IDs: []string{id}},
		page.Request{Size: countPage, Order: page.Order{Field: "uid"}}, false)
	if err != nil {
		return err
	}
	var fixes []string
	for _, a := range found.Items {
		switch {
		case vuln.IsBugFix(a.ID):
			return fault.Field("advisory_id",
				"%s is an advisory about bugs, and not about a vulnerability", id)
		case len(a.Fixes) == 0:
			return nil // in this group it represents a vulnerability of its own
		}
		fixes = append(fixes, a.Fixes...)
	}
	if len(fixes) == 0 {
		return nil
	}
	slices.Sort(fixes)
	fixes = slices.Compact(fixes)
	named := strings.Join(fixes[:min(len(fixes), maxNamed)], ", ")
	if hidden := len(fixes) - maxNamed; hidden > 0 {
		named += fmt.Sprintf(" and %d more", hidden)
	}
	return fault.Field("advisory_id",
		"%s is an advisory; an exception accepts one of the vulnerabilities that it fixes: %s", id, named)
}

// GetException returns an exception, even if it was deleted. The caller needs policies.override.list on it.
func (s *Service) GetException(ctx context.Context, uid resource.UID) (zero CountedException, _ error) {
	e, err := authz.Get(ctx, s.authz, resource.OverrideList, uid, s.packages.Exception)
	if err != nil {
		return zero, err
	}
	return s.counted(ctx, e)
}

// ApproveException puts an exception into effect. The caller needs advisories.approve
// on it.
func (s *Service) ApproveException(ctx context.Context, uid resource.UID) (zero CountedException, _ error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesApprove, uid); err != nil {
		return zero, err
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

// An ExceptionFilter selects exceptions. If Count is true, their matches are counted, too.
type ExceptionFilter struct {
	resource.Filter
	Count bool
}

// ListExceptions returns a page of the exceptions on which the caller has
// policies.override.list.
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
	var counted []CountedException
	for _, e := range got.Items {
		c := CountedException{Exception: e, Now: s.packages.Time()}
		if f.Count {
			if c, err = s.counted(ctx, e); err != nil {
				return out, err
			}
		}
		counted = append(counted, c)
	}
	return page.With(got, counted), nil
}
