package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// A consequence has the fields of a simulation's JSON response that the tests read.
type consequence struct {
	Gained, Lost []struct {
		Identity   struct{ UID, Name string }
		Capability string
		Group      struct{ UID, Name string }
	}
	GainedTotal, LostTotal, LostIdentities, PullsTotal, WorkloadsTotal int
	Pulls                                                              []struct {
		RepoPath string
		Count    int
	}
	Complete bool
	Reasons  []string
}

// TestSimulateAccess simulates over JSON that a workload loses its pull role and gets another role. The answer must
// list the lost and gained capabilities and the pulls that would fail, and nothing may change.
func TestSimulateAccess(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		h.repo(t, h.folder, "app")
		robot := h.robot(t, h.folder, "robot")
		puller := string(resource.ManagedRoleUID("registry.pull"))
		b := w.bind(t, h.folder, robot, puller)
		w.pushImage(t, "dev/folder/app", "1.0", "amd64", "layer")
		for range 3 {
			w.pull(t, w.mint(t, resource.UID(robot), token.Claims{Audience: []string{w.RegistryHost}}), "dev/folder/app", "1.0")
		}
		procUntil(t, "the pulls are recorded", func() bool {
			// Three pulls and the push.
			return must[*ocipb.ListPullsResponse](t, w.overGRPC, w.Token, &ocipb.ListPullsRequest{}).GetTotalCount() == 4
		})
		before := w.snapshot(t)
		body := fmt.Sprintf(`{"changes":[{"deleteRoleBinding":{"uid":%q}},`+
			`{"createRoleBinding":{"parent":%q,"roleBinding":{"identityUid":%q,"roleUid":%q}}}]}`,
			b, w.Organization, robot, resource.ManagedRoleUID("apk.pull"))
		r := w.send(t, w.Token, "POST", "/access/v1/simulate", body)
		var got consequence
		if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != http.StatusOK {
			t.Fatal(r.status, err, r.body)
		}
		if got.GainedTotal != 3 || got.LostTotal != 9 || got.LostIdentities != 1 || got.PullsTotal != 3 || !got.Complete ||
			len(got.Lost) != 9 {
			t.Errorf("%s", r.body)
		}
		if len(got.Pulls) != 1 || got.Pulls[0].RepoPath != "dev/folder/app" || got.Pulls[0].Count != 3 {
			t.Errorf("pulls: %+v", got.Pulls)
		}
		if g := got.Gained[0]; g.Identity.Name != "robot" || g.Identity.UID != robot || g.Group.Name != "dev" ||
			g.Capability != "apk.blobs.get" {
			t.Errorf("gained: %+v", g)
		}
		must[*ocipb.Settings](t, w.overGRPC, w.Token,
			&ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: h.folder, Public: true}})
		if got := must[*accesspb.SimulateResponse](t, w.overGRPC, w.Token,
			simulation(&iampb.DeleteRoleBindingRequest{Uid: b})); got.GetPullsTotal() != 0 {
			t.Errorf("public pulls are refused: %v", got.GetPulls())
		}
		if diff := cmp.Diff(before, w.snapshot(t)); diff != "" {
			t.Error(diff)
		}
		for _, e := range w.events(t) {
			if e.Type == resource.BindingDeleted {
				t.Errorf("a simulated change has an event: %+v", e)
			}
		}
	})
}

// simulation returns a request that simulates the changes that the given requests would make.
func simulation(changes ...proto.Message) *accesspb.SimulateRequest {
	r := &accesspb.SimulateRequest{}
	for _, m := range changes {
		change := &accesspb.SimulatedChange{}
		fields := change.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if fields.Get(i).Message() == m.ProtoReflect().Descriptor() {
				change.ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfMessage(m.ProtoReflect()))
			}
		}
		r.Changes = append(r.Changes, change)
	}
	return r
}

