package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// The environment variables that turn the test binary into a receiver, and the number of deliveries after which the
// receiver dies.
const (
	mortalAddress = "HOLDFAST_E2E_RECEIVER"
	mortalLog     = "HOLDFAST_E2E_RECEIVER_LOG"
	mortalLife    = 40
)

// mortalMain runs a receiver in a process of its own. The receiver writes each delivery to a file. After it has
// written the last one, it kills itself before it responds.
func mortalMain(address, path string) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
	log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fail(err)
	}
	var mu sync.Mutex
	taken := 0
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		fail(err)
	}
	// The HTTP server needs no timeouts, because it runs only for seconds.
	fail(http.Serve(l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		line := fmt.Sprintln(r.Header.Get("Ce-Type"), r.Header.Get("Ce-Subject"), r.Header.Get("Ce-Id"))
		if _, err := log.WriteString(line); err != nil {
			fail(err)
		}
		if taken++; taken == mortalLife {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})))
}

// A mortal is a receiver that dies repeatedly. It starts again at the same address.
type mortal struct {
	address, log string
	lives        int
	ended        chan struct{}
	stop         context.CancelFunc
}

func newMortal(t *testing.T) *mortal {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	m := &mortal{
		address: l.Addr().String(), log: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{}), stop: stop,
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(m.ended)
		for ; ctx.Err() == nil; m.lives++ {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), mortalAddress+"="+m.address, mortalLog+"="+m.log)
			cmd.Stderr = os.Stderr
			_ = cmd.Run() // the process always ends with an error, because it kills itself
		}
	}()
	t.Cleanup(m.end)
	return m
}

func (m *mortal) end() {
	m.stop()
	<-m.ended
}

// taken returns the type, the subject and the ID of each received event, in order.
func (m *mortal) taken(t *testing.T) (taken [][3]string) {
	t.Helper()
	text, err := os.ReadFile(m.log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, line := range lines[:len(lines)-1] { // the last line may be incomplete
		taken = append(taken, [3]string(append(strings.Fields(line), "", "", "")))
	}
	return taken
}

// wantTold checks that the events about each subject say that it was created and then changed, in this order.
// Repeated events must have the same ID.
func (m *mortal) wantTold(t *testing.T, subjects []string) {
	t.Helper()
	const made, changed = "dev.holdfast.api.iam.group.created.v1", "dev.holdfast.api.iam.group.updated.v1"
	ids, first, again := map[string]string{}, map[string]int{}, 0
	deliveries := m.taken(t)
	for n, v := range deliveries {
		what := v[0] + " " + v[1]
		if id, seen := ids[what]; seen {
			again++
			if id != v[2] {
				t.Errorf("%s was delivered with the IDs %s and %s", what, id, v[2])
			}
			continue
		}
		ids[what], first[what] = v[2], n
	}
	for _, uid := range subjects {
		if ids[made+" "+uid] == "" || ids[changed+" "+uid] == "" || first[made+" "+uid] > first[changed+" "+uid] {
			t.Errorf("%s: the creation is delivery %d (%s), the change is delivery %d (%s)",
				uid, first[made+" "+uid], ids[made+" "+uid],
				first[changed+" "+uid], ids[changed+" "+uid])
		}
	}
	if again == 0 || m.lives < 2 {
		t.Errorf("%d deliveries were repeated after %d deaths: the test has proved nothing", again, m.lives)
	}
	t.Logf("%d deliveries, %d of them repeated, %d deaths", len(deliveries), again, m.lives)
}

// TestWebhooksAndCrashes kills the server and the receiver with SIGKILL while events are delivered. No event may be
// lost, repeated events must have the same ID, and the events about a subject must arrive in order.
func TestWebhooksAndCrashes(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		env := []string{"HOLDFAST_DATA_DIR=" + t.TempDir(), "HOLDFAST_DATABASE=" + url}
		m := newMortal(t)
		var groups []string
		for round := range 2 {
			p := procStart(t, env...)
			api, org := p.owner(), string(p.dev.Organization)
			if round == 0 {
				procMust[struct{}](t, api, "POST", "/events/v2beta1/subscriptions/"+org,
					map[string]string{"sink": "http://" + m.address})
			}
			for n := range 25 {
				g := procMust[struct{ UID string }](t, api, "POST", "/iam/v2beta1/groups/"+org,
					map[string]string{"name": fmt.Sprintf("g%d.%d", round, n)})
				procMust[struct{}](t, api, "PATCH", "/iam/v2beta1/groups/"+g.UID, map[string]string{"description": "d"})
				groups = append(groups, g.UID)
			}
			// Kill the server after the receiver has died and come back, so that some deliveries wait and others are
			// recorded as done.
			if round == 0 {
				procUntil(t, "it takes deliveries again", func() bool { return len(m.taken(t)) > mortalLife })
				p.kill()
				continue
			}
			last := procMust[struct{ UID string }](t, api, "POST", "/iam/v2beta1/groups/"+org, map[string]string{"name": "last"})
			procUntil(t, "every event has come", func() bool {
				return slices.ContainsFunc(m.taken(t), func(v [3]string) bool { return v[1] == last.UID }) && m.has(t, groups)
			})
			p.stop()
		}
		m.end()
		m.wantTold(t, groups)
	})
}

// has reports whether two events about each subject have arrived.
func (m *mortal) has(t *testing.T, subjects []string) bool {
	seen := map[string]map[string]bool{}
	for _, v := range m.taken(t) {
		if seen[v[1]] == nil {
			seen[v[1]] = map[string]bool{}
		}
		seen[v[1]][v[0]] = true
	}
	return !slices.ContainsFunc(subjects, func(uid string) bool { return len(seen[uid]) < 2 })
}
