package login_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// browserAt returns a browser with another address in the network 127.0.0.0/8.
func (x *site) browserAt(t *testing.T, address string) *browser {
	t.Helper()
	b := x.browser(t)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	b.Transport = &http.Transport{DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(to)
		if err != nil {
			return nil, err
		}
		return from.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	}}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// wrongCode returns a user code that no device has, because user codes are random.
func wrongCode(n int) string {
	const letters = "BCDFGHJKLM"
	digits := fmt.Sprintf("%08d", n)
	return strings.Map(func(r rune) rune { return rune(letters[r-'0']) }, digits)
}

// guess enters n wrong user codes, and returns how many of them were looked up. The others were refused because of a
// limit.
func (b *browser) guess(n int) (lookedUp int) {
	b.t.Helper()
	for i := range n {
		switch a := b.post("/device", "user_code", wrongCode(i)); a.status {
		case http.StatusNotFound:
			lookedUp++
		case http.StatusTooManyRequests:
			if a.header.Get("Retry-After") == "" {
				b.t.Error("a refusal does not say how long to wait")
			}
		default:
			b.t.Fatalf("a wrong code: %d %s", a.status, a.body)
		}
	}
	return lookedUp
}

// userCode returns the user code of a new device.
func (b *browser) userCode() string {
	b.t.Helper()
	return fieldOf(b.t, b.post("/oauth/device_authorization", "client_id", "tv").body, "user_code")
}

// TestAttackGuessedUserCodes: a network, and a person who is signed in, can enter few wrong codes, also in parallel.
// The right code is refused afterwards. Strangers in many networks share a limit, which does not apply to people who
// are signed in. After a while, everybody can enter codes again.
func TestAttackGuessedUserCodes(t *testing.T) {
	each(t, func(t *testing.T, x *site) {
		var group sync.WaitGroup
		looked := make(chan int, 4)
		for range cap(looked) {
			b := x.browserAt(t, "127.0.1.1")
			group.Go(func() { looked <- b.guess(10) })
		}
		group.Wait()
		close(looked)
		sum := 0
		for n := range looked {
			sum += n
		}
		if sum != 10 {
			t.Errorf("a network tried %d codes, want 10", sum)
		}
		b := x.browserAt(t, "127.0.1.1")
		if a := b.post("/device", "user_code", b.userCode()); a.status != http.StatusTooManyRequests {
			t.Errorf("the right code after guessing: %d", a.status)
		}

		person := x.signedInAs(t, ownerEmail)
		sum = 0
		for i := range 4 { // the person moves from network to network
			roaming := x.browserAt(t, fmt.Sprintf("127.0.2.%d", i+1))
			roaming.Jar = person.Jar
			sum += roaming.guess(9)
		}
		if sum != 10 {
			t.Errorf("a person tried %d codes, want 10", sum)
		}
		x.clock.move(15 * time.Minute)

		sum = 0
		for i := range 101 {
			sum += x.browserAt(t, fmt.Sprintf("127.0.3.%d", i+1)).guess(10)
		}
		if sum != 1000 {
			t.Errorf("strangers tried %d codes, want 1000", sum)
		}
		b = x.browserAt(t, "127.0.4.1")
		if a := b.post("/device", "user_code", b.userCode()); a.status != http.StatusTooManyRequests ||
			!strings.Contains(a.body, "Sign in in this browser first") {
			t.Errorf("the right code after the guesses of strangers: %d %s", a.status, a.body)
		}
		if a := person.post("/device", "user_code", person.userCode()); !strings.Contains(a.location, "/signin?flow=") {
			t.Errorf("the right code of a person who is signed in: %d %s", a.status, a.body)
		}
		x.clock.move(15 * time.Minute)
		if a := b.post("/device", "user_code", b.userCode()); !strings.Contains(a.location, "flow=") {
			t.Errorf("the right code a while later: %d %s", a.status, a.body)
		}
	})
}

// TestAttackGuessedDeviceCodes: programs that poll with device codes of nobody, or as another client, get no token. The
// device gets its token once.
func TestAttackGuessedDeviceCodes(t *testing.T) {
	story(t, func(t *testing.T, x *site) {
		b := x.browser(t)
		b.signIn()
		device, flow := x.deviceFlow(t, b)
		b.allow(flow)
		for name, fields := range map[string][]string{
			"no code":            {"device_code", "", "client_id", "tv"},
			"another code":       {"device_code", strings.Repeat("A", 52), "client_id", "tv"},
			"part of the code":   {"device_code", device[:51], "client_id", "tv"},
			"a code as a digest": {"device_code", "device " + device, "client_id", "tv"},
		} {
			fields = append(fields, "grant_type", "urn:ietf:params:oauth:grant-type:device_code")
			status, body := x.redeem(t, fields...)
			if status != http.StatusBadRequest || strings.Contains(body, "access_token") {
				t.Errorf("%s: %d %s", name, status, body)
			}
		}
		if status, body := x.pollFor(t, device); fieldOf(t, body, "access_token") == "" {
			t.Errorf("the right code: %d %s", status, body)
		}
		if status, body := x.pollFor(t, device); strings.Contains(body, "access_token") {
			t.Errorf("the right code again: %d %s", status, body)
		}
		device, flow = x.deviceFlow(t, b)
		b.allow(flow)
		if status, body := x.redeem(t, "device_code", device, "client_id", "radio",
			"grant_type", "urn:ietf:params:oauth:grant-type:device_code"); strings.Contains(body, "access_token") {
			t.Errorf("another client: %d %s", status, body)
		}
	})
}
