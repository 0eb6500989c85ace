package authz

import (
	"context"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// List reads one page of l through read, a method of the store, within reach.
func List[T any](
	ctx context.Context, tokens *page.Tokens, l page.List, reach store.Reach, f resource.Filter, p page.Params,
	read func(context.Context, store.Reach, resource.Filter, page.Request) (page.Page[T], error),
) (page.Page[T], error) {
	if err := f.Validate(); err != nil {
		return page.Page[T]{}, err
	}
	req, err := tokens.Request(l, f, p)
	if err != nil {
		return page.Page[T]{}, err
	}
	got, err := read(ctx, reach, f, req)
	if err != nil {
		return page.Page[T]{}, err
	}
	return page.Turn(tokens, req, got), nil
}
