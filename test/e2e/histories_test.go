package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// historySkew is an environment variable. If it is set, the test binary runs as a holdfastd whose clock is wrong by
// the duration in the variable.
const historySkew = "E2E_CLOCK_SKEW"

func historyMain(skew string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := historyServe(ctx, skew)
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func historyServe(ctx context.Context, skew string) error {
	offset, err := time.ParseDuration(skew)
	if err != nil {
		return err
	}
	cfg, err := config.Load([]string{"--dev"}, os.Environ(), os.Stdout)
	if err != nil {
		return err
	}
	cfg.Now = func() time.Time { return time.Now().Add(offset) }
	s, err := server.New(ctx, cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// A historyInput is one operation of a client.
type historyInput struct {
	op   string // grant and revoke change binding n of a guest, end deletes the guest, check tests the guest's access
	n    int    // rename gives the group its n-th name, find looks it up by its n-th name
	item string // write is a write of the guest that creates the item, see looks it up
}

// A historyState is the state of a guest and one item that it writes, or of a group.
type historyState struct {
	bindings int // bit n is set if binding n exists
	ended    bool
	written  bool
	name     int
}

// access reports whether the guest has access.
func (s historyState) access() bool { return s.bindings != 0 && !s.ended }

// historyModel describes the answers of a single server. A guest has access while it has a binding and its token has
// not ended. Only while it has access, its writes are committed. A group is found only by its latest name.
var historyModel = porcupine.Model{
	Init: func() any { return historyState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in := state.(historyState), input.(historyInput)
		switch in.op {
		case "grant":
			s.bindings |= 1 << in.n
		case "revoke":
			s.bindings &^= 1 << in.n
		case "end":
			s.ended = true
		case "rename":
			s.name = in.n
		case "check":
			return output.(bool) == s.access(), s
		case "write":
			s.written = s.access()
			return output.(writeOutcome).possible(s.access()), s
		case "see":
			return output.(bool) == s.written, s
		case "find":
			return output.(bool) == (s.name == in.n), s
		}
		return true, s
	},
}

// histories records the requests of clients to replicas, and the answers. The records are grouped by the guest or
// group that a request is about.
type histories struct {
	t      *testing.T
	dev    procDev // with tokens that are valid on all replicas
	links  []*link // the link of each replica to PostgreSQL; empty on SQLite
	issuer *token.Issuer
	start  time.Time

	mu       sync.Mutex
	replicas []*proc // a killed replica is replaced by its successor
	all      map[int][]porcupine.Operation
	keys     int
	count    map[string]int // number of answers by operation, and of faults by name
}

// historiesOnPostgres starts three replicas on a new database, after it has executed the statements in the database.
// The clock of one replica is a minute fast, the clock of another is a minute slow.
func historiesOnPostgres(t *testing.T, statements ...string) *histories {
	t.Helper()
	database, key := storetest.Postgres(t), secret.NewKey()
	s := storetest.Open(t, database)
	for _, text := range statements {
		if _, err := s.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	address, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	folder := address.Query().Get("host")
	if !filepath.IsAbs(folder) {
		t.Skip("PostgreSQL has no Unix socket")
	}
	h := newHistories(t, s, key)
	for _, skew := range []time.Duration{0, time.Minute, -time.Minute} {
		l := newLink(t, filepath.Join(folder, ".s.PGSQL.5432"))
		linked := url.URL{Scheme: "postgres", User: address.User, Host: l.address, Path: address.Path}
		h.links = append(h.links, l)
		h.launch(key, linked.String(), skew)
	}
	h.serve()
	return h
}

// historiesOnSQLite starts the only server of a new database.
func historiesOnSQLite(t *testing.T) *histories {
	t.Helper()
	database, key := storetest.SQLite(t), secret.NewKey()
	h := newHistories(t, storetest.Open(t, database), key)
	// The server needs a database for itself. It has the same keys, so the tokens of the issuer are valid there.
	served := filepath.Join(t.TempDir(), "served.db")
	for _, end := range []string{"", "-wal"} {
		content, err := os.ReadFile(database + end)
		if err == nil {
			err = os.WriteFile(served+end, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h.launch(key, served, 0)
	h.serve()
	return h
}

// newHistories returns histories without a replica, whose tokens are signed by the keys in a database.
func newHistories(t *testing.T, s *storetest.Store, key secret.Key) *histories {
	t.Helper()
	h := &histories{t: t, start: time.Now(), all: map[int][]porcupine.Operation{}, count: map[string]int{}}
	// Tokens are issued in the past so that they are valid on every clock.
	past := func() time.Time { return time.Now().Add(-2 * time.Minute) }
	var err error
	if h.issuer, err = token.New(t.Context(), s.DB, token.Config{Issuer: procBase, Key: key, Now: past}); err != nil {
		t.Fatal(err)
	}
	return h
}

// launch starts a replica on a database.
func (h *histories) launch(key secret.Key, database string, skew time.Duration) {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	// The cleanup ends the process, so the command must not end with the test's context.
	cmd := exec.CommandContext(context.WithoutCancel(h.t.Context()), self)
	cmd.Env = []string{
		historySkew + "=" + skew.String(), "HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_BASE_URL=" + procBase,
		"HOLDFAST_DATA_DIR=" + h.t.TempDir(), "HOLDFAST_ENCRYPTION_KEY=" + key.Text(), "HOLDFAST_DATABASE=" + database,
	}
	h.replicas = append(h.replicas, procRun(h.t, cmd))
}

// serve waits until all replicas serve, and signs the owner in.
func (h *histories) serve() {
	h.t.Helper()
	for _, p := range h.replicas {
		p.waitReady()
	}
	h.dev = h.replicas[0].dev
	for host, bearer := range map[string]*string{procBase: &h.dev.Token, historyRegistry: &h.dev.RegistryToken} {
		var err error
		*bearer, err = h.issuer.Mint(h.t.Context(), token.Claims{Subject: h.dev.Owner, Audience: []string{host}})
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// replica returns the process that is replica i now.
func (h *histories) replica(i int) *proc {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.replicas[i]
}

// dialer returns a function that connects to replica i, even if the replica was restarted.
func (h *histories) dialer(i int) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", h.replica(i).address)
	}
}

// dial returns a client of replica i.
func (h *histories) dial(i int, bearer string) *procClient {
	api, dial := procDial("replica", bearer), h.dialer(i)
	api.http.Timeout = historyTimeout
	api.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	return api
}

// restart kills replica i and starts it again.
func (h *histories) restart(i int) {
	before := h.replica(i)
	before.kill()
	// The cleanup ends the process, so the command must not end with the test's context.
	cmd := exec.CommandContext(context.WithoutCancel(h.t.Context()), before.cmd.Path)
	cmd.Env = before.cmd.Env
	after := procRun(h.t, cmd)
	after.waitReady()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replicas[i] = after
}

// run runs clients for the duration life. If faults is set, it causes faults during this time. It returns when every
// request has its answer.
func (h *histories) run(life time.Duration, faults bool) {
	ctx, cancel := context.WithTimeout(h.t.Context(), life)
	defer cancel()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				h.guest(ctx)
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			h.group(ctx)
		}
	})
	for _, w := range historyWrites {
		wg.Go(func() {
			for ctx.Err() == nil {
				h.writer(ctx, w)
			}
		})
	}
	failing, repaired := context.WithCancel(ctx)
	var faulty sync.WaitGroup
	if faults {
		faulty.Go(func() { h.fail(failing) })
	}
	wg.Wait()
	repaired()
	faulty.Wait()
}

// longestPause is the maximum time for which fail pauses a replica.
const longestPause = 4 * time.Second

// fail causes one fault after the other, and repairs each before it causes the next.
func (h *histories) fail(ctx context.Context) {
	wait := func(least, most time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(least + rand.N(most-least)):
		}
	}
	for ctx.Err() == nil {
		i := rand.IntN(len(h.replicas))
		faults := 2
		if len(h.links) > 0 {
			faults = 6
		}
		switch p := h.replica(i); rand.IntN(faults) {
		case 0:
			h.counted("pauses")
			p.pause(syscall.SIGSTOP)
			wait(100*time.Millisecond, longestPause)
			p.pause(syscall.SIGCONT)
		case 1:
			h.counted("kills")
			h.restart(i)
		case 2:
			h.counted("partitions")
			h.links[i].set(linkStalls, 0)
			wait(100*time.Millisecond, 4*time.Second)
		case 3:
			h.counted("lost connections")
			h.links[i].set(linkDrops, 0)
			wait(10*time.Millisecond, time.Second)
		case 4:
			h.counted("slow links")
			h.links[i].set(linkWorks, time.Millisecond+rand.N(50*time.Millisecond))
			wait(time.Second, 3*time.Second)
		// A slow disk affects all replicas.
		case 5:
			h.counted("slow disks")
			for _, l := range h.links {
				l.set(linkWorks, 10*time.Millisecond)
			}
			wait(time.Second, 2*time.Second)
		}
		for _, l := range h.links {
			l.set(linkWorks, 0)
		}
		wait(100*time.Millisecond, time.Second)
	}
}

func (h *histories) counted(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count[what]++
}

// forever is the recorded end time of a write whose outcome is unknown, because the write may still take effect.
const forever = int64(1) << 62

// historyTimeout is the longest time that a client waits for an answer.
const historyTimeout = 10 * time.Second

// record adds an operation to the history of a key.
func (h *histories) record(key, replica int, in historyInput, status int, call, end int64) {
	h.add(key, porcupine.Operation{
		ClientId: replica, Input: in, Output: status == http.StatusOK, Metadata: status, Call: call, Return: end,
	})
}

func (h *histories) add(key int, o porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[key] = append(h.all[key], o)
	h.count[o.Input.(historyInput).op]++
}

func (h *histories) now() int64 { return int64(time.Since(h.start)) }

// A historyClient calls all replicas about one guest or group.
type historyClient struct {
	*histories
	key  int
	each []*procClient // one client for each replica, with the owner's token
}

func (h *histories) client() *historyClient {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys++
	c := &historyClient{histories: h, key: h.keys}
	for i := range h.replicas {
		c.each = append(c.each, h.dial(i, h.dev.Token))
	}
	return c
}

func (c *historyClient) close() {
	for _, api := range c.each {
		api.close()
	}
}

// write sends a change to a random replica and reports whether the change was acknowledged. If it was not
// acknowledged, the change may have happened, or may still happen.
func (c *historyClient) write(in historyInput, method, path string, body, out any) bool {
	i, call := rand.IntN(len(c.each)), c.now()
	a, err := c.each[i].call(context.WithoutCancel(c.t.Context()), method, path, body)
	end, done := c.now(), err == nil && a.status == http.StatusOK
	if done && out != nil {
		done = json.Unmarshal(a.body, out) == nil
	}
	if !done {
		end = forever
		c.counted("writes whose outcome is not known")
	}
	c.record(c.key, i, in, a.status, call, end)
	return done
}

// read queries replica i repeatedly until ctx ends. It does not record answers that say that the replica is
// unavailable.
func (c *historyClient) read(ctx context.Context, i int, in func() historyInput, ask func(historyInput) (status int)) {
	for ctx.Err() == nil {
		question, call := in(), c.now()
		switch status := ask(question); status {
		case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
			c.record(c.key, i, question, status, call, c.now())
		default:
			c.counted("reads without an answer")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// setUp creates the guest or group of a history. It tries random replicas until one of them answers.
func setUp[T any](ctx context.Context, c *historyClient, path string, body any) (out T, ok bool) {
	for ctx.Err() == nil {
		a, err := c.each[rand.IntN(len(c.each))].call(ctx, http.MethodPost, path, body)
		if err == nil && a.status == http.StatusOK {
			return out, json.Unmarshal(a.body, &out) == nil
		}
		// An earlier attempt has created the resource.
		if err == nil && a.status == http.StatusConflict {
			return out, false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return out, false
}

// historyLife is the duration of the writes in one history.
const historyLife = 4 * time.Second

// guest creates an identity. Two clients grant and revoke its roles until its token ends, while other clients check
// its access at every replica.
func (h *histories) guest(ctx context.Context) {
	c := h.client()
	defer c.close()
	group, identity, ok := c.setUpGuest(ctx)
	if !ok {
		return
	}
	raw, err := h.issuer.Mint(ctx, token.Claims{Subject: identity, Audience: []string{procBase}})
	if err != nil {
		return // the test has ended
	}
	path := "/iam/v2beta1/groups/" + string(group.UID)
	reading, done := context.WithCancel(context.WithoutCancel(ctx))
	var readers, writers sync.WaitGroup
	for i := range h.replicas {
		readers.Go(func() {
			api := h.dial(i, raw)
			defer api.close()
			c.read(reading, i, func() historyInput { return historyInput{op: "check"} },
				func(historyInput) int { return api.code(context.WithoutCancel(ctx), http.MethodGet, path, nil) })
		})
	}
	life, cancel := context.WithTimeout(ctx, historyLife)
	defer cancel()
	for n, role := range []string{"viewer", "editor"} {
		body := map[string]any{"identityUid": identity, "roleUid": resource.ManagedRoleUID(role)}
		writers.Go(func() { c.toggle(life, n, group.UID, body, func() {}, func() {}) })
	}
	writers.Wait()
	c.end(identity)
	time.Sleep(200 * time.Millisecond) // gives the readers time to send more requests
	done()
	readers.Wait()
}

// setUpGuest creates a group, and an identity in it.
func (c *historyClient) setUpGuest(ctx context.Context) (group procGroup, identity resource.UID, ok bool) {
	parent := "/iam/v2beta1/groups/" + string(c.dev.Organization)
	if group, ok = setUp[procGroup](ctx, c, parent, faultBody(http.MethodPost)); !ok {
		return group, "", false
	}
	match := map[string]string{"issuer": "https://issuer.test", "subject": string(group.UID)}
	body := map[string]any{"name": "guest", "claimMatch": match}
	i, ok := setUp[procGroup](ctx, c, "/iam/v2beta1/identities/"+string(group.UID), body)
	return group, i.UID, ok
}

// end deletes a guest.
func (c *historyClient) end(identity resource.UID) {
	c.write(historyInput{op: "end"}, http.MethodDelete, "/iam/v2beta1/identities/"+string(identity), nil, nil)
}

// toggle grants and revokes a role until ctx ends or the outcome of a request is unknown. It calls granted and revoked
// after each change.
func (c *historyClient) toggle(
	ctx context.Context, n int, group resource.UID, body map[string]any, granted, revoked func(),
) {
	for ctx.Err() == nil {
		var b procGroup
		if !c.write(historyInput{op: "grant", n: n}, http.MethodPost, "/iam/v2beta1/roleBindings/"+string(group), body, &b) {
			return
		}
		granted()
		time.Sleep(rand.N(100 * time.Millisecond))
		path := "/iam/v2beta1/roleBindings/" + string(b.UID)
		if !c.write(historyInput{op: "revoke", n: n}, http.MethodDelete, path, nil, nil) {
			return
		}
		revoked()
		time.Sleep(rand.N(100 * time.Millisecond))
	}
}

// group creates a group with a repo and renames the group, while other clients look the repo up in the registry of
// every replica.
func (h *histories) group(ctx context.Context) {
	c := h.client()
	defer c.close()
	name := func(n int) string { return fmt.Sprintf("group-%d-%d", c.key, n) }
	parent := "/iam/v2beta1/groups/" + string(h.dev.Organization)
	group, ok := setUp[procGroup](ctx, c, parent, map[string]any{"name": name(0)})
	if !ok {
		return
	}
	repos := "/registry/v2beta1/repos/" + string(group.UID)
	if _, ok := setUp[procGroup](ctx, c, repos, map[string]any{"name": "app"}); !ok {
		return
	}
	reading, done := context.WithCancel(context.WithoutCancel(ctx))
	var readers sync.WaitGroup
	for i := range h.replicas {
		readers.Go(func() {
			api := h.dial(i, h.dev.RegistryToken)
			defer api.close()
			question := func() historyInput { return historyInput{op: "find", n: rand.IntN(2)} }
			c.read(reading, i, question, func(in historyInput) int {
				return api.code(context.WithoutCancel(ctx), http.MethodGet, "/v2/dev/"+name(in.n)+"/app/tags/list", nil)
			})
		})
	}
	life, cancel := context.WithTimeout(ctx, historyLife)
	defer cancel()
	for n := 1; life.Err() == nil; n = 1 - n {
		if !c.write(historyInput{op: "rename", n: n}, http.MethodPatch,
			"/iam/v2beta1/groups/"+string(group.UID)+"?updateMask=name", map[string]any{"name": name(n)}, nil) {
			break
		}
		time.Sleep(rand.N(200 * time.Millisecond))
	}
	time.Sleep(200 * time.Millisecond) // gives the readers time to send more requests
	done()
	readers.Wait()
}

// reads reports whether the operation is a read that is checked for each replica.
func (in historyInput) reads() bool { return in.op == "check" || in.op == "find" }

// A historyView is the set of answers of one replica to one query in one history, or of all replicas about one item.
type historyView struct {
	key, replica int
	question     historyInput
}

// seenBy returns the answers of a view, and all changes in the history of that view.
func (h *histories) seenBy(v historyView) (operations []porcupine.Operation) {
	for _, o := range h.all[v.key] {
		switch in := o.Input.(historyInput); {
		case in.op == "list":
			o.Input, o.Output = v.question, slices.Contains(o.Output.([]string), v.question.item)
			operations = append(operations, o)
		case in.op == "write" && in.item != v.question.item, in.reads() && (o.ClientId != v.replica || in != v.question):
		default:
			operations = append(operations, o)
		}
	}
	return operations
}

// views returns all views of a history.
func (h *histories) views(key int) map[historyView]bool {
	views := map[historyView]bool{}
	for _, o := range h.all[key] {
		if in := o.Input.(historyInput); in.reads() {
			views[historyView{key, o.ClientId, in}] = true
		} else if in.op == "write" {
			views[historyView{key, 0, historyInput{op: "see", item: in.item}}] = true
		}
	}
	return views
}

// violations returns the views that no single server could have produced. While a change is in progress, one replica
// may have applied it and another may not. A repo may also be found by its old and its new path, because one of them
// comes from a cache. So each view is compared with its own model of a server. Once a change has been acknowledged,
// all models must have applied it. The test fails if a history cannot be checked.
func (h *histories) violations() (found []historyView) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	operations := 0
	for _, key := range slices.Sorted(maps.Keys(h.all)) {
		operations += len(h.all[key])
		for v := range h.views(key) {
			switch porcupine.CheckOperationsTimeout(historyModel, h.seenBy(v), time.Minute) {
			case porcupine.Illegal:
				found = append(found, v)
			case porcupine.Unknown:
				h.t.Errorf("history %v could not be checked in a minute", v)
			}
		}
	}
	took := time.Since(h.start).Round(time.Second)
	h.t.Logf("%d histories with %d operations in %s: %v", len(h.all), operations, took, h.count)
	return found
}

// describe returns the operations of a view as text, in the order in which they were called.
func (h *histories) describe(v historyView) string {
	operations := h.seenBy(v)
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	for _, o := range operations {
		in := o.Input.(historyInput)
		fmt.Fprintf(&text, "%v to %v replica %d: %s %d %s: %v %v\n", time.Duration(o.Call),
			time.Duration(o.Return), o.ClientId, in.op, in.n, in.item, o.Output, o.Metadata)
	}
	return text.String()
}

// TestHistories records the answers of three replicas on PostgreSQL, and of a server on SQLite, about grants,
// revocations, ended tokens and renamed groups, while replicas are paused, killed, cut off from the database, slow, or
// have a wrong clock. A linearizability checker
// verifies that a single server could have given all answers of each replica: access ends when a revocation is
// acknowledged, and begins when a grant is acknowledged. It also verifies that no write is committed after a revocation
// has been acknowledged, even if a replica had received and authorized the write before. HOLDFAST_TEST_HISTORIES sets
// the duration.
func TestHistories(t *testing.T) {
	t.Parallel()
	life := 6 * time.Second
	if text := os.Getenv("HOLDFAST_TEST_HISTORIES"); text != "" {
		var err error
		if life, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	engines := map[string]func(*testing.T) *histories{
		"sqlite":   historiesOnSQLite,
		"postgres": func(t *testing.T) *histories { return historiesOnPostgres(t) },
	}
	for _, engine := range slices.Sorted(maps.Keys(engines)) {
		t.Run(engine, func(t *testing.T) { engines[engine](t).check(life) })
	}
}

// check runs clients for at least the duration life, and checks the answers.
func (h *histories) check(life time.Duration) {
	t := h.t
	h.run(life, true)
	for late := time.Now().Add(2 * time.Minute); len(h.missing()) > 0 && time.Now().Before(late); {
		h.run(life, true) // a busy machine is slow
	}
	for _, v := range h.violations() {
		t.Errorf("no single server could have given the answers of replica %d:\n%s", v.replica, h.describe(v))
	}
	for _, op := range h.missing() {
		t.Errorf("no client made the operation %s", op)
	}
}

// missing returns the operations and outcomes that the test must have, and that did not occur.
func (h *histories) missing() (missing []string) {
	want := []string{"grant", "revoke", "end", "check", "rename", "find", "list"}
	for _, w := range historyWrites {
		want = append(want, w.name+" "+string(writeAccepted), w.name+" "+string(writeDenied))
	}
	for kind := range historyToggles {
		want = append(want, "revocations: "+kind)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range want {
		if h.count[op] == 0 {
			missing = append(missing, op)
		}
	}
	return missing
}

// TestHistoriesPlanted checks that the checker finds violations. A trigger makes each replica claim that it has
// applied every change, so that no replica waits for the others.
func TestHistoriesPlanted(t *testing.T) {
	t.Parallel()
	h := historiesOnPostgres(t, `CREATE FUNCTION lie() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN NEW.grants_at := 1000000000; RETURN NEW; END $$`,
		`CREATE TRIGGER lie BEFORE INSERT OR UPDATE ON replicas FOR EACH ROW EXECUTE FUNCTION lie()`)
	// The delay makes the notifications of changes arrive late.
	for i := range h.links {
		h.links[i].set(linkWorks, 5*time.Millisecond)
	}
	for range 5 {
		h.run(2*time.Second, false)
		if found := h.violations(); len(found) > 0 {
			return
		}
	}
	t.Error("the checker did not find the planted error")
}
