package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/fetch"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// A Fetcher reads feeds.
type Fetcher = *fetch.Fetcher

const (
	// feedLease is the time for which a replica claims a feed. If the replica dies, other replicas can read the feed
	// after the lease.
	feedLease = 2 * time.Hour

	feedPoll = 5 * time.Second  // interval between two checks for feeds that are due
	feedRest = 15 * time.Second // minimum time between the last read and a read on request
)

// CreateFeed adds a feed to a group. The caller needs advisories.create on the group.
func (s *Service) CreateFeed(
	ctx context.Context, group resource.UID, f vuln.AdvisoryFeed,
) (vuln.AdvisoryFeed, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesCreate, group); err != nil {
		return vuln.AdvisoryFeed{}, err
	}
	if f.Interval == 0 {
		f.Interval = vuln.DefaultFeedInterval
	}
	if err := s.checkFeed(f); err != nil {
		return vuln.AdvisoryFeed{}, err
	}
	f.UID, f.CreateTime = group.NewChild(), s.now()
	f.UpdateTime = f.CreateTime
	return f, s.store.InsertFeed(ctx, f)
}

func (s *Service) checkFeed(f vuln.AdvisoryFeed) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if s.cfg.Fetcher == nil {
		return fault.Unmet("FEEDS_OFF", "this server reads no feeds")
	}
	return s.cfg.Fetcher.Check(f.Address)
}

// redact removes the query, which may contain a secret, from the address of a feed, unless the caller may change the
// feed.
func (s *Service) redact(ctx context.Context, f vuln.AdvisoryFeed) vuln.AdvisoryFeed {
	if s.authz.Require(ctx, resource.AdvisoriesUpdate, f.UID) != nil {
		return f.Redacted()
	}
	return f
}

// GetFeed returns a feed. The caller needs advisories.list on it, and
// advisories.update to see the query of its address.
func (s *Service) GetFeed(ctx context.Context, uid resource.UID) (vuln.AdvisoryFeed, error) {
	f, err := authz.Get(ctx, s.authz, resource.AdvisoriesList, uid, s.store.Feed)
	return s.redact(ctx, f), err
}

// ListFeeds returns a page of the feeds on which the caller holds advisories.list. Like GetFeed, it hides the query of
// an address unless the caller holds advisories.update.
func (s *Service) ListFeeds(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[vuln.AdvisoryFeed], error) {
	got, err := authz.List(ctx, s.authz, s.pages, advisorydb.FeedList, resource.AdvisoriesList, f, p, s.store.Feeds)
	for i := range got.Items {
		got.Items[i] = s.redact(ctx, got.Items[i])
	}
	return got, err
}

// UpdateFeed applies change to a feed. The caller needs advisories.update on it.
func (s *Service) UpdateFeed(
	ctx context.Context, uid resource.UID, change func(*vuln.AdvisoryFeed) error,
) (vuln.AdvisoryFeed, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesUpdate, uid); err != nil {
		return vuln.AdvisoryFeed{}, err
	}
	return store.Edit(ctx, uid, s.store.Feed, s.store.UpdateFeed, func(f *vuln.AdvisoryFeed) error {
		if err := change(f); err != nil {
			return err
		}
		return s.checkFeed(*f)
	})
}

// RunFeed makes a feed due now, or when feedRest has passed since its last read. The caller needs advisories.update on
// it. It returns fault.FailedPrecondition if the feed is paused.
func (s *Service) RunFeed(ctx context.Context, uid resource.UID) (vuln.AdvisoryFeed, error) {
	f, err := authz.Get(ctx, s.authz, resource.AdvisoriesUpdate, uid, s.store.Feed)
	if err != nil {
		return f, err
	}
	if f.Paused {
		return f, fault.New(fault.FailedPrecondition, "Failed precondition: the feed is paused")
	}
	due := s.now()
	if rested := f.Last.Time.Add(feedRest); rested.After(due) {
		due = rested
	}
	return f, s.store.SetFeedDue(ctx, uid, due)
}

// DeleteFeed deletes a feed, but not the advisories that were imported from it. The
// caller needs advisories.delete on it.
func (s *Service) DeleteFeed(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.AdvisoriesDelete, uid, s.store.DeleteFeed)
}

// OverdueBy returns how long the most overdue feed has been due. It does not authorize the caller, because it is for
// operators.
func (s *Service) OverdueBy(ctx context.Context) (time.Duration, error) {
	due, err := s.store.OldestDueFeed(ctx)
	if err != nil || due.IsZero() {
		return 0, err
	}
	return max(0, s.now().Sub(due)), nil
}

// FailingFeeds returns the number of feeds whose last read failed. It does not authorize the caller, because it is for
// operators.
func (s *Service) FailingFeeds(ctx context.Context) (int, error) { return s.store.FailingFeeds(ctx) }

// maxFeedReaders is the number of feeds that are read in parallel, at most one per organization. So a slow feed delays
// only feeds of its own organization, unless maxFeedReaders organizations have slow feeds. fetch.Config.Stall ends slow
// reads. Each reader may need fetch.Config.MaxBytes on disk.
const maxFeedReaders = 4

// A feedQueue chooses the feed to read next.
type feedQueue struct {
	mu    sync.Mutex
	busy  []resource.UID // organizations that have a feed that is being read
	last  resource.UID   // organization of the feed that was claimed last
	freed chan struct{}  // receives a value when a read ends
}

