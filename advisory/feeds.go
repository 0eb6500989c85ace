package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/advisory/fetch"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// A Fetcher looks at feeds.
type Fetcher = *fetch.Fetcher

// feedLease is how long a replica has a feed to itself. One that dies while it
// reads leaves the feed to others after that.
const feedLease = 2 * time.Hour

// feedPause is how long the service waits before it asks again which feeds are
// due.
const feedPause = 5 * time.Second

// CreateFeed adds a feed to a group. The caller needs advisories.create there.
func (s *Service) CreateFeed(ctx context.Context, group resource.UID, f resource.AdvisoryFeed) (resource.AdvisoryFeed, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesCreate, group); err != nil {
		return resource.AdvisoryFeed{}, err
	}
	if f.Interval == 0 {
		f.Interval = resource.DefaultFeedInterval
	}
	if err := s.checkFeed(f); err != nil {
		return resource.AdvisoryFeed{}, err
	}
	f.UID, f.CreateTime = group.NewChild(), s.now()
	f.UpdateTime = f.CreateTime
	return f, s.store.InsertFeed(ctx, f)
}

func (s *Service) checkFeed(f resource.AdvisoryFeed) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if s.cfg.Fetcher == nil {
		return fault.Unmet("FEEDS_OFF", "this server reads no feeds")
	}
	return s.cfg.Fetcher.Check(f.Address)
}

// shown returns a feed as the caller may see it: what may be a secret in its
// address is for those who could change it.
func (s *Service) shown(ctx context.Context, f resource.AdvisoryFeed) resource.AdvisoryFeed {
	if s.authz.Require(ctx, resource.AdvisoriesUpdate, f.UID) != nil {
		return f.Redacted()
	}
	return f
}

// GetFeed returns a feed. The caller needs advisories.list on it, and
// advisories.update to see the query of its address.
func (s *Service) GetFeed(ctx context.Context, uid resource.UID) (resource.AdvisoryFeed, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesList, uid); err != nil {
		return resource.AdvisoryFeed{}, err
	}
	f, err := s.store.Feed(ctx, uid)
	return s.shown(ctx, f), err
}

// ListFeeds returns a page of the feeds the caller has advisories.list on. Their
// addresses are as GetFeed returns them.
func (s *Service) ListFeeds(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.AdvisoryFeed], error) {
	reach, err := s.reach(ctx)
	if err != nil {
		return page.Page[resource.AdvisoryFeed]{}, err
	}
	got, err := page.Read(ctx, s.pages, feedList, reach, f, p, s.store.Feeds)
	for i := range got.Items {
		got.Items[i] = s.shown(ctx, got.Items[i])
	}
	return got, err
}

// UpdateFeed applies change to a feed. The caller needs advisories.update on it.
func (s *Service) UpdateFeed(ctx context.Context, uid resource.UID, change func(*resource.AdvisoryFeed) error) (resource.AdvisoryFeed, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesUpdate, uid); err != nil {
		return resource.AdvisoryFeed{}, err
	}
	return s.store.UpdateFeed(ctx, uid, func(f *resource.AdvisoryFeed) error {
		if err := change(f); err != nil {
			return err
		}
		return s.checkFeed(*f)
	})
}

// DeleteFeed removes a feed; what it brought stays. The caller needs
// advisories.delete on it.
func (s *Service) DeleteFeed(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.AdvisoriesDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteFeed(ctx, uid)
}

// feedReaders is how many feeds are read at once. No organization has more than
// one of them, so a feed that is slow delays only other feeds of its
// organization, unless as many organizations have slow feeds; and those end
// (fetch.Config.Stall). Each may keep a download of fetch.Config.MaxBytes on disk.
const feedReaders = 4

// A feedReading is a set of readers: which organizations have a feed that is
// being read, and which was the last to get its turn.
type feedReading struct {
	mu    sync.Mutex
	busy  []resource.UID
	last  resource.UID
	freed chan struct{} // has a value if a reader has ended
}

func newFeedReading() *feedReading { return &feedReading{freed: make(chan struct{}, 1)} }

