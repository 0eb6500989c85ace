package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// failoverFast turns off fsync. Writes still survive a crash of the database process.
const failoverFast = "--fsync=off"

// failoverNoticed is the log message of a replica that has noticed that the history of the database has changed, as
// after a failover that lost changes.
const failoverNoticed = `"msg":"the history of the database has changed`

// failoverStandby creates a streaming standby of a cluster and starts it.
func failoverStandby(t *testing.T, primary *faultCluster) *faultCluster {
	t.Helper()
	c := faultFolder(t)
	c.more = []string{failoverFast}
	backup := c.command("pg_basebackup", "--pgdata="+filepath.Join(c.dir, "data"), "--host="+primary.dir,
		"--username=holdfast", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	c.start()
	t.Cleanup(c.stop)
	primary.waitQuery("the standby streams", `SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'`)
	return c
}

// failoverURL returns a database address that contains the sockets of both servers.
func failoverURL(a, b *faultCluster) string {
	return fmt.Sprintf("postgres://holdfast@/postgres?host=%s,%s&target_session_attrs=read-write", a.dir, b.dir)
}

// failoverQuery runs a query as the database administrator and returns the value.
func failoverQuery[T any](c *faultCluster, text string) (out T) {
	c.t.Helper()
	on, err := pgx.Connect(c.t.Context(), c.url())
	if err == nil {
		defer on.Close(context.Background())
		err = on.QueryRow(c.t.Context(), text).Scan(&out)
	}
	if err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	return out
}

// exec runs a statement as the database administrator.
func (c *faultCluster) exec(text string) {
	c.t.Helper()
	on, err := pgx.Connect(c.t.Context(), c.url())
	if err == nil {
		defer on.Close(context.Background())
		_, err = on.Exec(c.t.Context(), text)
	}
	if err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
}

func (c *faultCluster) waitQuery(what, text string) {
	c.t.Helper()
	procUntil(c.t, what, func() bool { return failoverQuery[bool](c, text) })
}

// kill ends every process of the server, like a power failure.
func (c *faultCluster) kill() {
	c.t.Helper()
	c.hang(syscall.SIGSTOP)
	c.signalChildren(syscall.SIGKILL) // first, because the children are found by their parent
	_ = c.cmd.Process.Kill()          // the next line waits until the parent has ended
	<-c.gone
	c.cmd = nil
}

// promote makes a standby the primary.
func (c *faultCluster) promote() {
	c.t.Helper()
	if out, err := c.command("pg_ctl", "promote", "--pgdata="+filepath.Join(c.dir, "data")).CombinedOutput(); err != nil {
		c.t.Fatalf("pg_ctl promote: %v\n%s", err, out)
	}
}

// A failoverLoad runs clients that create and delete groups, and records the acknowledged changes.
type failoverLoad struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	there   map[resource.UID]bool // created groups; the value is false if the deletion was acknowledged
	unknown map[resource.UID]bool // groups for whose deletion there was no answer
	last    map[*proc]time.Time   // time of the last acknowledged write, by replica
	odd     []string              // unexpected answers
}

func failoverStartLoad(t *testing.T, replicas ...*proc) *failoverLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &failoverLoad{
		cancel: cancel, there: map[resource.UID]bool{}, unknown: map[resource.UID]bool{}, last: map[*proc]time.Time{},
	}
	for _, p := range replicas {
		api := p.owner()
		api.http.Timeout = 40 * time.Second
		for range 3 {
			l.wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					l.write(ctx, p, api, n%4 == 3)
				}
			})
		}
	}
	procUntil(t, "clients are served", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.there) > 50 && len(l.last) == len(replicas)
	})
	return l
}

// write creates a group and, if deletes is set, deletes it again.
func (l *failoverLoad) write(ctx context.Context, p *proc, api *procClient, deletes bool) {
	var g procGroup
	if !l.call(ctx, p, api, http.MethodPost, faultGroups(p, http.MethodPost), faultBody(http.MethodPost), &g) {
		return
	}
	l.note(func() { l.there[g.UID] = true })
	if !deletes {
		return
	}
	l.note(func() { l.unknown[g.UID] = true })
	if l.call(ctx, p, api, http.MethodDelete, "/iam/v2beta1/groups/"+string(g.UID), nil, nil) {
		l.note(func() { l.there[g.UID] = false; delete(l.unknown, g.UID) })
	}
}

