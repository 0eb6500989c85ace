package mail_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/maildb"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/mailtest"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const secretLink = "https://holdfast.example.com/link?code=S3CRET"

// A post is a mail queue with a clock that the test moves.
type post struct {
	*mail.Queue
	db   *storetest.Store
	logs *bytes.Buffer
	org  resource.UID

	mu  sync.Mutex
	now time.Time
}

func (p *post) time() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *post) move(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

func open(t *testing.T, s *storetest.Store, server mail.Server) *post {
	t.Helper()
	p := &post{db: s, logs: &bytes.Buffer{}, org: resource.NewRoot(), now: time.Now().Truncate(time.Millisecond)}
	s.Now = p.time
	if server.From == "" {
		server.From = "Holdfast <holdfast@example.com>"
	}
	p.Queue = mail.New(s.DB, mail.Config{
		Server: server, Key: secret.NewKey(), Issuer: "https://holdfast.example.com",
		Log: slog.New(slog.NewTextHandler(p.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	return p
}

func plain(s *mailtest.Server) mail.Server { return mail.Server{Address: s.Address, TLS: mail.NoTLS} }

func (p *post) link(to string) mail.Message {
	return p.Link(p.org, to, "acme", secretLink, p.time().Add(24*time.Hour))
}

// add adds a message in a transaction that returns err.
func (p *post) add(t *testing.T, m mail.Message, err error) {
	t.Helper()
	got := p.db.Write(t.Context(), func(tx *store.Tx) error {
		if err := p.Add(t.Context(), tx, m); err != nil {
			return err
		}
		return err
	})
	if (got == nil) != (err == nil) {
		t.Fatal(got)
	}
}

func (p *post) send(t *testing.T, want int) {
	t.Helper()
	if n, err := p.SendDue(t.Context()); err != nil || n != want {
		t.Fatalf("%d attempts, %v, want %d", n, err, want)
	}
}

func (p *post) waiting(t *testing.T) int {
	t.Helper()
	n, _, err := p.Waiting(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stored returns the encrypted messages in the database.
func (p *post) stored(t *testing.T) (sealed []byte) {
	t.Helper()
	err := p.db.Rows(t.Context(), `SELECT id, organization, address, sealed FROM mails`, nil,
		func(s store.Scanner) (bool, error) {
			var id, org string
			var address, body []byte
			err := s.Scan(&id, &org, &address, &body)
			sealed = append(append(append(sealed, id+org...), address...), body...)
			return false, err
		})
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// TestSend checks that a message reaches the server in each TLS mode, has the
// expected content, and leaves nothing readable in the database.
func TestSend(t *testing.T) {
	for name, tt := range map[string]struct {
		server mailtest.Config
		tls    string
	}{
		"starttls":   {mailtest.Config{TLS: true, User: "holdfast", Password: "hush"}, mail.StartTLS},
		"implicit":   {mailtest.Config{TLS: true, Implicit: true, User: "holdfast", Password: "hush"}, mail.Implicit},
		"none":       {mailtest.Config{User: "holdfast", Password: "hush"}, mail.NoTLS},
		"no sign-in": {mailtest.Config{}, mail.NoTLS},
	} {
		t.Run(name, func(t *testing.T) {
			server := mailtest.Start(t, tt.server)
			to := mail.Server{
				Address: server.Address, TLS: tt.tls, User: tt.server.User, Password: tt.server.Password, Roots: server.Roots,
			}
			p := open(t, storetest.Open(t, storetest.SQLite(t)), to)
			if err := to.Check(t.Context()); err != nil {
				t.Errorf("check: %v", err)
			}
			p.add(t, p.link("ann@example.test"), nil)
			if s := p.stored(t); bytes.Contains(s, []byte("S3CRET")) || bytes.Contains(s, []byte("ann@")) {
				t.Errorf("stored in the clear: %s", s)
			}
			p.send(t, 1)
			got := server.Messages()
			if len(got) != 1 || got[0].From != "holdfast@example.com" || !slices.Equal(got[0].To, []string{"ann@example.test"}) {
				t.Fatalf("sent %+v", got)
			}
			for _, want := range []string{
				"Subject: Your account at acme\r\n", "To: <ann@example.test>\r\n", "Auto-Submitted: auto-generated\r\n",
				"From: \"Holdfast\" <holdfast@example.com>\r\n", "link?code=3DS3CRET", "an administrator of \"acme\"",
			} {
				if !strings.Contains(got[0].Data, want) {
					t.Errorf("without %q: %s", want, got[0].Data)
				}
			}
			if n := p.waiting(t); n != 0 {
				t.Errorf("%d are waiting", n)
			}
			var left int
			if err := p.db.Row(t.Context(), `SELECT count(*) FROM mails WHERE sealed IS NOT NULL`, nil, &left); err != nil ||
				left != 0 {
				t.Errorf("%d texts are left: %v", left, err)
			}
			p.send(t, 0)
			for _, hidden := range []string{"S3CRET", "ann@", "hush"} {
				if strings.Contains(p.logs.String(), hidden) {
					t.Errorf("the log has %s: %s", hidden, p.logs)
				}
			}
		})
	}
}

// TestTLSIsRequired checks that nothing is sent, and no credentials are used,
// if the server has no TLS or an untrusted certificate.
func TestTLSIsRequired(t *testing.T) {
	for name, cfg := range map[string]mailtest.Config{"no tls": {}, "a stranger": {TLS: true},
		"none here": {TLS: true, Implicit: true}} {
		server := mailtest.Start(t, cfg)
		to := mail.Server{Address: server.Address, TLS: mail.StartTLS}
		if cfg.TLS {
			to.User, to.Password = "holdfast", "hush"
		}
		if cfg.Implicit {
			to.TLS = mail.Implicit
		}
		if err := to.Check(t.Context()); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: check: %v", name, err)
		}
		p := open(t, storetest.Open(t, storetest.SQLite(t)), to)
		p.add(t, p.link("ann@example.test"), nil)
		p.send(t, 1)
		if len(server.Messages()) != 0 || len(server.Users()) != 0 || p.waiting(t) != 1 {
			t.Errorf("%s: sent %v, signed in %v", name, server.Messages(), server.Users())
		}
	}
}

// TestRetry checks that a message that the server refuses temporarily is sent
// later. Messages that the server refuses permanently, and expired ones, are
// removed. The responses of the server are not logged.
func TestRetry(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		server := mailtest.Start(t, mailtest.Config{})
		p := open(t, s, plain(server))
		server.Refuse("later@example.test", 451, "later@example.test is greylisted")
		server.Refuse("never@example.test", 550, "no such user never@example.test")
		server.Refuse("ever@example.test", 451, "try again")
		for _, to := range []string{"later@example.test", "never@example.test", "ever@example.test"} {
			p.add(t, p.link(to), nil)
		}
		p.send(t, 3)
		if n := p.waiting(t); n != 2 {
			t.Errorf("%d are waiting, want the two that can be sent later", n)
		}
		p.send(t, 0) // the message is not due yet
		server.Refuse("later@example.test", 0, "")
		p.move(31 * time.Second)
		p.send(t, 2)
		if got := server.Messages(); len(got) != 1 || got[0].To[0] != "later@example.test" {
			t.Errorf("sent %+v", got)
		}
		attempts := 0
		for range 60 { // 60 hours
			p.move(time.Hour + time.Second)
			n, err := p.SendDue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			attempts += n
		}
		if n := p.waiting(t); n != 0 || attempts < 10 || attempts > 30 {
			t.Errorf("%d are waiting after %d attempts", n, attempts)
		}
		for _, hidden := range []string{"@example.test", "greylisted", "S3CRET"} {
			if strings.Contains(p.logs.String(), hidden) {
				t.Errorf("the log has %s: %s", hidden, p.logs)
			}
		}
		if !strings.Contains(p.logs.String(), "550 5.1.1") {
			t.Errorf("the log does not say why: %s", p.logs)
		}
	})
}

// TestWithItsTransaction checks that the message for a change that was rolled
// back, or was a dry run, is not sent.
func TestWithItsTransaction(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		p := open(t, s, mail.Server{Address: "127.0.0.1:1", TLS: mail.NoTLS})
		p.add(t, p.link("ann@example.test"), context.Canceled)
		dry := resource.WithDryRun(t.Context())
		if err := s.Write(dry, func(tx *store.Tx) error { return p.Add(dry, tx, p.link("ann@example.test")) }); err != nil {
			t.Fatal(err)
		}
		if n := p.waiting(t); n != 0 {
			t.Errorf("%d are waiting", n)
		}
		p.add(t, p.link("ann@example.test"), nil)
		if n := p.waiting(t); n != 1 {
			t.Errorf("%d are waiting, want 1", n)
		}
	})
}

// TestBounds checks the limits for a day: how many messages an organization can
// send to one address, how many all organizations can send to one address, and
// how many an organization can send in total.
func TestBounds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		p := open(t, s, mail.Server{Address: "127.0.0.1:1", TLS: mail.NoTLS})
		for i := range mail.MaxBoth + 3 {
			p.add(t, p.link([]string{"ann@example.test", "ANN@example.test"}[i%2]), nil)
		}
		if n := p.waiting(t); n != mail.MaxBoth {
			t.Errorf("from one organization: %d, want %d", n, mail.MaxBoth)
		}
		for range mail.MaxToAddress {
			p.org = resource.NewRoot()
			p.add(t, p.link("ann@example.test"), nil)
		}
		if n := p.waiting(t); n != mail.MaxToAddress {
			t.Errorf("from all organizations: %d, want %d", n, mail.MaxToAddress)
		}
		p.org = resource.NewRoot()
		err := s.Write(t.Context(), func(tx *store.Tx) error {
			for i := range mail.MaxByOrganization + 5 {
				if err := p.Add(t.Context(), tx, p.link(fmt.Sprintf("p%d@example.test", i))); err != nil {
					return err
				}
			}
			return nil
		})
		if n := p.waiting(t); err != nil || n != mail.MaxToAddress+mail.MaxByOrganization {
			t.Errorf("by one organization: %d, %v", n, err)
		}
		if strings.Contains(p.logs.String(), "@") {
			t.Errorf("the log names addresses: %s", p.logs)
		}
		p.move(25 * time.Hour)
		if expired, err := maildb.New(s.DB).Sweep(t.Context()); err != nil || expired == 0 {
			t.Errorf("%d expired, %v", expired, err)
		}
		p.add(t, p.link("ann@example.test"), nil)
		if n := p.waiting(t); n != 1 {
			t.Errorf("the day after: %d are waiting, want 1", n)
		}
	})
}

