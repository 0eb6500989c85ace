package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// ifMatch sends a request over HTTP with an If-Match header for each version.
func (w *world) ifMatch(t *testing.T, verb, target, body string, versions ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, w.BaseURL+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.Token)
	r.Header.Set("Content-Type", "application/json")
	for _, v := range versions {
		r.Header.Add("If-Match", v)
	}
	return w.roundTrip(t, r)
}

// TestIfMatch lets two clients read the same version of a resource and change it. The second client must get an error
// and overwrite nothing.
func TestIfMatch(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "folder")
		target := "/iam/v2beta1/groups/" + folder
		read := w.send(t, w.Token, "GET", target, "")
		version := read.header.Get("ETag")
		if version == "" || !strings.Contains(read.body, `"updateTime":`+version) {
			t.Fatalf("ETag %s, body %s", version, read.body)
		}
		first := w.ifMatch(t, "PATCH", target, `{"description": "first"}`, version)
		if first.status != http.StatusOK || first.header.Get("ETag") == version {
			t.Fatalf("first update: %d %s", first.status, first.body)
		}
		for _, body := range []string{`{"description": "second"}`, `{"description": "first"}`} {
			r := w.ifMatch(t, "PATCH", target, body, version)
			if r.status != http.StatusConflict ||
				!strings.Contains(r.body, "it was changed at "+strings.Trim(first.header.Get("ETag"), `"`)) {
				t.Errorf("second update with %s: %d %s", body, r.status, r.body)
			}
		}
		if got := w.send(t, w.Token, "GET", target, ""); !strings.Contains(got.body, `"first"`) {
			t.Errorf("after the conflict the group is %s", got.body)
		}
		r := w.ifMatch(t, "PATCH", target+"?validate_only=true", `{"description": "second"}`, version)
		if r.status != http.StatusConflict {
			t.Errorf("dry run with an old version: %d %s", r.status, r.body)
		}
		if r := w.ifMatch(t, "PATCH", target, `{"description": "second"}`,
			first.header.Get("ETag")); r.status != http.StatusOK {
			t.Errorf("update with the current version: %d %s", r.status, r.body)
		}
		if r := w.ifMatch(t, "PATCH", target, `{"description": "third"}`); r.status != http.StatusOK {
			t.Errorf("update without a version: %d %s", r.status, r.body)
		}
		for name, versions := range map[string][]string{
			"no time":   {`"x"`},
			"no quotes": {strings.Trim(version, `"`)},
			"two":       {version, version},
			"any":       {"*"},
			"a list":    {version + ", " + version},
		} {
			r := w.ifMatch(t, "PATCH", target, `{"description": "bad"}`, versions...)
			if r.status != http.StatusBadRequest || !strings.Contains(r.body, "if-match") {
				t.Errorf("%s: %d %s", name, r.status, r.body)
			}
		}
		if r := w.ifMatch(t, "DELETE", target, "", version); r.status != http.StatusBadRequest ||
			!strings.Contains(r.body, "not supported") {
			t.Errorf("a method without support for versions: %d %s", r.status, r.body)
		}
		if r := w.ifMatch(t, "GET", target, "", "x"); r.status != http.StatusOK {
			t.Errorf("a read with If-Match: %d %s", r.status, r.body)
		}
	})
}

