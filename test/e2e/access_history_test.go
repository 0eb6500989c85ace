package e2e_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// justNow returns the time, once it is over. What was changed before is dated no later, and what is changed
// afterwards is dated later.
func justNow() *timestamppb.Timestamp {
	// dates are rounded, and two changes have two of them
	at := time.Now().Truncate(time.Millisecond).Add(2 * time.Millisecond)
	for time.Since(at) < 2*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	return timestamppb.New(at)
}

// pastQuery is justNow as a query has it.
func pastQuery() string { return url.QueryEscape(justNow().AsTime().Format(time.RFC3339Nano)) }

// pastAccesses are the methods about what was granted in the past.
func (h *hierarchy) pastAccesses() map[string]access {
	folder := func(*testing.T) string { return h.folder }
	return map[string]access{
		"ListPastGrants": {"role_bindings.list", folder, func(uid string) proto.Message {
			return &accesspb.ListPastGrantsRequest{PlaceUid: uid, AsOf: justNow()}
		}},
		"ListPastGroups": {"groups.list", folder, func(uid string) proto.Message {
			return &accesspb.ListPastGroupsRequest{Uid: uid, AsOf: justNow()}
		}},
		"DiffAccess": {"role_bindings.list", folder, func(uid string) proto.Message {
			from := justNow()
			return &accesspb.DiffAccessRequest{PlaceUid: uid, FromTime: from, ToTime: justNow()}
		}},
	}
}

// A pastStory is a folder in which somebody held a role, and a group of it that is gone.
type pastStory struct {
	*hierarchy
	person, robot, gone            string
	binding                        string
	before, held, after            *timestamppb.Timestamp
	inFolder, narrowed, wasThere   string // tokens
	elsewhere, sibling, ofTheWhole string
}

func newPastStory(t *testing.T, w *world) pastStory {
	h := newHierarchy(t, w)
	s := pastStory{
		hierarchy: h, person: h.person(), elsewhere: h.full["other"], sibling: h.full["sibling"], ofTheWhole: h.full["org"],
	}
	s.inFolder = h.full["folder"]
	caps := resource.NewCapabilities(resource.GroupsList)
	s.narrowed = h.mint(t, h.Owner, token.Claims{Caps: &caps})
	s.gone = h.child(t, h.folder, "secret-project")
	s.robot = h.robot(t, h.folder, "deployer")
	s.wasThere = h.mint(t, resource.UID(s.person), token.Claims{})
	s.before = justNow()
	s.binding = h.bind(t, s.gone, s.person, h.viewer())
	ofRobot := h.bind(t, h.folder, s.robot, h.viewer())
	s.held = justNow()
	for _, in := range []proto.Message{
		&iampb.DeleteRoleBindingRequest{Uid: s.binding}, &iampb.DeleteRoleBindingRequest{Uid: ofRobot},
		&iampb.DeleteIdentityRequest{Uid: s.robot}, &iampb.DeleteGroupRequest{Uid: s.gone},
	} {
		if _, st := h.overGRPC(t, h.Token, in); st != nil {
			t.Fatal(st)
		}
	}
	s.after = justNow()
	return s
}

// TestApiAccessHistory asks about a group, a binding and a workload that are gone, as those who may see the folder they
// were in, and as others.
func TestApiAccessHistory(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		s := newPastStory(t, w)
		for protocol, call := range w.protocols() {
			t.Run("answers over "+protocol, func(t *testing.T) { s.answers(t, call) })
			t.Run("refusals over "+protocol, func(t *testing.T) { s.refuses(t, call) })
			t.Run("times over "+protocol, func(t *testing.T) { s.refusesTimes(t, call, protocol == "gRPC") })
		}
	})
}

func (s pastStory) check(at *timestamppb.Timestamp) *accesspb.CheckAccessRequest {
	return &accesspb.CheckAccessRequest{IdentityUid: s.person, Capability: "groups.list", PlaceUid: s.gone, AsOf: at}
}

