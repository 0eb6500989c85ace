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

// ErrPageTokenExpired is the error of a list that starts from an expired page token.
var ErrPageTokenExpired = errors.New("the page token has expired: start again without a page token")

// A Page is one response of a List method.
type Page interface{ GetNextPageToken() string }

// All iterates over all items of a List method. items returns the items of a page:
//
//	for g, err := range client.All(ctx, groups.ListGroups, req, (*iampb.ListGroupsResponse).GetGroups) {
//
// If a call fails, All yields the error once, with a zero item, and stops.
func All[Request proto.Message, P Page, T any](
	ctx context.Context, list func(context.Context, Request, ...grpc.CallOption) (P, error), req Request,
	items func(P) []T,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range Pages(ctx, list, req) {
			if err != nil {
				var zero T
				yield(zero, err)
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

// Pages iterates over the pages of a List method, starting at the page_token of req if it
// has one. It requests the next page while the loop body works on the current one. When
// the loop ends, no call is left running. Pages does not change req.
//
// If a call fails, Pages yields the error once and stops. To continue after an error or a
// break, put the next_page_token of the last page into the request, within three days.
// After that time the server would silently start from the first page, so Pages yields
// ErrPageTokenExpired instead.
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
				var zero P
				yield(zero, got.err)
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

// after returns the request for the page that token names. It clears skip, which applies
// only to the first page.
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
