package denials_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A fixture is a recorder with a clock and a log that the test controls.
type fixture struct {
	*denials.Recorder
	store *storetest.Store
	log   *bytes.Buffer
	now   time.Time
	org   resource.UID
}

func open(t *testing.T, s *storetest.Store) *fixture {
	w := &fixture{store: s, log: &bytes.Buffer{}, now: time.Now(), org: resource.NewRoot()}
	s.Now = func() time.Time { return w.now }
	w.Recorder = denials.New(s.DB, slog.New(slog.NewJSONHandler(w.log, nil)))
	return w
}

// wrong returns a refusal for a wrong password. The account belongs to the test's organization.
func (w *fixture) wrong(account resource.UID, address string) denials.Refusal {
	return denials.Refusal{
		Type: resource.SignInRefused, Group: w.org, Subject: account, RequestID: "r",
		Activity: resource.Activity{
			Account: account, Method: resource.ByPassword, Reason: resource.RefusedPassword, Address: address,
		},
	}
}

// tick moves the clock forward and then writes the tallies that are due, as Run does every second.
func (w *fixture) tick(t *testing.T, after time.Duration) {
	t.Helper()
	w.now = w.now.Add(after)
	w.WriteDue(t.Context())
}

// entries returns the entries of the audit log.
func (w *fixture) entries(t *testing.T) (all []resource.Activity, events []resource.Event) {
	t.Helper()
	events, err := outbox.Read(t.Context(), w.store.DB, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		var a resource.Activity
		if err := json.Unmarshal(e.After, &a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all, events
}

func total(all []resource.Activity) (n int64) {
	for _, a := range all {
		n += a.Count
	}
	return n
}

// TestRefusalsAreCounted checks that the first refusal is written immediately, and that equal refusals that follow are
// written as one entry, with their number, at the end of the window.
func TestRefusalsAreCounted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		w := open(t, s)
		account := w.org.NewChild()
		w.Add(w.wrong(account, "192.0.2.1"))
		w.tick(t, time.Second)
		for range 13 {
			w.Add(w.wrong(account, "192.0.2.1"))
			w.tick(t, time.Second)
		}
		all, events := w.entries(t)
		if len(all) != 1 || all[0].Count != 1 || events[0].Group != w.org || events[0].Subject != account ||
			events[0].Actor.Remote != "192.0.2.1" || events[0].Actor.RequestID != "r" {
			t.Fatalf("after the first: %+v %+v", all, events)
		}
		w.tick(t, 15*time.Minute)
		if all, _ = w.entries(t); len(all) != 2 || all[1].Count != 13 || !all[1].First.Before(all[1].Last) {
			t.Fatalf("after the window: %+v", all)
		}
		w.tick(t, 15*time.Minute)
		w.tick(t, 15*time.Minute)
		w.Add(w.wrong(account, "192.0.2.1"))
		w.Flush(t.Context())
		if all, _ = w.entries(t); len(all) != 3 || all[2].Count != 1 || bytes.Count(w.log.Bytes(), []byte("\n")) != 3 {
			t.Fatalf("the next day: %+v\n%s", all, w.log)
		}
	})
}

// TestAttackManyRefusals checks that the number of entries is limited if many networks try many accounts, and that the
// sum of the entries is the number of refusals.
func TestAttackManyRefusals(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	const networks, accounts = 400, 150
	var added int64
	for i := range accounts {
		account := w.org.NewChild()
		for j := range networks {
			w.Add(w.wrong(account, fmt.Sprintf("10.%d.%d.1", j/250, j%250)))
			if added++; added%1000 == 0 {
				w.tick(t, time.Second)
			}
			if i == 0 && j == 0 { // one refusal for another organization, which must be counted separately
				other := w.wrong(resource.NewRoot().NewChild(), "192.0.2.9")
				other.Group = other.Subject.Parent()
				w.Add(other)
				added++
			}
		}
	}
	w.tick(t, time.Second)
	w.Flush(t.Context())
	all, _ := w.entries(t)
	if len(all) > 2*(2*100+1)+1 {
		t.Errorf("%d refusals made %d entries", added, len(all))
	}
	if total(all) != added {
		t.Errorf("the entries count %d refusals of %d", total(all), added)
	}
	if lines := bytes.Count(w.log.Bytes(), []byte("\n")); lines != len(all) {
		t.Errorf("there are %d lines for %d entries", lines, len(all))
	}
}

