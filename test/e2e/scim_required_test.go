package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestScimRequired checks that tokens of a provider are exchanged only for active users of its directory as long as the
// provider requires the directory, and that a person whom the directory has created needs no sign-in before.
func TestScimRequired(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		send := w.directory(t, w.idp)
		ann, ben := w.idToken("ann", "client-a"), w.idToken("ben", "client-a")
		w.join(t, w.Token, w.a, ownerRole, ann)
		before := w.through(t, "HTTP", w.idp, ann)
		send(http.MethodPost, "/Users", `{"userName":"ben","externalId":"ben","active":true}`)
		if w.through(t, "HTTP", w.idp, ben) == "" {
			t.Error("no token for a person whom the directory has created")
		}
		at := "/access/v1/directories/" + w.idp
		var state struct {
			Etag     string
			Required bool
		}
		read := func() {
			t.Helper()
			if err := json.Unmarshal([]byte(w.send(t, w.Token, http.MethodGet, at, "").body), &state); err != nil {
				t.Fatal(err)
			}
		}
		set := func(required bool) {
			t.Helper()
			read()
			r := w.send(t, w.Token, http.MethodPatch, at, fmt.Sprintf(`{"etag":%q,"required":%t}`, state.Etag, required))
			if r.status != http.StatusOK {
				t.Fatalf("required %t: %d %s", required, r.status, r.body)
			}
			if read(); state.Required != required {
				t.Errorf("required is %t", state.Required)
			}
		}
		set(true)
		if r := w.send(t, before, http.MethodGet, "/iam/v2beta1/groups", ""); r.status != http.StatusUnauthorized {
			t.Errorf("a token from before: %d %s", r.status, r.body)
		}
		for how, protocol := range map[string]string{"over HTTP": "HTTP", "over gRPC": "gRPC"} {
			if w.through(t, protocol, w.idp, ann) != "" {
				t.Errorf("%s: a token for a person who is not in the directory", how)
			}
			if w.through(t, protocol, w.idp, ben) == "" {
				t.Errorf("%s: no token for a user of the directory", how)
			}
		}
		set(false)
		// Tokens that are issued in the second of the revocation are void.
		testkit.Until(t, func() bool { return w.through(t, "HTTP", w.idp, ann) != "" })
	})
}
