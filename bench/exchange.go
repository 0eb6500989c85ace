package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/api"
	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/outbound"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/seal"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/iamdb"
	"github.com/holdfast-dev/holdfast/sts"
	"github.com/holdfast-dev/holdfast/token"
	"github.com/holdfast-dev/holdfast/trust"
)

const (
	workloads  = 64 // identities that tokens are exchanged for
	authTurns  = 20
	authCalls  = 20_000
	authTarget = 5 * time.Microsecond
)

// exchanges compares the exchange of a workload's token, whose issuer's keys are cached,
// with one verification and one signature alone. It also measures the authentication with
// a cached token.
func exchanges(ctx context.Context, b *bench, e engine, r *report) (err error) {
	address, _, err := e.create(ctx, "exchange")
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x, err := newExchange(ctx, s)
	if err != nil {
		return err
	}
	defer x.close()
	followed := make(chan error, 1)
	go func() { followed <- x.checker.Run(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-followed) }()
	for _, alg := range []string{"RS256", "ES256"} {
		if err := x.compare(ctx, alg, r); err != nil {
			return err
		}
	}
	return x.authentication(ctx, r)
}

// An exchange is the service without a listener, and an issuer it trusts.
type exchange struct {
	*platform
	handler    http.Handler
	issuer     *token.Issuer
	checker    *authz.Checker
	identities []resource.UID
}

func newExchange(ctx context.Context, s *store.DB) (*exchange, error) {
	p, err := newPlatform(ctx)
	if err != nil {
		return nil, err
	}
	x := &exchange{platform: p}
	if err := x.populate(ctx, s); err != nil {
		return nil, err
	}
	return x, x.assemble(ctx, s)
}

// populate adds an organization with identities that trust the issuer.
func (x *exchange) populate(ctx context.Context, s *store.DB) error {
	now := time.Now()
	org := resource.NewRoot()
	if _, err := iamdb.New(s).InsertGroup(ctx,
		resource.Group{UID: org, Name: "org", CreateTime: now, UpdateTime: now}); err != nil {
		return err
	}
	for n := range workloads {
		i := resource.Identity{
			UID: org.NewChild(), Name: "workload", CreateTime: now, UpdateTime: now, LastSeenTime: now,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: x.url,
				SubjectPattern: jobPattern(n)}},
		}
		if err := iamdb.New(s).InsertIdentity(ctx, i); err != nil {
			return err
		}
		x.identities = append(x.identities, i.UID)
	}
	return nil
}

// assemble builds the service as the server does. It formats its log, and discards it.
func (x *exchange) assemble(ctx context.Context, s *store.DB) (err error) {
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	if x.checker, err = authz.Load(ctx, s, log); err != nil {
		return err
	}
	key, err := seal.ParseKey(encryptionKey)
	if err != nil {
		return err
	}
	if x.issuer, err = token.New(ctx, s, token.Config{Issuer: baseURL, Key: key}); err != nil {
		return err
	}
	issuers, err := trust.New(trust.Config{Client: outbound.Client(outbound.Config{Loopback: true})})
	if err != nil {
		return err
	}
	service := sts.New(s, x.checker, x.issuer, issuers, sts.Config{BaseURL: baseURL, Log: log})
	tokens := page.NewTokens(key.Derive("page tokens"), time.Now)
	all := api.Services{IAM: iam.New(s, x.checker, tokens, iam.Config{Key: key}), STS: service}
	cfg := api.Config{Audience: baseURL, Log: log, Metrics: prometheus.NewRegistry()}
	x.handler = api.New(all, x.issuer, x.checker, cfg).HTTP()
	return nil
}

// compare reports exchanges of tokens of an algorithm.
func (x *exchange) compare(ctx context.Context, alg string, r *report) error {
	credentials := make([]credential, workloads)
	for n := range credentials {
		bearer, err := x.job(alg, n, baseURL)
		if err != nil {
			return err
		}
		form := url.Values{"aud": {baseURL}, "identity": {string(x.identities[n])}}.Encode()
		credentials[n] = credential{bearer, form}
	}
	picked := pick(credentials)
	limit, err := x.limit(alg)
	if err != nil {
		return err
	}
	inside := func(ctx context.Context, client int) error {
		q, err := exchangeRequest(ctx, baseURL, picked(client))
		if err != nil {
			return err
		}
		w := &responseBuffer{header: http.Header{}}
		x.handler.ServeHTTP(w, q)
		if w.status != http.StatusOK {
			return fmt.Errorf("exchange: status %d: %s", w.status, w.body)
		}
		return nil
	}
	if err := compareRates(ctx, r, "exchange, "+alg+" / one verification and one signature", 0.6, inside,
		limit); err != nil {
		return err
	}
	address, stop, err := serveHTTP(ctx, x.handler)
	if err != nil {
		return err
	}
	defer stop()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer c.CloseIdleConnections()
	p, err := race(ctx, func(ctx context.Context, client int) error {
		q, err := exchangeRequest(ctx, address, picked(client))
		if err != nil {
			return err
		}
		return consume(c.Do(q))
	}, limit)
	r.faster("exchange over HTTP, client included, "+alg, p, 0)
	return err
}

func exchangeRequest(ctx context.Context, address string, c credential) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/sts/exchange", strings.NewReader(c.form))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Authorization", "Bearer "+c.bearer)
	return q, nil
}

func consume(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// limit returns a function that does the least that an exchange needs: it verifies one
// signature and makes another.
func (x *exchange) limit(alg string) (operation, error) {
	sum := sha256.Sum256([]byte("a token"))
	theirs, err := rsa.SignPKCS1v15(nil, x.rsa, crypto.SHA256, sum[:])
	if err != nil {
		return nil, err
	}
	verify := func() bool { return rsa.VerifyPKCS1v15(&x.rsa.PublicKey, crypto.SHA256, sum[:], theirs) == nil }
	if alg == "ES256" {
		if theirs, err = ecdsa.SignASN1(rand.Reader, x.ec, sum[:]); err != nil {
			return nil, err
		}
		verify = func() bool { return ecdsa.VerifyASN1(&x.ec.PublicKey, sum[:], theirs) }
	}
	return func(context.Context, int) error {
		if !verify() {
			return errors.New("the signature is wrong")
		}
		_, err := ecdsa.SignASN1(rand.Reader, x.ec, sum[:])
		return err
	}, nil
}

// authentication reports the time to authenticate a request with a cached token.
func (x *exchange) authentication(ctx context.Context, r *report) error {
	raw, err := x.issuer.Mint(ctx, token.Claims{Subject: x.identities[0], Audience: []string{baseURL}})
	if err != nil {
		return err
	}
	authenticate := func() error {
		caller, err := x.issuer.Verify(ctx, raw, baseURL)
		if err != nil {
			return err
		}
		if err := x.checker.EnsureCurrent(ctx); err != nil {
			return err
		}
		if why := x.checker.Revoked(caller); why != "" {
			return errors.New(why)
		}
		return nil
	}
	var all []time.Duration
	for range authTurns {
		begin := time.Now()
		for range authCalls {
			if err := authenticate(); err != nil {
				return err
			}
		}
		all = append(all, time.Since(begin)/authCalls)
	}
	r.under("authentication of a token seen before", median(all).Seconds(), authTarget.Seconds(), seconds)
	return nil
}

// A responseBuffer implements http.ResponseWriter.
type responseBuffer struct {
	header http.Header
	status int
	body   []byte
}

func (w *responseBuffer) Header() http.Header    { return w.header }
func (w *responseBuffer) WriteHeader(status int) { w.status = status }

func (w *responseBuffer) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}
