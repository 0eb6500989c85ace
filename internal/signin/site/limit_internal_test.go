package site

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// from returns a request from an address.
func from(address string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/signin/password", nil)
	r.RemoteAddr = net.JoinHostPort(address, "1234")
	return r
}

// A limited is a site that only counts attempts, with a clock.
type limited struct {
	*Site
	at time.Time
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	l := &limited{at: time.Now()}
	l.Site = &Site{limits: newLimits(func() time.Time { return l.at })}
	return l
}

// TestLimitOfAddresses: if a client tries many accounts from one network, it must wait, whatever address of the network
// it uses. Clients in other networks need not wait.
func TestLimitOfAddresses(t *testing.T) {
	s := newLimited(t)
	for i := range PerAddress {
		if _, wait := s.AcquireAttempt(from(fmt.Sprintf("2001:db8::%x", i)), fmt.Sprint("account ", i), nil); wait > 0 {
			t.Fatalf("try %d has to wait", i)
		}
	}
	if _, wait := s.AcquireAttempt(from("2001:db8::ffff:1"), "another", nil); wait <= 0 {
		t.Error("one more of this network need not wait")
	}
	got, wait := s.AcquireAttempt(from("2001:db8:0:1::1"), "another", nil)
	if wait > 0 {
		t.Fatal("another network has to wait")
	}
	for range 2 * (PerAddress + freeTries) { // successful attempts do not count
		got.Release()
		if got, wait = s.AcquireAttempt(from("192.0.2.1"), "another", nil); wait > 0 {
			t.Fatal("who is right has to wait")
		}
	}
}

// TestDelayGrows: the delays between attempts at one account grow, and no network waits longer than a window. A
// successful attempt does not count.
func TestDelayGrows(t *testing.T) {
	s := newLimited(t)
	n := 0
	guess := func() time.Duration {
		n++
		_, wait := s.AcquireAttempt(from(fmt.Sprintf("192.0.%d.%d", n/250, n%250)), "ann", nil)
		return wait
	}
	for i := range freeTries {
		if wait := guess(); wait > 0 {
			t.Fatalf("guess %d has to wait %v", i, wait)
		}
	}
	for want := firstDelay; want < longestDelay; want *= 2 {
		if wait := guess(); wait > 0 {
			t.Fatalf("after its delay a guess has to wait %v", wait)
		}
		if wait := guess(); wait != want {
			t.Fatalf("the next has to wait %v, want %v", wait, want)
		}
		s.at = s.at.Add(want)
	}
	right, wait := s.AcquireAttempt(from("198.51.100.1"), "ann", nil)
	if wait > 0 {
		t.Fatalf("the owner has to wait %v", wait)
	}
	right.Release()
	guess()
	if wait := guess(); wait != longestDelay {
		t.Errorf("the longest delay is %v, want %v", wait, longestDelay)
	}
	s.at = s.at.Add(quietTime)
	for range freeTries {
		if wait := guess(); wait > 0 {
			t.Fatalf("after a quiet time a guess has to wait %v", wait)
		}
	}
}

// TestLimitOfKnownBrowsers: a browser that has signed in to an account has a few additional attempts, for that account
// only.
func TestLimitOfKnownBrowsers(t *testing.T) {
	s := newLimited(t)
	known := []string{"x"}
	for range perAccount {
		s.AcquireAttempt(from("192.0.2.1"), "ann", nil)
	}
	if _, wait := s.AcquireAttempt(from("192.0.2.1"), "ann", nil); wait == 0 {
		t.Fatal("a stranger need not wait")
	}
	for i := range perKnown {
		got, wait := s.AcquireAttempt(from("192.0.2.1"), "ann", known)
		if wait > 0 || len(got.Known) != 1 || got.Known[0] != "x" {
			t.Fatalf("try %d of a known browser: %+v, %v", i, got, wait)
		}
	}
	if _, wait := s.AcquireAttempt(from("192.0.2.1"), "ann", known); wait == 0 {
		t.Error("a known browser may try without end")
	}
	if perKnown > perAccount {
		t.Error("who has stolen the cookie of a known browser has more tries than a stranger")
	}
}

// TestLimitsForget: a counter takes the same memory for a name of any length, and none after a successful attempt.
func TestLimitsForget(t *testing.T) {
	s := newLimited(t)
	got, _ := s.AcquireAttempt(from("192.0.2.1"), strings.Repeat("x", 1<<20), nil)
	if n := s.limits.counters.Len(); n != 3 {
		t.Errorf("%d are kept of one try", n)
	}
	if size := unsafe.Sizeof(counterKey{}); size > 64 {
		t.Errorf("a key has %d bytes", size)
	}
	got.Release()
	if n := s.limits.counters.Len(); n != 0 {
		t.Errorf("%d are kept of a try that was right", n)
	}
}
