package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	startsAtOnce = 1000
	guessers     = 64 // concurrent, each with its own address
	floodRounds  = 5
	floodTime    = 2 * time.Second
)

// signIns measures very many people who start to sign in at once, and how much guessing
// passwords slows down other requests.
func signIns(ctx context.Context, m *measurement) {
	s := m.serve(ctx, empty(ctx, m.engine, "signin"))
	m.manyStarts(ctx, s)
	m.flood(ctx, s)
}

// A visitor is a client of the sign-in pages.
type visitor struct {
	http    *http.Client
	cookies []string
	flow    string
}

// newVisitor returns a visitor with its own loopback address, because there are limits by
// address.
func newVisitor(i int) *visitor {
	from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(i/250), byte(i%250+1))}
	dial := &net.Dialer{LocalAddr: from}
	return &visitor{http: &http.Client{
		Transport:     &http.Transport{DialContext: dial.DialContext, MaxIdleConnsPerHost: 1},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (v *visitor) close() { v.http.CloseIdleConnections() }

func (v *visitor) send(ctx context.Context, method, address string, form url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header["Cookie"] = []string{strings.Join(v.cookies, "; ")}
	resp, err := v.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it is read below
	for _, c := range resp.Cookies() {
		v.cookies = append(v.cookies, c.Name+"="+c.Value)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

// start starts to sign in, up to the page with the form.
func (v *visitor) start(ctx context.Context, s *service) error {
	v.cookies = nil
	q := url.Values{"client_id": {"bench"}, "exit": {"redirect"},
		"redirect": {"http://127.0.0.1:1/?token=true&error=true"}}
	resp, err := v.send(ctx, http.MethodGet, s.address+"/oauth?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	to, err := resp.Location()
	if err != nil {
		return fmt.Errorf("start: %s: %w", resp.Status, err)
	}
	v.flow = to.Query().Get("flow")
	resp, err = v.send(ctx, http.MethodGet, s.address+to.RequestURI(), nil)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("page: %s", resp.Status)
	}
	return err
}

// guess signs in with a wrong password.
func (v *visitor) guess(ctx context.Context, s *service, email string) error {
	if err := v.start(ctx, s); err != nil {
		return err
	}
	form := url.Values{"flow": {v.flow}, "email": {email}, "password": {"not the password"}}
	_, err := v.send(ctx, http.MethodPost, s.address+"/signin/password", form)
	return err
}

func (m *measurement) manyStarts(ctx context.Context, s *service) {
	var failed atomic.Int64
	begin := time.Now()
	first := together(startsAtOnce, func(i int) error {
		v := newVisitor(i)
		defer v.close()
		err := v.start(ctx, s)
		if err != nil {
			failed.Add(1)
		}
		return err
	})
	if first != nil {
		m.note("The first sign-in that did not start: %v.", first)
	}
	m.exactly(fmt.Sprintf("sign-in: of %d started at once, failed", startsAtOnce), failed.Load(), 0)
	m.under("sign-in: all of them on the page after", time.Since(begin).Seconds(), 0, seconds)
}

// flood compares the time of a call while passwords are guessed with its time when the
// server is idle, alternately.
func (m *measurement) flood(ctx context.Context, s *service) {
	calls := func() (all []time.Duration) { // one after the other
		for begin := time.Now(); time.Since(begin) < floodTime; {
			all = append(all, timed(ctx, 0, s.getter("/iam/v2beta1/groups/"+string(s.org))))
		}
		return all
	}
	var quiet, busy []time.Duration
	var guesses atomic.Int64
	for round := range floodRounds + 1 {
		q := calls()
		stop := guess(ctx, s, round, &guesses)
		b := calls()
		check(stop())
		if round > 0 { // the first is to warm up
			quiet, busy = append(quiet, q...), append(busy, b...)
		}
	}
	for _, at := range []struct {
		name string
		of   float64
		most float64
	}{{"median", 0.5, 1.5}, {"99 of 100", 0.99, 0}} {
		m.slower("sign-in: GET of a group while passwords are guessed, "+at.name,
			newPair(quantile(busy, at.of), quantile(quiet, at.of)), at.most)
	}
	m.under("sign-in: guesses answered meanwhile", float64(guesses.Load())/((floodRounds+1)*floodTime.Seconds()), 0,
		perSecond)
}

// guess lets visitors try passwords until it is stopped. Every guess is for another
// account, because there are limits by account.
func guess(ctx context.Context, s *service, round int, guesses *atomic.Int64) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- together(guessers, func(i int) error {
			v := newVisitor(2000 + round*guessers + i)
			defer v.close()
			for n := 0; ; n++ {
				err := v.guess(ctx, s, fmt.Sprintf("u%d-%d-%d@example.com", round, i, n))
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
