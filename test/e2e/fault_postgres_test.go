package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A faultCluster is a separate PostgreSQL server that a test can stop.
type faultCluster struct {
	t    *testing.T
	bin  string // folder of the PostgreSQL programs
	dir  string // folder of the database and its socket
	as   *syscall.SysProcAttr
	more []string // additional arguments of the server
	cmd  *exec.Cmd
	gone chan struct{} // closed when the running server has ended
}

// faultPostgres creates a cluster and starts it. It skips the test if there is no PostgreSQL, or no
// user to run it, because PostgreSQL refuses to run as root.
func faultPostgres(t *testing.T, more ...string) *faultCluster {
	t.Helper()
	c := faultFolder(t)
	c.more = more
	initdb := c.command("initdb", "--pgdata="+filepath.Join(c.dir, "data"), "--username=holdfast", "--auth=trust",
		"--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	c.start()
	t.Cleanup(c.stop)
	return c
}

// faultFolder returns a cluster whose folder exists and is still empty.
func faultFolder(t *testing.T) *faultCluster {
	t.Helper()
	c := &faultCluster{t: t, bin: faultPrograms(t), as: &syscall.SysProcAttr{}}
	dir, err := os.MkdirTemp("/tmp", "holdfast-pg.*") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.dir = dir
	if os.Geteuid() == 0 {
		c.as.Credential = faultNobody(t)
		if err := os.Chown(dir, int(c.as.Credential.Uid), int(c.as.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func faultPrograms(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		// The folder may contain a link to initdb, but not to the other programs.
		if whole, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(whole)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Glob fails only for a bad pattern
	if len(found) == 0 {
		t.Skip("PostgreSQL is not installed: initdb is neither in PATH nor in /usr/lib/postgresql")
	}
	return filepath.Dir(slices.Max(found))
}

// faultNobody returns the credentials of a user without privileges.
func faultNobody(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
			gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Skip("no user to run PostgreSQL, which refuses to run as root")
	return nil
}

func (c *faultCluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), filepath.Join(c.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = c.dir, c.as // the user of the command may not have access to the current folder
	return cmd
}

// url returns the address of the cluster's database.
func (c *faultCluster) url() string { return "postgres://holdfast@/postgres?host=" + c.dir }

// start starts the server and waits until it answers.
func (c *faultCluster) start() {
	c.t.Helper()
	cmd := c.command("postgres", "-D", filepath.Join(c.dir, "data"), "-c", "listen_addresses=",
		"-c", "unix_socket_directories="+c.dir, "-c", "port=5432", "-c", "shared_buffers=32MB")
	cmd.Args = append(cmd.Args, c.more...)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.cmd, c.gone = cmd, make(chan struct{})
	go func(gone chan struct{}) {
		_ = cmd.Wait() // an error is expected, because a signal ends the server
		close(gone)
	}(c.gone)
	procUntil(c.t, "PostgreSQL answers", func() bool {
		conn, err := pgx.Connect(context.Background(), c.url())
		if err != nil {
			return false
		}
		return conn.Close(context.Background()) == nil
	})
}

// stop ends the server immediately, like a crash: SIGQUIT is its immediate shutdown. It does
// nothing if the server is not running.
func (c *faultCluster) stop() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGCONT) // in case the server is paused
	_ = c.cmd.Process.Signal(syscall.SIGQUIT)
	<-c.gone
	c.cmd = nil
}

// hang pauses or continues every process of the server. It signals the parent process first and
// waits for it, because a running parent could start another process.
func (c *faultCluster) hang(sig syscall.Signal) {
	c.t.Helper()
	parent := c.cmd.Process.Pid
	if _, _, ok := faultProcess(fmt.Sprintf("/proc/%d/stat", parent)); !ok {
		c.t.Skip("no /proc, so the processes of PostgreSQL cannot be found")
	}
	_ = syscall.Kill(parent, sig)
	procUntil(c.t, "PostgreSQL has received the signal", func() bool {
		_, stopped, _ := faultProcess(fmt.Sprintf("/proc/%d/stat", parent))
		return stopped == (sig == syscall.SIGSTOP)
	})
	c.signalChildren(sig)
}

// signalChildren sends a signal to the processes that the server has started.
func (c *faultCluster) signalChildren(sig syscall.Signal) {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // Glob fails only for a bad pattern
	for _, path := range paths {
		if parent, _, ok := faultProcess(path); ok && parent == c.cmd.Process.Pid {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))) // the pattern matches only digits
			_ = syscall.Kill(pid, sig)                                // the process may have ended
		}
	}
}