// TestIfMatchEverywhere checks that every method that updates a versioned resource respects the
// If-Match header.
func TestIfMatchEverywhere(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		x := w.federate(t, w.makeThings(t))
		repo := w.repo(t, x.folder, "repo")
		mask := func(path string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: []string{path}} }
		rule := must[*findingspb.Rule](t, w.overGRPC, w.Token, &findingspb.CreateRuleRequest{
			Parent: x.folder, Rule: &findingspb.Rule{TargetUid: x.folder, MinSeverity: findingspb.Severity_SEVERITY_HIGH},
		})
		feed := must[*advisoriespb.AdvisoryFeed](t, w.overGRPC, w.Token, &advisoriespb.CreateAdvisoryFeedRequest{
			Parent: x.folder, Feed: theFeed("feed"),
		})
		advisory := w.advise(t, x.folder, &vulnpb.Advisory{
			ArtifactName: "a", ArtifactType: "apk", Aliases: []string{"CVE-2026-4242"},
		})
		association := w.associate(t, w.child(t, x.folder, "associated"))
		updates := map[protoreflect.Name]proto.Message{
			"UpdateGroup": &iampb.UpdateGroupRequest{
				Group: &iampb.Group{Uid: x.folder, Description: "new"}, UpdateMask: mask("description"),
			},
			"UpdateIdentity": &iampb.UpdateIdentityRequest{
				Identity: &iampb.Identity{Uid: x.identity, Description: "new"}, UpdateMask: mask("description"),
			},
			"UpdateRole": &iampb.UpdateRoleRequest{
				Role: &iampb.Role{Uid: x.role, Description: "new"}, UpdateMask: mask("description"),
			},
			"UpdateIdentityProvider": &iampb.UpdateIdentityProviderRequest{
				IdentityProvider: &iampb.IdentityProvider{Uid: x.provider, Description: "new"}, UpdateMask: mask("description"),
			},
			"UpdateGroupInvite": &iampb.UpdateGroupInviteRequest{
				GroupInvite: &iampb.GroupInvite{Uid: x.invite, Email: "new@people.example"}, UpdateMask: mask("email"),
			},
			"UpdateAccountAssociation": &iampb.UpdateAccountAssociationRequest{
				AccountAssociation: &iampb.AccountAssociation{Uid: association, Description: "new"},
				UpdateMask:         mask("description"),
			},
			"UpdateBudget":   &budgetspb.UpdateBudgetRequest{Budget: &budgetspb.Budget{Uid: x.folder}},
			"UpdateSettings": &ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: x.folder, ImmutableTags: true}},
			"UpdateAdvisory": &advisoriespb.UpdateAdvisoryRequest{Advisory: &vulnpb.Advisory{Uid: advisory, Details: "more"}},
			"UpdateRepo": &registrypb.UpdateRepoRequest{
				Repo: &registrypb.Repo{Uid: repo, Description: "new"}, UpdateMask: mask("description"),
			},
			"UpdateRule": &findingspb.UpdateRuleRequest{
				Rule: &findingspb.Rule{Uid: rule.GetUid(), Description: "new"}, UpdateMask: mask("description"),
			},
			"UpdateReplication": &ocipb.UpdateReplicationRequest{
				Replication: &ocipb.Replication{Uid: w.replication(t, x.folder, "copied"), Name: "other"},
				UpdateMask:  mask("name"),
			},
			"UpdateUpstream": &ocipb.UpdateUpstreamRequest{
				Upstream:   &ocipb.Upstream{Uid: w.upstream(t, w.child(t, x.folder, "mirror")), Name: "other"},
				UpdateMask: mask("name"),
			},
			"UpdateAdvisoryFeed": &advisoriespb.UpdateAdvisoryFeedRequest{
				Feed: &advisoriespb.AdvisoryFeed{Uid: feed.GetUid(), Name: "other"}, UpdateMask: mask("name"),
			},
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+w.Token,
			"if-match", `"`+time.Now().AddDate(-1, 0, 0).UTC().Format(time.RFC3339Nano)+`"`)
		for _, m := range methods {
			if !strings.HasPrefix(string(m.Name()), "Update") || m.Output().Fields().ByName("update_time") == nil {
				continue
			}
			in := updates[m.Name()]
			if in == nil || in.ProtoReflect().Descriptor() != m.Input() {
				t.Errorf("this test has no update for %s", m.FullName())
				continue
			}
			name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
			typ, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
			if err != nil {
				t.Fatal(err)
			}
			out := typ.New().Interface()
			if err := w.conn.Invoke(ctx, name, in, out); status.Code(err) != codes.Aborted {
				t.Errorf("%s with an old version: %v", m.Name(), err)
			}
			must[proto.Message](t, w.overGRPC, w.Token, in)
		}
	})
}