// TestSimulateEveryChange simulates each kind of change, as the owner and as callers who may not make the change.
// These callers must get the error that the method itself would return.
func TestSimulateEveryChange(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		x := w.federate(t, w.makeThings(t))
		_, other := w.ownedOrg(t, "other")
		spare := things{
			folder: w.child(t, x.org, "empty"), role: w.role(t, x.org, "spare", someCapabilities...),
			provider: w.idp(t, x.org, "spare"),
		}
		changes := changesOf(x, spare)
		before := w.snapshot(t)
		fields := (&accesspb.SimulatedChange{}).ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if name := fields.Get(i).Message().Name(); changes[name] == nil {
				t.Errorf("%s is not simulated", name)
			}
		}
		narrowed := w.mint(t, w.Owner, token.Claims{Scopes: []resource.UID{w.Organization.NewChild()}})
		for name, in := range changes {
			for protocol, call := range w.protocols() {
				t.Run(string(name)+" over "+protocol, func(t *testing.T) {
					for who, bearer := range map[string]string{
						"nobody": "", "of another": other, "narrowed": narrowed, "the owner": w.Token,
					} {
						_, st := call(t, bearer, simulation(in))
						_, real := call(t, bearer, onlyValidated(in))
						if st.Code() != real.Code() || st.Message() != real.Message() || (st == nil) != (who == "the owner") {
							t.Errorf("%s: the simulation returned %v, the method %v", who, st, real)
						}
					}
				})
			}
		}
		if diff := cmp.Diff(before, w.snapshot(t)); diff != "" {
			t.Error(diff)
		}
	})
}

// onlyValidated returns a copy of a request with validate_only set, so that the server validates it but does not
// execute it.
func onlyValidated(in proto.Message) proto.Message {
	in = proto.Clone(in)
	m := in.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName("validate_only"), protoreflect.ValueOfBool(true))
	return in
}

// changesOf returns one request for each kind of change that can be simulated. The owner may make all of them.
// Nothing depends on the resources in spare.
func changesOf(x, spare things) map[protoreflect.Name]proto.Message {
	changes := map[protoreflect.Name]proto.Message{}
	for _, m := range []proto.Message{
		&iampb.CreateRoleBindingRequest{
			Parent: x.org, RoleBinding: &iampb.RoleBinding{IdentityUid: x.identity, RoleUid: viewer},
		},
		&iampb.UpdateRoleBindingRequest{
			RoleBinding: &iampb.RoleBinding{Uid: x.binding, IdentityUid: x.identity, RoleUid: viewer},
		},
		&iampb.DeleteRoleBindingRequest{Uid: x.binding},
		&iampb.BatchCreateRoleBindingsRequest{
			Parent: x.org, RoleUid: viewer,
			Requests: []*iampb.CreateRoleBindingRequest{{RoleBinding: &iampb.RoleBinding{IdentityUid: x.identity}}},
		},
		&iampb.CreateRoleRequest{Parent: x.org, Role: &iampb.Role{Name: "new", Capabilities: someCapabilities}},
		&iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: x.role, Name: "other"}, UpdateMask: paths("name")},
		&iampb.CreateGroupRequest{Parent: x.org, Group: &iampb.Group{Name: "new"}},
		&iampb.UpdateGroupRequest{Group: &iampb.Group{Uid: x.folder, Name: "renamed"}, UpdateMask: paths("name")},
		&iampb.DeleteGroupRequest{Uid: spare.folder},
		&iampb.DeleteRoleRequest{Uid: spare.role},
		&iampb.DeleteIdentityProviderRequest{Uid: spare.provider},
		&iampb.CreateIdentityRequest{Parent: x.org, Identity: workload("new")},
		&iampb.UpdateIdentityRequest{Identity: &iampb.Identity{Uid: x.identity, Name: "renamed"}, UpdateMask: paths("name")},
		&iampb.DeleteIdentityRequest{Uid: x.identity},
		&iampb.CreateIdentityProviderRequest{Parent: x.org, IdentityProvider: &iampb.IdentityProvider{
			Name: "new", DefaultRole: viewer,
			Configuration: &iampb.IdentityProvider_Oidc{
				Oidc: &iampb.IdentityProvider_OIDC{Issuer: "https://new.example", ClientId: "c", ClientSecret: "s"},
			},
		}},
		&iampb.UpdateIdentityProviderRequest{
			IdentityProvider: &iampb.IdentityProvider{Uid: x.provider, Description: "x"}, UpdateMask: paths("description"),
		},
		&iampb.CreateExternalGroupRoleMappingRequest{
			Parent:                   x.provider,
			ExternalGroupRoleMapping: &iampb.ExternalGroupRoleMapping{ExternalGroupId: "g", RoleUid: viewer},
		},
		&iampb.DeleteExternalGroupRoleMappingRequest{Uid: x.mapping},
		&iampb.CreateGroupInviteRequest{
			Parent: x.folder, GroupInvite: &iampb.GroupInvite{RoleUid: viewer, Ttl: durationpb.New(time.Minute)},
		},
		&iampb.UpdateGroupInviteRequest{
			GroupInvite: &iampb.GroupInvite{Uid: x.invite, Email: "a@b.example"}, UpdateMask: paths("email"),
		},
		&iampb.DeleteGroupInviteRequest{Uid: x.invite},
		&iampb.CreateAccountAssociationRequest{Parent: x.org, AccountAssociation: account("x")},
		&iampb.UpdateAccountAssociationRequest{
			AccountAssociation: &iampb.AccountAssociation{Uid: x.folder, Description: "x"}, UpdateMask: paths("description"),
		},
		&iampb.DeleteAccountAssociationRequest{Uid: x.folder},
	} {
		changes[m.ProtoReflect().Descriptor().Name()] = m
	}
	return changes
}

