package e2e_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A sight is one message that a watcher received, with its position and its audit entry.
type sight struct {
	Position string
	Entry    struct {
		ID, Type, Subject string
		After             struct{ Name string }
	}
}

// A watch is a running call of the method WatchEntries.
type watch struct {
	t      *testing.T
	told   chan sight
	failed chan *status.Status // receives one value when the watch has ended
	stop   context.CancelFunc
}

// watchers returns, by protocol, a function that starts a watch.
func (w *world) watchers() map[string]func(*testing.T, string, *auditpb.WatchEntriesRequest) *watch {
	return map[string]func(*testing.T, string, *auditpb.WatchEntriesRequest) *watch{
		"grpc": w.watchOverGRPC, "http": w.watchOverHTTP,
	}
}

func newWatch(t *testing.T) (*watch, context.Context) {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return &watch{t, make(chan sight, 1000), make(chan *status.Status, 1), stop}, ctx
}

func (w *world) watchOverGRPC(t *testing.T, bearer string, in *auditpb.WatchEntriesRequest) *watch {
	out, ctx := newWatch(t)
	if bearer != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+bearer)
	}
	go func() {
		stream, err := auditpb.NewAuditServiceClient(w.conn).WatchEntries(ctx, in)
		for err == nil {
			var m *auditpb.WatchEntriesResponse
			if m, err = stream.Recv(); err != nil {
				break
			}
			s := sight{Position: m.GetPosition()}
			s.Entry.ID, s.Entry.Type, s.Entry.Subject = m.GetEntry().GetId(), m.GetEntry().GetType(), m.GetEntry().GetSubject()
			s.Entry.After.Name = m.GetEntry().GetAfter().GetFields()["name"].GetStringValue()
			out.told <- s
		}
		out.failed <- status.Convert(err)
	}()
	return out
}

// watchOverHTTP starts a watch that reads server-sent events. It sends the position as a reconnecting browser does.
func (w *world) watchOverHTTP(t *testing.T, bearer string, in *auditpb.WatchEntriesRequest) *watch {
	out, ctx := newWatch(t)
	q := url.Values{
		"group_uid": {in.GetGroupUid()}, "type": {in.GetType()}, "identity_uid": {in.GetIdentityUid()},
		"subject": {in.GetSubject()},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.BaseURL+"/audit/v1/entries:watch?"+q.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	if in.GetPosition() != "" {
		r.Header.Set("Last-Event-ID", in.GetPosition())
	}
	go func() { out.failed <- w.readEvents(r, out) }()
	return out
}

func (w *world) readEvents(r *http.Request, out *watch) *status.Status {
	resp, err := w.client.Do(r)
	if err != nil {
		return status.Convert(err)
	}
	defer resp.Body.Close()
	var failure struct {
		Code    codes.Code
		Message string
	}
	if resp.StatusCode != http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&failure); err != nil {
			return status.Convert(err)
		}
		return status.New(failure.Code, failure.Message)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		return status.New(codes.Unknown, "content type "+got)
	}
	var id, kind string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			s := sight{}
			if kind == "error" {
				_ = json.Unmarshal([]byte(value), &failure)
				return status.New(failure.Code, failure.Message)
			}
			if err := json.Unmarshal([]byte(value), &s); err != nil || s.Position != id {
				return status.New(codes.Unknown, fmt.Sprintf("id %q, data %q", id, value))
			}
			out.told <- s
		}
	}
	return status.New(codes.OK, "")
}

// firstEvent sends a request and returns the data of the first event in the response.
func (w *world) firstEvent(t *testing.T, bearer, target string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return reply{resp.StatusCode, resp.Header, data}
		}
	}
	t.Fatalf("%s: HTTP status %d, and no event", target, resp.StatusCode)
	return reply{}
}

// next waits for the next entry and returns it.
func (w *watch) next() sight {
	w.t.Helper()
	select {
	case s := <-w.told:
		return s
	case st := <-w.failed:
		w.t.Fatalf("the watch has ended: %v", st)
	case <-time.After(procPatience):
		w.t.Fatal("no entry was received")
	}
	return sight{}
}

