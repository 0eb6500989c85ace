// Package deploy_test checks that the files for operators work with the server in this
// repository. It builds holdfastd and holdfast once, and runs them.
package deploy_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var built string // folder of the built programs

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// programs returns the folder of holdfastd, holdfast and holdfast-kube. `make test` has built them in advance;
// otherwise programs builds them.
var programs = sync.OnceValues(func() (string, error) {
	if os.Getenv("HOLDFAST_TEST_PREPARED") != "" {
		return filepath.Abs("../bin/test")
	}
	var err error
	if built, err = os.MkdirTemp("", "holdfast-deploy-*"); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"-C", "..", "-o", built + "/", "./cmd/holdfastd", "./cmd/holdfast"}, {"-C", "../kube", "-o", built + "/", "."},
	} {
		cmd := exec.Command("go", append([]string{"build"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	return built, nil
})

func program(t *testing.T, name string) string {
	t.Helper()
	folder, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, name)
}

// A holdfastd is a running server.
type holdfastd struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string // host:port of the server
	metrics string // host:port of /metrics
	done    chan error
}

// start runs holdfastd with only the given environment, and waits until it serves. The
// variables must set free ports.
func start(t *testing.T, environ []string, args ...string) *holdfastd {
	t.Helper()
	return startCommand(t, environ, append([]string{program(t, "holdfastd")}, args...)...)
}

// startCommand is start for a command that becomes holdfastd.
func startCommand(t *testing.T, environ []string, args ...string) *holdfastd {
	t.Helper()
	// The test's cleanup stops the process.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...)
	cmd.Env, cmd.Dir = environ, t.TempDir()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &holdfastd{t: t, cmd: cmd, done: make(chan error, 1)}
	t.Cleanup(s.stop)
	serving, log := make(chan struct{}), &bytes.Buffer{}
	go func() {
		s.follow(io.TeeReader(stderr, log), serving)
		s.done <- cmd.Wait()
	}()
	select {
	case <-serving:
	case err := <-s.done:
		s.done <- err
		t.Fatalf("holdfastd ended: %v\n%s", err, log)
	case <-time.After(time.Minute):
		t.Fatal("holdfastd does not serve after a minute")
	}
	s.metrics = cmp.Or(s.metrics, s.address)
	return s
}

// follow reads the log to its end, and closes serving when the server serves.
func (s *holdfastd) follow(log io.Reader, serving chan struct{}) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct{ Msg, Address string }
		_ = json.Unmarshal(lines.Bytes(), &line) // the line with the set-up link is not JSON
		switch line.Msg {
		case "serving metrics":
			s.metrics = line.Address
		case "serving":
			s.address = line.Address
			close(serving)
		}
	}
}

// stop stops the server as its platform would.
func (s *holdfastd) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.done:
		s.done <- nil // for the cleanup, if the test itself stops the server
		if err != nil {
			s.t.Errorf("holdfastd ended: %v", err)
		}
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		s.t.Error("holdfastd did not end")
	}
}

// get returns the status and the body of a page.
func (s *holdfastd) get(url string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	own := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the certificate belongs to this test
	client := http.Client{Transport: &http.Transport{TLSClientConfig: own, DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// local returns the variables with which a server with any settings runs on this machine:
// free ports, SQLite and blobs in a new folder, and a log that reports when the server is
// ready.
func local(t *testing.T) map[string]string {
	return map[string]string{
		"HOLDFAST_LISTEN": "127.0.0.1:0", "HOLDFAST_METRICS_LISTEN": "127.0.0.1:0", "HOLDFAST_DATA_DIR": t.TempDir(),
		"HOLDFAST_DATABASE": "", "HOLDFAST_BLOBS": "", "HOLDFAST_S3_ENDPOINT": "", "HOLDFAST_LOG_LEVEL": "info",
	}
}

// environ returns variables in the form of os.Environ. Variables of later maps take
// precedence.
func environ(all ...map[string]string) []string {
	merged := map[string]string{}
	for _, variables := range all {
		for name, value := range variables {
			merged[name] = value
		}
	}
	var lines []string
	for name, value := range merged {
		lines = append(lines, name+"="+value)
	}
	return lines
}

// knownVariables returns the variables that holdfastd --help lists.
var knownVariables = sync.OnceValues(func() (map[string]bool, error) {
	folder, err := programs()
	if err != nil {
		return nil, err
	}
	help, err := exec.Command(filepath.Join(folder, "holdfastd"), "--help").Output()
	known := map[string]bool{}
	for _, name := range regexp.MustCompile(`HOLDFAST_[A-Z0-9_]+`).FindAllString(string(help), -1) {
		known[name] = true
	}
	if err == nil && len(known) < 10 {
		err = errors.New("holdfastd --help lists no variables")
	}
	return known, err
})

// checkKnown fails the test if a variable is not a setting of the server.
func checkKnown(t *testing.T, name string) {
	t.Helper()
	known, err := knownVariables()
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(name, "HOLDFAST_") && !known[name] {
		t.Errorf("%s is not a setting of holdfastd", name)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