func paths(all ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: all} }

// TestSimulateBadInput checks that unknown changes and too many changes are refused.
func TestSimulateBadInput(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		one := `{"deleteRoleBinding":{"uid":"` + string(w.Organization.NewChild()) + `"}}`
		for name, tt := range map[string]struct{ body, want string }{
			"no changes":      {`{"changes":[]}`, "changes"},
			"an empty change": {`{"changes":[` + one + `,{}]}`, "changes[1]"},
			"too many":        {`{"changes":[` + strings.Repeat(one+",", 20) + one + `]}`, "changes"},
			"of the registry": {`{"changes":[{"deleteRepo":{"uid":"x"}}]}`, "deleteRepo"},
			"of requests":     {`{"changes":[{"approveAccessRequest":{"uid":"x"}}]}`, "approveAccessRequest"},
			"a simulation":    {`{"changes":[{"simulate":{"changes":[]}}]}`, "simulate"},
			"two in one": {
				`{"changes":[{"deleteRole":{"uid":"x"},"deleteGroup":{"uid":"x"}}]}`, "cannot be combined",
			},
			"what is no uid": {`{"changes":[{"deleteRoleBinding":{"uid":"x"}}]}`, "changes[0].uid"},
			"a field of the second": {
				`{"changes":[` + one + `,{"createRole":{"parent":"` + string(w.Organization) + `","role":{"name":"Not Lower"}}}]}`,
				"changes[1].",
			},
			"an unknown field": {`{"changes":[{"deleteRoleBinding":{"id":"x"}}]}`, "id"},
		} {
			t.Run(name, func(t *testing.T) {
				r := w.send(t, w.Token, "POST", "/access/v1/simulate", tt.body)
				if r.status != http.StatusBadRequest || !strings.Contains(r.body, tt.want) ||
					!strings.Contains(r.body, `"code":3`) {
					t.Errorf("HTTP status %d, want 400 about %s\n%s", r.status, tt.want, r.body)
				}
			})
		}
		missing := `{"deleteRole":{"uid":"` + string(w.Organization.NewChild()) + `"}}`
		r := w.send(t, w.Token, "POST", "/access/v1/simulate", `{"changes":[`+one+`,`+missing+`]}`)
		if r.status != http.StatusNotFound || !strings.Contains(r.body, "(in changes[1])") ||
			!strings.Contains(r.body, `"change":"1"`) {
			t.Errorf("a second change that fails: %d %s", r.status, r.body)
		}
		if _, st := w.overGRPC(t, w.Token,
			&accesspb.SimulateRequest{Changes: []*accesspb.SimulatedChange{{}}}); st.Code() != codes.InvalidArgument {
			t.Errorf("an empty change over gRPC: %v", st)
		}
	})
}

