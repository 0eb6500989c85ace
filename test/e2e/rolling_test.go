package e2e_test

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// rollingFreeze is how long a replica is frozen. This is longer than the replica's lease on grants, and longer than
// the proxy needs to notice that the replica does not answer.
const rollingFreeze = 4 * time.Second

// TestRollingUpgrade replaces three replicas behind haproxy by another version, one after the other: from the
// previous version to this one and back. In each direction it kills one replica and freezes another. No request may
// fail if its client repeats requests as documented, no acknowledged write may be lost, and every replica must apply
// every grant and every revocation before it is acknowledged. HOLDFAST_TEST_ROLLS is the number of upgrades and
// downgrades.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	haproxy := testprogram.Installed(t, "haproxy")
	rolls := 1
	if n, err := strconv.Atoi(os.Getenv("HOLDFAST_TEST_ROLLS")); err == nil {
		rolls = n
	}
	database := storetest.Postgres(t)
	this := testprogram.Holdfastd(t)
	before := rollingVersion{binary: rollingPrevious(t)}
	now := rollingVersion{binary: this, env: []string{"HOLDFAST_SHUTDOWN_DELAY=3s", "HOLDFAST_INSPECT_WORKERS=-1"}}
	c := rollingStart(t, database, before)
	c.startProxy(haproxy)
	load := rollingLoad(t, c, rollingEvery)
	start := time.Now()
	for range rolls {
		c.roll(load, now)
		c.roll(load, before)
	}
	load.stop()
	load.report(time.Since(start))
	load.survey()
	for _, r := range c.replicas {
		r.stop()
	}
	s := storetest.Open(t, database)
	procNoDrift(t, s)
}

// rollingPrevious returns the path of the holdfastd program in the version that the file PREVIOUS names.
func rollingPrevious(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../PREVIOUS")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\ncommit ")
	commit, _, _ := strings.Cut(rest, "\n")
	if exec.CommandContext(t.Context(), "git", "-C", "../..", "cat-file", "-e", commit+"^{commit}").Run() != nil {
		t.Skipf("commit %s of PREVIOUS is not in this clone; fetch its whole history", commit)
	}
	return testprogram.Path(t, "previous-"+commit)
}

// A rollingVersion is a version of holdfastd, with settings that only this version supports.
type rollingVersion struct {
	binary string
	env    []string
}

// A rollingCluster is three replicas and a proxy in front of them.
type rollingCluster struct {
	t          *testing.T
	env        []string // settings that all replicas share
	replicas   []*proc
	addresses  []string // addresses of the replicas, which stay the same in both versions
	dirs       []string
	versions   []rollingVersion
	proxy      string // address of the proxy
	statistics string // address of the proxy's statistics
}

// rollingStart starts three replicas of a version on an empty database.
func rollingStart(t *testing.T, database string, v rollingVersion) *rollingCluster {
	t.Helper()
	free := rollingPorts(t, 5)
	c := &rollingCluster{t: t, addresses: free[:3], proxy: free[3], statistics: free[4]}
	c.env = []string{
		"HOLDFAST_DATABASE=" + database, "HOLDFAST_ENCRYPTION_KEY=" + secret.NewKey().Text(),
		"HOLDFAST_BLOBS=" + t.TempDir(), "HOLDFAST_TRUSTED_PROXIES=127.0.0.1/32", "HOLDFAST_BASE_URL=" + c.url(),
	}
	for i := range c.addresses {
		c.dirs = append(c.dirs, t.TempDir())
		c.replicas, c.versions = append(c.replicas, nil), append(c.versions, v)
		c.launch(i)
	}
	for _, r := range c.replicas {
		r.waitReady()
	}
	return c
}

// url returns the base URL that clients use. It is also the audience of their tokens.
func (c *rollingCluster) url() string { return "http://" + c.proxy }

// rollingPorts returns n unused addresses on this machine. Their ports are below the range from which the system
// assigns ports, because the port of a replica must still be free when the replica starts again.
func rollingPorts(t *testing.T, n int) (free []string) {
	t.Helper()
	var lc net.ListenConfig
	for len(free) < n {
		l, err := lc.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue // the port is in use
		}
		defer l.Close()
		free = append(free, l.Addr().String())
	}
	return free
}

