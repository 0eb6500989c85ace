package e2e_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	operatorpb "github.com/holdfast-dev/holdfast/gen/operator/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// TestOperator asks for the state of the installation as different callers. The owner of an organization must not
// count as an operator, and a narrowed token of an operator must have no operator rights.
func TestOperator(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		caps := resource.CapabilitySet("groups.list")
		strangers := map[string]string{
			"another organization's owner": w.mallory,
			"a person without any role":    w.mint(t, resource.UserUID("https://people.example", "nobody"), token.Claims{}),
			"an operator, narrowed to a group": w.mint(t, w.Owner,
				token.Claims{Scopes: []resource.UID{resource.UID(w.a)}}),
			"an operator, narrowed to a capability":   w.mint(t, w.Owner, token.Claims{Caps: &caps}),
			"a token of the registry, of an operator": w.RegistryToken,
		}
		if !strings.Contains(w.send(t, w.Token, "GET", "/auth/v1/ok", "").body, `"operator":true`) {
			t.Error("the response does not say that the caller is an operator")
		}
		w.operate(t, "budgets", "set", "dev", "repos=4", "identities=100000")
		w.allowed(t, w.Token, &registrypb.CreateRepoRequest{Parent: w.a, Repo: &registrypb.Repo{Name: "one"}})
		for protocol, call := range w.protocols() {
			for who, bearer := range strangers {
				want := codes.PermissionDenied
				if bearer == w.RegistryToken {
					want = codes.Unauthenticated
				} else if strings.Contains(w.send(t, bearer, "GET", "/auth/v1/ok", "").body, `"operator":true`) {
					t.Errorf("the response says that %s is an operator", who)
				}
				if _, st := call(t, bearer, &operatorpb.GetInstallationRequest{}); st.Code() != want ||
					strings.Contains(st.Message(), "SQL") {
					t.Errorf("%s over %s: %v, want %v", who, protocol, st, want)
				}
			}
			if _, st := call(t, "", &operatorpb.GetInstallationRequest{}); st.Code() != codes.Unauthenticated {
				t.Errorf("without a token over %s: %v", protocol, st)
			}
			checkInstallation(t, must[*operatorpb.Installation](t, call, w.Token, &operatorpb.GetInstallationRequest{}), w.a)
		}
	})
}

func checkInstallation(t *testing.T, in *operatorpb.Installation, limited string) {
	t.Helper()
	d := in.GetDatabase()
	postgres := strings.HasPrefix(d.GetVersion(), "PostgreSQL")
	if !postgres && !strings.HasPrefix(d.GetVersion(), "SQLite") || d.GetSchema() == 0 ||
		d.GetSchema() != d.GetKnownSchema() || d.GetConnectionsLimit() == 0 {
		t.Errorf("the database is %v", d)
	}
	if postgres != (len(in.GetReplicas()) > 0) {
		t.Errorf("%s has the replicas %v", d.GetVersion(), in.GetReplicas())
	}
	for _, r := range in.GetReplicas() {
		if !r.GetLive() || r.GetId() == "" {
			t.Errorf("a replica is %v", r)
		}
	}
	signing := 0
	for _, k := range in.GetKeys() {
		if k.GetSigns() {
			signing++
		}
	}
	if signing == 0 || in.GetKeyRotation().AsDuration() <= 0 || in.GetStartTime().AsTime().IsZero() ||
		in.GetVersion() == "" {
		t.Errorf("%d keys sign, the rotation is %v, since %v, version %q", signing, in.GetKeyRotation(), in.GetStartTime(),
			in.GetVersion())
	}
	if in.GetWork().InspectionsWaiting == nil || in.GetCollection().GetGrace() == nil {
		t.Errorf("the work is %v, the collection %v", in.GetWork(), in.GetCollection())
	}
	if b := in.GetBudgets(); len(b) != 2 || b[0].GetMetric() != "repos" || b[0].GetLimit() != 4 || b[0].GetUsed() == 0 ||
		b[0].GetGroupUid() != limited || b[0].GetGroupName() != "dev" || in.GetBudgetCount() != 1 {
		t.Errorf("%d budgets, the fullest are %v", in.GetBudgetCount(), b)
	}
}
