package e2e_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	operatorpb "github.com/holdfast-dev/holdfast/gen/operator/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A story records the calls to one server so far: the answer to each step, by the name of the step.
type story struct {
	t       *testing.T
	w       *world
	answers map[string]proto.Message
	pushed  map[string]string // digests of pushed images, by name
}

// once calls push if it is called with this name for the first time. Every call with the same name returns the
// result of that push.
func (s *story) once(name string, push func() string) string {
	if _, ok := s.pushed[name]; !ok {
		s.pushed[name] = push()
	}
	return s.pushed[name]
}

// uid returns the UID of the resource that the step with this name created.
func (s *story) uid(step string) string {
	m, ok := s.answers[step].(interface{ GetUid() string })
	if !ok {
		panic("no step created a resource: " + step)
	}
	return m.GetUid()
}

func (s *story) org() string { return string(s.w.Organization) }

// A step is one call. as is the name of the caller; an empty name means the owner.
type step struct {
	name string
	code codes.Code
	in   func(s *story) proto.Message
	as   string
}

// ada is a person whose e-mail address belongs to a verified organization.
var ada = resource.UserUID("https://people.example", "ada")

// peopleProvider is the voucher that names the identity provider of ada's organization.
var peopleProvider = resource.NewVoucher(resource.DerivedUID("people")+"/0123456789abcdef", 0)

// seedAda creates ada, and an organization that is named after the domain of her e-mail address.
func seedAda(t *testing.T) func(*storetest.Store) {
	return func(s *storetest.Store) {
		now := time.Now().UTC().Truncate(time.Millisecond)
		verified := resource.Group{
			UID:        resource.DerivedUID("people"),
			Name:       "people.example",
			Verified:   true,
			Kind:       2,
			CreateTime: now,
			UpdateTime: now,
		}
		if _, err := s.InsertGroup(t.Context(), verified); err != nil {
			t.Fatal(err)
		}
		if err := s.SetManagedRoles(t.Context(), authz.ManagedRoles()); err != nil {
			t.Fatal(err)
		}
		idp := resource.IdentityProvider{
			UID:         peopleProvider.Provider(),
			Name:        "idp",
			DefaultRole: resource.ManagedRoleUID("viewer"),
			CreateTime:  now,
			UpdateTime:  now,
			OIDC:        &resource.OIDC{Issuer: "https://people.example", ClientID: "c", PKCE: true},
		}
		if err := s.InsertProvider(t.Context(), idp); err != nil {
			t.Fatal(err)
		}
		person := resource.Identity{
			UID:          ada,
			Realm:        idp.OwnRealm(),
			Provider:     idp.UID,
			Name:         "ada",
			Email:        "ada@people.example",
			CreateTime:   now,
			UpdateTime:   now,
			LastSeenTime: now,
			Relationship: resource.Relationship{
				ClaimMatch: &resource.ClaimMatch{Issuer: "https://people.example", Subject: "ada"},
			},
		}
		if err := s.InsertIdentity(t.Context(), person); err != nil {
			t.Fatal(err)
		}
	}
}

// TestApiBothProtocols runs the same steps on two servers with the same data, over gRPC on one and over HTTP on the
// other. The answers must be the same.
func TestApiBothProtocols(t *testing.T) {
	t.Parallel()
	steps := slices.Concat(
		openSteps(), groupSteps(), identitySteps(), roleSteps(), bindingSteps(), federationSteps(), repoSteps(),
		tagSteps(), advisorySteps(), eventSteps(), budgetSteps(), requestSteps(), organizationSteps(),
		deleteSteps(),
	)
	databases := map[string]func(testing.TB) string{"sqlite": storetest.SQLite, "postgres": storetest.Postgres}
	for _, engine := range slices.Sorted(maps.Keys(databases)) {
		t.Run(engine, func(t *testing.T) {
			transcripts := map[string]string{}
			for _, protocol := range []string{"gRPC", "HTTP"} {
				w := serve(t, databases[engine](t), server.Config{Now: ticking()}, seedAda(t))
				transcripts[protocol] = transcribe(t, w, w.protocols()[protocol], steps)
			}
			if diff := cmp.Diff(strings.Split(transcripts["gRPC"], "\n"), strings.Split(transcripts["HTTP"], "\n")); diff != "" {
				t.Errorf("the protocols differ (-gRPC +HTTP):\n%s", diff)
			}
		})
	}
}

