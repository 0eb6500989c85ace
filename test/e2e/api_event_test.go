package e2e_test

import (
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func eventSteps() []step {
	create := func(sink string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &eventspb.CreateSubscriptionRequest{
				Parent: s.uid("subscribed"), Subscription: &eventspb.Subscription{Sink: sink},
			}
		}
	}
	uid := func(f func(uid string) proto.Message) func(*story) proto.Message {
		return func(s *story) proto.Message { return f(s.uid("subscription")) }
	}
	return []step{
		{name: "subscribed", in: func(s *story) proto.Message {
			return &iampb.CreateGroupRequest{Parent: s.org(), Group: &iampb.Group{Name: "subscribed"}}
		}},
		{name: "subscription", in: create("https://sink.example/x")},
		{name: "subscription over http", code: codes.InvalidArgument, in: create("http://sink.example/x")},
		{name: "subscription elsewhere", code: codes.PermissionDenied, in: create("https://sink.example/x"), as: "ada"},
		{name: "get subscription", in: uid(func(uid string) proto.Message {
			return &eventspb.GetSubscriptionRequest{Uid: uid}
		})},
		{name: "list subscriptions", in: func(*story) proto.Message {
			return &eventspb.ListSubscriptionsRequest{PageSize: 1}
		}},
		{name: "list subscriptions of a stranger", in: func(*story) proto.Message {
			return &eventspb.ListSubscriptionsRequest{}
		}, as: "stranger"},
		{name: "list deliveries", in: uid(func(uid string) proto.Message {
			return &deliveriespb.ListDeliveriesRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: uid}}
		})},
		{name: "get no delivery", code: codes.NotFound, in: uid(func(uid string) proto.Message {
			return &deliveriespb.GetDeliveryRequest{Uid: uid + "/0123456789abcdef"}
		})},
		{name: "replay", in: uid(func(uid string) proto.Message { return &deliveriespb.ReplayDeliveriesRequest{Uid: uid} })},
		{name: "test", in: uid(func(uid string) proto.Message { return &deliveriespb.TestSubscriptionRequest{Uid: uid} })},
		{name: "list attempts", in: uid(func(uid string) proto.Message {
			return &deliveriespb.ListAttemptsRequest{Uid: uid}
		})},
		{name: "list attempts of nothing", code: codes.NotFound, in: uid(func(uid string) proto.Message {
			return &deliveriespb.ListAttemptsRequest{Uid: uid + "/0123456789abcdef"}
		})},
		{name: "send no event again", code: codes.NotFound, in: uid(func(uid string) proto.Message {
			return &deliveriespb.TestSubscriptionRequest{Uid: uid, EventId: "AAAAAAAAAAAAAAAAAAAAAAAAAA"}
		})},
		{name: "test nothing", code: codes.NotFound, in: uid(func(uid string) proto.Message {
			return &deliveriespb.TestSubscriptionRequest{Uid: uid + "/0123456789abcdef"}
		})},
		{name: "replay nothing", code: codes.NotFound, in: uid(func(uid string) proto.Message {
			return &deliveriespb.ReplayDeliveriesRequest{Uid: uid + "/0123456789abcdef"}
		})},
		{name: "audit", in: uid(func(uid string) proto.Message {
			return &auditpb.ListEntriesRequest{Subject: uid + "/0123456789abcdef"}
		})},
		{name: "delete a subscribed group", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("subscribed")}
		}},
		{name: "delete subscription", in: uid(func(uid string) proto.Message {
			return &eventspb.DeleteSubscriptionRequest{Uid: uid}
		})},
		{name: "delete it again", code: codes.NotFound, in: uid(func(uid string) proto.Message {
			return &eventspb.DeleteSubscriptionRequest{Uid: uid}
		})},
		{name: "delete the group", in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("subscribed")}
		}},
	}
}

// eventCapabilities are the capabilities that the methods for subscriptions require.
var eventCapabilities = []string{
	"subscriptions.create", "subscriptions.list", "subscriptions.update", "subscriptions.delete",
}