// begun waits for the first message of a watch, and returns the position at which the watch has started.
func (w *watch) begun() string {
	w.t.Helper()
	s := w.next()
	if s.Entry.ID != "" || s.Position == "" {
		w.t.Errorf("the first message is %+v", s)
	}
	return s.Position
}

// until waits for the entry about the group with this name. It returns the names of the groups in all entries up to
// then, and the last entry.
func (w *watch) until(name string) (names []string, last sight) {
	w.t.Helper()
	for !slices.Contains(names, name) {
		if last = w.next(); last.Entry.ID != "" {
			names = append(names, last.Entry.After.Name)
		}
	}
	return names, last
}

// ends waits until a watch has ended and returns its status.
func (w *watch) ends() *status.Status {
	w.t.Helper()
	for {
		select {
		case <-w.told:
		case st := <-w.failed:
			return st
		case <-time.After(procPatience):
			w.t.Fatal("the watch did not end")
		}
	}
}

// TestWatch checks that a watcher receives the entries that it could also list, as soon as they are written. If it
// continues from its last position, it must not miss an entry.
func TestWatch(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		for name, begin := range w.watchers() {
			t.Run(name, func(t *testing.T) {
				other, stranger := w.ownedOrg(t, "other "+name)
				folder, sibling := w.child(t, org, "folder "+name), w.child(t, org, "sibling "+name)
				in := &auditpb.WatchEntriesRequest{Type: "iam.group"}
				everything, below := begin(t, w.Token, in), begin(t, w.Token,
					&auditpb.WatchEntriesRequest{GroupUid: folder, Type: "dev.holdfast.api.iam.group.created.v1"})
				theirs := begin(t, stranger, in)
				narrow := begin(t, w.mint(t, w.Owner, token.Claims{Scopes: []resource.UID{resource.UID(sibling)}}), in)
				for _, one := range []*watch{everything, below, theirs, narrow} {
					one.begun()
				}
				for _, group := range []string{folder, sibling, other} {
					w.child(t, group, "one")
				}
				w.child(t, folder, "last")
				w.child(t, sibling, "last")
				w.child(t, other, "last")
				got, last := everything.until("last")
				if want := []string{"one", "one", "last"}; !slices.Equal(got, want) &&
					!slices.Equal(got, []string{"one", "one", "one", "last"}) {
					t.Errorf("received %q, want %q", got, want)
				}
				if b, err := base64.RawURLEncoding.DecodeString(last.Position); err != nil ||
					strings.Contains(string(b), last.Entry.ID) {
					t.Errorf("a position contains the ID of an event that the caller may not see: %s, %v", b, err)
				}
				for who, one := range map[string]*watch{"below": below, "theirs": theirs, "narrow": narrow} {
					if got, _ := one.until("last"); !slices.Equal(got, []string{"one", "last"}) {
						t.Errorf("%s received %q", who, got)
					}
				}
				everything.stop()
				w.child(t, folder, "meanwhile")
				in.Position = last.Position
				if got, _ := begin(t, w.Token, in).until("meanwhile"); len(got) > 3 || got[0] != "last" {
					t.Errorf("later: received %q", got)
				}
			})
		}
	})
}

