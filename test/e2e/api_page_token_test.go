package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	vulnv1pb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// pagedMethods returns every method of the API that returns its results in pages.
func pagedMethods() (paged []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for s := range f.Services().Len() {
			for m := range f.Services().Get(s).Methods().Len() {
				m := f.Services().Get(s).Methods().Get(m)
				if strings.HasPrefix(string(f.Package()), "holdfast.") && m.Input().Fields().ByName("page_token") != nil {
					paged = append(paged, m)
				}
			}
		}
		return true
	})
	return paged
}

// TestApiPageTokensAlone reads all pages of every list twice: once with the filter and the order in each request, and
// once with only the page token. Both must return the same items.
func TestApiPageTokensAlone(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		rows := w.filteredLists(t)
		for _, m := range pagedMethods() {
			in := rows[m.Input().FullName()]
			tested := m.ParentFile().Path()
			if strings.HasPrefix(tested, "holdfast/findings/") &&
				tested != findingspb.File_holdfast_findings_v1_exceptions_proto.Path() &&
				tested != findingspb.File_holdfast_findings_v1_rules_proto.Path() ||
				m.Name() == "CheckRule" || m.Name() == "ListUnusedAccess" {
				// TestFindingsPages tests the methods about findings, because it has inspected images.
				// TestListUnusedPages in package iam tests ListUnusedAccess, because it controls the clock.
				continue
			}
			if in == nil {
				t.Errorf("%s has pages, but no row in this test", m.FullName())
				continue
			}
			t.Run(string(m.FullName()), func(t *testing.T) {
				w.walksAlone(t, m, in)
			})
		}
		w.tokenGivesNothing(t, rows)
	})
}

// tokenGivesNothing checks that a page token is refused if the caller may not see the listed place, or if the request
// has another filter than the token.
func (w *world) tokenGivesNothing(t *testing.T, rows map[protoreflect.FullName]proto.Message) {
	t.Helper()
	stranger := w.mint(t, resource.UID(w.robot(t, w.child(t, "", "elsewhere"), "stranger")), token.Claims{})
	history := rows["holdfast.oci.v1.ListTagHistoryRequest"].(*ocipb.ListTagHistoryRequest)
	grants := rows["holdfast.access.v1.ListAccessRequest"].(*accesspb.ListAccessRequest)
	moves := must[*ocipb.ListTagHistoryResponse](t, w.overGRPC, w.Token, history).GetNextPageToken()
	access := must[*accesspb.ListAccessResponse](t, w.overGRPC, w.Token, grants).GetNextPageToken()
	for _, in := range []proto.Message{
		&ocipb.ListTagHistoryRequest{PageToken: moves}, &accesspb.ListAccessRequest{PageToken: access},
	} {
		if out, st := w.overGRPC(t, stranger, in); st.Code() != codes.PermissionDenied {
			t.Errorf("a stranger gets %v %v", out, st)
		}
	}
	w.refuses(t, map[string]badRequest{
		"moves of another tag": {
			"page_token", &ocipb.ListTagHistoryRequest{RepoUid: history.RepoUid, Tag: "v2", PageToken: moves},
		},
		"grants of another sort": {
			"page_token", &accesspb.ListAccessRequest{PlaceUid: grants.PlaceUid, Capability: "groups.delete", PageToken: access},
		},
		"grants of a higher place": {
			"page_token", &accesspb.ListAccessRequest{PlaceUid: string(w.Organization), PageToken: access},
		},
	})
	// Over HTTP, the path contains the repo, and the server takes the tag from the token.
	out := must[*ocipb.ListTagHistoryResponse](t, w.overHTTP, w.Token, &ocipb.ListTagHistoryRequest{
		RepoUid: history.RepoUid, PageToken: moves,
	})
	for _, c := range out.GetChanges() {
		if c.GetTag() != history.Tag {
			t.Errorf("the token for tag %s returns a change of %s", history.Tag, c.GetTag())
		}
	}
	if len(out.GetChanges()) == 0 {
		t.Error("no second page over HTTP")
	}
}

