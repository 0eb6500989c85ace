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

// justNow returns a time between two changes, and waits until it has passed. Changes before the call have this
// timestamp or an earlier one, and changes after the call have a later timestamp.
func justNow() *timestamppb.Timestamp {
	// Timestamps are rounded to milliseconds, so two changes have different timestamps if they are two milliseconds
	// apart.
	asOf := time.Now().Truncate(time.Millisecond).Add(2 * time.Millisecond)
	for time.Since(asOf) < 2*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	return timestamppb.New(asOf)
}

// pastQuery returns the result of justNow as a query parameter.
func pastQuery() string { return url.QueryEscape(justNow().AsTime().Format(time.RFC3339Nano)) }

// pastAccesses returns, by name, the methods that read past grants.
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

// A pastStory is a folder in which a person and a workload once had a role. A group in the folder has been deleted.
type pastStory struct {
	*hierarchy
	person, robot, gone            string
	binding                        string
	before, held, after            *timestamppb.Timestamp
	inFolder, narrowed, wasThere   string // tokens of callers, like the next three fields
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

// TestApiAccessHistory reads the past grants of a deleted group, a deleted binding and a deleted workload. Callers
// who may see the folder that contained them get the grants, other callers do not.
func TestApiAccessHistory(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		s := newPastStory(t, w)
		for protocol, call := range w.protocols() {
			t.Run("answers over "+protocol, func(t *testing.T) { s.answers(t, call) })
			t.Run("refusals over "+protocol, func(t *testing.T) { s.refuses(t, call) })
			t.Run("times over "+protocol, func(t *testing.T) { s.refusesTimes(t, call, protocol == "gRPC") })
		}
	})
}

func (s pastStory) check(asOf *timestamppb.Timestamp) *accesspb.CheckAccessRequest {
	return &accesspb.CheckAccessRequest{IdentityUid: s.person, Capability: "groups.list", PlaceUid: s.gone, AsOf: asOf}
}

func (s pastStory) answers(t *testing.T, call caller) {
	for _, bearer := range []string{s.inFolder, s.ofTheWhole} {
		for asOf, want := range map[*timestamppb.Timestamp]bool{s.before: false, s.held: true, s.after: false, nil: false} {
			if got := must[*accesspb.CheckAccessResponse](t, call, bearer, s.check(asOf)); got.GetAllowed() != want {
				t.Errorf("access as of %v: %v, want allowed = %t", asOf, got, want)
			}
		}
		got := must[*accesspb.CheckAccessResponse](t, call, bearer, s.check(s.held))
		if len(got.GetGrants()) != 1 || got.GetGrants()[0].GetGroup().GetName() != "secret-project" ||
			got.GetGrants()[0].GetBindingUid() != s.binding {
			t.Errorf("grants = %v, want the binding in secret-project", got.GetGrants())
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
			t.Errorf("identities with access: %v, incomplete = %t", names, who.GetIncomplete())
		}
		groups := must[*accesspb.ListPastGroupsResponse](t, call, bearer, &accesspb.ListPastGroupsRequest{
			Uid: s.folder, AsOf: s.held,
		})
		if len(groups.GetGroups()) != 1 || !groups.GetGroups()[0].GetDeleted() ||
			groups.GetGroups()[0].GetName() != "secret-project" {
			t.Errorf("past groups: %v, want the deleted secret-project", groups)
		}
		held := must[*accesspb.ListPastGrantsResponse](t, call, bearer, &accesspb.ListPastGrantsRequest{
			IdentityUid: s.person, AsOf: s.held,
		})
		if len(held.GetGrants()) != 1 || held.GetTotalCount() != 1 {
			t.Errorf("past grants of the person: %v, want one", held)
		}
		diff := must[*accesspb.DiffAccessResponse](t, call, bearer, &accesspb.DiffAccessRequest{
			PlaceUid: s.folder, FromTime: s.held, ToTime: s.after,
		})
		if len(diff.GetChanges()) != 2 {
			t.Errorf("changes: %v, want two", diff)
		}
		for _, c := range diff.GetChanges() {
			if c.GetKind() != accesspb.GrantChangeKind_GRANT_CHANGE_KIND_REVOKED || c.GetActorUid() != string(s.Owner) {
				t.Errorf("change %v, want one revoked by the owner", c)
			}
		}
	}
}

// refuses checks that callers who may not know that the group existed, or what its name was, cannot read its past
// access.
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
				continue // every identity may read its own past access
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
			t.Errorf("%s reads the grants %v and the changes %v, want none", who, everything, changes)
		}
	}
	for what, in := range questions {
		if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
			t.Errorf("%s without a token: %v", what, st)
		}
	}
	self := must[*accesspb.CheckAccessResponse](t, call, s.wasThere, s.check(s.held))
	if !self.GetAllowed() || len(self.GetGrants()) != 0 || !self.GetIncomplete() {
		t.Errorf("a past member asks about their own access: %v", self)
	}
	// Without identity.list, a caller must not see the names of workloads.
	nameless := s.lacking["identity.list"]
	list := &accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: s.folder, AsOf: s.held, PageSize: 200}
	diff := &accesspb.DiffAccessRequest{PlaceUid: s.folder, FromTime: s.held, ToTime: s.after}
	grants := must[*accesspb.ListAccessResponse](t, call, nameless, list).GetGrants()
	for _, c := range must[*accesspb.DiffAccessResponse](t, call, nameless, diff).GetChanges() {
		grants = append(grants, c.GetGrant())
	}
	if len(grants) < 2 ||
		slices.ContainsFunc(grants, func(g *accesspb.Grant) bool { return g.GetIdentity().GetName() != "" }) {
		t.Errorf("without identity.list: %v", grants)
	}
	// This UID has the last segment of the deleted group, but the parent is in another organization.
	stray := s.other + s.gone[len(s.gone)-17:]
	who := must[*accesspb.ListAccessResponse](t, call, s.elsewhere, &accesspb.ListAccessRequest{
		Capability: "groups.list", PlaceUid: stray, AsOf: s.held,
	})
	for _, g := range who.GetGrants() {
		if g.GetGroup().GetUid() != s.other {
			t.Errorf("the list holds a grant of another organization's group: %v", g)
		}
	}
	check := s.check(s.held)
	check.PlaceUid = stray
	if got := must[*accesspb.CheckAccessResponse](t, call, s.elsewhere, check); got.GetAllowed() {
		t.Errorf("access below another organization's group: %v", got)
	}
	groups := must[*accesspb.ListPastGroupsResponse](t, call, s.elsewhere, &accesspb.ListPastGroupsRequest{
		Uid: s.other + s.folder[len(s.folder)-17:], AsOf: s.held,
	})
	if len(groups.GetGroups()) != 0 {
		t.Errorf("the list holds groups of another organization: %v", groups)
	}
}

// refusesTimes sends times that the API must refuse. JSON cannot express some of these times, so they are sent only
// if any is set. TestAccessRefuses sends other invalid times.
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
				want = codes.InvalidArgument // such a time is not after from_time, or it is in the future
			}
			_, st := call(t, s.ofTheWhole, in)
			if st.Code() != want {
				t.Errorf("%s as of %s: %v, want %s", what, name, st, want)
			}
			if _, st := call(t, s.elsewhere, in); want != codes.InvalidArgument && st.Code() != codes.PermissionDenied {
				t.Errorf("%s as of %s by another organization: %v", what, name, st)
			}
		}
	}
}
