package e2e_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

var advisories = flag.Int("advisories", 500, "how many `advisories` TestBackup moves")

// TestBackup creates resources of every kind, backs them up while the server runs, and restores them on each engine.
// After that, every read method must return the same answer as before, and it must be possible to pull images and to
// sign in.
func TestBackup(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, from string) {
		w := serve(t, from, server.Config{GCInterval: -1}, seedPeople(t))
		examples := methodExamples(t, w)
		image := w.pushImage(t, "dev/moved", "v1", "amd64", strings.Repeat("layer", 100_000))
		for from := 0; from < *advisories; from += 10_000 {
			zip := osvZip(t, from, min(from+10_000, *advisories))
			if _, st := w.takeIn(t, w.Token, string(w.Organization), doc("all.zip", len(zip)), zip); st.Code() != 0 {
				t.Fatal(st)
			}
		}
		ann := w.personIn(t, w.Token, string(w.Organization), "ann@example.test", "a quiet violet anchor of ann")
		to := t.TempDir()
		operate(t, w.config, "backup", to)
		want := w.readAll(t, examples)
		exported := w.export(t, &advisoriespb.ExportAdvisoriesRequest{Format: "osv"})
		if len(want) < 60 {
			t.Fatalf("only %d methods were compared", len(want))
		}
		w.stop()
		storetest.EachEmpty(t, func(t *testing.T, database string) {
			moved := w.restored(t, database, to)
			if diff := cmp.Diff(want, moved.readAll(t, examples)); diff != "" {
				t.Errorf("answers (-before +after):\n%s", diff)
			}
			if got := moved.export(t, &advisoriespb.ExportAdvisoriesRequest{Format: "osv"}); got != exported {
				t.Errorf("the export of advisories differs: %d bytes, before %d bytes", len(got), len(exported))
			}
			if got := moved.send(t, w.RegistryToken, "GET", "/v2/dev/moved/manifests/"+image, ""); got.status != 200 {
				t.Errorf("pull of the image: %d %s", got.status, got.body)
			}
			if page := moved.signInBrowser(t, "127.0.0.1").try("", ann.email, "a quiet violet anchor of ann"); !page.in() {
				t.Errorf("ann cannot sign in: %d", page.status)
			}
			moved.pushImage(t, "dev/moved", "v2", "amd64", "another layer")
		})
	})
}

// operate runs a command of holdfastd and returns its output.
func operate(t *testing.T, cfg server.Config, words ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := server.RunCommand(t.Context(), cfg, words, &out); err != nil {
		t.Fatalf("holdfastd %s: %v", strings.Join(words, " "), err)
	}
	return out.String()
}

// restored restores a backup into a database, and serves it at the address of w. The server of w must have stopped.
func (w *world) restored(t *testing.T, database, from string) *world {
	t.Helper()
	base, err := url.Parse(w.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg := w.config
	cfg.Database, cfg.DataDir, cfg.Listen = database, t.TempDir(), base.Host
	operate(t, cfg, "restore", from, "verify")
	moved := *w
	moved.config, moved.database = cfg, database
	moved.client = nil
	moved.run(t, cfg)
	moved.client = newClient()
	moved.conn = moved.dial(t, insecure.NewCredentials())
	return &moved
}

// passing matches the parts of an answer that differ from call to call.
var passing = regexp.MustCompile(
	`(?m)(last_seen|server_time|request_id|token|expires?(_in)?|next_page_token|raw_id_token)\w*: *\S+`,
)

// failing is the state of a sink that cannot be reached. It changes with each delivery.
var failing = regexp.MustCompile(`(?s)\s*failing: \{\s*since_time: \{.*?\}\s*error: "[^"]*"\s*\}`)

// readAll calls every read method and returns the answers.
func (w *world) readAll(t *testing.T, examples map[string]example) map[string]string {
	t.Helper()
	answers := map[string]string{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				e, ok := examples[operationOf(m)]
				name := string(m.Name())
				if !ok || m.IsStreamingServer() || !strings.HasPrefix(name, "List") && !strings.HasPrefix(name, "Get") ||
					// The status of a sync can change at any time.
					strings.Contains(name, "Sync") {
					continue
				}
				out := newOutput(t, m)
				full := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
				st := status.Convert(w.conn.Invoke(bearing(t, e.bearer(w)), full, e.message(t, m), out))
				text := prototext.MarshalOptions{Multiline: true}.Format(out)
				// The prototext package varies its white space on purpose.
				text = strings.ReplaceAll(text, ":  ", ": ")
				text = failing.ReplaceAllString(passing.ReplaceAllString(text, ""), "")
				answers[full] = fmt.Sprintf("%s\n%s", st.Code(), text)
			}
		}
		return true
	})
	return answers
}

