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

// ErrPageTokenExpired ends a walk that was to go on where it can no more.
var ErrPageTokenExpired = errors.New("the page token has expired: begin again without one")

// A Page is one answer of a List method.
type Page interface{ GetNextPageToken() string }

// All walks everything that a List method lists. items takes what is listed out
// of a page:
//
//	for g, err := range client.All(ctx, groups.ListGroups, req, (*iampb.ListGroupsResponse).GetGroups) {
//
// An error is yielded once, in place of an item, and ends the walk.
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

// Pages walks the answers of a List method, from the page_token of req if it has
// one. The next page is asked for while the loop is at work on this one; when the
// loop ends, nothing of it runs on. req itself is not changed.
//
// An error is yielded once and ends the walk. To go on after it, or after a
// break, put the next_page_token of the last page that was dealt with into the
// request: it is good for three days. After that the server would begin again
// without a word, and the walk ends with ErrPageTokenExpired instead.
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

// after is the request for the page that a token stands for, which is past what
// the first was to skip.
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