// take returns the next feed to read, or false if none is due or no reader is
// free. The caller must call end for the feed's organization.
func (r *feedReading) take(ctx context.Context, s *Service) (f resource.AdvisoryFeed, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.busy) >= feedReaders {
		return f, false, nil
	}
	f, ok, err = s.store.TakeDueFeed(ctx, s.now().Add(feedLease), r.last, r.busy)
	if ok {
		r.last = f.UID.Root()
		r.busy = append(r.busy, r.last)
	}
	return f, ok, err
}

// end frees the reader of an organization.
func (r *feedReading) end(org resource.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = slices.DeleteFunc(r.busy, func(other resource.UID) bool { return other == org })
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// Run reads feeds when they are due, a few at a time and one of each
// organization, until ctx is done.
func (s *Service) Run(ctx context.Context) error {
	if s.cfg.Fetcher == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	reading := newFeedReading()
	var readers sync.WaitGroup
	defer readers.Wait()
	tick := time.NewTicker(feedPause)
	defer tick.Stop()
	for {
		for ctx.Err() == nil {
			f, ok, err := reading.take(ctx, s)
			s.warn(ctx, err)
			if !ok {
				break
			}
			readers.Go(func() {
				defer reading.end(f.UID.Root())
				s.warn(ctx, s.readAndRecord(ctx, f))
			})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reading.freed:
		case <-tick.C:
		}
	}
}

// warn logs why feeds cannot be read, if there is an error.
func (s *Service) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.WarnContext(ctx, "feeds cannot be read", "err", err)
	}
}

// ReadDue reads one feed that is due, if there is one, and records what came of
// it.
func (s *Service) ReadDue(ctx context.Context) (read bool, _ error) {
	f, ok, err := s.store.TakeDueFeed(ctx, s.now().Add(feedLease), "", nil)
	if err != nil || !ok {
		return false, err
	}
	return true, s.readAndRecord(ctx, f)
}

// readAndRecord reads a feed that was taken and records what came of it.
func (s *Service) readAndRecord(ctx context.Context, f resource.AdvisoryFeed) error {
	start := s.now()
	last, state, err := s.readFeed(ctx, f)
	if ctx.Err() != nil { // shutting down: the next run goes on
		due := s.now()
		return s.store.FeedRead(context.WithoutCancel(ctx), f, f.Last, f.State, due)
	}
	if err != nil {
		last.Error = clip(feedError(err))
		s.cfg.Log.WarnContext(ctx, "feed not read", "feed", f.UID, "address", f.Redacted().Address, "err", logged(err))
	}
	last.Time, last.Took = s.now(), s.now().Sub(start)
	return s.store.FeedRead(ctx, f, last, state, last.Time.Add(f.Interval))
}

// readFeed reads a feed. The state it returns says that all of it was read, so
// it is the old one if not.
func (s *Service) readFeed(ctx context.Context, f resource.AdvisoryFeed) (last resource.FeedResult, state []byte, err error) {
	state = f.State
	got, err := s.cfg.Fetcher.Fetch(ctx, f.Address, f.State)
	if err != nil {
		return last, state, err
	}
	defer func() { err = errors.Join(err, got.Close()) }()
	if !got.Changed {
		last.Unchanged, last.Import = true, resource.ImportResult{}
		return last, got.State, nil
	}
	var problems []Problem
	m := s.newImport(ctx, f.UID.Parent(), f.Name, func(p Progress) error {
		problems = append(problems, p.Problems...)
		return nil
	})
	err = m.Take(got.Records)
	done, closing := m.Close()
	last.Import = done
	if err = errors.Join(err, closing); err != nil {
		return last, state, notStored(err)
	}
	if len(problems) > 0 {
		last.Error = clip(fmt.Sprintf("%d of %d records could not be read: %s: %s", done.Failed, done.Records(), problems[0].Name, problems[0].Reason))
	}
	return last, got.State, nil
}

// notStored hides from the owner of a feed how our database failed.
func notStored(err error) error {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return err
	}
	return &fault.Error{Code: fault.Internal, Message: "the server could not store what it read", Cause: err}
}

// logged is what the operator may know of a failure: the cause, if it is hidden
// from others.
func logged(err error) error {
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Cause != nil {
		return f.Cause
	}
	return err
}

// feedError is what the owner of a feed may know of a failure.
func feedError(err error) string {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}
