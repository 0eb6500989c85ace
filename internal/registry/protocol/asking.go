package protocol

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
)

// MaxFetches is how many requests to upstreams are under way at once.
const MaxFetches = 2 * maxFetches

const (
	maxFetches      = 256              // of blobs, and of what is short
	maxFetchesOfOne = 8                // of one organization
	fetchWait       = 30 * time.Second // for which one waits for its turn
)

var errFetches = fairlimit.Busy("too much is fetched from upstreams at once")

// fetches limits the requests to upstreams, so that one organization does not keep others from theirs.
type fetches struct{ turns *fairlimit.Limiter }

func newFetches() fetches {
	return fetches{fairlimit.New(fairlimit.Limits{Total: maxFetches, PerTenant: maxFetchesOfOne, Wait: fetchWait, Busy: errFetches})}
}

// take waits until an organization may make a request. end ends it. It returns fault.ResourceExhausted if that takes too
// long for the caller as well.
func (f fetches) take(ctx context.Context, org resource.UID) (end func(), _ error) {
	end, err := f.turns.Acquire(ctx, org)
	if err != nil {
		err = errFetches
	}
	return end, err
}

// asking shares what comes of asking an upstream among all who ask for the same at a time.
type asking struct {
	mu  sync.Mutex
	all map[string]*question
}

type question struct {
	done    chan struct{}
	outcome string
	err     error
}

// do calls f, unless somebody does so already with the key: then it returns the same. f goes on if ctx ends.
func (a *asking) do(ctx context.Context, key string, f func(context.Context) (string, error)) (string, error) {
	a.mu.Lock()
	q := a.all[key]
	if q == nil {
		q = &question{done: make(chan struct{})}
		a.all[key] = q
		go func() {
			q.outcome, q.err = f(context.WithoutCancel(ctx))
			a.mu.Lock()
			delete(a.all, key)
			a.mu.Unlock()
			close(q.done)
		}()
	}
	a.mu.Unlock()
	select {
	case <-q.done:
		return q.outcome, q.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// pauses knows which upstreams are left alone for a while: those that have asked for it, and those that failed.
type pauses struct {
	mu  sync.Mutex
	all map[resource.UID]pause
}

type pause struct {
	until   time.Time
	limited bool // the upstream has asked for it
	err     error
}

// note notes what came of asking an upstream. It reports whether the upstream is left alone from now on, and was not before.
func (p *pauses) note(uid resource.UID, err error, now time.Time) (begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait, limited := upstream.Limited(err)
	begins = (limited || failed(err)) && !now.Before(p.all[uid].until)
	switch {
	case limited:
		p.all[uid] = pause{now.Add(wait), true, err}
	case failed(err) && !p.all[uid].limited:
		p.all[uid] = pause{now.Add(failurePause), false, err}
	case err == nil && !p.all[uid].limited:
		delete(p.all, uid)
	}
	for other, was := range p.all {
		if !now.Before(was.until) {
			delete(p.all, other)
		}
	}
	return begins
}

// failed reports whether err says that an upstream is not well.
func failed(err error) bool {
	e, ok := errors.AsType[*upstream.Error](err)
	return ok && (e.Status == 0 || e.Status >= http.StatusInternalServerError)
}

// err returns why an upstream is not to be asked now. One that failed is asked for what is not stored, and not for whether
// what is stored is current.
func (p *pauses) err(uid resource.UID, stored bool, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, ok := p.all[uid]
	if !ok || !now.Before(was.until) || !was.limited && !stored {
		return nil
	}
	if was.limited {
		return &upstream.Error{
			Status: http.StatusTooManyRequests, Reason: "it was asked too often", RetryIn: was.until.Sub(now), Cause: was.err,
		}
	}
	return was.err
}

// A Failure is why an upstream gave nothing when it was last asked.
type Failure struct {
	Reason string // for those who may see the upstream: nothing about our network, and no secret
	Time   time.Time

	version time.Time // of the settings of the upstream
}

const failuresCached = 1 << 12

// failures remembers which upstreams gave nothing when they were last asked. It is safe for concurrent use.
type failures struct {
	all *lru.Cache[resource.UID, Failure]
}

func newFailures() failures {
	all, _ := lru.New[resource.UID, Failure](failuresCached) // fails for sizes below one only
	return failures{all}
}

// note notes what came of asking an upstream. That it does not have something is no failure of it.
func (f failures) note(u registry.Upstream, err error, now time.Time) {
	e, ok := errors.AsType[*upstream.Error](err)
	switch {
	case err == nil || upstream.NotFound(err):
		f.all.Remove(u.UID)
	case ok:
		f.all.Add(u.UID, Failure{e.Reason, now, u.UpdateTime})
	}
}

// UpstreamFailure returns why this server got nothing from an upstream when it last asked, since that was changed. The
// caller must have read the upstream, which needs a capability.
func (s *Service) UpstreamFailure(u registry.Upstream) (Failure, bool) {
	f, ok := s.images.failures.all.Get(u.UID)
	return f, ok && f.version.Equal(u.UpdateTime)
}