// TestBackupWhileWriting backs up a server during writes. The backup must contain one consistent state: the counters
// agree with the rows, and each group has its creation event.
func TestBackupWhileWriting(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		places := []string{t.TempDir(), t.TempDir() + "/two.tar"}
		done := make(chan error, 1)
		go func() {
			var errs []error
			for _, to := range places {
				errs = append(errs, server.RunCommand(t.Context(), w.config, []string{"backup", to}, io.Discard))
			}
			done <- errors.Join(errs...)
		}()
		for n, running := 0, true; running; n++ {
			w.post(t, "/iam/v2beta1/groups/"+string(w.Organization), fmt.Sprintf(`{"name":"folder %d"}`, n))
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				running = false
			default:
			}
		}
		for _, from := range places {
			cfg := w.config
			cfg.Database, cfg.DataDir = t.TempDir()+"/new.db", t.TempDir()
			operate(t, cfg, "restore", from)
			s := storetest.Open(t, cfg.Database)
			procNoDrift(t, s)
			wantEventOfEach(t, s)
		}
	})
}

// wantEventOfEach fails the test unless there is one creation event for each group.
func wantEventOfEach(t *testing.T, s *storetest.Store) {
	t.Helper()
	var groups, created int
	err := errors.Join(s.Row(t.Context(), `SELECT count(*) FROM groups`, nil, &groups),
		s.Row(t.Context(), `SELECT count(*) FROM outbox WHERE type = $1`, []any{string(resource.GroupCreated)}, &created))
	if err != nil || groups != created {
		t.Errorf("%d groups, %d creation events, error %v", groups, created, err)
	}
}

// TestRestoreRefused checks that the error of a refused restore names the reason, and that nothing is changed.
func TestRestoreRefused(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	to := t.TempDir()
	operate(t, w.config, "backup", to)
	fresh := func(change func(*server.Config)) server.Config {
		cfg := w.config
		cfg.Database, cfg.DataDir = t.TempDir()+"/new.db", t.TempDir()
		change(&cfg)
		return cfg
	}
	for name, tt := range map[string]struct {
		cfg   server.Config
		words []string
		says  string
	}{
		"into itself": {w.config, []string{"restore", to}, "not empty"},
		"no key":      {fresh(func(c *server.Config) { c.EncryptionKey = "" }), []string{"restore", to}, "no encryption key"},
		"back-up, no key": {fresh(func(c *server.Config) {
			c.EncryptionKey = ""
		}), []string{"backup", t.TempDir()}, "no encryption key"},
		"no database":    {fresh(func(*server.Config) {}), []string{"backup", t.TempDir()}, "no such file"},
		"nothing there":  {fresh(func(*server.Config) {}), []string{"restore", t.TempDir()}, "no back-up"},
		"no archive":     {fresh(func(*server.Config) {}), []string{"restore", t.TempDir() + "/none.tar"}, "no such file"},
		"no place":       {fresh(func(*server.Config) {}), []string{"restore"}, "name the folder"},
		"two places":     {fresh(func(*server.Config) {}), []string{"backup", "a", "b"}, "name the folder"},
		"no such scheme": {fresh(func(*server.Config) {}), []string{"restore", "gs://bucket"}, "neither a folder nor"},
		"a bad time":     {fresh(func(*server.Config) {}), []string{"restore", to, "at=noon"}, "not a time"},
		"another time":   {fresh(func(*server.Config) {}), []string{"restore", to, "at=2020-01-02T03:04:05Z"}, "no back-up"},
	} {
		err := server.RunCommand(t.Context(), tt.cfg, tt.words, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want an error with %s", name, err, tt.says)
		}
	}
	w.send(t, w.Token, "GET", "/iam/v2beta1/groups", "")
}

