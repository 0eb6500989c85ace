package e2e_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

const (
	crashClients = 8
	crashSurveys = 10 // number of rounds between two surveys
	crashMost    = 80 // maximum number of acknowledged changes before the kill
)

// kills is small in the test suite. make soak uses a large number.
var kills = flag.Int("kills", testkit.Rounds(8, 20), "how often TestCrash kills the server")

// TestCrash kills the server repeatedly in the middle of concurrent writes. Acknowledged changes must persist, and
// every other change must have happened completely or not at all. The counters and the outbox must agree with the
// rows.
func TestCrash(t *testing.T) {
	t.Parallel()
	storetest.EachEmpty(t, func(t *testing.T, url string) {
		env := []string{"HOLDFAST_DATA_DIR=" + t.TempDir(), "HOLDFAST_DATABASE=" + url}
		w := crashRounds(t, *kills, env)
		p := procStart(t, env...)
		w.check(t, p.owner())
		w.survey(t, p.owner())
		p.stop()
		w.audit(t, url)
		if !strings.Contains(url, "://") {
			crashIntegrity(t, url)
		}
	})
}

// crashRounds starts the server, runs the clients and kills the server. It repeats this rounds times.
func crashRounds(t *testing.T, rounds int, env []string) *crashWorld {
	t.Helper()
	w := &crashWorld{}
	for round := range rounds {
		p := procStart(t, env...)
		api := p.owner()
		if round == 0 {
			w.begin(p.dev)
		}
		w.check(t, api)
		if round%crashSurveys == 0 {
			w.survey(t, api)
		}
		w.crash(t, p, api)
		api.close()
		if t.Failed() {
			t.FailNow()
		}
	}
	acknowledged, doubtful, happened := 0, 0, 0
	for _, k := range w.clients {
		acknowledged, doubtful, happened = acknowledged+k.acknowledged, doubtful+k.doubtful, happened+k.happened
	}
	t.Logf("%d rounds: %d changes acknowledged, %d without an answer, of which %d had happened",
		rounds, acknowledged, doubtful, happened)
	return w
}

// crash starts the clients and kills the server at a random moment. The moment depends on the clients' progress and
// not on the clock, so that a round makes the same progress on a busy machine.
func (w *crashWorld) crash(t *testing.T, p *proc, api *procClient) {
	t.Helper()
	acknowledged := make(chan struct{}, crashMost)
	var wg sync.WaitGroup
	for _, k := range w.clients {
		wg.Go(func() { k.run(t, api, acknowledged) })
	}
	crashAwait(t, acknowledged, 1+rand.IntN(crashMost))
	killed := make(chan struct{})
	time.AfterFunc(rand.N(3*time.Millisecond), func() {
		p.kill()
		close(killed)
	})
	go func() {
		wg.Wait()
		close(acknowledged)
	}()
	// Wait for the changes that are acknowledged before the server is dead.
	for range acknowledged {
	}
	<-killed
}

// crashAwait waits until n changes have been acknowledged.
func crashAwait(t *testing.T, acknowledged <-chan struct{}, n int) {
	t.Helper()
	expired := time.After(procPatience)
	for i := range n {
		select {
		case <-acknowledged:
		case <-expired:
			t.Errorf("only %d changes were acknowledged in %s, want %d", i, procPatience, n)
			return
		}
	}
}

// A crashWorld is the expected state according to all clients.
type crashWorld struct {
	dev     procDev
	clients []*crashClient
}

func (w *crashWorld) begin(dev procDev) {
	w.dev = dev
	for i := range crashClients {
		w.clients = append(w.clients, &crashClient{id: i, org: dev.Organization})
	}
}