func (s pastStory) answers(t *testing.T, call caller) {
	for _, bearer := range []string{s.inFolder, s.ofTheWhole} {
		for at, want := range map[*timestamppb.Timestamp]bool{s.before: false, s.held: true, s.after: false, nil: false} {
			if got := must[*accesspb.CheckAccessResponse](t, call, bearer, s.check(at)); got.GetAllowed() != want {
				t.Errorf("as of %v: %v, want %t", at, got, want)
			}
		}
		got := must[*accesspb.CheckAccessResponse](t, call, bearer, s.check(s.held))
		if len(got.GetGrants()) != 1 || got.GetGrants()[0].GetGroup().GetName() != "secret-project" ||
			got.GetGrants()[0].GetBindingUid() != s.binding {
			t.Errorf("through %v", got.GetGrants())
		}
		who := must[*accesspb.ListAccessResponse](t, call, bearer, &accesspb.ListAccessRequest{
			Capability: "groups.list", PlaceUid: s.gone, AsOf: s.held, PageSize: 200,
		})
		var names []string
		for _, g := range who.GetGrants() {
			names = append(names, g.GetIdentity().GetUid()+g.GetIdentity().GetName())
		}
		if !slices.Contains(names, s.person) || !slices.Contains(names, s.robot+"deployer") ||
			who.GetTotalCount() != int64(len(names)) ||
			who.GetIncomplete() != (bearer == s.inFolder) {
			t.Errorf("who can: %v, incomplete %t", names, who.GetIncomplete())
		}
		groups := must[*accesspb.ListPastGroupsResponse](t, call, bearer, &accesspb.ListPastGroupsRequest{
			Uid: s.folder, AsOf: s.held,
		})
		if len(groups.GetGroups()) != 1 || !groups.GetGroups()[0].GetDeleted() ||
			groups.GetGroups()[0].GetName() != "secret-project" {
			t.Errorf("groups: %v", groups)
		}
		held := must[*accesspb.ListPastGrantsResponse](t, call, bearer, &accesspb.ListPastGrantsRequest{
			IdentityUid: s.person, AsOf: s.held,
		})
		if len(held.GetGrants()) != 1 || held.GetTotalCount() != 1 {
			t.Errorf("the person held %v", held)
		}
		diff := must[*accesspb.DiffAccessResponse](t, call, bearer, &accesspb.DiffAccessRequest{
			PlaceUid: s.folder, FromTime: s.held, ToTime: s.after,
		})
		if len(diff.GetChanges()) != 2 {
			t.Errorf("difference: %v", diff)
		}
		for _, c := range diff.GetChanges() {
			if c.GetKind() != accesspb.GrantChangeKind_GRANT_CHANGE_KIND_REVOKED || c.GetActorUid() != string(s.Owner) {
				t.Errorf("change: %v", c)
			}
		}
	}
}

// refuses asks as those who must not know that the group was there, or what it was called.
func (s pastStory) refuses(t *testing.T, call caller) {
	questions := map[string]proto.Message{
		"check":      s.check(s.held),
		"who can":    &accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: s.gone, AsOf: s.held},
		"grants":     &accesspb.ListPastGrantsRequest{PlaceUid: s.gone, AsOf: s.held},
		"difference": &accesspb.DiffAccessRequest{PlaceUid: s.gone, FromTime: s.held, ToTime: s.after},
	}
	askers := map[string]string{
		"another organization's owner":   s.elsewhere,
		"the owner of the folder beside": s.sibling,
		"a narrowed token":               s.narrowed,
		"who was there":                  s.wasThere,
	}
	for who, bearer := range askers {
		for what, in := range questions {
			if who == "who was there" && what == "check" {
				continue // about oneself
			}
			if _, st := call(t, bearer, in); st.Code() != codes.PermissionDenied {
				t.Errorf("%s by %s: %v", what, who, st)
			}
		}
		everything := must[*accesspb.ListPastGrantsResponse](t, call, bearer, &accesspb.ListPastGrantsRequest{
			IdentityUid: s.person, AsOf: s.held,
		})
		changes := must[*accesspb.DiffAccessResponse](t, call, bearer, &accesspb.DiffAccessRequest{
			FromTime: s.held, ToTime: s.after,
		})
		if len(everything.GetGrants()) != 0 || everything.GetTotalCount() != 0 ||
			len(changes.GetChanges()) != 0 || changes.GetTotalCount() != 0 {
			t.Errorf("%s sees %v and %v", who, everything, changes)
		}
	}
	for what, in := range questions {
		if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
			t.Errorf("%s without a token: %v", what, st)
		}
	}
	own := must[*accesspb.CheckAccessResponse](t, call, s.wasThere, s.check(s.held))
	if !own.GetAllowed() || len(own.GetGrants()) != 0 || !own.GetIncomplete() {
		t.Errorf("who was there is told of themselves: %v", own)
	}
	// Who may not list identities is not told what a workload was called.
	nameless := s.lacking["identity.list"]
	list := &accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: s.folder, AsOf: s.held, PageSize: 200}
	diff := &accesspb.DiffAccessRequest{PlaceUid: s.folder, FromTime: s.held, ToTime: s.after}
	told := must[*accesspb.ListAccessResponse](t, call, nameless, list).GetGrants()
	for _, c := range must[*accesspb.DiffAccessResponse](t, call, nameless, diff).GetChanges() {
		told = append(told, c.GetGrant())
	}
	if len(told) < 2 ||
		slices.ContainsFunc(told, func(g *accesspb.Grant) bool { return g.GetIdentity().GetName() != "" }) {
		t.Errorf("without identity.list: %v", told)
	}
	// A segment of another's group below one's own, and below nothing.
	stray := s.other + s.gone[len(s.gone)-17:]
	who := must[*accesspb.ListAccessResponse](t, call, s.elsewhere, &accesspb.ListAccessRequest{
		Capability: "groups.list", PlaceUid: stray, AsOf: s.held,
	})
	for _, g := range who.GetGrants() {
		if g.GetGroup().GetUid() != s.other {
			t.Errorf("below one's own group there is another's: %v", g)
		}
	}
	check := s.check(s.held)
	check.PlaceUid = stray
	if got := must[*accesspb.CheckAccessResponse](t, call, s.elsewhere, check); got.GetAllowed() {
		t.Errorf("below one's own group somebody could: %v", got)
	}
	groups := must[*accesspb.ListPastGroupsResponse](t, call, s.elsewhere, &accesspb.ListPastGroupsRequest{
		Uid: s.other + s.folder[len(s.folder)-17:], AsOf: s.held,
	})
	if len(groups.GetGroups()) != 0 {
		t.Errorf("below one's own group there are another's: %v", groups)
	}
}