// TestRefusalsWithoutGroup checks that refusals without an organization are written only to the log of the server, and
// that their number is limited.
func TestRefusalsWithoutGroup(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	for i := range 1000 {
		v := w.wrong("", fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		v.Group = ""
		w.Add(v)
	}
	w.Flush(t.Context())
	if all, _ := w.entries(t); len(all) != 0 {
		t.Errorf("the audit log has %d entries", len(all))
	}
	if n := bytes.Count(w.log.Bytes(), []byte("\n")); n == 0 || n > 201 {
		t.Errorf("there are %d lines", n)
	}
}

// TestHiddenAddress checks that an address that an organization must not know is only in the log of the server.
func TestHiddenAddress(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	v := w.wrong(w.org.NewChild(), "")
	v.Hidden = "192.0.2.77"
	w.Add(v)
	w.Flush(t.Context())
	_, events := w.entries(t)
	if len(events) != 1 || bytes.Contains(events[0].After, []byte("192.0.2")) || events[0].Actor.Remote != "" {
		t.Errorf("the entry is %+v", events)
	}
	if !bytes.Contains(w.log.Bytes(), []byte("192.0.2.77")) {
		t.Errorf("the log has no address: %s", w.log)
	}
}

// TestRefusalsAfterAnOutage checks that refusals are written after a failed write.
func TestRefusalsAfterAnOutage(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	account, began := w.org.NewChild(), w.now.Truncate(time.Millisecond)
	w.Add(w.wrong(account, "192.0.2.1"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.Flush(ended)
	w.FailWrite(func() { // another refusal before the first one is restored
		w.now = w.now.Add(time.Minute)
		w.Add(w.wrong(account, "192.0.2.1"))
	})
	w.tick(t, time.Second)
	all, _ := w.entries(t)
	if len(all) != 1 || total(all) != 2 || !all[0].First.Equal(began) || !all[0].Last.After(began) {
		t.Errorf("the entries are %+v", all)
	}
}

// TestRefusalsAtShutdown checks that Run writes the remaining refusals when the server stops.
func TestRefusalsAtShutdown(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	account := w.org.NewChild()
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = w.Run(ctx) })
	for range 5 {
		w.Add(w.wrong(account, "192.0.2.1"))
	}
	cancel()
	ended.Wait()
	if all, _ := w.entries(t); total(all) != 5 {
		t.Errorf("the entries are %+v", all)
	}
}

// TestRefusalsOfANetwork checks that all refusals from one network are one entry, although they come from several
// addresses. Refusals with a hidden address are a separate entry, so that the visible addresses stay in the log.
func TestRefusalsOfANetwork(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	account := w.org.NewChild()
	hidden := w.wrong(account, "")
	hidden.Hidden = "2001:db8::1"
	w.Add(hidden)
	for i := range 20 {
		w.Add(w.wrong(account, fmt.Sprintf("2001:db8::%x", i+1)))
	}
	w.Add(w.wrong(account, "2001:db8:0:1::1")) // an address in another network
	w.Flush(t.Context())
	all, _ := w.entries(t)
	counts := map[string]int64{}
	for _, a := range all {
		counts[a.Address] += a.Count
	}
	if len(all) != 3 || counts[""] != 1 || counts["2001:db8::1"] != 20 || counts["2001:db8:0:1::1"] != 1 {
		t.Errorf("the entries are %+v", all)
	}
}

// TestRefusalsOfManyNetworks checks that if too many networks try an account, further refusals are counted without the
// network, but still for the account.
func TestRefusalsOfManyNetworks(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	account := w.org.NewChild()
	for i := range 300 {
		w.Add(w.wrong(account, fmt.Sprintf("10.0.%d.%d", i/250, i%250)))
	}
	w.Flush(t.Context())
	all, _ := w.entries(t)
	merged := 0
	for _, a := range all {
		if a.Address == "" {
			merged++
			if a.Account != account || a.Reason != resource.RefusedPassword || a.Count != 200 {
				t.Errorf("the entry for the other networks is %+v", a)
			}
		}
	}
	if merged != 1 || len(all) != 101 {
		t.Errorf("%d entries, %d of them without a network", len(all), merged)
	}
}

// TestContinuousRefusals checks that continuous refusals make one entry per window, and that their tally is deleted
// after they stop.
func TestContinuousRefusals(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	account := w.org.NewChild()
	const hours = 6
	for range hours * 60 {
		w.Add(w.wrong(account, "192.0.2.1"))
		w.tick(t, time.Minute)
	}
	if all, _ := w.entries(t); len(all) > hours*4+1 {
		t.Errorf("%d hours make %d entries", hours, len(all))
	}
	w.tick(t, 15*time.Minute)
	w.tick(t, 15*time.Minute)
	if all, _ := w.entries(t); total(all) != hours*60 || w.Kept() != 0 {
		t.Errorf("%d of %d refusals are written, and %d tallies are in memory", total(all), hours*60, w.Kept())
	}
}