// call makes a request and reports whether it was acknowledged.
func (l *failoverLoad) call(ctx context.Context, p *proc, api *procClient, method, path string, body, out any) bool {
	a, err := api.call(ctx, method, path, body)
	if err == nil && a.status == http.StatusOK {
		l.note(func() { l.last[p] = time.Now() })
		return out == nil || json.Unmarshal(a.body, out) == nil
	}
	fine := []int{http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	if ctx.Err() == nil && (err != nil || !slices.Contains(fine, a.status)) {
		l.note(func() { l.odd = append(l.odd, fmt.Sprintf("%s %s: %d %s (%v)", method, path, a.status, a.body, err)) })
	}
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
	return false
}

func (l *failoverLoad) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// waitAck waits until a replica has acknowledged a write after the given time.
func (l *failoverLoad) waitAck(t *testing.T, p *proc, after time.Time) {
	t.Helper()
	procUntil(t, "a write is acknowledged", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.last[p].After(after)
	})
}

// stop ends the clients and fails the test if one of them got an unexpected answer.
func (l *failoverLoad) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	for i, text := range l.odd {
		if i < 5 {
			t.Errorf("a client got the unexpected answer %s", text)
		}
	}
}

// survey fails the test unless a replica returns all acknowledged changes.
func (l *failoverLoad) survey(t *testing.T, p *proc) {
	t.Helper()
	api, lost := p.owner(), 0
	for uid, exists := range l.there {
		if l.unknown[uid] {
			continue
		}
		want := http.StatusOK
		if !exists {
			want = http.StatusNotFound
		}
		got := 0
		procUntil(t, "the replica answers", func() bool {
			got = api.code(t.Context(), http.MethodGet, "/iam/v2beta1/groups/"+string(uid), nil)
			return got != http.StatusServiceUnavailable // the lease of a replica can expire on a very busy machine
		})
		if got != want {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("of %d acknowledged groups, %d do not have the acknowledged state", len(l.there), lost)
	}
	t.Logf("%d groups were acknowledged", len(l.there))
}

// socket returns the path of the server's socket.
func (c *faultCluster) socket() string { return filepath.Join(c.dir, ".s.PGSQL.5432") }

// TestFailoverSynchronous kills the primary under load and promotes the standby, which has all acknowledged changes.
// The replicas must connect to the standby without intervention.
func TestFailoverSynchronous(t *testing.T) {
	t.Parallel()
	primary := faultPostgres(t, failoverFast, "-c", "synchronous_standby_names=*")
	standby := failoverStandby(t, primary)
	primaryLink, standbyLink := newLink(t, primary.socket()), newLink(t, standby.socket())
	database := fmt.Sprintf("postgres://holdfast@%s,%s/postgres?target_session_attrs=read-write",
		primaryLink.address, standbyLink.address)
	a, b := replicas(t, database, secret.NewKey())
	load := failoverStartLoad(t, a, b)
	died := time.Now()
	primary.kill()
	standby.promote()
	promoted := time.Now()
	for _, p := range []*proc{a, b} {
		load.waitAck(t, p, promoted)
		p.waitLog(failoverNoticed)
	}
	t.Logf("promoted after %s; all replicas acknowledged writes again after %s", promoted.Sub(died), time.Since(died))
	load.stop(t)
	load.survey(t, a)
	load.survey(t, b)
	for _, p := range []*proc{a, b} {
		if line := p.logged(failoverNoticed); !strings.Contains(line, `"lost":"nothing that this replica knows of"`) {
			t.Errorf("a replica logged %s", line)
		}
		p.stop()
	}
	s := storetest.Open(t, standby.url())
	procNoDrift(t, s)
	crashReplay(t, s)
}

// logged returns the first line of the log that contains the text, or "".
func (p *proc) logged(text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.lines, func(line string) bool { return strings.Contains(line, text) })
	if i < 0 {
		return ""
	}
	return p.lines[i]
}

