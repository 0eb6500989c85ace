package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-dev/holdfast/client"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// threePages answers list requests with the groups g1 to g6, two on each page.
func threePages(req *iampb.ListGroupsRequest) (*page, error) {
	at := map[string]int{"": 1, "to-3": 3, "to-5": 5, "expired": 1}[req.GetPageToken()]
	p := &page{Groups: []*iampb.Group{{Name: fmt.Sprint("g", at)}, {Name: fmt.Sprint("g", at+1)}}}
	if at < 5 {
		p.NextPageToken = fmt.Sprint("to-", at+2)
	}
	return p, nil
}

func startPages(t *testing.T) (*far, iampb.GroupsServiceClient) {
	f := startFar(t)
	f.list = threePages
	return f, iampb.NewGroupsServiceClient(f.dial(t, client.Config{Credential: client.Token("t")}))
}

// names iterates over a list and returns the names of at most max items.
func names(
	ctx context.Context, groups iampb.GroupsServiceClient, req *iampb.ListGroupsRequest, most int,
) (all []string, _ error) {
	for g, err := range client.All(ctx, groups.ListGroups, req, (*page).GetGroups) {
		if err != nil {
			return all, err
		}
		if all = append(all, g.GetName()); len(all) == most {
			break
		}
	}
	return all, nil
}

func TestAll(t *testing.T) {
	f, groups := startPages(t)
	req := &iampb.ListGroupsRequest{PageSize: 2, Skip: 7, OrderBy: "name"}
	got, err := names(t.Context(), groups, req, 0)
	if diff := cmp.Diff([]string{"g1", "g2", "g3", "g4", "g5", "g6"}, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	var asked []string
	for _, r := range f.asked {
		asked = append(asked,
			fmt.Sprintf("%q skip %d of %d by %s", r.GetPageToken(), r.GetSkip(), r.GetPageSize(), r.GetOrderBy()))
	}
	want := []string{`"" skip 7 of 2 by name`, `"to-3" skip 0 of 2 by name`, `"to-5" skip 0 of 2 by name`}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	spoil := func(_ context.Context, req *iampb.ListGroupsRequest, _ ...grpc.CallOption) (*page, error) {
		req.PageSize = 99
		return threePages(req)
	}
	for _, err := range client.Pages(t.Context(), spoil, req) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if req.GetPageToken() != "" || req.GetSkip() != 7 || req.GetPageSize() != 2 {
		t.Errorf("the request was changed: %v", req)
	}
}

// TestBreak: if a loop ends early, no call is left running. Pages cancels the request for
// the next page and waits for its end.
func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, asked atomic.Int32
		list := func(ctx context.Context, req *iampb.ListGroupsRequest, _ ...grpc.CallOption) (*page, error) {
			running.Add(1)
			defer running.Add(-1)
			if asked.Add(1); req.GetPageToken() == "to-3" {
				<-ctx.Done()
				time.Sleep(time.Minute) // passes immediately, because synctest has a fake clock
				return nil, ctx.Err()
			}
			return threePages(req)
		}
		for g, err := range client.All(t.Context(), list, &iampb.ListGroupsRequest{}, (*page).GetGroups) {
			if err != nil || g.GetName() == "g2" {
				break
			}
		}
		if running.Load() != 0 || asked.Load() > 2 {
			t.Errorf("%d calls are still running, %d were made; want none, and at most two", running.Load(), asked.Load())
		}
	})
}

func TestCanceledWalk(t *testing.T) {
	_, groups := startPages(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	var failed error
	for g, err := range client.All(ctx, groups.ListGroups, &iampb.ListGroupsRequest{}, (*page).GetGroups) {
		if err != nil {
			failed = err
			continue // an error, after which no item follows
		}
		got = append(got, g.GetName())
		if len(got) == 1 {
			cancel()
		}
	}
	// The next page may have arrived before the context ended.
	if !errors.Is(failed, context.Canceled) || len(got) < 2 || len(got) > 4 {
		t.Errorf("%q, %v", got, failed)
	}
	if got, err := names(ctx, groups, &iampb.ListGroupsRequest{}, 0); !errors.Is(err, context.Canceled) || len(got) > 0 {
		t.Errorf("after the end: %q, %v", got, err)
	}
}

// TestResume: an error ends the iteration after the items before it. A new iteration can
// continue from there.
func TestResume(t *testing.T) {
	f, groups := startPages(t)
	broken := true
	f.list = func(req *iampb.ListGroupsRequest) (*page, error) {
		if req.GetPageToken() == "to-5" && broken {
			return nil, status.Error(codes.Unavailable, "Unavailable: a moment")
		}
		return threePages(req)
	}
	req := &iampb.ListGroupsRequest{}
	var got []string
	walk := func() (failed error) {
		for p, err := range client.Pages(t.Context(), groups.ListGroups, req) {
			if failed != nil {
				t.Errorf("after an error the loop yields %v, %v", p, err)
			}
			if failed = err; err != nil {
				continue
			}
			for _, g := range p.GetGroups() {
				got = append(got, g.GetName())
			}
			req.PageToken = p.GetNextPageToken()
		}
		return failed
	}
	if err := walk(); status.Code(err) != codes.Unavailable || len(got) != 4 {
		t.Fatalf("%q, %v", got, err)
	}
	broken = false
	if err := walk(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"g1", "g2", "g3", "g4", "g5", "g6"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	req.PageToken = "expired"
	if err := walk(); !errors.Is(err, client.ErrPageTokenExpired) {
		t.Errorf("with a token that has expired: %v", err)
	}
}

// TestRacedWalks: several goroutines can range over one iterator. Each goroutine starts
// from the beginning.
func TestRacedWalks(t *testing.T) {
	_, groups := startPages(t)
	walk := client.All(t.Context(), groups.ListGroups, &iampb.ListGroupsRequest{}, (*page).GetGroups)
	var all sync.WaitGroup
	for n := range 16 {
		all.Go(func() {
			seen := 0
			for g, err := range walk {
				if seen++; err != nil || g.GetName() != fmt.Sprint("g", seen) {
					t.Errorf("iteration %d: item %d is %v, %v", n, seen, g, err)
				}
				if seen == n {
					return
				}
			}
			if seen != 6 {
				t.Errorf("iteration %d ends after %d", n, seen)
			}
		})
	}
	all.Wait()
}

// TestPagedMethods checks that every method whose response has a next page token accepts
// a page token.
func TestPagedMethods(t *testing.T) {
	paged := 0
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				if m.Output().Fields().ByName("next_page_token") == nil {
					continue
				}
				paged++
				if fd := m.Input().Fields().ByName("page_token"); fd == nil || fd.Kind() != protoreflect.StringKind {
					t.Errorf("%s has pages, but accepts no page_token", m.FullName())
				}
			}
		}
		return true
	})
	if paged < 5 {
		t.Errorf("%d methods have pages", paged)
	}
}