// TestReplicas checks that several replicas together send each message in the queue once.
func TestReplicas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		server := mailtest.Start(t, mailtest.Config{})
		p := open(t, s, plain(server))
		const all = 30
		for i := range all {
			p.add(t, p.link(fmt.Sprintf("p%d@example.test", i)), nil)
		}
		var replicas sync.WaitGroup
		for range 4 {
			replicas.Go(func() {
				for until := time.Now().Add(90 * time.Second); len(server.Messages()) < all && time.Now().Before(until); {
					if _, err := p.SendDue(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		replicas.Wait()
		seen := map[string]bool{}
		for _, m := range server.Messages() {
			seen[m.To[0]] = true
		}
		if n := len(server.Messages()); n != all || len(seen) != all {
			t.Errorf("%d messages to %d people, want %d", n, len(seen), all)
		}
	})
}

// TestLostKey checks that messages that were sealed with a lost key are abandoned.
func TestLostKey(t *testing.T) {
	server := mailtest.Start(t, mailtest.Config{})
	p := open(t, storetest.Open(t, storetest.SQLite(t)), plain(server))
	p.add(t, p.link("ann@example.test"), nil)
	p = open(t, p.db, plain(server))
	p.send(t, 1)
	if len(server.Messages()) != 0 || p.waiting(t) != 0 {
		t.Errorf("sent %v, %d are waiting", server.Messages(), p.waiting(t))
	}
}

// TestHostileNames checks that names that tenants choose cannot end a header or
// become a link, and are shortened.
func TestHostileNames(t *testing.T) {
	server := mailtest.Start(t, mailtest.Config{})
	p := open(t, storetest.Open(t, storetest.SQLite(t)), plain(server))
	names := []string{
		"acme\r\nBcc: victim@example.test", "acme\r\n\r\nhello", "visit https://evil.example/x now", "<b>x</b>",
		"evil.example", "a@evil.example", strings.Repeat("long ", 100), "\u202ekcart", "\x00", "acme\nSubject: other",
	}
	for i, name := range names {
		p.add(t, p.Link(resource.NewRoot(), fmt.Sprintf("p%d@example.test", i), name, secretLink, p.time().Add(time.Hour)),
			nil)
		p.add(t, p.NewDevice(resource.NewRoot(), fmt.Sprintf("p%d@example.test", i), name, name, name, p.time()), nil)
		invite := resource.GroupInvite{UID: resource.NewRoot().NewChild(), Email: fmt.Sprintf("p%d@example.test", i),
			ExpirationTime: p.time().Add(time.Hour)}
		p.add(t, p.Invite(invite, name, name, "CODE&x=y")(), nil)
	}
	p.send(t, 3*len(names))
	for _, m := range server.Messages() {
		head, _, _ := strings.Cut(m.Data, "\r\n\r\n")
		if len(m.To) != 1 || strings.Contains(strings.ToLower(head), "\nbcc:") || strings.Count(head, "Subject:") != 1 {
			t.Errorf("a header was added: %s", head)
		}
		for _, bad := range []string{"evil.example", "https://evil", "<b>", "victim@", "\u202e"} {
			if strings.Contains(m.Data, bad) {
				t.Errorf("it has %q: %s", bad, m.Data)
			}
		}
		if len(m.Data) > 4000 {
			t.Errorf("it has %d bytes", len(m.Data))
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"ann@example.test": true, "ann+x@sub.example.test": true, "": false, "ann": false, "ann@": false,
		"ann@example.test,ben@example.test": false, "Ann <ann@example.test>": false, "<ann@example.test>": false,
		"ann@example.test\r\nRCPT TO:<x@y.test>": false, "ann@example.test\n": false, "ann @example.test": false,
		"änn@example.test": false, "\"a b\"@example.test": false, "ann@[127.0.0.1]": false, "a:b@example.test;": false,
		strings.Repeat("a", 250) + "@example.test": false,
	} {
		if got := mail.IsAddress(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
