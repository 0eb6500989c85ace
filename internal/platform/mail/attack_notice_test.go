package mail_test

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestAttackNoticeLimit: an attacker sends invites and notices from other organizations to an address, and invites from
// the person's own organization to many addresses, until no more are sent. The person still gets notices about new
// devices, in bounded numbers.
func TestAttackNoticeLimit(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
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
