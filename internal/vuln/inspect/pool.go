package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	keepIdle   = 30 * time.Second // time for which a Pool keeps a child without work
	stayUrgent = time.Minute      // time for which new children are urgent after a child was starved
)

// A Pool reads images in children, and keeps children for further images, because starting a child costs several times
// as much as reading a small image.
//
// A child serves one tenant only. A hostile image that takes over a child could falsify the results of the images that
// the child reads later, and all of these belong to the tenant that has pushed the hostile image. What an image may
// use does not depend on earlier images: a child is only reused if it has hardly used its processor time and memory,
// its folder is emptied, and if a reused child fails, a new one reads the image again.
//
// The zero value is ready for use, and keeps no children.
type Pool struct {
	Keep int // maximum number of children without work

	mu     sync.Mutex
	idle   []*child  // the least recently used first
	urgent time.Time // time until which new children are urgent, because other children were starved
	closed bool
}

// Image returns the packages of an image with these layers, the lowest layer first.
//
// It returns a *NotUnderstood error if the image is the cause, and a retry has the same result. Any other error comes
// from reading a layer or from this machine. Then the result has only the costs.
func (p *Pool) Image(ctx context.Context, tenant string, layers []Layer, limits Limits) (Result, error) {
	limits = limits.withDefaults()
	if !ready {
		return Result{}, errNotReady
	}
	if len(layers) > limits.Layers {
		reason := fmt.Sprintf("it has %d layers, more than %d", len(layers), limits.Layers)
		return Result{}, &NotUnderstood{Reason: reason}
	}
	for i, l := range layers {
		if !IsLayer(l.MediaType) {
			reason := fmt.Sprintf("layer %d has the media type %.100q, which is not a file system", i+1, l.MediaType)
			return Result{}, &NotUnderstood{Reason: reason}
		}
	}
	limit := time.Duration(limits.Seconds) * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, clockFactor*limit, errSlow)
	defer cancel()
	r, err := p.read(ctx, tenant, layers, request{Limits: limits})
	// A hard link may have a name of interest although the file to which it links has none, as in the store of pnpm. The
	// file may precede the link, so the image is read a second time, and then such files are read, too.
	if again := (*unreadError)(nil); errors.As(err, &again) {
		first := r.Processor
		r, err = p.read(ctx, tenant, layers, request{Limits: limits, Reads: again.links})
		r, err = addProcessor(r, err, first)
	}
	return r, err
}

// SBOM returns the packages of an image according to an SBOM. Like an image, the document is read in a child. SBOM
// returns ErrNoSBOM if the document is not an SBOM or is about other images, and otherwise the errors of Image. If the
// SBOM has too many packages, it returns the first ones, with a warning.
func (p *Pool) SBOM(ctx context.Context, tenant string, document Layer, image string) (Result, error) {
	if !ready {
		return Result{}, errNotReady
	}
	limits := documentLimits.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, clockFactor*time.Duration(limits.Seconds)*time.Second, errSlow)
	defer cancel()
	r, err := p.read(ctx, tenant, []Layer{document}, request{Limits: limits, Document: image})
	if err == nil && r.Document == nil {
		err = ErrNoSBOM
	}
	return r, err
}

// read reads an image or a document in a child of the tenant. If a reused child fails, an earlier image may be the
// cause, so a new child reads it again. If a child was starved, an urgent one reads it again.
func (p *Pool) read(ctx context.Context, tenant string, layers []Layer, req request) (Result, error) {
	var used time.Duration
	fresh := false // whether a new child is needed
	for {
		if ctx.Err() != nil {
			return Result{Processor: used}, context.Cause(ctx)
		}
		c, err := p.take(tenant, req.Limits, fresh)
		if err != nil {
			return Result{Processor: used}, err
		}
		reused := c.served > 0
		r, err := p.run(ctx, c, layers, req)
		reason := (*NotUnderstood)(nil)
		crashed := errors.As(err, &reason) && reason.crashed
		if !errors.Is(err, errStarved) && !(reused && crashed) {
			return addProcessor(r, err, used)
		}
		used += r.Processor
		fresh = fresh || crashed
	}
}

// run reads an image in a child, and then keeps or closes the child.
func (p *Pool) run(ctx context.Context, c *child, layers []Layer, req request) (Result, error) {
	r, err := c.run(ctx, layers, req)
	if errors.Is(err, errStarved) {
		p.mu.Lock()
		p.urgent = time.Now().Add(stayUrgent)
		p.mu.Unlock()
	}
	if c.reusable(r) && c.clear() == nil {
		p.put(c)
	} else {
		c.close()
	}
	return r, err
}

// addProcessor adds the processor time of an earlier attempt to a result and to a *NotUnderstood error.
func addProcessor(r Result, err error, used time.Duration) (Result, error) {
	r.Processor += used
	if reason := (*NotUnderstood)(nil); errors.As(err, &reason) {
		reason.Processor += used
	}
	return r, err
}

// take removes a child of a tenant with these limits from the pool, or starts one.
func (p *Pool) take(tenant string, limits Limits, fresh bool) (*child, error) {
	p.mu.Lock()
	urgent := time.Now().Before(p.urgent)
	for i, c := range slices.Backward(p.idle) {
		if !fresh && c.tenant == tenant && c.limits == limits && c.urgent == urgent && c.alive() {
			p.idle = slices.Delete(p.idle, i, i+1)
			p.mu.Unlock()
			return c, nil
		}
	}
	p.mu.Unlock()
	return newChild(tenant, limits, urgent)
}

// put adds a child without work to the pool. If the pool has too many, it closes the least recently used child.
func (p *Pool) put(c *child) {
	p.mu.Lock()
	p.idle = append(p.idle, c)
	var over []*child
	if most := max(p.Keep, 0); p.closed {
		over, p.idle = p.idle, nil
	} else if extra := len(p.idle) - most; extra > 0 {
		over, p.idle = slices.Clone(p.idle[:extra]), slices.Delete(p.idle, 0, extra)
	}
	p.mu.Unlock()
	closeAll(over)
	served := c.served
	time.AfterFunc(keepIdle, func() { p.expire(c, served) })
}

// expire closes a child that has had no work since it was put into the pool. It had read served images then.
func (p *Pool) expire(c *child, served int) {
	p.mu.Lock()
	i := slices.Index(p.idle, c)
	expired := i >= 0 && c.served == served
	if expired {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if expired {
		c.close()
	}
}

// Close ends all children without work. Children that are at work end when they have read their images.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	closeAll(idle)
}

func closeAll(children []*child) {
	for _, c := range children {
		c.close()
	}
}