func (c *rollingCluster) launch(i int) {
	c.t.Helper()
	env := append([]string{"HOLDFAST_LISTEN=" + c.addresses[i], "HOLDFAST_DATA_DIR=" + c.dirs[i]}, c.env...)
	c.replicas[i] = procLaunchOf(c.t, c.versions[i].binary, append(env, c.versions[i].env...)...)
}

// startProxy runs haproxy with the configuration that is shipped for operators. Only the addresses are replaced.
func (c *rollingCluster) startProxy(haproxy string) {
	c.t.Helper()
	text, err := os.ReadFile("../../deploy/haproxy/haproxy.cfg")
	if err != nil {
		c.t.Fatal(err)
	}
	config := strings.NewReplacer("bind :8080", "bind "+c.proxy, "127.0.0.1:8404", c.statistics,
		"10.0.0.11:8080", c.addresses[0], "10.0.0.12:8080", c.addresses[1], "10.0.0.13:8080", c.addresses[2],
	).Replace(string(text))
	path := filepath.Join(c.t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		c.t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.CommandContext(c.t.Context(), haproxy, "-db", "-f", path)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("output of haproxy:\n%s", &log)
		}
	})
	for i := range c.addresses {
		c.waitProxy(i, "UP")
	}
}

// waitProxy waits until the proxy reports the state want for replica i.
func (c *rollingCluster) waitProxy(i int, want string) {
	c.t.Helper()
	name := string(rune('a' + i))
	procUntil(c.t, fmt.Sprintf("the proxy takes replica %s for %s", name, want), func() bool {
		a, err := procDial(c.statistics, "").call(c.t.Context(), http.MethodGet, "/;csv", nil)
		if err != nil {
			return false
		}
		rows, err := csv.NewReader(strings.NewReader(string(a.body))).ReadAll()
		if err != nil {
			c.t.Fatal(err)
		}
		const status = 17 // index of the column with the status
		for _, row := range rows {
			if row[0] == "replicas" && row[1] == name {
				return strings.HasPrefix(row[status], want)
			}
		}
		return false
	})
}

// roll replaces all replicas, one after the other. In between, it freezes one replica and kills another.
func (c *rollingCluster) roll(load *rollingClients, to rollingVersion) {
	c.t.Helper()
	load.pages.Store(to.env != nil) // the previous version cannot read the page tokens of this one
	c.replace(0, load, to)
	load.progress()
	c.freeze(2)
	c.replace(1, load, to)
	load.progress()
	c.crash(0)
	c.replace(2, load, to)
	load.progress()
}

// replace stops a replica and starts another version in its place. If the stopped replica has a shutdown_delay,
// clients must not have to repeat any request.
func (c *rollingCluster) replace(i int, load *rollingClients, to rollingVersion) {
	c.t.Helper()
	before := load.repeated()
	c.replicas[i].stop()
	if n := load.repeated() - before; n > 0 && c.versions[i].env != nil {
		c.t.Errorf("%d requests had to be repeated while replica %d was stopped", n, i)
	}
	c.versions[i] = to
	c.launch(i)
	c.replicas[i].waitReady()
	c.waitProxy(i, "UP")
}

// crash kills a replica, and starts it again after the proxy has noticed.
func (c *rollingCluster) crash(i int) {
	c.t.Helper()
	c.replicas[i].kill()
	c.waitProxy(i, "DOWN")
	c.launch(i)
	c.replicas[i].waitReady()
	c.waitProxy(i, "UP")
}

// freeze suspends a replica, and resumes it after rollingFreeze.
func (c *rollingCluster) freeze(i int) {
	c.t.Helper()
	c.replicas[i].pause(syscall.SIGSTOP)
	thaw := time.After(rollingFreeze)
	c.waitProxy(i, "DOWN")
	<-thaw
	c.replicas[i].pause(syscall.SIGCONT)
	c.waitProxy(i, "UP")
}