// transcribe runs the steps and returns a transcript of their answers.
func transcribe(t *testing.T, w *world, call caller, steps []step) string {
	t.Helper()
	s := &story{t, w, map[string]proto.Message{}, map[string]string{}}
	bearers := map[string]string{
		"":         w.Token,
		"nobody":   "",
		"registry": w.RegistryToken,
		"garbage":  "not.a.token",
		"ada":      w.mint(t, ada, token.Claims{Voucher: peopleProvider}),
		"stranger": w.mint(t, resource.NewRoot(), token.Claims{}),
	}
	succeeded, failed := map[protoreflect.FullName]bool{}, map[codes.Code]bool{}
	var b strings.Builder
	for _, step := range steps {
		in := step.in(s)
		out, st := call(t, bearers[step.as], in)
		if st.Code() != step.code {
			t.Fatalf("step %q: %v, want code %d", step.name, st, step.code)
		}
		var shown proto.Message = st.Proto()
		if st == nil {
			shown = withoutDeliveries(out)
			s.answers[step.name] = out
			succeeded[in.ProtoReflect().Descriptor().FullName()] = true
		}
		failed[st.Code()] = true
		text, err := protojson.MarshalOptions{Multiline: true}.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "== %s: %s as %q\n%s\n", step.name, methodOf(in).FullName(), step.as, text)
	}
	checkCoverage(t, succeeded, failed)
	return normalize(b.String())
}

// withoutDeliveries returns an answer without what the server does by itself at any time: it sends events to
// subscriptions, and fails. Tests of a subscription, which are calls, remain.
func withoutDeliveries(answer proto.Message) proto.Message {
	answer = proto.Clone(answer)
	switch m := answer.(type) {
	case *eventspb.Subscription:
		m.Failing = nil
	case *eventspb.ListSubscriptionsResponse:
		for _, v := range m.GetSubscriptions() {
			v.Failing = nil
		}
	case *deliveriespb.ListAttemptsResponse:
		m.Attempts = slices.DeleteFunc(m.GetAttempts(), func(a *deliveriespb.Attempt) bool {
			return !strings.HasSuffix(a.GetType(), "subscription.tested.v1")
		})
	}
	return answer
}

var varying = regexp.MustCompile(`hfscim_[0-9a-f]{64}|sha(256|512):[0-9a-f]{64,128}|[0-9a-f]{40}|/[0-9a-f]{16}\b|` +
	`127\.0\.0\.1:[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|[A-Za-z0-9_-]{60,}|` +
	`"[0-9a-f]{16}"|"[A-Z2-7]{26}"|"(took|latency)": +"[0-9.]+s"|SYNC_STATE_[A-Z_]+`)

// normalize replaces text that differs between servers. A UID is replaced by a number in the order of its first
// appearance. Digests, addresses, times, tokens, IDs of keys and events, durations and the status of a sync are
// replaced by a fixed word. The status of a sync can change at any time.
func normalize(text string) string {
	uids := map[string]string{}
	return varying.ReplaceAllStringFunc(text, func(s string) string {
		switch {
		case strings.HasPrefix(s, "sha"):
			return "DIGEST"
		case strings.HasPrefix(s, "127."):
			return "ADDRESS"
		case strings.HasPrefix(s, "hfscim_"), len(s) >= 60: // a token can contain a T and end in a Z
			return "TOKEN"
		case strings.HasSuffix(s, "Z") && strings.Contains(s, "T"):
			return "TIME"
		case strings.HasPrefix(s, "SYNC_STATE_"):
			return "STATE"
		case strings.HasPrefix(s, `"took"`), strings.HasPrefix(s, `"latency"`):
			return `"took": TOOK`
		case strings.HasPrefix(s, `"`):
			return `"KEY"`
		}
		if _, ok := uids[s]; !ok {
			slash := ""
			if s[0] == '/' {
				slash = "/"
			}
			uids[s] = fmt.Sprintf("%suid%d", slash, len(uids)+1)
		}
		return uids[s]
	})
}

