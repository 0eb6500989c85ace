package authz

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Get calls read with uid if the caller holds want on it, and otherwise returns the error of Require.
func Get[T any](
	ctx context.Context, c *Checker, want resource.Capability, uid resource.UID,
	read func(context.Context, resource.UID) (T, error),
) (none T, _ error) {
	if err := c.Require(ctx, want, uid); err != nil {
		return none, err
	}
	return read(ctx, uid)
}

// Delete calls remove with uid if the caller holds want on it, and otherwise returns the error of Require. After remove
// succeeds or returns fault.NotFound, Delete waits until all replicas know of the deletion. It also waits after
// NotFound, because the caller may be repeating a deletion whose answer was lost when a replica crashed.
func (c *Checker) Delete(
	ctx context.Context, want resource.Capability, uid resource.UID, remove func(context.Context, resource.UID) error,
) error {
	if err := c.Require(ctx, want, uid); err != nil {
		return err
	}
	err := remove(ctx, uid)
	if err == nil || errors.Is(err, fault.NotFound) {
		c.store.AwaitReplicas(ctx)
	}
	return err
}

// List returns one page of the resources on which the caller holds want.
func List[T any, F interface{ Validate() error }](
	ctx context.Context, c *Checker, t *page.Tokens, l page.List, want resource.Capability, f F, p page.Params,
	read func(context.Context, store.Reach, F, page.Request) (page.Page[T], error),
) (page.Page[T], error) {
	under, err := c.Reach(ctx, want)
	if err != nil {
		return page.Page[T]{}, err
	}
	return page.Read(ctx, t, l, store.Reach{Under: under}, f, p, read)
}