// check fails the test if a resource that a client changed since the last check does not have the expected state.
func (w *crashWorld) check(t *testing.T, api *procClient) {
	t.Helper()
	fresh := map[string]crashRow{}
	for _, kind := range crashKinds {
		rows, _ := crashList(t, api, kind, "order_by=create_time%20desc&page_size=200")
		for _, row := range rows {
			fresh[kind+" "+row.key()] = row
		}
	}
	for _, k := range w.clients {
		k.settle(t, api, fresh)
		for _, th := range k.touched {
			if got := crashGet(t, api, th); got != th.content {
				t.Fatalf("acknowledged %s %s: %q, want %q", th.kind, th.uid, got, th.content)
			}
		}
		k.touched = nil
	}
}

// survey fails the test if the server has resources that no client created, lacks expected resources, or returns
// other values.
func (w *crashWorld) survey(t *testing.T, api *procClient) {
	t.Helper()
	for _, kind := range crashKinds {
		want := map[resource.UID]*crashThing{}
		for _, k := range w.clients {
			for _, th := range k.things {
				if th.kind == kind {
					want[th.uid] = th
				}
			}
		}
		for query := "page_size=200"; query != ""; {
			rows, next := crashList(t, api, kind, query+"&uidp.descendants_of="+string(w.dev.Organization))
			for _, row := range rows {
				if th := want[row.UID]; th != nil && (th.key != row.key() || th.content != row.content()) {
					t.Errorf("%s %s is %q %q, want %q %q", kind, row.UID, row.key(), row.content(), th.key, th.content)
				} else if th == nil && row.Identity.UID != w.dev.Owner {
					t.Errorf("%s %s %q exists, but no client created it", kind, row.UID, row.key())
				}
				delete(want, row.UID)
			}
			query = ""
			if next != "" {
				query = "page_size=200&page_token=" + next
			}
		}
		for uid := range want {
			t.Errorf("%s %s is lost", kind, uid)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// audit opens the database of the stopped server, and fails the test if the counters or the outbox disagree with the
// rows.
func (w *crashWorld) audit(t *testing.T, url string) {
	t.Helper()
	s := storetest.Open(t, url)
	procNoDrift(t, s)
	states := crashReplay(t, s)
	counts := map[resource.EventType]int64{}
	for uid, state := range states {
		counts[state.kind]++
		stored, err := crashStored(t.Context(), s, state.kind, uid)
		if err != nil {
			t.Fatalf("%s: %v", uid, err)
		}
		if got, err := json.Marshal(stored); err != nil || string(got) != state.content {
			t.Errorf("%s is %s, but according to its events %s (%v)", uid, got, state.content, err)
		}
	}
	reach := store.Reach{Under: []resource.UID{w.dev.Organization}}
	first := page.Request{Size: 1, Order: page.Order{Field: "uid"}}
	g, err1 := s.Groups(t.Context(), reach, resource.Filter{}, first)
	i, err2 := s.Identities(t.Context(), reach, resource.Filter{}, first)
	b, err3 := s.Bindings(t.Context(), reach, resource.Filter{}, first)
	if err := cmp.Or(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	// The owner is an identity outside of the organization, so the list does not count the owner.
	if i.Total++; g.Total != counts["iam.group"] ||
		i.Total != counts["iam.identity"] || b.Total != counts["iam.rolebindings"] {
		t.Errorf("the database has %d groups, %d identities and %d bindings; according to the events %v",
			g.Total, i.Total, b.Total, counts)
	}
}

// A crashState is the state of a resource according to its events. The kind is the first two words of the event type,
// and the content is JSON.
type crashState struct {
	kind    resource.EventType
	content string
}

// crashReplay applies all events in order and returns the resulting states. It fails the test if an event contradicts
// an earlier event.
func crashReplay(t *testing.T, s *storetest.Store) map[resource.UID]crashState {
	t.Helper()
	states, ids, n := map[resource.UID]crashState{}, map[string]bool{}, int64(0)
	for {
		events, err := outbox.Read(t.Context(), s.DB, n, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if ids[e.ID] || e.Seq <= n {
				t.Errorf("event %d %s is duplicate or out of order", e.Seq, e.ID)
			}
			n, ids[e.ID] = e.Seq, true
			crashApply(t, states, e)
		}
		if len(events) == 0 {
			t.Logf("%d events", len(ids))
			return states
		}
	}
}

func crashApply(t *testing.T, states map[resource.UID]crashState, e resource.Event) {
	t.Helper()
	created := map[resource.UID]json.RawMessage{}
	words := strings.SplitN(string(e.Type), ".", 3) // iam.group.created.v1
	kind, what := strings.Join(words[:2], "."), words[2]
	state := crashState{resource.EventType(kind), string(e.After)}
	switch what {
	case "created.v1":
		created[e.Subject] = e.After
	case "created.batch.v1":
		var items []json.RawMessage
		if err := json.Unmarshal(e.After, &items); err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			var row crashRow
			if err := json.Unmarshal(item, &row); err != nil {
				t.Fatal(err)
			}
			created[row.UID] = item
		}
	case "updated.v1", "deleted.v1":
		if states[e.Subject].content != string(e.Before) {
			t.Errorf("event %d %s has the previous state %s,\nwant %s", e.Seq, e.Type, e.Before, states[e.Subject].content)
		}
		states[e.Subject] = state
		if what == "deleted.v1" {
			delete(states, e.Subject)
		}
	default:
		t.Errorf("event %d has the unexpected type %s", e.Seq, e.Type)
	}
	for uid, content := range created {
		if _, exists := states[uid]; exists {
			t.Errorf("event %d creates %s again", e.Seq, uid)
		}
		states[uid] = crashState{state.kind, string(content)}
	}
}

func crashStored(ctx context.Context, s *storetest.Store, kind resource.EventType, uid resource.UID) (any, error) {
	switch kind {
	case "iam.group":
		return s.Group(ctx, uid)
	case "iam.identity":
		return s.Identity(ctx, uid)
	case "iam.roles":
		return s.Role(ctx, uid)
	case "iam.rolebindings":
		b, err := s.Binding(ctx, uid)
		return b.RoleBinding, err
	case "signin.account":
		a, err := s.Account(ctx, uid)
		return a.Record(len(a.Passkeys)), err
	}
	return nil, fmt.Errorf("unknown kind %s", kind)
}

// procNoDrift fails the test if a counter differs from the number of rows that it counts.
func procNoDrift(t *testing.T, s *storetest.Store) {
	t.Helper()
	drifts, err := s.Drifts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drifts {
		t.Errorf("wrong counter %+v", d)
	}
}

// crashIntegrity lets SQLite check its file.
func crashIntegrity(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: %s %v", verdict, err)
	}
	var table string
	if err := db.QueryRowContext(t.Context(),
		`SELECT "table" FROM pragma_foreign_key_check`).Scan(&table); err != sql.ErrNoRows {
		t.Errorf("foreign_key_check: a row of %s refers to nothing (%v)", table, err)
	}
}

// crashList returns a page of resources and the page token for the next page.
func crashList(t *testing.T, api *procClient, kind, query string) (rows []crashRow, next string) {
	t.Helper()
	answer := procMust[map[string]json.RawMessage](t, api, http.MethodGet, "/iam/v2beta1/"+kind+"?"+query, nil)
	if err := cmp.Or(json.Unmarshal(answer[kind], &rows), json.Unmarshal(answer["nextPageToken"], &next)); err != nil {
		t.Fatal(err)
	}
	return rows, next
}

// crashGet returns the current content of a resource.
func crashGet(t *testing.T, api *procClient, th *crashThing) string {
	t.Helper()
	a, err := api.call(t.Context(), http.MethodGet, th.path(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.status == http.StatusNotFound {
		return crashGone
	}
	var row crashRow
	if err := json.Unmarshal(a.body, &row); err != nil || a.status != http.StatusOK || row.key() != th.key {
		t.Fatalf("%s %s: %d %s", th.kind, th.key, a.status, a.body)
	}
	return row.content()
}
