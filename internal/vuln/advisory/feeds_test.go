package advisory_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/fetch"
)

const record = `{"id":"T-1","modified":"2026-01-02T03:04:05Z","published":"2026-01-01T00:00:00Z","summary":"x",` +
	`"affected":[{"package":{"ecosystem":"npm","name":"p"},` +
	`"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.0.0"}]}]}]}`

// A fixture is a service with an organization, a folder with feeds, and a clock.
type fixture struct {
	*advisory.Service
	org    resource.UID
	folder string
	now    time.Time
	ctx    context.Context // the context of the organization's owner
}

func newFixture(t *testing.T, s *storetest.Store, reach outbound.Config) *fixture {
	t.Helper()
	d := &fixture{org: resource.NewRoot(), folder: t.TempDir(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	now := func() time.Time { return d.now }
	s.Now = now
	owner := resource.NewRoot()
	must(t, s.SetManagedRoles(t.Context(), authz.ManagedRoles()))
	_, err := s.InsertGroup(t.Context(),
		resource.Group{UID: d.org, Name: "acme", CreateTime: d.now, UpdateTime: d.now},
		resource.RoleBinding{UID: d.org.NewChild(), Identity: owner, Role: resource.OwnerRole, CreateTime: d.now})
	must(t, err)
	checker, err := authz.Load(t.Context(), s.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	d.Service = advisory.New(advisorydb.New(s.DB), checker, page.NewTokens([]byte("key"), now), advisory.Config{
		Fetcher: fetch.New(fetch.Config{Client: outbound.Client(reach), Dir: t.TempDir(),
			Folders: []string{d.folder}}),
		Log: slog.New(slog.DiscardHandler), Now: now,
	})
	d.ctx = authz.WithCaller(t.Context(), authz.Caller{Identity: owner})
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read moves the clock, reads the feed that is due, and returns the recorded result.
func (d *fixture) read(t *testing.T, uid resource.UID) vuln.FeedResult {
	t.Helper()
	d.now = d.now.Add(2 * time.Hour)
	ok, err := d.ReadDue(t.Context())
	must(t, err)
	if !ok {
		t.Fatal("nothing is due")
	}
	f, err := d.GetFeed(d.ctx, uid)
	must(t, err)
	return f.Last
}

// TestFolderFeed reads a feed from a folder several times. It checks that unchanged files are not imported again, that
// a changed file updates its advisory, that a requested read waits for feedRest, and that errors are recorded.
func TestFolderFeed(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		d := newFixture(t, s, outbound.Config{})
		write := func(name, text string) { must(t, os.WriteFile(filepath.Join(d.folder, name), []byte(text), 0o600)) }
		write("a.json", record)
		f, err := d.CreateFeed(d.ctx, d.org, vuln.AdvisoryFeed{Name: "folder", Address: d.folder})
		must(t, err)
		if f.Interval != vuln.DefaultFeedInterval {
			t.Errorf("the interval is %s", f.Interval)
		}
		if last := d.read(t, f.UID); last.Error != "" || last.Import != (vuln.ImportResult{Created: 1}) {
			t.Errorf("the first read: %+v", last)
		}
		if last := d.read(t, f.UID); !last.Unchanged || last.Error != "" {
			t.Errorf("unchanged: %+v", last)
		}
		if ok, err := d.ReadDue(t.Context()); ok || err != nil {
			t.Errorf("due again immediately: %v %v", ok, err)
		}
		_, err = d.RunFeed(d.ctx, f.UID)
		must(t, err)
		if ok, err := d.ReadDue(t.Context()); ok || err != nil {
			t.Errorf("requested right after a read: %v %v", ok, err)
		}
		d.now = d.now.Add(16 * time.Second)
		if ok, err := d.ReadDue(t.Context()); !ok || err != nil {
			t.Errorf("requested: %v %v", ok, err)
		}
		write("a.json", strings.Replace(record, `"summary":"x"`, `"summary":"changed"`, 1))
		write("b.json", "nonsense")
		last := d.read(t, f.UID)
		if last.Import != (vuln.ImportResult{Updated: 1, Failed: 1}) || !strings.Contains(last.Error, "b.json") {
			t.Errorf("changed: %+v", last)
		}
		must(t, os.RemoveAll(d.folder))
		if last := d.read(t, f.UID); last.Error == "" {
			t.Errorf("a deleted folder: %+v", last)
		}
	})
}

// TestRemoteFeed checks that errors of a server are recorded, and that redirects are not followed.
func TestRemoteFeed(t *testing.T) {
	hits := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits++
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/good.json", http.StatusFound)
		case "/lies":
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte(record))
		case "/good.json":
			w.Header().Set("ETag", `"1"`)
			if r.Header.Get("If-None-Match") == `"1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			_, _ = w.Write([]byte(record))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(h.Close)
	s := storetest.Open(t, storetest.SQLite(t))
	d := newFixture(t, s, outbound.Config{Loopback: true})
	for _, path := range []string{"/moved", "/lies", "/missing"} {
		f, err := d.CreateFeed(d.ctx, d.org,
			vuln.AdvisoryFeed{Name: strings.Trim(path, "/"), Address: h.URL + path})
		must(t, err)
		if last := d.read(t, f.UID); last.Error == "" || last.Import != (vuln.ImportResult{}) {
			t.Errorf("%s: %+v", path, last)
		}
		must(t, d.DeleteFeed(d.ctx, f.UID))
	}
	if hits != 3 {
		t.Errorf("%d requests for three feeds: a redirect was followed", hits)
	}
	f, err := d.CreateFeed(d.ctx, d.org, vuln.AdvisoryFeed{Name: "good", Address: h.URL + "/good.json"})
	must(t, err)
	if last := d.read(t, f.UID); last.Error != "" || last.Import.Created != 1 {
		t.Errorf("good: %+v", last)
	}
	if last := d.read(t, f.UID); last.Error != "" || !last.Unchanged {
		t.Errorf("good again: %+v", last)
	}
	f, err = s.Feed(d.ctx, f.UID)
	must(t, err)
	must(t, s.RecordFeedResult(d.ctx, f, f.Last, bytes.Replace(f.State, []byte(`,"reader":1`), nil, 1), d.now))
	if last := d.read(t, f.UID); last.Unchanged || last.Import.Unchanged != 1 {
		t.Errorf("after version 0.1.0: %+v", last)
	}
	if last := d.read(t, f.UID); !last.Unchanged {
		t.Errorf("and again: %+v", last)
	}
}

// TestPrivateFeed checks that a feed at a private address is never requested.
func TestPrivateFeed(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	d := newFixture(t, s, outbound.Config{})
	h := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the private server received a request")
	}))
	t.Cleanup(h.Close)
	f, err := d.CreateFeed(d.ctx, d.org,
		vuln.AdvisoryFeed{Name: "private", Address: strings.Replace(h.URL, "127.0.0.1", "localhost", 1) + "/x"})
	if err != nil { // the name of the host is already refused
		if !errors.Is(err, fault.InvalidArgument) {
			t.Fatal(err)
		}
		return
	}
	if last := d.read(t, f.UID); last.Error == "" {
		t.Errorf("%+v", last)
	}
}