func (w *world) walksAlone(t *testing.T, m protoreflect.MethodDescriptor, in proto.Message) {
	t.Helper()
	want := w.walkPages(t, m, in, func(token string) proto.Message {
		next := proto.Clone(in)
		setField(next, "page_token", token)
		return next
	})
	got := w.walkPages(t, m, in, func(token string) proto.Message {
		next := in.ProtoReflect().New().Interface()
		setField(next, "page_token", token)
		return next
	})
	if !slices.Equal(got, want) {
		t.Errorf("with only the token:\n%s\nwith all fields:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, skipped := in.(*deliveriespb.ListDeliveriesRequest); !skipped && len(want) < 2 {
		t.Errorf("only %d items, so there is no second page", len(want))
	}
}

// walkPages reads a list with a page size of one, and returns the items on all pages as JSON. next returns the
// request for a page after the first.
func (w *world) walkPages(
	t *testing.T, m protoreflect.MethodDescriptor, in proto.Message, next func(token string) proto.Message,
) (items []string) {
	t.Helper()
	for {
		setField(in, "page_size", 1)
		out := newOutput(t, m)
		method := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
		if err := w.conn.Invoke(bearing(t, w.Token), method, in, out); err != nil {
			t.Fatalf("after %d items: %v", len(items), status.Convert(err))
		}
		r := out.ProtoReflect()
		for i := range m.Output().Fields().Len() {
			if f := m.Output().Fields().Get(i); f.IsList() && f.Message() != nil {
				for k := range r.Get(f).List().Len() {
					items = append(items, comparedItem(r.Get(f).List().Get(k).Message().Interface()))
				}
				break // the first list field contains the items
			}
		}
		token := r.Get(m.Output().Fields().ByName("next_page_token")).String()
		if token == "" || len(items) > 50 {
			return items
		}
		in = next(token)
	}
}

// comparedItem returns the part of an item that is equal in two reads: the whole item as JSON, but only the uid of a
// sync. The state of a sync can change between two reads, because a change of its source queues it again.
func comparedItem(item proto.Message) string {
	if sync, is := item.(*ocipb.Sync); is {
		return sync.GetUid()
	}
	return protojson.Format(item)
}

// setField sets a field of a message, if the message has a field with that name.
func setField[T string | int](m proto.Message, name protoreflect.Name, value T) {
	f := m.ProtoReflect().Descriptor().Fields().ByName(name)
	var v protoreflect.Value
	switch value := any(value).(type) {
	case string:
		v = protoreflect.ValueOfString(value)
	case int:
		v = protoreflect.ValueOfInt64(int64(value))
		if f.Kind() == protoreflect.Int32Kind {
			v = protoreflect.ValueOfInt32(int32(value))
		}
	}
	m.ProtoReflect().Set(f, v)
}

// filteredLists creates several resources of each kind. It returns a request for each list method. The request has a
// filter that excludes some resources and, where possible, an order other than the default.
func (w *world) filteredLists(t *testing.T) map[protoreflect.FullName]proto.Message {
	t.Helper()
	org := string(w.Organization)
	folder := w.child(t, org, "folder")
	below := &commonpb.UIDPFilter{DescendantsOf: folder}
	app := w.repo(t, folder, "app")
	w.repo(t, folder, "tool")
	began := justNow()
	w.fillLists(t, org, folder, app)
	copied := w.pendingReplication(t, folder)
	repo := &commonpb.UIDPFilter{ChildrenOf: app}
	const newest = "create_time desc"
	table := []proto.Message{
		&iampb.ListGroupsRequest{Uidp: below, OrderBy: newest}, &iampb.ListIdentitiesRequest{Uidp: below, OrderBy: newest},
		&iampb.ListRolesRequest{Uidp: below, OrderBy: newest}, &iampb.ListRoleBindingsRequest{Uidp: below, OrderBy: newest},
		&iampb.ListIdentityProvidersRequest{Uidp: below, OrderBy: newest},
		&iampb.ListAccountAssociationsRequest{Uidp: below, OrderBy: newest},
		&iampb.ListGroupInvitesRequest{Uidp: below, OrderBy: newest},
		&iampb.ListExternalGroupRoleMappingsRequest{Uidp: below, OrderBy: newest},
		&registrypb.ListReposRequest{Uidp: below, OrderBy: newest},
		&registrypb.ListTagsRequest{Uidp: repo, IncludeDates: true, OrderBy: "name desc"},
		&registryv1pb.EolTagFilter{Uidp: repo, ExcludeDates: true},
		&ocipb.ListTagHistoryRequest{RepoUid: app, Tag: "v1"},
		&ocipb.ListUpstreamsRequest{Uidp: below, OrderBy: newest},
		&ocipb.ListReplicationsRequest{Uidp: below, OrderBy: newest},
		&ocipb.ListReplicationTagsRequest{Uid: copied, OrderBy: "uid"},
		&ocipb.ListSyncsRequest{GroupUid: folder, OrderBy: "uid"},
		&ocipb.ListTrashEntriesRequest{Uidp: repo, OrderBy: "create_time"},
		&ocipb.ListPullsRequest{Uidp: repo, Direction: ocipb.Direction_DIRECTION_PUSH},
		&eventspb.ListSubscriptionsRequest{Uidp: below, OrderBy: newest},
		// There are no failed deliveries before a day has passed.
		&deliveriespb.ListDeliveriesRequest{Uidp: below, OrderBy: newest},
		&auditpb.ListEntriesRequest{GroupUid: folder, Type: "iam.rolebindings"},
		&accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: folder},
		&accesspb.ListPeopleRequest{OrderBy: "name desc"},
		&accesspb.ListAccessRulesRequest{Uidp: below, OrderBy: newest},
		&accesspb.ListAccessRequestsRequest{Uidp: below, OrderBy: "create_time"},
		&accesspb.CountChildrenRequest{Uid: folder, OrderBy: newest},
		&accesspb.ListPastGrantsRequest{PlaceUid: folder, AsOf: justNow(), OrderBy: "create_time"},
		&accesspb.ListPastGroupsRequest{Uid: folder, AsOf: justNow(), OrderBy: "uid desc"},
		&accesspb.DiffAccessRequest{PlaceUid: folder, FromTime: began, ToTime: justNow(), OrderBy: "time desc"},
		&budgetspb.ListBudgetsRequest{Uidp: below, OrderBy: newest},
		&findingspb.ListExceptionsRequest{Uidp: below, OrderBy: newest},
		&findingspb.ListRulesRequest{Uidp: below, OrderBy: newest},
		&ocipb.ListSignersRequest{Uidp: below, OrderBy: newest},
		&vulnpb.ListAdvisoriesRequest{Uidp: below, ArtifactNames: []string{"openssl"}},
		&vulnv1pb.AdvisoryFilter{Uidp: below, ArtifactName: []string{"openssl"}},
		&advisoriespb.ListAdvisoryFeedsRequest{Uidp: below, OrderBy: newest},
		&findingspb.ListExploitListsRequest{GroupUid: folder, Format: "epss", OrderBy: "time desc"},
		&signinpb.ListAccountsRequest{Uidp: &commonpb.UIDPFilter{DescendantsOf: org}, OrderBy: newest},
	}
	rows := map[protoreflect.FullName]proto.Message{}
	for _, in := range table {
		rows[in.ProtoReflect().Descriptor().FullName()] = in
	}
	procUntil(t, "the pushes are recorded", func() bool {
		in := &ocipb.ListPullsRequest{Uidp: repo}
		return must[*ocipb.ListPullsResponse](t, w.overGRPC, w.Token, in).GetTotalCount() >= 4
	})
	return rows
}

