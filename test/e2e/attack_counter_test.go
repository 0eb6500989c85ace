package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
)

// TestAttackEventCounter checks that an owner cannot read in page tokens and positions how many changes all
// organizations have made. Both still continue their lists.
func TestAttackEventCounter(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		org, owner := w.ownedOrg(t, "curious")
		w.child(t, org, "one")
		w.child(t, org, "two")
		tokens := map[string]string{}
		for name, path := range map[string]string{
			"audit log": "/audit/v1/entries?page_size=1&group_uid=" + org,
			"groups":    "/iam/v2beta1/groups?page_size=1",
		} {
			got := w.send(t, owner, "GET", path, "")
			var list struct{ NextPageToken string }
			if err := json.Unmarshal([]byte(got.body), &list); err != nil || list.NextPageToken == "" {
				t.Fatalf("%s: %d %s", name, got.status, got.body)
			}
			tokens[name] = list.NextPageToken
			got = w.send(t, owner, "GET", path+"&page_token="+list.NextPageToken, "")
			if got.status != 200 || strings.Contains(got.body, list.NextPageToken) {
				t.Errorf("the second page of %s: %d %s", name, got.status, got.body)
			}
		}
		in := &auditpb.WatchEntriesRequest{Type: "iam.group"}
		for name, begin := range w.watchers() {
			watch := begin(t, owner, in)
			tokens["first position over "+name] = watch.begun()
			w.child(t, org, "new "+name)
			_, last := watch.until("new " + name)
			tokens["position of an event over "+name] = last.Position
			watch.stop()
		}
		lengths := map[int]bool{}
		for name, token := range tokens {
			b, err := base64.RawURLEncoding.DecodeString(token)
			if err != nil || strings.Contains(string(b), `"n":`) || strings.Contains(string(b), `"f":`) {
				t.Errorf("%s is readable: %q, %v", name, b, err)
			}
			if strings.Contains(name, "of an event") {
				lengths[len(token)] = true
			}
		}
		if len(lengths) != 1 {
			t.Errorf("positions of one filter have the lengths %v", lengths)
		}
	})
}