// TestFailoverAsynchronous promotes a standby that has not received the last changes. One replica is paused during
// the failover and continues after the lost revision numbers have been used again. No replica may accept a lost
// grant, and both must log which revisions were lost.
func TestFailoverAsynchronous(t *testing.T) {
	t.Parallel()
	primary := faultPostgres(t, failoverFast)
	standby := failoverStandby(t, primary)
	database, key := failoverURL(primary, standby), secret.NewKey()
	a, b := replicas(t, database, key)
	issuer, err := token.New(t.Context(), storetest.Open(t, primary.url()).DB, token.Config{Issuer: procBase, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	kept, lost := replicaInvite(t, a, issuer), replicaInvite(t, a, issuer)
	procMust[any](t, a.owner(), http.MethodDelete, "/iam/v2beta1/roleBindings/"+string(lost.binding), nil)
	const revision = `SELECT rev FROM revision WHERE id = 1`
	primary.waitQuery("the standby has all changes", `SELECT replay_lsn = pg_current_wal_lsn() FROM pg_stat_replication`)
	began := failoverQuery[int64](primary, revision)
	stopped := failoverQuery[int](primary, `SELECT pid FROM pg_stat_replication`)
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	grant := func(p *proc, g *replicaGuest) {
		group := strings.TrimPrefix(g.path, "/iam/v2beta1/groups/")
		procMust[any](t, p.owner(), http.MethodPost, "/iam/v2beta1/roleBindings/"+group,
			map[string]any{"identityUid": g.identity, "roleUid": resource.ManagedRoleUID("viewer")})
	}
	clients := map[*proc]*procClient{a: a.owner(), b: b.owner()}
	status := func(p *proc, g *replicaGuest) int {
		clients[p].token = g.token
		return clients[p].code(t.Context(), http.MethodGet, g.path, nil)
	}
	grant(a, lost)
	ended := failoverQuery[int64](primary, revision)
	for _, p := range []*proc{a, b} {
		if got := status(p, lost); got != http.StatusOK {
			t.Fatalf("HTTP status before the failover: %d", got)
		}
	}
	b.pause(syscall.SIGSTOP)
	primary.kill()
	standby.promote()
	start := time.Now()
	procUntil(t, "a replica follows the new history", func() bool {
		got := status(a, lost)
		if got == http.StatusOK {
			t.Fatal("a lost grant is still honored")
		}
		return got == http.StatusForbidden
	})
	t.Logf("the new history was served after %s", time.Since(start))
	for failoverQuery[int64](standby, revision) <= ended {
		replicaInvite(t, a, issuer)
	}
	b.pause(syscall.SIGCONT)
	failoverRefused(t, func() int { return status(b, lost) })
	want := fmt.Sprintf("revisions %d to %d", began+1, ended)
	for _, p := range []*proc{a, b} {
		if got := status(p, kept); got != http.StatusOK {
			t.Errorf("HTTP status with an existing grant: %d", got)
		}
		if line := p.logged(failoverNoticed); !strings.Contains(line, want) {
			t.Errorf("a replica logged %s, want %s", line, want)
		}
	}
	procMust[any](t, a.owner(), http.MethodDelete, "/iam/v2beta1/roleBindings/"+string(kept.binding), nil)
	if got := status(b, kept); got != http.StatusForbidden {
		t.Errorf("HTTP status after a revocation in the new history: %d", got)
	}
}

// failoverRefused fails the test unless a replica refuses a guest 20 times. The replica may be unavailable at first.
func failoverRefused(t *testing.T, status func() int) {
	t.Helper()
	for n := 0; n < 20; {
		switch got := status(); got {
		case http.StatusForbidden:
			n++
		case http.StatusServiceUnavailable:
			time.Sleep(10 * time.Millisecond)
		default:
			t.Fatalf("HTTP status with a lost grant: %d", got)
		}
	}
}

// TestFailoverHang promotes a standby while the primary hangs. When the old primary continues, there are two
// primaries. No replica may use the old one, even while the new primary hangs.
func TestFailoverHang(t *testing.T) {
	t.Parallel()
	primary := faultPostgres(t, failoverFast)
	standby := failoverStandby(t, primary)
	a := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+failoverURL(primary, standby))
	load := failoverStartLoad(t, a)
	start := time.Now()
	primary.hang(syscall.SIGSTOP)
	standby.promote()
	a.waitLog("the history of the database has changed")
	load.waitAck(t, a, time.Now())
	t.Logf("writes were acknowledged again after %s", time.Since(start))
	primary.hang(syscall.SIGCONT)
	sessions := `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfastd'`
	primary.waitQuery("sessions with the old primary have ended", `SELECT 0 = (`+sessions+`)`)
	events := failoverQuery[int64](primary, `SELECT count(*) FROM outbox`)
	standby.hang(syscall.SIGSTOP)
	a.waitLog("its history is")
	standby.hang(syscall.SIGCONT)
	load.waitAck(t, a, time.Now())
	load.stop(t)
	if written := failoverQuery[int64](primary, `SELECT count(*) FROM outbox`); written != events {
		t.Errorf("%d events were written to the old primary", written-events)
	}
}

// TestFailoverReadOnly makes the primary refuse writes under load, as before a switchover. The replicas must close
// their sessions, and open new ones when the primary accepts writes again.
func TestFailoverReadOnly(t *testing.T) {
	t.Parallel()
	cluster := faultPostgres(t, failoverFast)
	a := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+cluster.url())
	load := failoverStartLoad(t, a)
	cluster.exec(`ALTER SYSTEM SET default_transaction_read_only = on`)
	cluster.exec(`SELECT pg_reload_conf()`)
	cluster.waitQuery("no session is left",
		`SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'holdfastd'`)
	cluster.exec(`ALTER SYSTEM RESET default_transaction_read_only`)
	cluster.exec(`SELECT pg_reload_conf()`)
	load.waitAck(t, a, time.Now())
	load.stop(t)
	load.survey(t, a)
}