// TestWatchEnds checks that a watch ends when the grant is revoked, when the token expires, and when the server
// stops.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		for name, begin := range w.watchers() {
			robot, folder := w.robot(t, org, "robot over "+name), w.child(t, org, "folder "+name)
			binding := w.bind(t, org, robot, string(resource.OwnerRole))
			in := &auditpb.WatchEntriesRequest{Type: "iam.group"}
			bearer := w.mint(t, resource.UID(robot), token.Claims{})
			one := begin(t, bearer, in)
			one.begun()
			w.child(t, org, "seen "+name)
			one.until("seen " + name)
			w.bind(t, folder, robot, string(resource.OwnerRole))
			if _, st := w.overGRPC(t, w.Token, &iampb.DeleteRoleBindingRequest{Uid: binding}); st.Code() != codes.OK {
				t.Fatal(st)
			}
			w.child(t, org, "secret "+name)
			w.child(t, folder, "seen again "+name)
			if got, _ := one.until("seen again " + name); !slices.Equal(got, []string{"seen again " + name}) {
				t.Errorf("%s: without the grant the watcher received %q", name, got)
			}
			if _, st := w.overGRPC(t, w.Token, &iampb.DeleteIdentityRequest{Uid: robot}); st.Code() != codes.OK {
				t.Fatal(st)
			}
			w.child(t, folder, "after "+name)
			if st := one.ends(); st.Code() != codes.Unauthenticated {
				t.Errorf("%s: the watch of a deleted identity ends with %v", name, st)
			}
			if st := begin(t, bearer, in).ends(); st.Code() != codes.Unauthenticated {
				t.Errorf("%s: a deleted identity starts a watch: %v", name, st)
			}
		}
		last := w.watchOverHTTP(t, w.Token, &auditpb.WatchEntriesRequest{})
		last.begun()
		stopped := time.Now()
		w.stop()
		if st := last.ends(); st.Code() != codes.OK || time.Since(stopped) > 10*time.Second {
			t.Errorf("when the server stopped, the watch ended with %v after %s", st, time.Since(stopped))
		}
	})
}

// TestWatchAll checks that a watcher receives every entry exactly once and in order, even if there are many
// concurrent writers and the watch is interrupted many times.
func TestWatchAll(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		in := &auditpb.WatchEntriesRequest{Type: "iam.group.created"}
		one := w.watchOverGRPC(t, w.Token, in)
		in.Position = one.begun()
		const writers, each = 4, 25
		var wg sync.WaitGroup
		for i := range writers {
			folder := w.child(t, org, fmt.Sprint("folder ", i))
			wg.Go(func() {
				for j := range each {
					w.child(t, folder, fmt.Sprint(i, ".", j))
				}
			})
		}
		told, last := map[string]int{}, make([]int, writers)
		for n := 0; n < writers*(each+1); {
			s := one.next()
			if s.Entry.ID == "" {
				continue
			}
			n++
			in.Position = s.Position
			told[s.Entry.ID]++
			if i, j := 0, 0; s.Entry.After.Name[1] == '.' {
				if _, err := fmt.Sscanf(s.Entry.After.Name, "%d.%d", &i, &j); err != nil || j != last[i] {
					t.Errorf("received %s, but %d.%d must come first", s.Entry.After.Name, i, last[i])
				}
				last[i]++
			}
			if n%7 == 0 {
				one.stop()
				one = w.watchOverGRPC(t, w.Token, in)
				one.begun()
			}
		}
		wg.Wait()
		if len(told) != writers*(each+1) {
			t.Errorf("received %d changes, want %d", len(told), writers*(each+1))
		}
	})
}

// TestWatchRefused checks that an invalid request is refused before any entry is sent.
func TestWatchRefused(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	for name, begin := range w.watchers() {
		position := begin(t, w.Token, &auditpb.WatchEntriesRequest{}).begun()
		for what, test := range map[string]struct {
			bearer string
			in     *auditpb.WatchEntriesRequest
			code   codes.Code
			says   string
		}{
			"no token": {"", &auditpb.WatchEntriesRequest{}, codes.Unauthenticated, "token"},
			"not a uid": {
				w.Token, &auditpb.WatchEntriesRequest{GroupUid: "x"}, codes.InvalidArgument, "group_uid",
			},
			"not a position": {
				w.Token, &auditpb.WatchEntriesRequest{Position: "x"}, codes.InvalidArgument, "position",
			},
			"a position of other events": {
				w.Token, &auditpb.WatchEntriesRequest{Position: position, Type: "iam"}, codes.InvalidArgument, "",
			},
		} {
			st := begin(t, test.bearer, test.in).ends()
			if st.Code() != test.code || !strings.Contains(st.Message(), test.says) {
				t.Errorf("%s over %s: %v", what, name, st)
			}
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, w.BaseURL+"/audit/v1/entries:watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.Token)
	for range 2 { // both requests use one connection, which a handler that does not return would block
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("the response to HEAD is %s", resp.Status)
		}
	}
}
