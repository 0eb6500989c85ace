package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// procBase is the base URL of the servers in these tests. It does not contain the port, so that a token stays valid
// when the server restarts on another port.
const procBase = "http://holdfast.test"

// procPatience is the longest time to wait for an expected event.
const procPatience = 90 * time.Second

func TestMain(m *testing.M) {
	if inspect.IsChild() {
		inspect.Child()
	}
	if address := os.Getenv(mortalAddress); address != "" {
		mortalMain(address, os.Getenv(mortalLog))
	}
	if skew := os.Getenv(historySkew); skew != "" {
		historyMain(skew)
	}
	os.Exit(m.Run())
}

// A procDev has the fields of the file dev.json that the tests need.
type procDev struct {
	Organization  resource.UID `json:"organizationUid"`
	Owner         resource.UID `json:"ownerUid"`
	Token         string       `json:"token"`
	RefreshToken  string
	RegistryToken string `json:"registryToken"`
}

// A proc is a holdfastd in dev mode in a process of its own.
type proc struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string // host:port
	dev     procDev
	ready   time.Duration // time from the start of the process until it serves
	ended   chan struct{} // closed when the process is gone
	err     error         // result of the process; valid after ended is closed
	killed  bool          // whether the test killed the process

	mu    sync.Mutex
	lines []string      // lines of the process's log
	more  chan struct{} // closed when the next line is logged
}

// procStart starts holdfastd and waits until it serves. The process's environment is env, plus settings that all
// tests use. env must contain HOLDFAST_DATA_DIR.
func procStart(t *testing.T, env ...string) *proc {
	t.Helper()
	p := procLaunch(t, env...)
	p.waitReady()
	return p
}

// procLaunch starts holdfastd, but does not wait until it serves.
func procLaunch(t *testing.T, env ...string) *proc {
	t.Helper()
	binary := testprogram.Holdfastd(t)
	// Tests push thousands of images, and the server would start a process to inspect each of them.
	return procLaunchOf(t, binary, append([]string{"HOLDFAST_INSPECT_WORKERS=-1"}, env...)...)
}

// procLaunchOf starts the given binary of holdfastd, which may be another version. It does not wait until the server
// serves.
func procLaunchOf(t *testing.T, binary string, env ...string) *proc {
	t.Helper()
	// The cleanup ends the process, so the command must not end with the test's context.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "--dev")
	cmd.Env = append([]string{"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_BASE_URL=" + procBase}, env...)
	return procRun(t, cmd)
}

// procRun runs a command that starts holdfastd. The process ends with the test.
func procRun(t *testing.T, cmd *exec.Cmd) *proc {
	t.Helper()
	p := &proc{t: t, cmd: cmd, ended: make(chan struct{}), more: make(chan struct{})}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	go func() {
		p.readLog(stderr, start)
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		expected := p.killed
		p.kill()
		if t.Failed() && !expected {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("the log of process %d ends:\n%s", cmd.Process.Pid, strings.Join(p.lines[max(0, len(p.lines)-20):], "\n"))
		}
	})
	return p
}

// readLog stores the lines of the log. The line that says that the server serves also sets the address and the start
// time.
func (p *proc) readLog(from io.Reader, start time.Time) {
	scan := bufio.NewScanner(from)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var line struct{ Msg, Address string }
		_ = json.Unmarshal(scan.Bytes(), &line) // the output of a panic is not JSON
		p.mu.Lock()
		if line.Msg == "serving" {
			p.address, p.ready = line.Address, time.Since(start)
		}
		p.lines = append(p.lines, scan.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, from) // reads the rest if a line was too long, so that the process does not block
}

// waitLog waits until the log has a line that contains text.
func (p *proc) waitLog(text string) {
	p.t.Helper()
	expired := time.After(procPatience)
	for {
		p.mu.Lock()
		found := slices.ContainsFunc(p.lines, func(line string) bool { return strings.Contains(line, text) })
		more := p.more
		p.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-p.ended:
			p.t.Fatalf("holdfastd ended before it logged %s: %v\n%s", text, p.err, strings.Join(p.lines, "\n"))
		case <-expired:
			p.t.Fatalf("holdfastd did not log %s within %s", text, procPatience)
		}
	}
}

