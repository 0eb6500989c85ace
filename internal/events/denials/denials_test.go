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
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A world is a recorder whose clock and log a test has.
type world struct {
	*denials.Recorder
	store *storetest.Store
	log   *bytes.Buffer
	now   time.Time
	org   resource.UID
}

func open(t *testing.T, s *storetest.Store) *world {
	w := &world{store: s, log: &bytes.Buffer{}, now: time.Now(), org: resource.NewRoot()}
	s.Now = func() time.Time { return w.now }
	w.Recorder = denials.New(s.DB, slog.New(slog.NewJSONHandler(w.log, nil)))
	return w
}

// wrong returns a refused password at an account of the organization.
func (w *world) wrong(account resource.UID, address string) denials.Refusal {
	return denials.Refusal{
		Type: resource.SignInRefused, Group: w.org, Subject: account, RequestID: "r",
		Activity: resource.Activity{
			Account: account, Method: resource.ByPassword, Reason: resource.RefusedPassword, Address: address,
		},
	}
}

// tick does what Run does each second.
func (w *world) tick(t *testing.T, after time.Duration) {
	t.Helper()
	w.now = w.now.Add(after)
	w.WriteDue(t.Context())
}

// entries returns what the audit log has.
func (w *world) entries(t *testing.T) (all []resource.Activity, events []resource.Event) {
	t.Helper()
	events, err := w.store.Events(t.Context(), 0, 100_000)
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

// The first refusal is written at once, and those that follow with their number
// when the window is over: all of them are counted.
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

// However many networks try however many accounts, what is written is limited,
// and the sum is what happened.
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
			if i == 0 && j == 0 { // other organizations' are counted by themselves
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

// Refusals that are nobody's are in the log of the server alone, and their
// number is limited, too.
func TestRefusalsOfNobody(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	for i := range 1000 {
		v := w.wrong("", fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		v.Group = ""
		w.Add(v)
	}
	w.Flush(t.Context())
	if all, _ := w.entries(t); len(all) != 0 {
		t.Errorf("%d entries are nobody's", len(all))
	}
	if n := bytes.Count(w.log.Bytes(), []byte("\n")); n == 0 || n > 201 {
		t.Errorf("there are %d lines", n)
	}
}

// An address that an organization must not know is in the log of the server
// alone.
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

// What cannot be written is written later.
func TestRefusalsAfterAnOutage(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	account, began := w.org.NewChild(), w.now.Truncate(time.Millisecond)
	w.Add(w.wrong(account, "192.0.2.1"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w.Flush(gone)
	w.FailWrite(func() { // another comes in the meantime
		w.now = w.now.Add(time.Minute)
		w.Add(w.wrong(account, "192.0.2.1"))
	})
	w.tick(t, time.Second)
	if all, _ := w.entries(t); len(all) != 1 || total(all) != 2 || !all[0].First.Equal(began) || !all[0].Last.After(began) {
		t.Errorf("the entries are %+v", all)
	}
}

// Run writes what is left when the server stops.
func TestRefusalsAtTheEnd(t *testing.T) {
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

// Refusals from one network are one entry, however many addresses it has. Those of which the organization must not
// know the address are another, so that they do not hide the rest.
func TestRefusalsOfANetwork(t *testing.T) {
	w := open(t, storetest.Open(t, storetest.SQLite(t)))
	account := w.org.NewChild()
	hidden := w.wrong(account, "")
	hidden.Hidden = "2001:db8::1"
	w.Add(hidden)
	for i := range 20 {
		w.Add(w.wrong(account, fmt.Sprintf("2001:db8::%x", i+1)))
	}
	w.Add(w.wrong(account, "2001:db8:0:1::1")) // another
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

// If too many networks try an account, those that follow are counted without their network, and still for the
// account.
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
				t.Errorf("those of all other networks are %+v", a)
			}
		}
	}
	if merged != 1 || len(all) != 101 {
		t.Errorf("%d entries, %d of them without a network", len(all), merged)
	}
}

// One who goes on all day makes an entry for each window, and whoever stops is forgotten.
func TestRefusalsGoOn(t *testing.T) {
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
		t.Errorf("%d of %d are written, and %d kept", total(all), hours*60, w.Kept())
	}
}
