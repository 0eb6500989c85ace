package browser_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// A site is a running server. Its URL contains a host name, because browsers store no passkeys for IP addresses.
type site struct {
	BaseURL         string
	OrganizationUID string
	Token           string
	OwnerUID        string
	OwnerEmail      string
	OwnerPassword   string
	RegistryToken   string

	log      *logBook
	database string // path of the SQLite file, or address of the PostgreSQL database
	devFile  string // path of the file dev.json, which a server in dev mode writes
	unjudged bool   // whether another test checks the look of the pages
}

// A logBook collects the log of the server.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newSite runs a server in development mode until the test ends.
func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOn(t, storetest.SQLite(t))
}

// newSiteOn is like newSite, but uses the given database.
func newSiteOn(t *testing.T, database string) *site {
	t.Helper()
	return newSiteWith(t, server.Config{Database: database})
}

// newSiteWith is like newSite, but uses the database and the other settings of cfg.
func newSiteWith(t *testing.T, cfg server.Config) *site {
	t.Helper()
	cfg.Dev, cfg.DataDir = true, t.TempDir()
	s := start(t, cfg)
	s.devFile = filepath.Join(cfg.DataDir, "dev.json")
	text, err := os.ReadFile(s.devFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs a server until the test ends.
func start(t *testing.T, cfg server.Config) *site {
	t.Helper()
	needs(t)
	cfg.Listen, cfg.Stdout = testkit.FreeAddress(t), io.Discard
	if cfg.Database == "" {
		cfg.Database = storetest.SQLite(t)
	}
	_, port, _ := net.SplitHostPort(cfg.Listen)
	cfg.BaseURL = "http://localhost:" + port
	s := &site{BaseURL: cfg.BaseURL, log: &logBook{}, database: cfg.Database}
	cfg.Stderr = s.log
	srv, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the server's log ends:\n%s", lastLines(s.log.String(), 20))
		}
	})
	return s
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// A person runs the command-line program with settings and tokens of their own.
type person struct {
	t      *testing.T
	site   *site
	folder string
	token  string // "" if the person signs in themselves
}

func (s *site) person(t *testing.T) *person {
	t.Helper()
	return &person{t: t, site: s, folder: t.TempDir()}
}

// owner returns a person who uses the owner's token and therefore need not sign in.
func (s *site) owner(t *testing.T) *person {
	t.Helper()
	p := s.person(t)
	p.token = s.Token
	return p
}

func (p *person) command(ctx context.Context, args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.CommandContext(ctx, testprogram.Holdfast(p.t), args...)
	cmd.Env = []string{
		"HOME=" + p.folder, "BROWSER=none", "HOLDFAST_API=" + p.site.BaseURL, "HOLDFAST_TOKEN=" + p.token,
		"HOLDFAST_CLIENT_CONFIG=" + filepath.Join(p.folder, "config.yaml"), "HOLDFAST_TOKEN_STORE=file",
	}
	return cmd
}

// try runs a command and returns its standard output and its standard error.
func (p *person) try(args ...string) (out, said string, err error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cmd := p.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return strings.TrimSpace(stdout.String()), stderr.String(), err
}

// run runs a command and returns its standard output. It fails the test if the command fails.
func (p *person) run(args ...string) string {
	p.t.Helper()
	out, said, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("holdfast %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return out
}

// json runs a command and decodes its JSON output.
func (p *person) json(into any, args ...string) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.run(append(args, "-o", "json")...)), into); err != nil {
		p.t.Fatalf("holdfast %s: %v", strings.Join(args, " "), err)
	}
}

// A login is a `holdfast auth login` that waits for a browser.
type login struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	ended chan error
	said  []string
}

// login starts `holdfast auth login`.
func (p *person) login(args ...string) *login {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	p.t.Cleanup(cancel)
	l := &login{
		t: p.t, cmd: p.command(ctx, append([]string{"auth", "login"}, args...)...), lines: make(chan string, 100),
		ended: make(chan error, 1),
	}
	stderr, err := l.cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		for scan := bufio.NewScanner(stderr); scan.Scan(); {
			l.lines <- scan.Text()
		}
		close(l.lines)
		l.ended <- l.cmd.Wait()
	}()
	return l
}

// says waits for a line of output that matches the pattern, and returns the first capture group.
func (l *login) says(pattern string) string {
	l.t.Helper()
	want := regexp.MustCompile(pattern)
	expired := time.After(patience)
	for {
		select {
		case line, more := <-l.lines:
			if m := want.FindStringSubmatch(line); m != nil {
				l.said = append(l.said, line)
				return m[len(m)-1]
			}
			if !more {
				l.t.Fatalf("the command has ended without the output %q:\n%s", pattern, strings.Join(l.said, "\n"))
			}
			l.said = append(l.said, line)
		case <-expired:
			l.t.Fatalf("the command does not print %q:\n%s", pattern, strings.Join(l.said, "\n"))
		}
	}
}

// address returns the URL that the person must open to sign in.
func (l *login) address() string {
	l.t.Helper()
	return l.says(`(http://localhost:\d+/oauth\?\S+)`)
}

// succeeds waits until the command ends, and fails the test if the command failed.
func (l *login) succeeds() {
	l.t.Helper()
	if err := l.end(); err != nil {
		l.t.Fatalf("auth login: %v\n%s", err, strings.Join(l.said, "\n"))
	}
}

// fails waits until the command ends, and returns its output. It fails the test if the command succeeded.
func (l *login) fails() string {
	l.t.Helper()
	if l.end() == nil {
		l.t.Fatalf("auth login has succeeded:\n%s", strings.Join(l.said, "\n"))
	}
	return strings.Join(l.said, "\n")
}

func (l *login) end() error {
	l.t.Helper()
	for line := range l.lines {
		l.said = append(l.said, line)
	}
	select {
	case err := <-l.ended:
		return err
	case <-time.After(patience):
		l.t.Fatalf("auth login does not end:\n%s", strings.Join(l.said, "\n"))
		return nil
	}
}

// works fails the test unless the person can call the server with the token of their sign-in.
func (p *person) works() {
	p.t.Helper()
	p.token = "" // from now on, use only the token of the sign-in
	if got := p.run("iam", "groups", "list", "-o", "id"); !strings.Contains(got, p.site.OrganizationUID) {
		p.t.Errorf("groups = %q, want %s", got, p.site.OrganizationUID)
	}
}