// TestApiUnused asks for unused access as the owner, as the owner of another organization, with a narrowed token and
// without a token. New resources must not be reported as unused, and the other callers must get nothing.
func TestApiUnused(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		folder := w.child(t, org, "folder")
		robot := w.robot(t, folder, "robot")
		w.bind(t, folder, robot, viewer)
		_, other := w.ownedOrg(t, "other")
		kinds := []accesspb.UnusedKind{
			accesspb.UnusedKind_UNUSED_KIND_ROLE_BINDING, accesspb.UnusedKind_UNUSED_KIND_IDENTITY,
			accesspb.UnusedKind_UNUSED_KIND_GROUP_INVITE, accesspb.UnusedKind_UNUSED_KIND_ACCOUNT_ASSOCIATION,
		}
		narrowed := w.mint(t, w.Owner, token.Claims{Scopes: []resource.UID{w.Organization.NewChild()}})
		for _, kind := range kinds {
			for protocol, call := range w.protocols() {
				in := &accesspb.ListUnusedAccessRequest{Kind: kind}
				got := must[*accesspb.ListUnusedAccessResponse](t, call, w.Token, in)
				if len(got.GetUnused()) != 0 || time.Since(got.GetRecordedSince().AsTime()) > time.Hour {
					t.Errorf("%s over %s: a new resource is reported as unused: %v", kind, protocol, got)
				}
				for who, bearer := range map[string]string{"of another": other, "narrowed": narrowed} {
					in := &accesspb.ListUnusedAccessRequest{Kind: kind, Uidp: &commonpb.UIDPFilter{DescendantsOf: org}}
					if got := must[*accesspb.ListUnusedAccessResponse](t, call, bearer, in); got.GetTotalCount() != 0 {
						t.Errorf("%s over %s, %s: %v", kind, protocol, who, got)
					}
				}
				if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
					t.Errorf("%s over %s, without a token: %v", kind, protocol, st)
				}
			}
		}
		w.ending(t, folder, map[string]string{"the owner": w.Token, "of another": other, "narrowed": narrowed})
	})
}

// ending checks the list of bindings that expire soon. Only the owner may get them: not the owner of another
// organization, and not a caller with a narrowed token.
func (w *world) ending(t *testing.T, folder string, bearers map[string]string) {
	t.Helper()
	for protocol, call := range w.protocols() {
		must[*iampb.RoleBinding](t, call, w.Token, &iampb.CreateRoleBindingRequest{
			Parent: folder,
			RoleBinding: &iampb.RoleBinding{
				IdentityUid: w.robot(t, folder, "guest-"+strings.ToLower(protocol)), RoleUid: viewer,
				ExpireTime: timestamppb.New(time.Now().Add(time.Hour)),
			},
		})
		for who, bearer := range bearers {
			got := must[*accesspb.ListEndingGrantsResponse](t, call, bearer, &accesspb.ListEndingGrantsRequest{GroupUid: folder})
			if (len(got.GetGrants()) > 0) != (who == "the owner") {
				t.Errorf("over %s, %s gets %v", protocol, who, got)
			}
		}
	}
}
