package mail_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestAttackNoticeLimit: an attacker sends invites and notices from other organizations to an address, and invites from
// the person's own organization to many addresses, until no more are sent. The person still gets notices about new
// devices, in bounded numbers.
func TestAttackNoticeLimit(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		p := open(t, s, mail.Server{Address: "127.0.0.1:1", TLS: mail.NoTLS})
		home := p.org
		notice := func() {
			p.add(t, p.NewDevice(p.org, "ann@example.test", "acme", "Firefox", "192.0.2.1", time.Now()), nil)
		}
		for range mail.MaxToAddress {
			p.org = resource.NewRoot()
			p.add(t, p.link("ann@example.test"), nil)
			notice()
		}
		p.org = home
		before := p.waiting(t)
		for range mail.MaxNotices + 5 {
			notice()
		}
		if n := p.waiting(t) - before; n != mail.MaxNotices {
			t.Errorf("%d notices about new devices wait, want %d", n, mail.MaxNotices)
		}
	})
}

// TestAttackWebhookNoticeLimit: an administrator of a folder invites an owner of the organization again and again, and
// makes many webhooks that fail, until no more messages are sent. The owner still gets the notices about new devices
// and about webhooks of the organization.
func TestAttackWebhookNoticeLimit(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		p := open(t, s, mail.Server{Address: "127.0.0.1:1", TLS: mail.NoTLS})
		failing := func(group resource.UID) mail.Message {
			return p.FailingSubscription(group, "ann@example.test", "acme", "hooks.example.com", "https://log.example",
				resource.Failing{Since: p.time(), Error: "HTTP status 500"})
		}
		added := func(n int, m func() mail.Message) int {
			before := p.waiting(t)
			for range n {
				p.add(t, m(), nil)
			}
			return p.waiting(t) - before
		}
		p.add(t, p.link("ann@example.test"), nil)
		if n := added(100, func() mail.Message { return failing(p.org.NewChild()) }); n != mail.MaxBoth {
			t.Errorf("%d notices about webhooks of folders wait, want %d", n, mail.MaxBoth)
		}
		if n := added(100, func() mail.Message { return p.link("ann@example.test") }); n != mail.MaxBoth-1 {
			t.Errorf("%d further links wait, want %d", n, mail.MaxBoth-1)
		}
		if n := added(100, func() mail.Message { return failing(p.org) }); n != mail.MaxNotices {
			t.Errorf("%d notices about webhooks of the organization wait, want %d", n, mail.MaxNotices)
		}
		if n := added(1, func() mail.Message {
			return p.NewDevice(p.org, "ann@example.test", "acme", "Firefox", "192.0.2.1", p.time())
		}); n != 1 {
			t.Error("a notice about a new device is not sent")
		}
	})
}

// TestAttackConcurrentMails sends many invites to an address at the same time, from one organization and then from
// many. Together they do not exceed the limits.
func TestAttackConcurrentMails(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		p := open(t, s, mail.Server{Address: "127.0.0.1:1", TLS: mail.NoTLS})
		sendAll := func(n int, m func(i int) mail.Message) {
			var all sync.WaitGroup
			for i := range n {
				message := m(i)
				all.Go(func() {
					if err := s.Write(t.Context(), func(tx *store.Tx) error { return p.Add(t.Context(), tx, message) }); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		sendAll(3*mail.MaxBoth, func(int) mail.Message { return p.link("ann@example.test") })
		if n := p.waiting(t); n != mail.MaxBoth {
			t.Errorf("%d messages from one organization wait, want %d", n, mail.MaxBoth)
		}
		sendAll(2*mail.MaxToAddress, func(int) mail.Message {
			p.org = resource.NewRoot()
			return p.link("ann@example.test")
		})
		if n := p.waiting(t); n != mail.MaxToAddress {
			t.Errorf("%d messages from all organizations wait, want %d", n, mail.MaxToAddress)
		}
		p.org = resource.NewRoot()
		sendAll(mail.MaxByOrganization+10, func(i int) mail.Message { return p.link(fmt.Sprintf("p%d@example.test", i)) })
		if n := p.waiting(t); n != mail.MaxToAddress+mail.MaxByOrganization {
			t.Errorf("%d messages wait after those of a third organization, want %d", n,
				mail.MaxToAddress+mail.MaxByOrganization)
		}
	})
}