// faultProcess reads the stat file of a process. It returns the parent of the process and whether
// the process is paused.
func faultProcess(path string) (parent int, stopped, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false, false // the process has ended
	}
	var pid int
	var name, state string
	if _, err := fmt.Sscan(string(text), &pid, &name, &state, &parent); err != nil {
		return 0, false, false // the name contains a space, so this is not a process of PostgreSQL
	}
	return parent, state == "T", true
}

// TestFaultPostgres crashes and pauses the database under load, and checks that the server recovers when the database
// is back.
func TestFaultPostgres(t *testing.T) {
	t.Parallel()
	cluster, data := faultPostgres(t), t.TempDir()
	tests := map[string]struct{ breakIt, mendIt func() }{
		"it crashes": {cluster.stop, cluster.start},
		"it hangs":   {func() { cluster.hang(syscall.SIGSTOP) }, func() { cluster.hang(syscall.SIGCONT) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := procStart(t, "HOLDFAST_DATA_DIR="+data, "HOLDFAST_DATABASE="+cluster.url())
			mend := sync.OnceFunc(tt.mendIt)
			defer mend() // repairs the database also if the test fails
			load := faultStartLoad(t, p)
			tt.breakIt()
			p.waitLog("changes of grants cannot be read")
			faultUnavailable(t, p, http.MethodPost)
			faultUnavailable(t, p, http.MethodGet)
			faultHealth(t, p, http.StatusOK, http.StatusServiceUnavailable)
			mend()
			faultRecovered(t, p)
			load.stop(t)
			p.stop()
			s := storetest.Open(t, cluster.url())
			procNoDrift(t, s)
			crashReplay(t, s)
		})
	}
}

// faultHealth fails the test unless the probes return these statuses.
func faultHealth(t *testing.T, p *proc, healthz, readyz int) {
	t.Helper()
	for path, want := range map[string]int{"/healthz": healthz, "/readyz": readyz} {
		if got := p.owner().code(t.Context(), http.MethodGet, path, nil); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

// A faultLoad runs clients that send reads and writes without a pause.
type faultLoad struct {
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	answers atomic.Int64
	odd     chan string // receives the first unexpected answer
}

// faultStartLoad starts clients and returns when the server has answered them.
func faultStartLoad(t *testing.T, p *proc) *faultLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &faultLoad{cancel: cancel, odd: make(chan string, 1)}
	api := p.owner()
	for range 4 {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			l.wg.Go(func() {
				for ctx.Err() == nil {
					l.call(ctx, api, method, faultGroups(p, method))
				}
			})
		}
	}
	procUntil(t, "clients are served", func() bool { return l.answers.Load() > 20 })
	return l
}

// call makes one request. While the database hangs, a request may time out, so a timeout is accepted.
func (l *faultLoad) call(ctx context.Context, api *procClient, method, path string) {
	a, err := api.call(ctx, method, path, faultBody(method))
	l.answers.Add(1)
	fine := []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	if ctx.Err() != nil || err == nil && slices.Contains(fine, a.status) {
		return
	}
	select {
	case l.odd <- fmt.Sprintf("%s: %d %s (%v)", method, a.status, a.body, err):
	default:
	}
}

// stop ends the clients and fails the test if one of them got an unexpected answer.
func (l *faultLoad) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	select {
	case text := <-l.odd:
		t.Errorf("a client got the unexpected answer %s", text)
	default:
	}
}
