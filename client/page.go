package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ErrPageTokenExpired is the error of a list that began with an expired page token.
var ErrPageTokenExpired = errors.New("the page token has expired: begin again without one")

// A Page is one answer of a List method.
type Page interface{ GetNextPageToken() string }

// All iterates over everything that a List method lists. items returns the items of a
// page:
//
//	for g, err := range client.All(ctx, groups.ListGroups, req, (*iampb.ListGroupsResponse).GetGroups) {
//
// An error is yielded once, without an item, and ends the iteration.
func All[Request proto.Message, P Page, T any](
	ctx context.Context, list func(context.Context, Request, ...grpc.CallOption) (P, error), req Request,
	items func(P) []T,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range Pages(ctx, list, req) {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items(page) {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// Pages iterates over the pages of a List method, from the page_token of req if it has
// one. It requests the next page while the loop works on this one, and leaves nothing
// running when the loop ends. It does not change req.
//
// An error is yielded once and ends the iteration. To continue after it, or after a
// break, put the next_page_token of the last page into the request, within three days.
// After that the server would silently begin again; Pages yields ErrPageTokenExpired
// instead.
func Pages[Request proto.Message, P Page](
	ctx context.Context, list func(context.Context, Request, ...grpc.CallOption) (P, error), req Request,
) iter.Seq2[P, error] {
	type answer struct {
		page P
		err  error
	}
	return func(yield func(P, error) bool) {
		var calls sync.WaitGroup
		defer calls.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ask := func(req Request) <-chan answer {
			answers := make(chan answer, 1)
			calls.Go(func() {
				var header metadata.MD
				page, err := list(ctx, req, grpc.Header(&header))
				if err == nil && slices.Contains(header.Get("holdfast-page-token"), "expired") {
					err = ErrPageTokenExpired
				}
				answers <- answer{page, err}
			})
			return answers
		}
		ahead := ask(proto.CloneOf(req))
		for {
			got := <-ahead
			if got.err != nil {
				var none P
				yield(none, got.err)
				return
			}
			token := got.page.GetNextPageToken()
			if token != "" {
				ahead = ask(after(req, token))
			}
			if !yield(got.page, nil) || token == "" {
				return
			}
		}
	}
}

// after returns the request for the page of a token. Only the first page skips.
func after[Request proto.Message](req Request, token string) Request {
	next := proto.CloneOf(req)
	m := next.ProtoReflect()
	fields := m.Descriptor().Fields()
	m.Set(fields.ByName("page_token"), protoreflect.ValueOfString(token))
	if skip := fields.ByName("skip"); skip != nil {
		m.Clear(skip)
	}
	return next
}