// checkCoverage fails the test if a method never succeeded, or if a kind of error that a client can
// cause never occurred.
func checkCoverage(t *testing.T, succeeded map[protoreflect.FullName]bool, failed map[codes.Code]bool) {
	t.Helper()
	for input, m := range methods {
		switch m.ParentFile() {
		// The function signsIn calls these methods over both protocols.
		case authpb.File_holdfast_auth_auth_proto, signinpb.File_holdfast_signin_v1_signin_proto:
			continue
		// TestOperator calls this method over both protocols.
		case operatorpb.File_holdfast_operator_v1_operator_proto:
			continue
		}
		// TestImageFindings calls these methods over both protocols.
		if m.ParentFile().Package() == findingspb.File_holdfast_findings_v1_findings_proto.Package() {
			continue
		}
		// GetDelivery cannot succeed, because a failed delivery exists only after a day.
		if !succeeded[input] && m.Name() != "GetDelivery" {
			t.Errorf("no step succeeds with %s", m.Name())
		}
	}
	for _, code := range []codes.Code{
		codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.Unauthenticated,
	} {
		if !failed[code] {
			t.Errorf("no step fails with %s", code)
		}
	}
}

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

func openSteps() []step {
	is := func(m proto.Message) func(*story) proto.Message { return func(*story) proto.Message { return m } }
	organization := func(s *story) proto.Message { return &iampb.GetGroupRequest{Uid: s.org()} }
	return []step{
		{name: "ping needs no token", in: is(&pingpb.PingRequest{}), as: "nobody"},
		{name: "ping minds no token", in: is(&pingpb.PingRequest{}), as: "garbage"},
		{name: "no token", code: codes.Unauthenticated, in: organization, as: "nobody"},
		{name: "no such token", code: codes.Unauthenticated, in: organization, as: "garbage"},
		{name: "token of the registry", code: codes.Unauthenticated, in: organization, as: "registry"},
		{name: "no grant", code: codes.PermissionDenied, in: organization, as: "stranger"},
		{name: "not eligible", in: is(&iampb.CheckEligibilityRequest{}), as: "stranger"},
		{name: "eligible", in: is(&iampb.CheckEligibilityRequest{}), as: "ada"},
		{name: "lookup without an address", code: codes.NotFound, in: is(&iampb.LookupGroupRequest{}), as: "stranger"},
		{name: "lookup", in: is(&iampb.LookupGroupRequest{}), as: "ada"},
		{name: "access to another", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.RequestGroupAccessRequest{GroupUid: s.org()}
		}, as: "ada"},
		{
			name: "access", in: is(&iampb.RequestGroupAccessRequest{GroupUid: string(resource.DerivedUID("people"))}), as: "ada",
		},
		{
			name: "access again",
			code: codes.ResourceExhausted,
			in:   is(&iampb.RequestGroupAccessRequest{GroupUid: string(resource.DerivedUID("people"))}),
			as:   "ada",
		},
		{
			name: "lookup of a person",
			in:   is(&iampb.LookupIdentityRequest{Issuer: "https://people.example", Subject: "bob"}),
			as:   "stranger",
		},
		{name: "lookup of no person", code: codes.InvalidArgument, in: is(&iampb.LookupIdentityRequest{})},
		{
			name: "metadata",
			in: is(&iampb.UpdateIdentityMetadataRequest{
				IdentityMetadata: &iampb.IdentityMetadata{Company: "People", JobTitle: "chief"},
			}),
			as: "ada",
		},
		{name: "metadata with a mask", in: is(&iampb.UpdateIdentityMetadataRequest{
			IdentityMetadata: &iampb.IdentityMetadata{Company: "x", UpdatesOptIn: true, Name: "ignored"},
			UpdateMask:       mask("updates_opt_in", "name", "job_title"),
		}), as: "ada"},
		{
			name: "metadata of nobody",
			code: codes.NotFound,
			in:   is(&iampb.UpdateIdentityMetadataRequest{IdentityMetadata: &iampb.IdentityMetadata{Company: "x"}}),
			as:   "stranger",
		},
	}
}