// fillLists creates three resources of each kind in a folder that contains the repos app and tool.
func (w *world) fillLists(t *testing.T, org, folder, app string) {
	t.Helper()
	feed := theFeed("feed")
	feed.Paused = true
	idp := w.idp(t, folder, "first")
	for n := range 3 {
		name := fmt.Sprint("n", n)
		group, robot := w.child(t, folder, name), w.robot(t, folder, name)
		w.role(t, folder, name, someCapabilities...)
		w.bind(t, folder, robot, string(resource.ManagedRoleUID("viewer")))
		w.idp(t, folder, name)
		w.mapped(t, idp, name)
		w.associate(t, group)
		w.upstream(t, group)
		w.replication(t, folder, name)
		w.follower(t, folder, "follower-"+name, w.repo(t, folder, "source-"+name))
		w.invite(t, folder)
		w.subscribe(t, folder)
		feed.Name = name
		w.publish(t, group, scoresOf("CVE-2020-0001,0.1,0.2"))
		w.publish(t, group, catalogOf("CVE-2020-0001"))
		must[proto.Message](t, w.overGRPC, w.Token, &advisoriespb.CreateAdvisoryFeedRequest{Parent: folder, Feed: feed})
		w.advise(t, folder, &vulnpb.Advisory{
			AdvisoryId: "A-" + name, ArtifactName: "openssl", Events: []*vulnpb.AdvisoryEvent{fixedIn("1")},
		})
		w.except(t, folder, &findingspb.Exception{AdvisoryId: "CVE-1"})
		w.ruled(t, folder, &findingspb.Rule{})
		w.signer(t, folder, &ocipb.Signer{Name: name, Key: storyKey()})
		w.asked(t, w.requestable(t, folder))
		must[proto.Message](t, w.overGRPC, w.Token, &budgetspb.UpdateBudgetRequest{
			Budget: &budgetspb.Budget{Uid: group, Repos: proto.Int64(5)},
		})
		must[proto.Message](t, w.overGRPC, w.Token, &signinpb.CreateAccountRequest{
			Parent: org, Account: &signinpb.Account{Email: name + "@example.test", Name: name},
		})
		w.pushImage(t, "dev/folder/app", "v1", "amd64", "layer "+name)
		digest := w.pushImage(t, "dev/folder/app", "only-"+name, "amd64", "another "+name)
		w.tag(t, app, "1.0-2026010"+fmt.Sprint(n+1), digest)
		w.trash(t, app, digest)
		old := w.tag(t, app, "old-"+name, digest)
		w.send(t, w.Token, "PUT", "/registry/v1/tags/"+old, `{"digest":"`+digest+`","deprecated":true}`)
	}
}
