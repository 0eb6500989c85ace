package mirror

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/store/access"
)

// MaxFetches is the largest number of concurrent requests to all upstreams together.
const MaxFetches = 2 * maxFetches

const (
	maxFetches      = 256              // concurrent requests in one limiter
	maxFetchesOfOne = 8                // concurrent requests by one tenant
	fetchWait       = 30 * time.Second // longest time that a request waits for a slot
	failurePause    = 15 * time.Second // pause after a failure of an upstream
	failuresCached  = 1 << 12
)

var errFetches = fairlimit.Busy("too much is fetched from upstreams at once")

// A limiter limits the concurrent requests to upstreams, so that no tenant can block the others.
type limiter struct {
	turns  *fairlimit.Limiter
	tenant func(context.Context, resource.UID) resource.Tenant
}

func newLimiter(tenant func(context.Context, resource.UID) resource.Tenant) limiter {
	return limiter{tenant: tenant, turns: fairlimit.New(fairlimit.Limits{
		Total: maxFetches, PerTenant: maxFetchesOfOne, Wait: fetchWait, Busy: errFetches,
	})}
}

// take waits until an organization may make a request. The caller calls end after the request. After fetchWait, or if
// ctx ends, take returns fault.ResourceExhausted.
func (l limiter) take(ctx context.Context, org resource.UID) (end func(), _ error) {
	end, err := l.turns.Acquire(ctx, l.tenant(ctx, org))
	if err != nil {
		err = errFetches
	}
	return end, err
}

// sharedCalls lets concurrent callers with the same key share one call.
type sharedCalls struct {
	mu    sync.Mutex
	calls map[string]*sharedCall
}

type sharedCall struct {
	done    chan struct{}
	outcome string
	err     error
}

func newSharedCalls() *sharedCalls { return &sharedCalls{calls: map[string]*sharedCall{}} }

// do calls f and returns its result. If another call with the same key is running, do waits for it and returns its
// result instead. The call of f continues even if ctx ends, or if the caller loses access, because others may wait for
// it.
func (s *sharedCalls) do(ctx context.Context, key string, f func(context.Context) (string, error)) (string, error) {
	s.mu.Lock()
	c := s.calls[key]
	if c == nil {
		c = &sharedCall{done: make(chan struct{})}
		s.calls[key] = c
		go func() {
			c.outcome, c.err = f(access.Without(context.WithoutCancel(ctx)))
			s.mu.Lock()
			delete(s.calls, key)
			s.mu.Unlock()
			close(c.done)
		}()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.outcome, c.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// pauses records which upstreams the server does not ask for a while, because they demanded a pause or failed.
type pauses struct {
	mu         sync.Mutex
	byUpstream map[resource.UID]pause
}

type pause struct {
	until   time.Time
	limited bool // whether the upstream demanded the pause; otherwise it failed
	err     error
}

func newPauses() *pauses { return &pauses{byUpstream: map[resource.UID]pause{}} }

// note records the outcome of a request to an upstream. It reports whether a pause begins now.
func (p *pauses) note(uid resource.UID, err error, now time.Time) (begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait, limited := upstream.Limited(err)
	begins = (limited || failed(err)) && !now.Before(p.byUpstream[uid].until)
	switch {
	case limited:
		p.byUpstream[uid] = pause{now.Add(wait), true, err}
	case failed(err) && !p.byUpstream[uid].limited:
		p.byUpstream[uid] = pause{now.Add(failurePause), false, err}
	case err == nil && !p.byUpstream[uid].limited:
		delete(p.byUpstream, uid)
	}
	for id, old := range p.byUpstream {
		if !now.Before(old.until) {
			delete(p.byUpstream, id)
		}
	}
	return begins
}

// failed reports whether err means that an upstream cannot be reached or has an internal error.
func failed(err error) bool {
	e, ok := errors.AsType[*upstream.Error](err)
	return ok && (e.Status == 0 || e.Status >= http.StatusInternalServerError)
}

// err returns the reason why the server must not send a request to an upstream now, or nil. After a failure, the
// server still requests content that is not stored, but does not check whether stored content is current.
func (p *pauses) err(uid resource.UID, stored bool, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.byUpstream[uid]
	if !ok || !now.Before(last.until) || !last.limited && !stored {
		return nil
	}
	if last.limited {
		return &upstream.Error{
			Status: http.StatusTooManyRequests, Reason: "it was asked too often", RetryIn: last.until.Sub(now),
			Cause: last.err,
		}
	}
	return last.err
}

// A Failure is the failure of the last request to an upstream.
type Failure struct {
	Reason string // text for callers who may see the upstream; it contains no secret and nothing about our network
	Time   time.Time

	version time.Time // update time of the upstream's settings at the time of the request
}

// failures records the last failure of each upstream whose last request failed. It is safe for concurrent use.
type failures struct {
	byUpstream *lru.Cache[resource.UID, Failure]
}

func newFailures() failures {
	byUpstream, _ := lru.New[resource.UID, Failure](failuresCached) // fails only for sizes below one
	return failures{byUpstream}
}

// note records the outcome of a request to an upstream. A response that a reference does not exist is not a failure.
func (f failures) note(u registry.Upstream, err error, now time.Time) {
	e, ok := errors.AsType[*upstream.Error](err)
	switch {
	case err == nil || upstream.NotFound(err):
		f.byUpstream.Remove(u.UID)
	case ok:
		f.byUpstream.Add(u.UID, Failure{e.Reason, now, u.UpdateTime})
	}
}

// LastFailure returns the failure of the last request of this server to an upstream. ok is false if the last request
// succeeded, or if the settings of the upstream have changed since. The caller must be allowed to see the upstream.
func (f *Fetcher) LastFailure(u registry.Upstream) (_ Failure, ok bool) {
	last, ok := f.failures.byUpstream.Get(u.UID)
	return last, ok && last.version.Equal(u.UpdateTime)
}