// TestBackupInBucket backs up a server whose blobs are in a bucket. The backup is stored in a bucket and restored
// into a folder.
func TestBackupInBucket(t *testing.T) {
	t.Parallel()
	binary := testprogram.Holdfastd(t)
	bucket := s3Start(t)
	old, fresh := t.TempDir(), t.TempDir()
	p := procStart(t, append(bucket, "HOLDFAST_DATA_DIR="+old)...)
	run := func(env []string, words ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), binary, words...)
		command.Env = env
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", words, err, out)
		}
		return string(out)
	}
	layer := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB, large enough for a multipart upload
	if err := p.registry().push(t.Context(), "dev/app", "v1", layer); err != nil {
		t.Fatal(err)
	}
	run(append(bucket, "HOLDFAST_DATA_DIR="+old), "backup", "s3://blobs/backups")
	time.Sleep(time.Second) // backup names have a resolution of one second
	got := run(append(bucket, "HOLDFAST_DATA_DIR="+old), "backup", "s3://blobs/backups", "--keep", "1")
	if !strings.Contains(got, "0 of them new") || !strings.Contains(got, "Removed 1 earlier") {
		t.Errorf("output of the second backup:\n%s", got)
	}
	p.stop()
	if err := os.Link(filepath.Join(old, "holdfast.key"), filepath.Join(fresh, "holdfast.key")); err != nil {
		t.Fatal(err)
	}
	in := append(bucket[1:], "HOLDFAST_DATA_DIR="+fresh) // the restored server stores its blobs in its own folder
	run(in, "restore", "s3://blobs/backups", "--verify")
	moved := procStart(t, in...)
	if err := moved.registry().pull(t.Context(), "dev/app", "v1"); err != nil {
		t.Error(err)
	}
}

// shellBlock matches a block of shell commands in a page.
var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestBackupPage runs the commands in docs/backup.md with the real program: a backup of a running server, a restore
// into an installation that has only the key, and the move to PostgreSQL.
func TestBackupPage(t *testing.T) {
	blocks := shellBlock.FindAllStringSubmatch(readmeText(t, "docs/backup.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks of commands, but this test expects 2", len(blocks))
	}
	binary := testprogram.Holdfastd(t)
	old, fresh, backups := t.TempDir(), t.TempDir(), t.TempDir()
	p := procStart(t, "HOLDFAST_DATA_DIR="+filepath.Join(old, "data"))
	run := func(dir, line string) {
		t.Helper()
		line = strings.NewReplacer("/var/backups", backups,
			"postgres://holdfast@db.internal/holdfast", storetest.EmptyPostgres(t)).Replace(line)
		command := exec.CommandContext(t.Context(), "sh", "-c", line)
		command.Dir, command.Env = dir, []string{"PATH=" + filepath.Dir(binary) + ":/bin:/usr/bin"}
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	first := strings.Split(strings.TrimSpace(blocks[0][1]), "\n")
	run(old, first[0])
	if err := errors.Join(os.Mkdir(filepath.Join(fresh, "data"), 0o700),
		os.Link(filepath.Join(old, "data", "holdfast.key"), filepath.Join(fresh, "data", "holdfast.key"))); err != nil {
		t.Fatal(err)
	}
	run(fresh, first[1])
	p.stop()
	for _, line := range strings.Split(strings.TrimSpace(blocks[1][1]), "\n") {
		run(old, line)
	}
}
