package e2e_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// walked is the number of groups that exist during the whole test, while other groups are created and deleted.
const walked = 500

// makeGroups creates groups in parent. The order of their names is not the order of their creation.
func (w *world) makeGroups(t *testing.T, parent string) map[string]bool {
	t.Helper()
	var wg sync.WaitGroup
	next := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range next {
				in := &iampb.CreateGroupRequest{Parent: parent, Group: &iampb.Group{Name: fmt.Sprintf("g%03d", i*211%walked)}}
				if _, st := w.overGRPC(t, w.Token, in); st != nil {
					t.Error(st)
				}
			}
		})
	}
	for i := range walked {
		next <- i
	}
	close(next)
	wg.Wait()
	names := map[string]bool{}
	for i := range walked {
		names[fmt.Sprintf("g%03d", i)] = true
	}
	return names
}

// orders maps each sort order of groups to its comparison function.
var orders = map[string]func(a, b *iampb.Group) int{
	"uid":         func(a, b *iampb.Group) int { return cmp.Compare(a.GetUid(), b.GetUid()) },
	"name":        func(a, b *iampb.Group) int { return cmp.Compare(a.GetName(), b.GetName()) },
	"create_time": func(a, b *iampb.Group) int { return a.GetCreateTime().AsTime().Compare(b.GetCreateTime().AsTime()) },
	"created_at":  func(a, b *iampb.Group) int { return a.GetCreateTime().AsTime().Compare(b.GetCreateTime().AsTime()) },
	"update_time": func(a, b *iampb.Group) int { return a.GetUpdateTime().AsTime().Compare(b.GetUpdateTime().AsTime()) },
}

// TestApiListWalk reads all pages of a folder in every order while other groups are created and deleted. Each group
// that exists all the time must be listed exactly once, in the right order.
func TestApiListWalk(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "folder")
		names := w.makeGroups(t, folder)
		for order, compare := range orders {
			for direction, sign := range map[string]int{"": 1, " desc": -1} {
				t.Run(order+direction, func(t *testing.T) {
					call := w.overGRPC
					if sign < 0 {
						call = w.overHTTP
					}
					groups := w.pages(t, call, folder, order+direction)
					if !slices.IsSortedFunc(groups, func(a, b *iampb.Group) int { return sign * compare(a, b) }) {
						t.Error("not in order")
					}
					seen := map[string]bool{}
					for _, g := range groups {
						if seen[g.GetUid()] {
							t.Errorf("%s is listed twice", g.GetName())
						}
						seen[g.GetUid()] = true
						if names[g.GetName()] {
							seen[g.GetName()] = true
						}
					}
					for name := range names {
						if !seen[name] {
							t.Errorf("%s is missing", name)
						}
					}
				})
			}
		}
	})
}

// pages reads all pages of a list and returns the groups. Before each page it creates a group at one end of the
// order, and after the page it deletes that group.
func (w *world) pages(t *testing.T, call caller, folder, order string) []*iampb.Group {
	t.Helper()
	in := &iampb.ListGroupsRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: folder}, OrderBy: order, PageSize: 97}
	var groups []*iampb.Group
	for n := 0; ; n++ {
		passing := w.child(t, folder, fmt.Sprintf("%c passing %d", "az"[n%2], n))
		p := must[*iampb.ListGroupsResponse](t, call, w.Token, in)
		must[proto.Message](t, w.overGRPC, w.Token, &iampb.DeleteGroupRequest{Uid: passing})
		if p.GetTotalCount() != walked+1 {
			t.Errorf("page %d: total %d, want %d", n, p.GetTotalCount(), walked+1)
		}
		groups = append(groups, p.GetGroups()...)
		if in.PageToken = p.GetNextPageToken(); in.PageToken == "" {
			return groups
		}
		if n > walked {
			t.Fatal("the list does not end")
		}
	}
}

// TestApiListSizes reads pages with every kind of page size and skip, and checks how many groups they contain.
func TestApiListSizes(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	folder := w.child(t, string(w.Organization), "folder")
	w.makeGroups(t, folder)
	tests := map[string]struct {
		size, skip int32
		want       int
		last       bool
	}{
		"by default":         {0, 0, 50, false},
		"one":                {1, 0, 1, false},
		"the most":           {200, 0, 200, false},
		"more than the most": {201, 0, 200, false},
		"any number":         {1<<31 - 1, 0, 200, false},
		"after some":         {10, 100, 10, false},
		"up to the end":      {50, walked - 50, 50, true},
		"beyond the end":     {50, walked + 1, 0, true},
		"far beyond the end": {50, 1<<31 - 1, 0, true},
	}
	for name, tt := range tests {
		for protocol, call := range w.protocols() {
			t.Run(name+" over "+protocol, func(t *testing.T) {
				in := &iampb.ListGroupsRequest{
					Uidp: &commonpb.UIDPFilter{DescendantsOf: folder}, OrderBy: "name", PageSize: tt.size, Skip: tt.skip,
				}
				p := must[*iampb.ListGroupsResponse](t, call, w.Token, in)
				if len(p.GetGroups()) != tt.want || p.GetTotalCount() != walked ||
					p.GetSkipped() != tt.skip || (p.GetNextPageToken() == "") != tt.last {
					t.Errorf("%d groups, total %d, skipped %d, next %q", len(p.GetGroups()),
						p.GetTotalCount(), p.GetSkipped(), p.GetNextPageToken())
				}
				if tt.want > 0 && p.GetGroups()[0].GetName() != fmt.Sprintf("g%03d", tt.skip) {
					t.Errorf("the first group is %s", p.GetGroups()[0].GetName())
				}
			})
		}
	}
	t.Run("skipping from a cursor", func(t *testing.T) {
		in := &iampb.ListGroupsRequest{Uidp: &commonpb.UIDPFilter{DescendantsOf: folder}, OrderBy: "name", PageSize: 10}
		in.PageToken = must[*iampb.ListGroupsResponse](t, w.overHTTP, w.Token, in).GetNextPageToken()
		in.Skip = 5
		p := must[*iampb.ListGroupsResponse](t, w.overHTTP, w.Token, in)
		if p.GetGroups()[0].GetName() != "g015" || p.GetSkipped() != 5 {
			t.Errorf("the first group is %s, skipped %d", p.GetGroups()[0].GetName(), p.GetSkipped())
		}
	})
}

