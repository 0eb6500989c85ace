package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestConsoleAsksAgain checks that sensitive changes need a recent sign-in. Other changes, requests that change
// nothing, and calls with a token need none.
func TestConsoleAsksAgain(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := serve(t, storetest.SQLite(t), server.Config{Now: clock.now}, nil)
	org := string(w.Organization)
	ann := w.personIn(t, w.Token, org, "ann@example.test", "a quiet violet anchor of ann")
	w.bind(t, org, w.identityOf(t, ann), string(resource.OwnerRole))
	folder := w.child(t, org, "folder")
	robot := w.robot(t, org, "robot")
	b := w.signInBrowser(t, "127.0.0.1")
	if !b.try("", ann.email, ann.password).in() {
		t.Fatal("sign-in failed")
	}
	sameOrigin := []string{"Holdfast-Console", "1", "Sec-Fetch-Site", "same-origin"}
	bind := `{"identityUid": "` + robot + `", "roleUid": "` + string(resource.ManagedRoleUID("viewer")) + `"}`
	if p := b.ask("POST", "/iam/v2beta1/roleBindings/"+folder, bind, sameOrigin...); p.status != 200 {
		t.Errorf("right after signing in: %d %s", p.status, p.body)
	}
	clock.advance(11 * time.Minute)
	sensitive := map[string][3]string{
		"give a role": {"POST", "/iam/v2beta1/roleBindings/" + folder, bind},
		"make a role": {"POST", "/iam/v2beta1/roles/" + org, `{"name": "mine", "capabilities": ["CAP_IAM_GROUPS_LIST"]}`},
		"invite": {
			"POST", "/iam/v2beta1/groupInvites/" + org, `{"roleUid": "` + string(resource.ManagedRoleUID("viewer")) + `"}`,
		},
		"delete a workload": {"DELETE", "/iam/v2beta1/identities/" + robot, ""},
		"delete a group":    {"DELETE", "/iam/v2beta1/groups/" + folder, ""},
		"delete it, batched": {
			"POST", "/iam/v2beta1/roleBindings:batchCreate", `{"parent": "` + folder + `", "requests": []}`,
		},
		"subscribe":        {"POST", "/events/v2beta1/subscriptions/" + org, `{"sink": "https://sink.example/x"}`},
		"in version 1":     {"DELETE", "/iam/v1/groups/" + folder, ""},
		"bring a provider": {"POST", "/iam/v2beta1/identityProviders/" + org, `{"name": "idp"}`},
		"make an account":  {"POST", "/signin/v1/accounts/" + org, `{"email": "eve@example.test", "name": "Eve"}`},
	}
	for what, r := range sensitive {
		if p := b.ask(r[0], r[1], r[2], sameOrigin...); p.status != 400 || !strings.Contains(p.body, "SIGN_IN_AGAIN") {
			t.Errorf("%s with a stale session: %d %s", what, p.status, p.body)
		}
	}
	for what, r := range map[string][3]string{
		"read":              {"GET", "/iam/v2beta1/groups/" + folder, ""},
		"make a folder":     {"POST", "/iam/v2beta1/groups/" + folder, `{"name": "below"}`},
		"see what would be": {"DELETE", "/iam/v2beta1/identities/" + robot + "?validate_only=true", ""},
	} {
		if p := b.ask(r[0], r[1], r[2], sameOrigin...); p.status != 200 {
			t.Errorf("%s with a stale session: %d %s", what, p.status, p.body)
		}
	}
	if r := w.send(t, w.Token, "DELETE", "/iam/v2beta1/identities/"+robot, ""); r.status != 200 {
		t.Errorf("with a token: %d %s", r.status, r.body)
	}
	_, flow, _ := strings.Cut(b.get("/signin?again=1").location, "flow=")
	b.post("/signin/password", "flow", flow, "email", ann.email, "password", ann.password)
	if p := b.ask("POST", "/iam/v2beta1/roles/"+org, sensitive["make a role"][2], sameOrigin...); p.status != 200 {
		t.Errorf("after another sign-in: %d %s", p.status, p.body)
	}
}