func (p *proc) waitReady() {
	p.t.Helper()
	p.waitLog(`"msg":"serving"`)
	dir := "data"
	for _, line := range p.cmd.Env {
		if value, ok := strings.CutPrefix(line, "HOLDFAST_DATA_DIR="); ok {
			dir = filepath.Join(p.cmd.Dir, value)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &p.dev); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process with SIGKILL, and waits until it is gone.
func (p *proc) kill() {
	p.killed = true
	_ = p.cmd.Process.Kill() // the process may have ended already
	<-p.ended
}

// signal asks the process to stop.
func (p *proc) signal() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}

// stop asks the process to stop, and fails the test unless it exits successfully.
func (p *proc) stop() {
	p.t.Helper()
	p.signal()
	p.waitEnd()
}

// waitEnd waits until the process has ended, and fails the test unless it exited successfully.
func (p *proc) waitEnd() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(procPatience):
		p.t.Fatalf("holdfastd did not end within %s", procPatience)
	}
	if p.err != nil {
		p.t.Fatalf("holdfastd ended with %v", p.err)
	}
}

// alive fails the test if the process has ended.
func (p *proc) alive() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("holdfastd ended: %v", p.err)
	default:
	}
}

// owner returns a client that calls with the token of the organization's owner.
func (p *proc) owner() *procClient { return procDial(p.address, p.dev.Token) }

// A procClient calls the JSON API of a server.
type procClient struct {
	address, token string
	http           *http.Client
}

func procDial(address, token string) *procClient {
	return &procClient{
		address, token, &http.Client{Timeout: procPatience, Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
}

func (c *procClient) close() { c.http.CloseIdleConnections() }

// A procAnswer is a complete response of the server.
type procAnswer struct {
	status int
	body   []byte
}

// call sends body as JSON, unless it is nil. An error means that there was no complete response.
func (c *procClient) call(ctx context.Context, method, path string, body any) (procAnswer, error) {
	return c.callWith(ctx, method, path, "application/json", body)
}

// callWith is like call, but names the media type of the JSON.
func (c *procClient) callWith(ctx context.Context, method, path, mediaType string, body any) (procAnswer, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return procAnswer{}, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+path, content)
	if err != nil {
		return procAnswer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", mediaType)
	resp, err := c.http.Do(req)
	if err != nil {
		return procAnswer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return procAnswer{resp.StatusCode, text}, err
}

// procMust is like call, but fails the test unless the request succeeds. It returns the decoded response.
func procMust[T any](t *testing.T, c *procClient, method, path string, body any) (out T) {
	t.Helper()
	a, err := c.call(t.Context(), method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	if len(a.body) == 0 {
		return out
	}
	if err := json.Unmarshal(a.body, &out); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, a.body)
	}
	return out
}

// code makes a call and returns the status of the response, or 0 if there was none.
func (c *procClient) code(ctx context.Context, method, path string, body any) int {
	a, err := c.call(ctx, method, path, body)
	if err != nil {
		return 0
	}
	return a.status
}

// procUntil polls until ok returns true, and fails the test if that takes too long.
func procUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for expired := time.After(procPatience); !ok(); {
		select {
		case <-tick.C:
		case <-expired:
			t.Fatalf("did not happen within %s: %s", procPatience, what)
		}
	}
}

// procGroup has the fields of a group that these tests read.
type procGroup struct {
	UID         resource.UID `json:"uid"`
	Name        string       `json:"name"`
	Description string       `json:"description"`
}

// TestProcessAtRest logs the start time and the memory of a server in dev mode. The targets for both hold only on an
// idle machine, so the test fails only if the server does not work.
func TestProcessAtRest(t *testing.T) {
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir())
	procMust[any](t, p.owner(), http.MethodGet, "/iam/v2beta1/groups", nil)
	t.Logf("ready in %d ms, %d MB resident", p.ready.Milliseconds(), procResident(t, p)>>20)
	p.stop()
}

// procResident returns the resident memory of the process, in bytes.
func procResident(t *testing.T, p *proc) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no /proc to read memory from")
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}
