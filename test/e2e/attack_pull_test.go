package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// pullMany pulls a manifest n times, with eight concurrent requests. An empty bearer means no token.
func (w *world) pullMany(t *testing.T, n int, bearer, repo, reference string) {
	t.Helper()
	var started atomic.Int64
	var pullers sync.WaitGroup
	for range 8 {
		pullers.Go(func() {
			for i := started.Add(1); i <= int64(n); i = started.Add(1) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
					w.BaseURL+"/v2/"+repo+"/manifests/"+reference, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("User-Agent", fmt.Sprint("flood/", i))
				if bearer != "" {
					r.Header.Set("Authorization", "Bearer "+bearer)
				}
				resp, err := w.client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("pull %s: HTTP status %d", repo, resp.StatusCode)
					return
				}
			}
		})
	}
	pullers.Wait()
}

// recorded stops the server. It returns the recorded pulls from a repo, and the number of events about them.
func (w *world) recorded(t *testing.T, repo string) (pulls []registry.Pull, events int) {
	t.Helper()
	w.stop()
	s := storetest.Open(t, w.database)
	outbox, err := outbox.Read(t.Context(), s.DB, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range outbox {
		if e.Type == resource.RegistryPull && string(e.Subject) == repo {
			events++
		}
	}
	got, err := s.Pulls(t.Context(), store.Reach{Under: []resource.UID{resource.UID(repo).Parent()}},
		resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: resource.UID(repo)}, Direction: resource.Pulled},
		page.Request{Size: 100_000, Order: page.Order{Field: "create_time"}})
	if err != nil {
		t.Fatal(err)
	}
	return got.Items, events
}

// TestAttackAnonymousPulls pulls many times from a public repo, without a token and with a token of another
// organization. The server must write only a few rows for these pulls, with their number. It must record each pull by
// a member of the repo separately.
func TestAttackAnonymousPulls(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		const anonymous, foreign, direct = 3000, 300, 30
		h := newHierarchy(t, w)
		app := h.repo(t, h.folder, "app")
		must[*ocipb.Settings](t, w.overGRPC, w.Token, &ocipb.UpdateSettingsRequest{
			Settings: &ocipb.Settings{Uid: h.folder, Public: true},
		})
		w.pushImage(t, "dev/folder/app", "1.0", "amd64", "layer")
		stranger, member := resource.UID(h.robot(t, h.other, "stranger")), resource.UID(h.robot(t, h.folder, "member"))
		w.bind(t, h.folder, string(member), string(resource.ManagedRoleUID("registry.pull")))
		registry := token.Claims{Audience: []string{w.RegistryHost}}
		w.pullMany(t, anonymous, "", "dev/folder/app", "1.0")
		w.pullMany(t, foreign, w.mint(t, stranger, registry), "dev/folder/app", "1.0")
		w.pullMany(t, direct, w.mint(t, member, registry), "dev/folder/app", "1.0")
		// The pulls by the member are recorded without a delay.
		for protocol, call := range w.protocols() {
			procUntil(t, "the member's pulls are recorded, over "+protocol, func() bool {
				got := must[*ocipb.ListPullsResponse](t, call, w.Token, &ocipb.ListPullsRequest{
					IdentityUid: string(member), Direction: ocipb.Direction_DIRECTION_PULL,
				})
				return got.GetTotalCount() == direct && got.GetPulls()[0].GetCount() == 1
			})
		}
		records, events := w.recorded(t, app)
		rows, pulls := map[resource.UID]int{}, map[resource.UID]int64{}
		for _, p := range records {
			rows[p.Identity]++
			pulls[p.Identity] += 1 + p.More
			address := "127.0.0.1"
			if p.Identity == stranger {
				address = "" // the organization of the repo must not learn it
			}
			if p.Remote != address || p.Tag != "1.0" || p.Digest == "" {
				t.Errorf("unexpected record %+v", p)
			}
		}
		t.Logf("%d pulls of strangers: %d rows, %d events, including the %d of a member",
			anonymous+foreign, rows[""]+rows[stranger], events, direct)
		const most = 2 * 3 // in each minute of the test, one row for the first pull and one for the sum of the others
		if rows[""] > most || rows[stranger] > most || rows[member] != direct || events != len(records) {
			t.Errorf("rows: %v, and %d events; want at most %d for each stranger and %d for the member",
				rows, events, most, direct)
		}
		if want := (map[resource.UID]int64{"": anonymous, stranger: foreign, member: direct}); !maps.Equal(pulls, want) {
			t.Errorf("pulls: %v, want %v", pulls, want)
		}
	})
}
