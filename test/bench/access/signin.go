package access

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	startsAtOnce = 1000
	guessers     = 64 // number of concurrent visitors who guess passwords, each with a different address
	floodRounds  = 5
	floodTime    = 2 * time.Second
)

// SignIns measures very many people who start to sign in at the same time, and how much password guessing slows down
// other requests.
func SignIns(ctx context.Context, m *rig.Measurement) {
	s := m.Serve(ctx, rig.EmptyDatabase(ctx, m.Engine, "signin"))
	manyStarts(ctx, m, s)
	measureFlood(ctx, m, s)
}

// A visitor is a client for the sign-in pages.
type visitor struct {
	*rig.Client
	flow string
}

// newVisitor returns a visitor with a loopback address of its own, because requests are limited per address.
func newVisitor(s *rig.Service, i int) *visitor {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i/250), byte(i%250+1))}}
	c := rig.NewClient(s.Address, "")
	c.HTTP = &http.Client{
		Transport:     &http.Transport{DialContext: from.DialContext, MaxIdleConnsPerHost: 1},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &visitor{Client: c}
}

// start starts a sign-in and loads the page with the form.
func (v *visitor) start(ctx context.Context) error {
	v.HTTP.Jar, _ = cookiejar.New(nil) // New never fails
	q := url.Values{"client_id": {"bench"}, "exit": {"redirect"},
		"redirect": {"http://127.0.0.1:1/?token=true&error=true"}}
	header, _, err := v.Do(ctx, http.StatusSeeOther, http.MethodGet, "/oauth?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	to, err := url.Parse(header.Get("Location"))
	if err != nil {
		return err
	}
	v.flow = to.Query().Get("flow")
	_, err = v.Get(ctx, to.RequestURI())
	return err
}

// guess tries to sign in with a wrong password.
func (v *visitor) guess(ctx context.Context, email string) error {
	if err := v.start(ctx); err != nil {
		return err
	}
	form := url.Values{"flow": {v.flow}, "email": {email}, "password": {"not the password"}}
	_, _, err := v.Do(ctx, rig.AnyStatus, http.MethodPost, "/signin/password", strings.NewReader(form.Encode()),
		"Content-Type", "application/x-www-form-urlencoded")
	return err
}

func manyStarts(ctx context.Context, m *rig.Measurement, s *rig.Service) {
	var failed atomic.Int64
	begin := time.Now()
	first := rig.Concurrently(startsAtOnce, func(i int) error {
		v := newVisitor(s, i)
		defer v.Close()
		err := v.start(ctx)
		if err != nil {
			failed.Add(1)
		}
		return err
	})
	if first != nil {
		m.Note("The first sign-in that did not start: %v.", first)
	}
	m.Exactly(fmt.Sprintf("sign-in: of %d started at once, failed", startsAtOnce), failed.Load(), 0)
	m.Below("sign-in: all of them on the page after", time.Since(begin).Seconds(), 0, rig.Seconds)
}

// measureFlood compares the duration of a call while visitors guess passwords with its duration while the server is
// idle. The two measurements alternate.
func measureFlood(ctx context.Context, m *rig.Measurement, s *rig.Service) {
	calls := func() (times []time.Duration) { // makes calls one after the other
		for begin := time.Now(); time.Since(begin) < floodTime; {
			times = append(times, rig.Timed(ctx, 0, s.Getter("/iam/v2beta1/groups/"+string(s.Org))))
		}
		return times
	}
	var quiet, busy []time.Duration
	var guesses atomic.Int64
	for round := range floodRounds + 1 {
		q := calls()
		stop := guess(ctx, s, round, &guesses)
		b := calls()
		rig.Check(stop())
		if round > 0 { // the first round is for warm-up
			quiet, busy = append(quiet, q...), append(busy, b...)
		}
	}
	for _, figure := range []struct {
		name     string
		quantile float64
		most     float64
	}{{"median", 0.5, 1.5}, {"99 of 100", 0.99, 0}} {
		m.Slower("sign-in: GET of a group while passwords are guessed, "+figure.name,
			rig.NewPair(rig.Quantile(busy, figure.quantile), rig.Quantile(quiet, figure.quantile)), figure.most)
	}
	m.Below("sign-in: guesses answered meanwhile", float64(guesses.Load())/((floodRounds+1)*floodTime.Seconds()), 0,
		rig.PerSecond)
}

// guess starts visitors that try passwords until stop is called. Every guess is for another account, because guesses
// are limited per account.
func guess(ctx context.Context, s *rig.Service, round int, guesses *atomic.Int64) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- rig.Concurrently(guessers, func(i int) error {
			v := newVisitor(s, 2000+round*guessers+i)
			defer v.Close()
			for n := 0; ; n++ {
				err := v.guess(ctx, fmt.Sprintf("u%d-%d-%d@example.com", round, i, n))
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				guesses.Add(1)
			}
		})
	}()
	return func() error {
		cancel()
		return <-done
	}
}
