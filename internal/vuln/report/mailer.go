package report

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	mailCheckEvery = 15 * time.Second // time between two searches for reports that are due
	mailClaim      = 15 * time.Minute // longest time to make one report
	mailRetry      = 10 * time.Minute // time after which a failed report is repeated
	mailPostpone   = 6 * time.Hour    // time after which a report is repeated that would exceed a limit for messages
)

// These are the reasons why a report was not sent.
const (
	problemAccess   = "you may not get the report at present"
	problemAddress  = "your account has no e-mail address"
	problemInternal = "the server had an internal error; it tries again"
	problemBusy     = "too many queries about the organization were running; the server tries again"
)

// A Mailer sends weekly reports to the people who have subscribed to them.
type Mailer struct {
	reports *Service
	queue   *mail.Queue
	address func(ctx context.Context, t *store.Tx, person resource.UID) (string, error)
	log     *slog.Logger
	last    resource.UID // organization of the last report
}

// NewMailer returns a Mailer that adds messages to a queue. address returns the address of a person, or "" if the
// person has none. Without a queue, the Mailer sends nothing and s accepts no subscriptions.
func (s *Service) NewMailer(
	queue *mail.Queue, address func(context.Context, *store.Tx, resource.UID) (string, error), log *slog.Logger,
) *Mailer {
	s.sendsMail = queue != nil
	return &Mailer{reports: s, queue: queue, address: address, log: log}
}

// Run sends the reports that are due until ctx is done. Replicas share the work.
func (m *Mailer) Run(ctx context.Context) error {
	if m.queue == nil {
		return nil
	}
	tick := time.NewTicker(mailCheckEvery)
	defer tick.Stop()
	for {
		for found := true; found && ctx.Err() == nil; {
			var err error
			if found, err = m.SendNext(ctx); err != nil && ctx.Err() == nil {
				m.log.ErrorContext(ctx, "report not sent", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// SendNext makes one report that is due and adds it to the queue. It reports whether there was one. The message and the
// time of the next report are written in one transaction, so each report is queued once. Nothing is queued for a person
// who may not get the report when that transaction is committed.
func (m *Mailer) SendNext(ctx context.Context) (bool, error) {
	packages := m.reports.packages
	started := packages.Time()
	v, ok, err := packages.ClaimReport(ctx, started, started.Add(mailClaim), m.last)
	if err != nil || !ok {
		return false, err
	}
	m.last = v.Group.Root()
	next, problem := nextReport(v, started), ""
	err = m.send(ctx, v, next)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return true, nil // the process is stopping; the report is due again when the claim ends
	case errors.Is(err, fault.PermissionDenied), errors.Is(err, fault.Unauthenticated), errors.Is(err, fault.NotFound),
		errors.Is(err, fault.Aborted):
		problem, err = problemAccess, nil
	case errors.Is(err, fault.ResourceExhausted):
		next, problem, err = started.Add(mailRetry), problemBusy, nil
	default:
		next, problem = started.Add(mailRetry), problemInternal
	}
	return true, errors.Join(err, m.finish(ctx, v, next, problem))
}

// nextReport returns when the next report of a subscription is due: a whole number of weeks after the subscription, so
// that the reports do not move through the week.
func nextReport(v vuln.ReportSubscription, now time.Time) time.Time {
	weeks := now.Sub(v.CreateTime)/vuln.ReportEvery + 1
	return v.CreateTime.Add(weeks * vuln.ReportEvery)
}

// finish records why a report was not sent.
func (m *Mailer) finish(ctx context.Context, v vuln.ReportSubscription, next time.Time, problem string) error {
	return m.reports.packages.Write(ctx, func(t *store.Tx) error {
		_, err := findingdb.In(t).FinishReport(ctx, v, next, false, problem)
		return err
	})
}

// send makes a report with the access of the person, and adds it to the queue. next is when the following one is due.
func (m *Mailer) send(ctx context.Context, v vuln.ReportSubscription, next time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, mailClaim)
	defer cancel()
	s := m.reports
	// The context has a caller, so the transaction below is committed only if the person still has the access with which
	// the report was made.
	caller, err := s.authz.Admit(ctx, authz.Caller{Identity: v.Identity, Voucher: v.Voucher, Issued: s.packages.Time()})
	if err != nil {
		return err
	}
	asPerson := authz.WithCaller(ctx, caller)
	r, err := s.Get(asPerson, v.Group)
	subject, body := r.subject(), r.text()
	if errors.Is(err, fault.FailedPrecondition) { // too many images; the message says how many are too many
		subject, body, err = "nothing is known", "The report could not be made, so nothing is known: "+
			mail.Word(err.Error())+".\n", nil
	}
	if err != nil {
		return err
	}
	return s.packages.Write(asPerson, func(t *store.Tx) error {
		if err := iamdb.In(t).StillVouched(ctx, v.Voucher); err != nil {
			return err
		}
		to, err := m.address(ctx, t, v.Identity)
		if err != nil {
			return err
		}
		problem, due := "", next
		if to == "" {
			problem = problemAddress
		}
		held, err := findingdb.In(t).FinishReport(ctx, v, due, problem == "", problem)
		if err != nil || !held || problem != "" {
			return err
		}
		left, err := m.queue.TryAdd(ctx, t, m.queue.Report(v.Group, to, cmp.Or(r.Path, string(v.Group)), subject, body))
		if err != nil || left == "" {
			return err
		}
		_, err = findingdb.In(t).FinishReport(ctx, postponed(v, next), t.DB.Time().Add(mailPostpone), false, left)
		return err
	})
}

// postponed returns a subscription as FinishReport has stored it with a time.
func postponed(v vuln.ReportSubscription, next time.Time) vuln.ReportSubscription {
	v.NextTime = next
	return v
}
