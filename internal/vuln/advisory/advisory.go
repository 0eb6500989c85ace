// Package advisory manages advisories about vulnerabilities. It imports advisories of public databases, stores
// advisories that an organization writes, finds the advisories that affect a version of a package, and exports
// advisories.
//
// Every method first authorizes the caller, then validates the request, and then calls the store.
package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// Config configures a Service. The zero value works, without feeds.
type Config struct {
	Fetcher Fetcher       // reads feeds; if nil, no feed can be created
	Limits  format.Limits // limits of an import
	Metrics metric.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// A Service implements the methods of the API about advisories.
type Service struct {
	store *advisorydb.Store
	authz *authz.Checker
	pages *page.Tokens
	cfg   Config
}

// New returns a Service over db.
func New(db *advisorydb.Store, a *authz.Checker, t *page.Tokens, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	s := &Service{store: db, authz: a, pages: t, cfg: cfg}
	s.store.Lookups = cfg.Metrics.Cache("advisories")
	return s
}

// now returns the time of a change, with the precision of the store.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// The kinds of lists, with the fields that each can be ordered by.
var (
	byUID        = page.Order{Field: "uid"}
	advisoryList = page.List{Kind: "advisories", Fields: []string{"uid", "create_time", "update_time"}, Default: byUID}
)

// reach returns the groups in which the caller holds advisories.list. It returns an error if the filter f is invalid.
func (s *Service) reach(ctx context.Context, f interface{ Validate() error }) (store.Reach, error) {
	under, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err == nil {
		err = f.Validate()
	}
	return store.Reach{Under: under}, err
}

// List returns a page of the advisories on which the caller holds advisories.list, without their affected packages.
func (s *Service) List(
	ctx context.Context, f vuln.AdvisoryFilter, p page.Params,
) (page.Page[vuln.Advisory], error) {
	return authz.List(ctx, s.authz, s.pages, advisoryList, resource.AdvisoriesList, f, p, s.summaries)
}

// summaries reads a page of advisories without their affected packages.
func (s *Service) summaries(
	ctx context.Context, reach store.Reach, f vuln.AdvisoryFilter, r page.Request,
) (page.Page[vuln.Advisory], error) {
	return s.store.Advisories(ctx, reach, f, r, false)
}

// Get returns an advisory. The caller needs advisories.list on it.
func (s *Service) Get(ctx context.Context, uid resource.UID) (vuln.Advisory, error) {
	return authz.Get(ctx, s.authz, resource.AdvisoriesList, uid, s.store.Advisory)
}

// Create creates an advisory in a group, and generates an ID if a has none. The caller needs advisories.create in the
// group, and advisories.approve if an event is already reviewed.
func (s *Service) Create(ctx context.Context, group resource.UID, a vuln.Advisory) (vuln.Advisory, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesCreate, group); err != nil {
		return vuln.Advisory{}, err
	}
	a.Author = cmp.Or(a.Author, caller(ctx))
	for i := range a.Events {
		if err := s.completeEvent(ctx, group, &a.Events[i], vuln.ReviewUnspecified); err != nil {
			return vuln.Advisory{}, err
		}
	}
	if err := check(a); err != nil {
		return vuln.Advisory{}, err
	}
	if a.ID == "" {
		a.ID = vuln.StableAdvisoryID(string(group.NewChild()))
	}
	return s.store.InsertAdvisory(ctx, group, a)
}

// Update applies change to an advisory, except to its events. The caller needs advisories.update on it.
func (s *Service) Update(
	ctx context.Context, uid resource.UID, change func(*vuln.Advisory) error,
) (vuln.Advisory, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesUpdate, uid); err != nil {
		return vuln.Advisory{}, err
	}
	return s.store.UpdateAdvisory(ctx, uid, func(a *vuln.Advisory) error {
		events := a.Events
		if err := change(a); err != nil {
			return err
		}
		a.Events = events
		return check(*a)
	})
}

// Delete deletes an advisory. The caller needs advisories.delete on it.
func (s *Service) Delete(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.AdvisoriesDelete, uid, s.store.DeleteAdvisory)
}