func groupSteps() []step {
	create := func(parent func(*story) string, g *iampb.Group) func(*story) proto.Message {
		return func(s *story) proto.Message { return &iampb.CreateGroupRequest{Parent: parent(s), Group: g} }
	}
	in := func(text string) func(*story) string { return func(*story) string { return text } }
	made := func(step string) func(*story) string { return func(s *story) string { return s.uid(step) } }
	update := func(g *iampb.Group, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			g := proto.Clone(g).(*iampb.Group)
			g.Uid = s.uid("folder")
			r := &iampb.UpdateGroupRequest{Group: g}
			if paths != nil {
				r.UpdateMask = mask(paths...)
			}
			return r
		}
	}
	list := func(r *iampb.ListGroupsRequest) func(*story) proto.Message {
		return func(s *story) proto.Message {
			r := proto.Clone(r).(*iampb.ListGroupsRequest)
			if r.Uidp == nil {
				r.Uidp = &commonpb.UIDPFilter{DescendantsOf: s.org()}
			}
			return r
		}
	}
	org := (*story).org
	nowhere := string(resource.DerivedUID("nowhere"))
	return []step{
		{name: "folder", in: create(org, &iampb.Group{Name: "folder", Description: "Ünï ✓ <b>&"})},
		{name: "one letter", in: create(org, &iampb.Group{Name: "a"})},
		{name: "below", in: create(made("folder"), &iampb.Group{Name: "below"})},
		{name: "in a group by name", in: create(in("below"), &iampb.Group{Name: "bottom"})},
		{name: "in a group by suffix", in: create(func(s *story) string {
			return s.uid("folder")[41:]
		}, &iampb.Group{Name: "by suffix"})},
		{name: "in no group", code: codes.InvalidArgument, in: create(in("no such group"), &iampb.Group{Name: "x"})},
		{name: "under what is not there", code: codes.NotFound, in: create(func(s *story) string {
			return s.org() + "/0123456789abcdef"
		}, &iampb.Group{Name: "x"})},
		{name: "in another organization", code: codes.PermissionDenied, in: create(in(nowhere), &iampb.Group{Name: "x"})},
		{name: "twice", code: codes.AlreadyExists, in: create(org, &iampb.Group{Name: "folder"})},
		{
			name: "nothing right",
			code: codes.InvalidArgument,
			in:   create(org, &iampb.Group{Name: "UPPER", Description: "two\nlines", Kind: 99}),
		},
		{name: "nameless", code: codes.InvalidArgument, in: create(org, &iampb.Group{})},
		{name: "verified", code: codes.InvalidArgument, in: create(org, &iampb.Group{Name: "v", Verified: true})},
		{
			name: "second organization", in: create(in(""), &iampb.Group{Name: "second", Kind: iampb.OrgKind_ORG_KIND_CUSTOMER}),
		},
		{
			name: "organization of a stranger",
			code: codes.PermissionDenied,
			in:   create(in(""), &iampb.Group{Name: "third"}),
			as:   "stranger",
		},
		{name: "get", in: func(s *story) proto.Message { return &iampb.GetGroupRequest{Uid: s.uid("folder")} }},
		{name: "get what is not there", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.GetGroupRequest{Uid: s.org() + "/0123456789abcdef"}
		}},
		{name: "get elsewhere", code: codes.PermissionDenied, in: func(*story) proto.Message {
			return &iampb.GetGroupRequest{Uid: nowhere}
		}},
		{name: "get nonsense", code: codes.InvalidArgument, in: func(*story) proto.Message {
			return &iampb.GetGroupRequest{Uid: "nonsense"}
		}},
		{name: "update without a mask", in: update(&iampb.Group{Description: "new"})},
		{name: "update with a mask", in: update(&iampb.Group{Name: "renamed", Description: "ignored"}, "name")},
		{name: "update in camel case", in: update(&iampb.Group{Name: "again"}, "name", "createTime", "resourceLimits")},
		{name: "clear", in: update(&iampb.Group{}, "description")},
		{
			name: "replace", in: update(&iampb.Group{Name: "folder", Description: "all", Kind: iampb.OrgKind_ORG_KIND_DEV}, "*"),
		},
		{
			name: "update of a field there is none of",
			code: codes.InvalidArgument,
			in:   update(&iampb.Group{Name: "x"}, "nmae", "name.first"),
		},
		{name: "update to a name that is taken", code: codes.AlreadyExists, in: update(&iampb.Group{Name: "a"})},
		{name: "update to nonsense", code: codes.InvalidArgument, in: update(&iampb.Group{Name: "A"})},
		{name: "update of what is not there", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.UpdateGroupRequest{Group: &iampb.Group{Uid: s.org() + "/0123456789abcdef", Name: "x"}}
		}},
		{name: "list", in: list(&iampb.ListGroupsRequest{OrderBy: "name"})},
		{name: "list backwards", in: list(&iampb.ListGroupsRequest{OrderBy: "created_at desc", PageSize: 2})},
		{name: "list skipping", in: list(&iampb.ListGroupsRequest{OrderBy: "name desc", PageSize: 2, Skip: 3})},
		{name: "next page", in: func(s *story) proto.Message {
			first := s.answers["list backwards"].(*iampb.ListGroupsResponse)
			return &iampb.ListGroupsRequest{
				Uidp:      &commonpb.UIDPFilter{DescendantsOf: s.org()},
				OrderBy:   "create_time desc",
				PageSize:  2,
				PageToken: first.GetNextPageToken(),
			}
		}},
		{name: "page of another list", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &iampb.ListGroupsRequest{
				OrderBy: "name", PageToken: s.answers["list backwards"].(*iampb.ListGroupsResponse).GetNextPageToken(),
			}
		}},
		{name: "list children", in: func(s *story) proto.Message {
			return &iampb.ListGroupsRequest{OrderBy: "name", Uidp: &commonpb.UIDPFilter{ChildrenOf: s.uid("folder")}}
		}},
		{name: "list ancestors", in: func(s *story) proto.Message {
			return &iampb.ListGroupsRequest{
				OrderBy: "create_time", Uidp: &commonpb.UIDPFilter{AncestorsOf: s.uid("in a group by name")},
			}
		}},
		{
			name: "list organizations",
			in:   list(&iampb.ListGroupsRequest{OrderBy: "name", Uidp: &commonpb.UIDPFilter{InRoot: true}}),
		},
		{name: "list some", in: func(s *story) proto.Message {
			return &iampb.ListGroupsRequest{
				OrderBy: "name", Uidp: &commonpb.UIDPFilter{Ids: []string{s.org(), s.uid("one letter"), nowhere}},
			}
		}},
		{name: "list by name", in: list(&iampb.ListGroupsRequest{Name: "folder"})},
		{name: "list of a stranger", in: list(&iampb.ListGroupsRequest{}), as: "stranger"},
		{name: "list in no order", code: codes.InvalidArgument, in: list(&iampb.ListGroupsRequest{OrderBy: "description"})},
		{name: "list of negative size", code: codes.InvalidArgument, in: list(&iampb.ListGroupsRequest{PageSize: -1})},
		{name: "delete what has children", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("folder")}
		}},
	}
}