// next claims the next feed to read. ok is false if no feed is due, or if maxFeedReaders are busy. The caller must call
// done for the feed's organization.
func (q *feedQueue) next(ctx context.Context, s *Service) (f vuln.AdvisoryFeed, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.busy) >= maxFeedReaders {
		return f, false, nil
	}
	f, ok, err = s.store.ClaimDueFeed(ctx, s.now().Add(feedLease), q.last, q.busy)
	if ok {
		q.last = f.UID.Root()
		q.busy = append(q.busy, q.last)
	}
	return f, ok, err
}

// done ends the read of an organization's feed.
func (q *feedQueue) done(org resource.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = slices.DeleteFunc(q.busy, func(busy resource.UID) bool { return busy == org })
	select {
	case q.freed <- struct{}{}:
	default:
	}
}

// Run reads feeds when they are due, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	if s.cfg.Fetcher == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	queue := &feedQueue{freed: make(chan struct{}, 1)}
	var readers sync.WaitGroup
	defer readers.Wait()
	tick := time.NewTicker(feedPoll)
	defer tick.Stop()
	for {
		for ctx.Err() == nil {
			f, ok, err := queue.next(ctx, s)
			s.warn(ctx, err)
			if !ok {
				break
			}
			readers.Go(func() {
				defer queue.done(f.UID.Root())
				s.warn(ctx, s.readAndRecord(ctx, f))
			})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-queue.freed:
		case <-tick.C:
		}
	}
}

// warn logs err, unless it is nil or ctx has ended.
func (s *Service) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.WarnContext(ctx, "feeds cannot be read", "err", err)
	}
}

// readAndRecord reads a feed and records the result.
func (s *Service) readAndRecord(ctx context.Context, f vuln.AdvisoryFeed) error {
	ctx, span := trace.Begin(ctx, "read a feed", "")
	start := s.now()
	last, state, err := s.readFeed(ctx, f)
	defer func() { span.End(err) }()
	s.countFeed(last, err)
	if ctx.Err() != nil { // the server shuts down, and reads the feed after its next start
		return s.store.RecordFeedResult(context.WithoutCancel(ctx), f, f.Last, f.State, s.now())
	}
	if err != nil {
		text, cause := err.Error(), err
		if known, ok := errors.AsType[*fault.Error](err); ok { // users see only the fault; its cause is only logged
			text, cause = known.Message, cmp.Or(known.Cause, err)
		}
		last.Error = clip(text)
		s.cfg.Log.WarnContext(ctx, "feed not read", "feed", f.UID, "address", f.Redacted().Address, "err", cause)
	}
	last.Time, last.Took = s.now(), s.now().Sub(start)
	last.Revision, last.Current = fetch.Revision(state), f.Last.Current
	if last.Error == "" {
		last.Current = last.Time
	}
	return s.store.RecordFeedResult(ctx, f, last, state, last.Time.Add(f.Interval))
}

// countFeed adds the outcome of reading a feed to the metrics.
func (s *Service) countFeed(last vuln.FeedResult, err error) {
	outcome := metric.Changed
	switch {
	case err != nil:
		outcome = metric.Failed
	case last.Unchanged:
		outcome = metric.Unchanged
	}
	s.cfg.Metrics.Feeds.Add(1, outcome)
}

// readFeed reads a feed and imports its content. If this fails, it returns the old state, so that the next read fetches
// the feed again.
func (s *Service) readFeed(
	ctx context.Context, f vuln.AdvisoryFeed,
) (last vuln.FeedResult, state []byte, err error) {
	state = f.State
	got, err := s.cfg.Fetcher.Fetch(ctx, f.Address, f.State)
	if err != nil {
		return last, state, err
	}
	defer func() { err = errors.Join(err, got.Close()) }()
	if !got.Changed {
		last.Unchanged = true
		return last, got.State, nil
	}
	list := f.Format
	switch {
	case got.File != nil:
		list = cmp.Or(list, format.DetectExploits(got.File, got.Size))
	case list != "":
		return last, state, errors.New("the address is a folder; a list of exploited vulnerabilities must be one file")
	}
	if list != "" {
		last.Import, err = s.replaceExploits(ctx, f.UID.Parent(), f.Name, got.File, got.Size, list)
		if err != nil {
			return last, state, notStored(err)
		}
		return last, got.State, nil
	}
	revision := cmp.Or(fetch.Revision(got.State), s.now().UTC().Format(time.RFC3339))
	ctx = advisorydb.WithSource(ctx, "feed "+string(f.UID)+" "+revision)
	last, err = s.readRecords(ctx, f, got.Records)
	if err != nil {
		return last, state, err
	}
	return last, got.State, nil
}

// readRecords imports the advisories of a feed.
func (s *Service) readRecords(
	ctx context.Context, f vuln.AdvisoryFeed, records iter.Seq[format.Record],
) (last vuln.FeedResult, _ error) {
	var problems []Problem
	m := s.newImport(ctx, f.UID.Parent(), f.Name, func(p Progress) error {
		problems = append(problems, p.Problems...)
		return nil
	})
	err := m.Add(records)
	done, closing := m.Close()
	last.Import = done
	if err = errors.Join(err, closing); err != nil {
		return last, notStored(err)
	}
	if len(problems) > 0 {
		last.Error = clip(fmt.Sprintf("%d of %d records could not be read: %s: %s",
			done.Failed, done.Records(), problems[0].Name, problems[0].Reason))
	}
	return last, nil
}

// notStored replaces a database error by a fault, so that the owner of a feed does not see its text. It returns faults
// and invalidLists unchanged.
func notStored(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[invalidList](err); ok {
		return err
	}
	return &fault.Error{Code: fault.Internal, Message: "the server could not store what it read", Cause: err}
}
