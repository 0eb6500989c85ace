package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// attackRecord is an advisory in the format of a feed.
const attackRecord = `{"id":"ATTACK-1","modified":"2026-01-02T03:04:05Z","published":"2026-01-01T00:00:00Z",` +
	`"summary":"x","affected":[{"package":{"ecosystem":"npm","name":"p"},"versions":["1.0.0"]}]}`

// A stallingFeed is an HTTP server with feeds. Every path below /stall/ sends one byte and then nothing until the
// test ends. All other paths send a record.
type stallingFeed struct {
	*httptest.Server
	stalled atomic.Int32
}

func newStallingFeed(t *testing.T) *stallingFeed {
	t.Helper()
	ends := make(chan struct{})
	f := &stallingFeed{}
	mux := http.NewServeMux()
	mux.HandleFunc("/stall/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "{")
		_ = http.NewResponseController(w).Flush()
		f.stalled.Add(1)
		select {
		case <-ends:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, attackRecord) })
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	t.Cleanup(func() { close(ends) })
	return f
}

// feed creates a feed in a group as the owner and returns its UID.
func (w *world) feed(t *testing.T, group, name, address string) string {
	t.Helper()
	return w.post(t, "/advisories/v1/feeds/"+group, `{"name":"`+name+`","address":"`+address+`"}`)
}

// TestAttackStalledFeeds lets an organization fill the queue of feeds with addresses that stall. The server must
// still read the feed of another organization, and must fetch only one of the attacker's feeds at a time.
func TestAttackStalledFeeds(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		attacker := newStallingFeed(t)
		other := w.child(t, "", "attacker")
		for i := range 40 {
			w.feed(t, other, fmt.Sprint("stall", i), fmt.Sprintf("%s/stall/%d.json", attacker.URL, i))
		}
		procUntil(t, "the attacker's feed stalls", func() bool { return attacker.stalled.Load() > 0 })
		honest := w.feed(t, string(w.Organization), "honest", attacker.URL+"/good.json")
		procUntil(t, "the other organization's feed is read", func() bool {
			got := w.send(t, w.Token, "GET", "/advisories/v1/feeds/"+honest, "")
			var f struct {
				Last struct{ Counts struct{ Created string } }
			}
			if err := json.Unmarshal([]byte(got.body), &f); err != nil {
				t.Fatal(err)
			}
			return f.Last.Counts.Created == "1"
		})
		if n := attacker.stalled.Load(); n != 1 {
			t.Errorf("%d feeds of one organization are fetched at the same time, want 1", n)
		}
	})
}