// AddEvent adds an event to an advisory. The caller needs advisories.create on
// it, and advisories.approve for an event that is already reviewed.
func (s *Service) AddEvent(
	ctx context.Context, uid resource.UID, e vuln.AdvisoryEvent,
) (vuln.AdvisoryEvent, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesCreate, uid); err != nil {
		return vuln.AdvisoryEvent{}, err
	}
	if err := s.completeEvent(ctx, uid, &e, vuln.ReviewUnspecified); err != nil {
		return vuln.AdvisoryEvent{}, err
	}
	if err := e.Validate(); err != nil {
		return vuln.AdvisoryEvent{}, err
	}
	e.UID, e.CreateTime = uid.NewChild(), s.now()
	_, err := s.store.UpdateAdvisory(ctx, uid, func(a *vuln.Advisory) error {
		a.Events = append(slices.Clone(a.Events), e)
		return check(*a)
	})
	return e, err
}

// UpdateEvent applies change to an event that has not been approved or rejected.
// The caller needs advisories.update on it, and advisories.approve to review it.
func (s *Service) UpdateEvent(
	ctx context.Context, uid resource.UID, change func(*vuln.AdvisoryEvent) error,
) (e vuln.AdvisoryEvent, _ error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesUpdate, uid); err != nil {
		return vuln.AdvisoryEvent{}, err
	}
	_, err := s.store.UpdateAdvisory(ctx, uid.Parent(), func(a *vuln.Advisory) error {
		i := slices.IndexFunc(a.Events, func(e vuln.AdvisoryEvent) bool { return e.UID == uid })
		if i < 0 {
			return fault.Missing("advisory event", string(uid))
		}
		before := a.Events[i]
		if before.ReviewState.Final() {
			return fault.Unmet("REVIEW_IS_OVER", "the event is already approved or rejected, and cannot change")
		}
		e = before
		if err := change(&e); err != nil {
			return err
		}
		e.UID, e.CreateTime = before.UID, before.CreateTime
		if err := s.completeEvent(ctx, uid, &e, before.ReviewState); err != nil {
			return err
		}
		if err := e.Validate(); err != nil {
			return err
		}
		a.Events = slices.Clone(a.Events)
		a.Events[i] = e
		return nil
	})
	return e, err
}

// completeEvent sets the author and the reviewer of an event. before is the previous review state. If the new state
// differs from before and is not pending, the caller needs advisories.approve on scope.
func (s *Service) completeEvent(
	ctx context.Context, scope resource.UID, e *vuln.AdvisoryEvent, before vuln.ReviewState,
) error {
	e.ReviewState = cmp.Or(e.ReviewState, vuln.ReviewPending)
	e.Author = cmp.Or(e.Author, caller(ctx))
	if e.ReviewState == before || e.ReviewState == vuln.ReviewPending {
		return nil
	}
	e.Reviewer = cmp.Or(e.Reviewer, caller(ctx))
	return s.authz.Require(ctx, resource.AdvisoriesApprove, scope)
}

// caller returns the identity of the caller.
func caller(ctx context.Context) string {
	c, _ := authz.CallerFrom(ctx)
	return string(c.Identity)
}

// check returns the error of Validate or, if the advisory is valid, an error about its invalid ranges and severities.
func check(a vuln.Advisory) error {
	if err := a.Validate(); err != nil {
		return err
	}
	var bad []fault.Violation
	for i, v := range a.Affected {
		if err := version.CheckRanges(v); err != nil {
			bad = append(bad, fault.Violation{Subject: fmt.Sprintf("affected[%d].ranges", i),
				Description: reason(err)})
		}
		bad = append(bad, checkSeverities(fmt.Sprintf("affected[%d].severities", i), v.Severities)...)
	}
	bad = append(bad, checkSeverities("severities", a.Severities)...)
	if len(bad) > 0 {
		return fault.Fields(bad[:min(len(bad), 20)])
	}
	return nil
}

func checkSeverities(field string, severities []vuln.Severity) (bad []fault.Violation) {
	for _, s := range severities {
		if err := format.CheckSeverity(s); err != nil {
			bad = append(bad, fault.Violation{Subject: field, Description: reason(err)})
		}
	}
	return bad
}

// reason returns the text of an error, without the name of a field.
func reason(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok && len(f.Fields) > 0 {
		return f.Fields[0].Description
	}
	return err.Error()
}
