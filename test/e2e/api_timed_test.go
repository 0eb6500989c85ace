package e2e_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// TestApiTimedBinding gives a workload a role for a few seconds, and checks that everything that depends on the
// binding ends with it.
func TestApiTimedBinding(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		f := newFakeIssuer(t, w)
		identity := w.workload(t, f.url, nil)
		org := string(w.Organization)
		folder := w.child(t, org, "folder")
		end := time.Now().Add(10 * time.Second).Truncate(time.Second)
		b := must[*iampb.RoleBinding](t, w.overHTTP, w.Token,
			&iampb.CreateRoleBindingRequest{Parent: folder, RoleBinding: &iampb.RoleBinding{
				IdentityUid: identity,
				RoleUid:     viewer,
				ExpireTime:  timestamppb.New(end.Add(123 * time.Millisecond)),
				Reason:      new("incident 7"),
			}})
		if !b.GetExpireTime().AsTime().Equal(end) || b.GetReason() != "incident 7" ||
			b.GetState() != iampb.RoleBindingState_ROLE_BINDING_STATE_ACTIVE {
			t.Errorf("created binding: %v", b)
		}
		tokens := map[string]string{}
		for name, wish := range map[string]url.Values{
			"API": w.wish(identity), "registry": {"aud": {w.RegistryHost}, "identity": {identity}},
		} {
			got, st := w.exchangeHTTP(t, f.token(nil), wish)
			if st != nil {
				t.Fatal(st)
			}
			tokens[name] = got.GetToken()
			if exp := said(t, got.GetToken())["exp"].(float64); int64(exp) != end.Unix() {
				t.Errorf("the token for the %s ends %v seconds after the binding", name, int64(exp)-end.Unix())
			}
		}
		ask := &accesspb.CheckAccessRequest{IdentityUid: identity, Capability: "groups.list", PlaceUid: folder}
		got := must[*accesspb.CheckAccessResponse](t, w.overGRPC, w.Token, ask)
		if !got.GetAllowed() || len(got.GetGrants()) != 1 || !got.GetGrants()[0].GetExpireTime().AsTime().Equal(end) {
			t.Errorf("access before the binding expires: %v", got)
		}
		if code := w.status(t, tokens["API"], "/iam/v2beta1/groups/"+folder); code != http.StatusOK {
			t.Errorf("HTTP status before the binding expires: %d", code)
		}
		w.awaitOver(t, b.GetUid(), ask)
		if code := w.status(t, tokens["API"], "/iam/v2beta1/groups/"+folder); code != http.StatusUnauthorized {
			t.Errorf("HTTP status with its token after the binding has expired: %d", code)
		}
		update := &iampb.UpdateRoleBindingRequest{
			RoleBinding: &iampb.RoleBinding{Uid: b.GetUid()}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"expire_time"}},
		}
		for protocol, call := range w.protocols() {
			if _, st := call(t, w.Token, update); st.Code() != codes.FailedPrecondition {
				t.Errorf("update of an expired binding over %s: %v", protocol, st)
			}
		}
		must[*iampb.ListRoleBindingsResponse](t, w.overHTTP, w.Token, &iampb.ListRoleBindingsRequest{Group: folder})
	})
}

// awaitOver waits until a binding has expired: first until access checks deny, and then until the audit log has
// exactly one entry about the expiry.
func (w *world) awaitOver(t *testing.T, uid string, ask *accesspb.CheckAccessRequest) {
	t.Helper()
	procUntil(t, "the binding has expired", func() bool {
		return !must[*accesspb.CheckAccessResponse](t, w.overGRPC, w.Token, ask).GetAllowed()
	})
	b := must[*iampb.RoleBinding](t, w.overGRPC, w.Token, &iampb.GetRoleBindingRequest{Uid: uid})
	if b.GetState() != iampb.RoleBindingState_ROLE_BINDING_STATE_OVER {
		t.Fatalf("the state of an expired binding is %v", b.GetState())
	}
	entries := &auditpb.ListEntriesRequest{Subject: uid, Type: "iam.rolebindings.expired.v1"}
	procUntil(t, "the audit log says that the binding has expired", func() bool {
		got := must[*auditpb.ListEntriesResponse](t, w.overGRPC, w.Token, entries)
		if len(got.GetEntries()) > 1 {
			t.Errorf("the audit log has more than one entry: %v", got)
		}
		return len(got.GetEntries()) > 0
	})
}