// TestApiPageTokens checks that a page token is refused in a request that does not belong to it. With an expired
// token, the list starts again.
func TestApiPageTokens(t *testing.T) {
	t.Parallel()
	clock := newClock()
	storetest.EachURL(t, func(t *testing.T, url string) {
		w := serve(t, url, server.Config{Now: clock.now}, nil)
		org := string(w.Organization)
		for n := range 5 {
			w.child(t, org, fmt.Sprint("g", n))
			w.robot(t, org, fmt.Sprint("r", n))
		}
		list := func() *iampb.ListGroupsRequest {
			return &iampb.ListGroupsRequest{OrderBy: "name", PageSize: 2, Uidp: &commonpb.UIDPFilter{DescendantsOf: org}}
		}
		first := must[*iampb.ListGroupsResponse](t, w.overGRPC, w.Token, list())
		identities := must[*iampb.ListIdentitiesResponse](t, w.overGRPC, w.Token, &iampb.ListIdentitiesRequest{
			OrderBy: "name", PageSize: 2, Uidp: &commonpb.UIDPFilter{DescendantsOf: org},
		})
		tok := first.GetNextPageToken()
		with := func(token string, change func(*iampb.ListGroupsRequest)) proto.Message {
			in := list()
			in.PageToken = token
			change(in)
			return in
		}
		as := func(*iampb.ListGroupsRequest) {}
		w.refuses(t, map[string]badRequest{
			"in another order":     {"page_token", with(tok, func(r *iampb.ListGroupsRequest) { r.OrderBy = "uid" })},
			"in another direction": {"page_token", with(tok, func(r *iampb.ListGroupsRequest) { r.OrderBy = "name desc" })},
			"with another place": {"page_token", with(tok, func(r *iampb.ListGroupsRequest) {
				r.Uidp = &commonpb.UIDPFilter{InRoot: true}
			})},
			"with another name":     {"page_token", with(tok, func(r *iampb.ListGroupsRequest) { r.Name = "g1" })},
			"of another list":       {"page_token", with(identities.GetNextPageToken(), as)},
			"cut short":             {"page_token", with(tok[:len(tok)-1], as)},
			"cut to almost nothing": {"page_token", with(tok[:20], as)},
			"with a letter changed": {"page_token", with("A"+tok[1:len(tok)-4]+"AAAA", as)},
			"with something after":  {"page_token", with(tok+"AAAA", as)},
			"with its own base64":   {"page_token", with(tok+"==", as)},
			"of the list of another": {
				"page_token", &iampb.ListRolesRequest{OrderBy: "name", PageToken: tok, Uidp: list().GetUidp()},
			},
		})
		w.restarts(t, clock, list(), first)
	})
}

// restarts sends a page token shortly before and after it expires, which is after three days. With the expired token,
// the list must start again at the first page.
func (w *world) restarts(t *testing.T, clock *clock, in *iampb.ListGroupsRequest, first *iampb.ListGroupsResponse) {
	t.Helper()
	in.PageToken = first.GetNextPageToken()
	clock.advance(3*24*time.Hour - time.Minute)
	bearer := w.mint(t, w.Owner, token.Claims{})
	if p := must[*iampb.ListGroupsResponse](t, w.overHTTP, bearer, in); p.GetGroups()[0].GetName() != "g2" {
		t.Errorf("a minute before it expires, the token returns %s", p.GetGroups()[0].GetName())
	}
	clock.advance(2 * time.Minute)
	var header metadata.MD
	got, st := invoke(t, w.conn, "/holdfast.iam.v2beta1.GroupsService/ListGroups", bearer, in, grpc.Header(&header))
	if st != nil || got.(*iampb.ListGroupsResponse).GetGroups()[0].GetName() != "g0" {
		t.Errorf("the expired token returns %v %v", got, st)
	}
	if h := header.Get("holdfast-page-token"); !slices.Equal(h, []string{"expired"}) {
		t.Errorf("over gRPC the header is %q", h)
	}
	verb, target, _ := asHTTP(t, in)
	r := w.send(t, bearer, verb, target, "")
	if r.status != http.StatusOK || !strings.Contains(r.body, `"name":"g0"`) ||
		r.header.Get("Holdfast-Page-Token") != "expired" {
		t.Errorf("over HTTP: status %d, header %q\n%s", r.status, r.header.Get("Holdfast-Page-Token"), r.body)
	}
	in.PageToken = ""
	verb, target, _ = asHTTP(t, in)
	if r := w.send(t, bearer, verb, target, ""); r.header.Get("Holdfast-Page-Token") != "" {
		t.Errorf("without a token the header is %q", r.header.Get("Holdfast-Page-Token"))
	}
}