// eventAccesses returns, by name, the methods that act on one subscription.
func (h *hierarchy) eventAccesses() map[string]access {
	folder := func(*testing.T) string { return h.folder }
	subscription := func(t *testing.T) string { return h.subscribe(t, h.folder) }
	return map[string]access{
		"GetSubscription": {"subscriptions.list", subscription, func(uid string) proto.Message {
			return &eventspb.GetSubscriptionRequest{Uid: uid}
		}},
		"CreateSubscription": {"subscriptions.create", folder, func(uid string) proto.Message {
			return &eventspb.CreateSubscriptionRequest{
				Parent: uid, Subscription: &eventspb.Subscription{Sink: "https://sink.example/x"},
			}
		}},
		"DeleteSubscription": {"subscriptions.delete", subscription, func(uid string) proto.Message {
			return &eventspb.DeleteSubscriptionRequest{Uid: uid}
		}},
		"TestSubscription": {"subscriptions.update", subscription, func(uid string) proto.Message {
			return &deliveriespb.TestSubscriptionRequest{Uid: uid}
		}},
		"ListAttempts": {"subscriptions.list", subscription, func(uid string) proto.Message {
			return &deliveriespb.ListAttemptsRequest{Uid: uid}
		}},
		"ReplayDeliveries": {"subscriptions.update", subscription, func(uid string) proto.Message {
			return &deliveriespb.ReplayDeliveriesRequest{Uid: uid}
		}},
	}
}

// TestApiAudit lists audit entries as several callers. A caller must see exactly the entries about resources that the
// caller may list, in groups where the caller may list identities.
func TestApiAudit(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		h.subscribe(t, h.folder)
		missing := access{
			"subscriptions.list", func(t *testing.T) string { return h.subscribe(t, h.folder) + "/0123456789abcdef" },
			func(uid string) proto.Message { return &deliveriespb.GetDeliveryRequest{Uid: uid} }}
		for _, call := range w.protocols() {
			h.denies(t, call, missing)
			if _, st := call(t, "", &auditpb.ListEntriesRequest{}); st.Code() != codes.Unauthenticated {
				t.Errorf("without a token: %v", st)
			}
			for who, want := range map[string]string{h.full["sibling"]: h.sibling, h.full["folder"]: h.folder} {
				for _, e := range h.audit(t, call, who, &auditpb.ListEntriesRequest{}) {
					if !resource.UID(want).Covers(resource.UID(e.GetSubject())) {
						t.Errorf("with a grant on %s: %v", want, e)
					}
				}
			}
			for capability, kind := range map[string]string{
				"subscriptions.list": "events", "role_bindings.list": "iam.rolebindings", "identity.list": "",
			} {
				if n := len(h.audit(t, call, h.lacking[capability], &auditpb.ListEntriesRequest{Type: kind})); n != 0 {
					t.Errorf("without %s: %d entries of %q", capability, n, kind)
				}
				if n := len(h.audit(t, call, h.full["org"], &auditpb.ListEntriesRequest{Type: kind})); n == 0 {
					t.Errorf("with everything: no entries of %q", kind)
				}
			}
		}
		w.child(t, h.folder, "last")
		got := h.audit(t, w.overGRPC, w.Token, &auditpb.ListEntriesRequest{
			GroupUid: h.folder, Type: "iam.group", IdentityUid: string(w.Owner),
		})
		if len(got) != 2 || got[0].GetAfter().GetFields()["name"].GetStringValue() != "last" ||
			got[0].GetBefore() != nil || got[0].GetActor().GetRemoteAddress() == "" {
			t.Errorf("entries for the groups created in the folder: %v", got)
		}
		future := &auditpb.ListEntriesRequest{Since: timestamppb.New(got[0].GetTime().AsTime().AddDate(1, 0, 0))}
		if n := len(h.audit(t, w.overGRPC, w.Token, future)); n != 0 {
			t.Errorf("%d entries with a future date", n)
		}
	})
}

