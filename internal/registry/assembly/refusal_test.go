package assembly_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestRequestID checks that an error has the ID of the client's request, or a new one.
func TestRequestID(t *testing.T) {
	r := newRig(t, storetest.Open(t, storetest.SQLite(t)), assembly.Config{})
	ask := func(id string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/v2/acme/none/tags/list", nil)
		must(t, err)
		req.Header.Set("X-Request-Id", id)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode < http.StatusBadRequest {
			t.Errorf("status %d, want an error", resp.StatusCode)
		}
		return resp.Header.Get("X-Request-Id")
	}
	if got := ask("mine-1"); got != "mine-1" {
		t.Errorf("ID %q, want the client's", got)
	}
	first, second := ask(""), ask("not \"valid\"")
	if first == "" || second == "" || first == second || second == "not \"valid\"" {
		t.Errorf("IDs %q and %q, want two new ones", first, second)
	}
}

// TestRegistryRefusals checks that a refused push is in the audit log of the organization, with its identity,
// capability and count, and in the log. A request with an invalid token is only in the log, without the token itself.
// A request that gets a challenge to log in is in neither.
func TestRegistryRefusals(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	var log bytes.Buffer
	recorder := denials.New(s.DB, slog.New(slog.NewJSONHandler(&log, nil)))
	r := newRig(t, s, assembly.Config{Refusals: recorder})
	ask := func(path, token string) int {
		method := http.MethodPost
		if path == "/v2/" {
			method = http.MethodGet
		}
		req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, nil)
		must(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		return resp.StatusCode
	}
	for range 3 {
		if got := ask("/v2/acme/team/app/blobs/uploads/", r.tokens["viewer"]); got != http.StatusForbidden {
			t.Fatalf("a viewer's push is answered with %d", got)
		}
	}
	ask("/v2/acme/team/secret-name/blobs/uploads/", r.tokens["stranger"])
	ask("/v2/acme/team/app/blobs/uploads/", "")
	ask("/v2/", "")
	ask("/v2/acme/team/app/blobs/uploads/", "not.a.token")
	recorder.Flush(t.Context())
	events, err := outbox.Read(t.Context(), s.DB, 0, 1000)
	must(t, err)
	counts := map[resource.UID]int64{}
	for _, e := range events {
		if e.Type != resource.RegistryRefused {
			continue
		}
		var a resource.Activity
		must(t, json.Unmarshal(e.After, &a))
		counts[e.Actor.Subject] += a.Count
		if e.Group != r.folder.UID || a.Capability == "" || a.Reason != resource.RefusedAccess ||
			bytes.Contains(e.After, []byte("secret-name")) {
			t.Errorf("a refusal is %s: %s", e.Group, e.After)
		}
	}
	if len(counts) != 2 || counts[r.uids["viewer"]] != 3 || counts[r.uids["stranger"]] != 1 {
		t.Errorf("the refusals are %v", counts)
	}
	if text := log.String(); strings.Count(text, `"reason":"wrong_token","count":1,`) != 1 ||
		strings.Contains(text, "not.a.token") {
		t.Errorf("the log is %s", text)
	}
}
