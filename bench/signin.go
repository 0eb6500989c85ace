package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
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
func signIns(ctx context.Context, b *bench, e engine, r *report) (err error) {
	database, err := empty(ctx, e, "signin")
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := manyStarts(ctx, s, r); err != nil {
		return err
	}
	return flood(ctx, s, r)
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
	resp, err := v.send(ctx, http.MethodGet, "http://"+s.addr+"/oauth?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	to, err := resp.Location()
	if err != nil {
		return fmt.Errorf("start: %s: %w", resp.Status, err)
	}
	v.flow = to.Query().Get("flow")
	resp, err = v.send(ctx, http.MethodGet, "http://"+s.addr+to.RequestURI(), nil)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("page: %s", resp.Status)
	}
	return err
}

func manyStarts(ctx context.Context, s *service, r *report) error {
	var failed atomic.Int64
	var first error
	var once sync.Once
	begin := time.Now()
	err := together(startsAtOnce, func(i int) error {
		v := newVisitor(i)
		defer v.close()
		if err := v.start(ctx, s); err != nil {
			failed.Add(1)
			once.Do(func() { first = err })
		}
		return nil
	})
	if err != nil {
		return err
	}
	if first != nil {
		r.note("The first sign-in that did not start: %v.", first)
	}
	r.exactly(fmt.Sprintf("sign-in: of %d started at once, failed", startsAtOnce), failed.Load(), 0)
	r.under("sign-in: all of them on the page after", time.Since(begin).Seconds(), 0, seconds)
	return nil
}

// flood compares the time of a call while passwords are guessed with its time when the
// server is idle, alternately.
func flood(ctx context.Context, s *service, r *report) error {
	c := newClient(s.token)
	defer c.close()
	call := func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		_, _, err := c.do(ctx, http.MethodGet, "http://"+s.addr+"/iam/v2beta1/groups/"+string(s.org), "")
		return time.Since(begin), err
	}
	var quiet, busy []time.Duration
	var guesses atomic.Int64
	for round := range floodRounds + 1 {
		q, err := callsFor(ctx, floodTime, call)
		if err != nil {
			return err
		}
		stop := guess(ctx, s, round, &guesses)
		b, err := callsFor(ctx, floodTime, call)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
		if round > 0 { // the first is to warm up
			quiet, busy = append(quiet, q...), append(busy, b...)
		}
	}
	for _, at := range []struct {
		name string
		of   float64
		most float64
	}{{"median", 0.5, 1.5}, {"99 of 100", 0.99, 0}} {
		p := pair{a: quantile(busy, at.of), b: quantile(quiet, at.of)}
		p.ratio = float64(p.a) / float64(p.b)
		r.slower("sign-in: GET of a group while passwords are guessed, "+at.name, p, at.most)
	}
	r.under("sign-in: guesses answered meanwhile", float64(guesses.Load())/((floodRounds+1)*floodTime.Seconds()), 0,
		perSecond)
	return nil
}

// callsFor makes one call after the other for a time.
func callsFor(
	ctx context.Context, d time.Duration, call func(context.Context) (time.Duration, error),
) (all []time.Duration, _ error) {
	for begin := time.Now(); time.Since(begin) < d; {
		took, err := call(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
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
			for n := 0; ctx.Err() == nil; n++ {
				if err := v.start(ctx, s); err != nil {
					return ignoreEnd(ctx, err)
				}
				email := fmt.Sprintf("u%d-%d-%d@example.com", round, i, n)
				form := url.Values{"flow": {v.flow}, "email": {email}, "password": {"not the password"}}
				if _, err := v.send(ctx, http.MethodPost, "http://"+s.addr+"/signin/password", form); err != nil {
					return ignoreEnd(ctx, err)
				}
				guesses.Add(1)
			}
			return nil
		})
	}()
	return func() error {
		cancel()
		return <-done
	}
}

// ignoreEnd returns err, or nil if ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