// audit returns the audit entries on all pages.
func (h *hierarchy) audit(
	t *testing.T, call caller, bearer string, in *auditpb.ListEntriesRequest,
) (all []*auditpb.Entry) {
	t.Helper()
	in.PageSize = 7
	for {
		p := must[*auditpb.ListEntriesResponse](t, call, bearer, in)
		all = append(all, p.GetEntries()...)
		if in.PageToken = p.GetNextPageToken(); in.PageToken == "" {
			return all
		}
	}
}

// TestApiBadEventInput puts invalid values into every field, over both protocols, and checks that each is refused.
func TestApiBadEventInput(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		x := w.makeThings(t)
		table := map[string]badRequest{
			"audit: forwards":       {"order_by", &auditpb.ListEntriesRequest{OrderBy: "time"}},
			"audit: of no group":    {"group_uid", &auditpb.ListEntriesRequest{GroupUid: "x"}},
			"audit: of nothing":     {"subject", &auditpb.ListEntriesRequest{Subject: "x"}},
			"audit: by nobody":      {"identity_uid", &auditpb.ListEntriesRequest{IdentityUid: "x"}},
			"audit: backwards size": {"page_size", &auditpb.ListEntriesRequest{PageSize: -1}},
			"audit: token":          {"page_token", &auditpb.ListEntriesRequest{PageToken: "x"}},
		}
		for name, sink := range map[string]string{
			"none":                 "",
			"a word":               "sink",
			"no host":              "https://",
			"another scheme":       "ftp://sink.example",
			"plain http":           "http://sink.example",
			"a password":           "https://a:b@sink.example",
			"a fragment":           "https://sink.example/#a",
			"a space":              "https://sink.example/a b",
			"a line break":         "https://sink.example/\r\nX: y",
			"not ASCII":            "https://sïnk.example",
			"too long":             "https://sink.example/" + strings.Repeat("a", 2048),
			"private":              "https://10.0.0.1/",
			"the metadata service": "https://169.254.169.254/",
			"mapped":               "https://[::ffff:10.0.0.1]/",
		} {
			table["sink: "+name] = badRequest{
				"sink", &eventspb.CreateSubscriptionRequest{Parent: x.folder, Subscription: &eventspb.Subscription{Sink: sink}},
			}
		}
		for value, uid := range badUIDValues(x) {
			maps.Copy(table, map[string]badRequest{
				"get with " + value:    {"uid", &eventspb.GetSubscriptionRequest{Uid: uid}},
				"delete with " + value: {"uid", &eventspb.DeleteSubscriptionRequest{Uid: uid}},
				"create with " + value: {"parent", &eventspb.CreateSubscriptionRequest{
					Parent: uid, Subscription: &eventspb.Subscription{Sink: "https://sink.example"},
				}},
				"get delivery with " + value: {"uid", &deliveriespb.GetDeliveryRequest{Uid: uid}},
				"replay with " + value:       {"uid", &deliveriespb.ReplayDeliveriesRequest{Uid: uid}},
				"test with " + value:         {"uid", &deliveriespb.TestSubscriptionRequest{Uid: uid}},
				"attempts with " + value:     {"uid", &deliveriespb.ListAttemptsRequest{Uid: uid}},
			})
		}
		for name, b := range badPages {
			table["subscriptions: "+name] = badRequest{
				b.field, &eventspb.ListSubscriptionsRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
			}
			table["deliveries: "+name] = badRequest{
				b.field, &deliveriespb.ListDeliveriesRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
			}
		}
		w.refuses(t, table)
		n := must[*eventspb.ListSubscriptionsResponse](t, w.overGRPC,
			w.Token, &eventspb.ListSubscriptionsRequest{}).GetTotalCount()
		if n != 0 {
			t.Errorf("%d subscriptions were created", n)
		}
	})
}
