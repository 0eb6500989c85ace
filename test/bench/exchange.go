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
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
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
func exchanges(ctx context.Context, m *measurement) {
	address, _ := m.engine.create(ctx, "exchange")
	s := must(store.Open(ctx, address))
	m.atEnd(s.Close)
	x := &exchange{platform: m.newPlatform(ctx)}
	x.populate(ctx, iamdb.New(s))
	x.assemble(ctx, s)
	m.follow(ctx, x.checker)
	for _, alg := range []string{"RS256", "ES256"} {
		x.compare(ctx, m, alg)
	}
	x.authentication(ctx, m.report)
}

// An exchange is the service without a listener, and an issuer it trusts.
type exchange struct {
	*platform
	handler    http.Handler
	issuer     *token.Issuer
	checker    *authz.Checker
	identities []resource.UID
}

// populate adds an organization with identities that trust the issuer.
func (x *exchange) populate(ctx context.Context, s *iamdb.Store) {
	now := time.Now()
	org := resource.NewRoot()
	must(s.InsertGroup(ctx, resource.Group{UID: org, Name: "org", CreateTime: now, UpdateTime: now}))
	for n := range workloads {
		i := resource.Identity{
			UID: org.NewChild(), Name: "workload", CreateTime: now, UpdateTime: now, LastSeenTime: now,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: x.url,
				SubjectPattern: jobPattern(n)}},
		}
		check(s.InsertIdentity(ctx, i))
		x.identities = append(x.identities, i.UID)
	}
}

// assemble builds the service as the server does. It formats its log, and discards it.
func (x *exchange) assemble(ctx context.Context, s *store.DB) {
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	x.checker = must(authz.Load(ctx, s, log))
	key := must(secret.ParseKey(encryptionKey))
	x.issuer = must(token.New(ctx, s, token.Config{Issuer: baseURL, Key: key}))
	issuers := must(issuers.New(issuers.Config{Client: outbound.Client(outbound.Config{Loopback: true})}))
	service := sts.New(s, x.checker, x.issuer, issuers, sts.Config{BaseURL: baseURL, Log: log})
	tokens := page.NewTokens(key.Derive("page tokens"), time.Now)
	all := api.Services{IAM: iam.New(s, x.checker, tokens, iam.Config{Key: key}), STS: service}
	cfg := api.Config{Audience: baseURL, Log: log, Metrics: prometheus.NewRegistry()}
	x.handler = api.New(all, x.issuer, x.checker, cfg).HTTP()
}

// compare reports exchanges of tokens of an algorithm.
func (x *exchange) compare(ctx context.Context, m *measurement, alg string) {
	credentials := make([]credential, workloads)
	for n := range credentials {
		form := url.Values{"aud": {baseURL}, "identity": {string(x.identities[n])}}.Encode()
		credentials[n] = credential{x.job(alg, n, baseURL), form}
	}
	picked := pick(credentials)
	limit := x.limit(alg)
	inside := func(ctx context.Context, client int) error {
		c := picked(client)
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+"/sts/exchange", strings.NewReader(c.form))
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Authorization", "Bearer "+c.bearer)
		w := httptest.NewRecorder()
		x.handler.ServeHTTP(w, q)
		if w.Code != http.StatusOK {
			return fmt.Errorf("exchange: status %d: %s", w.Code, w.Body)
		}
		return nil
	}
	m.compareRates(ctx, "exchange, "+alg+" / one verification and one signature", 0.6, inside, limit)
	c := newClient(m.serveHTTP(ctx, x.handler), "")
	defer c.close()
	over := func(ctx context.Context, client int) error {
		_, err := c.exchange(ctx, picked(client))
		return err
	}
	m.faster("exchange over HTTP, client included, "+alg, race(ctx, over, limit), 0)
}

// limit returns a function that does the least that an exchange needs: it verifies one
// signature and makes another.
func (x *exchange) limit(alg string) operation {
	sum := sha256.Sum256([]byte("a token"))
	theirs := must(rsa.SignPKCS1v15(nil, x.rsa, crypto.SHA256, sum[:]))
	verify := func() bool { return rsa.VerifyPKCS1v15(&x.rsa.PublicKey, crypto.SHA256, sum[:], theirs) == nil }
	if alg == "ES256" {
		theirs = must(ecdsa.SignASN1(rand.Reader, x.ec, sum[:]))
		verify = func() bool { return ecdsa.VerifyASN1(&x.ec.PublicKey, sum[:], theirs) }
	}
	return func(context.Context, int) error {
		if !verify() {
			return errors.New("the signature is wrong")
		}
		_, err := ecdsa.SignASN1(rand.Reader, x.ec, sum[:])
		return err
	}
}

// authentication reports the time to authenticate a request with a cached token.
func (x *exchange) authentication(ctx context.Context, r *report) {
	raw := must(x.issuer.Mint(ctx, token.Claims{Subject: x.identities[0], Audience: []string{baseURL}}))
	var all []time.Duration
	for range authTurns {
		begin := time.Now()
		for range authCalls {
			caller := must(x.issuer.Verify(ctx, raw, baseURL))
			check(x.checker.EnsureCurrent(ctx))
			if why := x.checker.Revoked(caller); why != "" {
				check(errors.New(why))
			}
		}
		all = append(all, time.Since(begin)/authCalls)
	}
	r.under("authentication of a token seen before", median(all).Seconds(), authTarget.Seconds(), seconds)
}