// refusesTimes asks about times that cannot be asked about. Some of them JSON cannot even write; TestAccessRefuses has
// those that it can.
func (s pastStory) refusesTimes(t *testing.T, call caller, any bool) {
	for name, tt := range map[string]struct {
		at   *timestamppb.Timestamp
		code codes.Code
	}{
		"tomorrow": {timestamppb.New(time.Now().Add(24 * time.Hour)), codes.InvalidArgument},
		"the year 9999": {
			timestamppb.New(time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)), codes.InvalidArgument,
		},
		"before history":        {timestamppb.New(time.Now().Add(-24 * time.Hour)), codes.FailedPrecondition},
		"the beginning of 1970": {&timestamppb.Timestamp{}, codes.FailedPrecondition},
		"the year 1": {
			timestamppb.New(time.Date(1, 1, 1, 0, 0, 0, 1_000_000, time.UTC)), codes.FailedPrecondition,
		},
		"before the common era":   {&timestamppb.Timestamp{Seconds: -62135596801}, codes.InvalidArgument},
		"the year 10000":          {&timestamppb.Timestamp{Seconds: 253402300800}, codes.InvalidArgument},
		"too many nanoseconds":    {&timestamppb.Timestamp{Seconds: 1, Nanos: 1_000_000_000}, codes.InvalidArgument},
		"as late as numbers have": {&timestamppb.Timestamp{Seconds: 1<<63 - 1}, codes.InvalidArgument},
	} {
		if !any && tt.at.CheckValid() != nil {
			continue
		}
		for what, in := range map[string]proto.Message{
			"check":           s.check(tt.at),
			"who can":         &accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: s.folder, AsOf: tt.at},
			"grants":          &accesspb.ListPastGrantsRequest{PlaceUid: s.folder, AsOf: tt.at},
			"groups":          &accesspb.ListPastGroupsRequest{Uid: s.folder, AsOf: tt.at},
			"difference from": &accesspb.DiffAccessRequest{PlaceUid: s.folder, FromTime: tt.at, ToTime: s.after},
			"difference to":   &accesspb.DiffAccessRequest{PlaceUid: s.folder, FromTime: s.held, ToTime: tt.at},
		} {
			want := tt.code
			if what == "difference to" {
				want = codes.InvalidArgument // it is not after the other, or not over
			}
			_, st := call(t, s.ofTheWhole, in)
			if st.Code() != want {
				t.Errorf("%s as of %s: %v, want %s", what, name, st, want)
			}
			if _, st := call(t, s.elsewhere, in); want != codes.InvalidArgument && st.Code() != codes.PermissionDenied {
				t.Errorf("%s as of %s by another: %v", what, name, st)
			}
		}
	}
}
