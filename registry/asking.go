package registry

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/upstream"
)

// MaxFetches is how many requests to upstreams are under way at once.
const MaxFetches = 2 * maxFetches

const (
	maxFetches      = 256              // of blobs, and of what is short
	maxFetchesOfOne = 8                // of one organization
	fetchWait       = 30 * time.Second // for which one waits for its turn
)

// fetches limits the requests to upstreams, so that one organization does not keep others from theirs.
type fetches struct {
	mu    sync.Mutex
	held  map[resource.UID]int
	all   int
	freed chan struct{} // closed, and made anew, whenever one ends
}

func newFetches() *fetches {
	return &fetches{held: map[resource.UID]int{}, freed: make(chan struct{})}
}

// take waits until an organization may make a request. end ends it. It returns fault.ResourceExhausted if that takes too
// long.
func (f *fetches) take(ctx context.Context, org resource.UID) (end func(), _ error) {
	late := time.NewTimer(fetchWait)
	defer late.Stop()
	for {
		f.mu.Lock()
		if f.held[org] < maxFetchesOfOne && f.all < maxFetches {
			f.held[org]++
			f.all++
			f.mu.Unlock()
			return func() { f.end(org) }, nil
		}
		freed := f.freed
		f.mu.Unlock()
		select {
		case <-freed:
			continue
		case <-ctx.Done():
		case <-late.C:
		}
		busy := fault.New(fault.ResourceExhausted, "Resource exhausted: too much is fetched from upstreams at once; try again")
		busy.RetryIn = time.Second
		return nil, busy
	}
}

func (f *fetches) end(org resource.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all--
	if f.held[org]--; f.held[org] == 0 {
		delete(f.held, org)
	}
	close(f.freed)
	f.freed = make(chan struct{})
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
