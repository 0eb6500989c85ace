package access

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
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	authTurns  = 20
	authCalls  = 20_000
	authTarget = 5 * time.Microsecond
)

// Exchanges compares the exchange of a workload's token with one verification and one signature alone. The keys of
// the token's issuer are cached. Exchanges also measures authentication with a cached token.
func Exchanges(ctx context.Context, m *rig.Measurement) {
	address, _ := m.Engine.Create(ctx, "exchange")
	s := rig.Must(store.Open(ctx, address))
	m.AtEnd(s.Close)
	x := &exchange{Platform: m.NewPlatform(ctx)}
	x.populate(ctx, iamdb.New(s))
	x.assemble(ctx, s)
	followChanges(ctx, m, x.checker)
	for _, alg := range []string{"RS256", "ES256"} {
		x.compare(ctx, m, alg)
	}
	x.authentication(ctx, m.Report)
}

// An exchange is the token service without a listener, and a platform that issues tokens for it.
type exchange struct {
	*rig.Platform
	handler    http.Handler
	issuer     *token.Issuer
	checker    *authz.Checker
	identities []resource.UID
}

// populate adds an organization with identities that trust the platform.
func (x *exchange) populate(ctx context.Context, s *iamdb.Store) {
	created := time.Now()
	org := resource.NewRoot()
	rig.Must(s.InsertGroup(ctx, resource.Group{UID: org, Name: "org", CreateTime: created, UpdateTime: created}))
	for n := range rig.Workloads {
		i := resource.Identity{
			UID: org.NewChild(), Name: "workload", CreateTime: created, UpdateTime: created, LastSeenTime: created,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: x.URL,
				SubjectPattern: rig.JobPattern(n)}},
		}
		rig.Check(s.InsertIdentity(ctx, i))
		x.identities = append(x.identities, i.UID)
	}
}

// assemble builds the token service as the server does. The log is formatted and then discarded.
func (x *exchange) assemble(ctx context.Context, s *store.DB) {
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	x.checker = rig.Must(authz.Load(ctx, s, log))
	key := rig.Must(secret.ParseKey(rig.EncryptionKey))
	x.issuer = rig.Must(token.New(ctx, s, token.Config{Issuer: rig.BaseURL, Key: key}))
	issuers := rig.Must(issuers.New(issuers.Config{Client: outbound.Client(outbound.Config{Loopback: true})}))
	service := sts.New(s, x.checker, x.issuer, issuers, sts.Config{BaseURL: rig.BaseURL, Log: log})
	tokens := page.NewTokens(key.Derive("page tokens"), time.Now)
	services := api.Services{IAM: iam.New(s, x.checker, tokens, iam.Config{Key: key}), STS: service}
	cfg := api.Config{Audience: rig.BaseURL, Log: log, Metrics: prometheus.NewRegistry()}
	x.handler = api.New(services, x.issuer, x.checker, cfg).HTTP()
}

// compare reports how fast tokens that are signed with an algorithm are exchanged, compared with limit.
func (x *exchange) compare(ctx context.Context, m *rig.Measurement, alg string) {
	credentials := make([]rig.Credential, rig.Workloads)
	for n := range credentials {
		form := url.Values{"aud": {rig.BaseURL}, "identity": {string(x.identities[n])}}.Encode()
		credentials[n] = rig.Credential{Bearer: x.JobToken(alg, n, rig.BaseURL), Form: form}
	}
	picked := rig.Distribute(credentials)
	limit := x.limit(alg)
	inside := func(ctx context.Context, client int) error {
		c := picked(client)
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, rig.BaseURL+"/sts/exchange", strings.NewReader(c.Form))
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Authorization", "Bearer "+c.Bearer)
		w := httptest.NewRecorder()
		x.handler.ServeHTTP(w, q)
		if w.Code != http.StatusOK {
			return fmt.Errorf("exchange: status %d: %s", w.Code, w.Body)
		}
		return nil
	}
	m.CompareRates(ctx, "exchange, "+alg+" / one verification and one signature", 0.6, inside, limit)
	c := rig.NewClient(m.ServeHandler(ctx, x.handler), "")
	defer c.Close()
	over := func(ctx context.Context, client int) error {
		_, err := c.Exchange(ctx, picked(client))
		return err
	}
	m.Faster("exchange over HTTP, client included, "+alg, rig.Race(ctx, over, limit), 0)
}

// limit returns an operation that does only the minimum of an exchange: it verifies one signature and makes another.
func (x *exchange) limit(alg string) rig.Operation {
	sum := sha256.Sum256([]byte("a token"))
	theirs := rig.Must(rsa.SignPKCS1v15(nil, x.RSA, crypto.SHA256, sum[:]))
	verify := func() bool { return rsa.VerifyPKCS1v15(&x.RSA.PublicKey, crypto.SHA256, sum[:], theirs) == nil }
	if alg == "ES256" {
		theirs = rig.Must(ecdsa.SignASN1(rand.Reader, x.EC, sum[:]))
		verify = func() bool { return ecdsa.VerifyASN1(&x.EC.PublicKey, sum[:], theirs) }
	}
	return func(context.Context, int) error {
		if !verify() {
			return errors.New("the signature is not valid")
		}
		_, err := ecdsa.SignASN1(rand.Reader, x.EC, sum[:])
		return err
	}
}

// authentication reports the time to authenticate a request with a cached token.
func (x *exchange) authentication(ctx context.Context, r *rig.Report) {
	raw := rig.Must(x.issuer.Mint(ctx, token.Claims{Subject: x.identities[0], Audience: []string{rig.BaseURL}}))
	var times []time.Duration
	for range authTurns {
		begin := time.Now()
		for range authCalls {
			caller := rig.Must(x.issuer.Verify(ctx, raw, rig.BaseURL))
			rig.Check(x.checker.EnsureCurrent(ctx))
			if why := x.checker.Revoked(caller); why != "" {
				rig.Check(errors.New(why))
			}
		}
		times = append(times, time.Since(begin)/authCalls)
	}
	r.Below("authentication of a token seen before", rig.Median(times).Seconds(), authTarget.Seconds(), rig.Seconds)
}
