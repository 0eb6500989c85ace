package assembly_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestAttackMountLeavesNoTrace mounts a blob of another organization without naming a repo. The caller has asked that
// organization for nothing, so its audit log must not show the caller. If the caller names the private repo, the
// refusal is recorded there like any other.
func TestAttackMountLeavesNoTrace(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		recorder := denials.New(s.DB, slog.New(slog.DiscardHandler))
		r := newRig(t, s, assembly.Config{Refusals: recorder})
		blob := r.pushBlob(t, "acme/team/app", []byte("a layer of acme"))
		rival := r.group(t, "", "rival")
		r.bind(t, r.uids["stranger"], "owner", rival.UID)
		refusals := func() (count int) {
			t.Helper()
			recorder.Flush(t.Context())
			events, err := outbox.Read(t.Context(), s.DB, 0, 1000)
			must(t, err)
			for _, e := range events {
				if e.Type == resource.RegistryRefused {
					count++
				}
			}
			return count
		}
		mount := "/v2/rival/app/blobs/uploads/?mount=" + blob.Digest.String()
		r.want(t, call{method: http.MethodPost, path: mount, who: "stranger"}, http.StatusAccepted)
		if got := refusals(); got != 0 {
			t.Errorf("a mount that names no repo has written %d events", got)
		}
		r.want(t, call{method: http.MethodPost, path: mount + "&from=acme/team/app", who: "stranger"}, http.StatusAccepted)
		if got := refusals(); got != 1 {
			t.Errorf("a mount that names a private repo has written %d events, want 1", got)
		}
		r.bind(t, r.uids["stranger"], "viewer", r.org.UID)
		r.want(t, call{method: http.MethodPost, path: mount, who: "stranger"}, http.StatusCreated)
	})
}
