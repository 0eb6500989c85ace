package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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

// exchanges measures the exchange of a workload's token whose issuer's keys are
// known, beside what the machine could do if an exchange were nothing but one
// verification and one signature; and what a token seen before costs.
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

// An exchange is the service without its listener, and an issuer it trusts.
type exchange struct {
	handler    http.Handler
	issuer     *token.Issuer
	checker    *authz.Checker
	rsa        *rsa.PrivateKey
	ec         *ecdsa.PrivateKey
	url        string // of the issuer
	identities []resource.UID
	close      func()
}

func newExchange(ctx context.Context, s *store.Store) (x *exchange, err error) {
	x = &exchange{}
	if x.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		return nil, err
	}
	if x.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if x.url, x.close, err = serveHTTP(ctx, http.HandlerFunc(x.serveKeys)); err != nil {
		return nil, err
	}
	if err := x.populate(ctx, s); err != nil {
		return nil, err
	}
	return x, x.assemble(ctx, s)
}

// serveHTTP serves on a free port of this machine.
func serveHTTP(ctx context.Context, h http.Handler) (address string, stop func(), _ error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }() // it ends with Close
	return "http://" + l.Addr().String(), func() { srv.Close() }, nil
}

func (x *exchange) serveKeys(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/keys" {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, x.url, x.url+"/keys")
		return
	}
	b64 := base64.RawURLEncoding.EncodeToString
	point, err := x.ec.PublicKey.Bytes() // 4, X, Y
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, `{"keys":[{"kty":"RSA","kid":"RS256","n":%q,"e":"AQAB"},{"kty":"EC","kid":"ES256","crv":"P-256","x":%q,"y":%q}]}`,
		b64(x.rsa.N.Bytes()), b64(point[1:33]), b64(point[33:]))
}

// populate adds an organization of identities that trust the issuer.
func (x *exchange) populate(ctx context.Context, s *store.Store) error {
	now := time.Now()
	org := resource.NewRoot()
	if _, err := s.InsertGroup(ctx, resource.Group{UID: org, Name: "org", CreateTime: now, UpdateTime: now}); err != nil {
		return err
	}
	for n := range workloads {
		i := resource.Identity{
			UID: org.NewChild(), Name: "workload", CreateTime: now, UpdateTime: now, LastSeenTime: now,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: x.url, SubjectPattern: fmt.Sprintf(`repo:org(@\d+)?/app%d(@\d+)?:ref:refs/heads/main`, n)}},
		}
		if err := s.InsertIdentity(ctx, i); err != nil {
			return err
		}
		x.identities = append(x.identities, i.UID)
	}
	return nil
}

// assemble builds the service as the server does. Its log goes nowhere, but is
// written.
func (x *exchange) assemble(ctx context.Context, s *store.Store) (err error) {
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
	service, err := sts.New(s, x.checker, x.issuer, issuers, sts.Config{BaseURL: baseURL, Log: log})
	if err != nil {
		return err
	}
	tokens := page.NewTokens(key.Derive("page tokens"), time.Now)
	all := api.Services{IAM: iam.New(s, x.checker, tokens, iam.Config{Key: key}), STS: service}
	x.handler = api.New(all, x.issuer, x.checker, api.Config{Audience: baseURL, Log: log, Metrics: prometheus.NewRegistry()}).HTTP()
	return nil
}

// token signs a token as GitHub Actions has them.
func (x *exchange) token(alg string, n int) (string, error) {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": x.url, "sub": fmt.Sprintf("repo:org/app%d:ref:refs/heads/main", n), "aud": baseURL, "jti": rand.Text(),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(), "repository": "org/app", "repository_id": "1001",
		"repository_owner": "org", "repository_owner_id": "2001", "ref": "refs/heads/main", "ref_type": "branch", "event_name": "push",
		"sha": "0123456789abcdef0123456789abcdef01234567", "actor": "octavia", "workflow": "build", "run_id": "4001", "run_attempt": "1",
		"workflow_ref": "org/app/.github/workflows/build.yml@refs/heads/main", "runner_environment": "github-hosted",
	})
	if err != nil {
		return "", err
	}
	b64 := base64.RawURLEncoding.EncodeToString
	input := b64([]byte(`{"alg":"`+alg+`","typ":"JWT","kid":"`+alg+`"}`)) + "." + b64(claims)
	sum := sha256.Sum256([]byte(input))
	if alg == "RS256" {
		sig, err := rsa.SignPKCS1v15(nil, x.rsa, crypto.SHA256, sum[:])
		return input + "." + b64(sig), err
	}
	p, q, err := ecdsa.Sign(rand.Reader, x.ec, sum[:])
	if err != nil {
		return "", err
	}
	return input + "." + b64(append(p.FillBytes(make([]byte, 32)), q.FillBytes(make([]byte, 32))...)), nil
}

// compare reports exchanges of tokens of an algorithm.
func (x *exchange) compare(ctx context.Context, alg string, r *report) error {
	bearers := make([]string, workloads)
	forms := make([]string, workloads)
	for n := range workloads {
		var err error
		if bearers[n], err = x.token(alg, n); err != nil {
			return err
		}
		forms[n] = url.Values{"aud": {baseURL}, "identity": {string(x.identities[n])}}.Encode()
	}
	next := make([]int, clients*8) // eight apart: clients do not share a cache line
	pick := func(client int) int {
		next[client*8]++
		return (next[client*8]*clients + client) % workloads
	}
	limit, err := x.limit(alg)
	if err != nil {
		return err
	}
	inside := func(ctx context.Context, client int) error {
		n := pick(client)
		q, err := exchangeRequest(ctx, "http://holdfast.test", forms[n], bearers[n])
		if err != nil {
			return err
		}
		w := &answer{header: http.Header{}}
		x.handler.ServeHTTP(w, q)
		if w.status != http.StatusOK {
			return fmt.Errorf("exchange: status %d: %s", w.status, w.body)
		}
		return nil
	}
	p, err := race(ctx, inside, limit)
	if err != nil {
		return err
	}
	r.faster("exchange, "+alg+" / one verification and one signature", p, 0.6)
	r.note("Exchange of %s: %s of processor time; verification and signature alone %s.", alg, brief(p.cpuA), brief(p.cpuB))
	if _, err := whereOf(ctx, r, "exchanges of "+alg, inside); err != nil {
		return err
	}
	address, stop, err := serveHTTP(ctx, x.handler)
	if err != nil {
		return err
	}
	defer stop()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer c.CloseIdleConnections()
	p, err = race(ctx, func(ctx context.Context, client int) error {
		n := pick(client)
		q, err := exchangeRequest(ctx, address, forms[n], bearers[n])
		if err != nil {
			return err
		}
		return consume(c.Do(q))
	}, limit)
	r.faster("exchange over HTTP, client included, "+alg, p, 0)
	return err
}

func exchangeRequest(ctx context.Context, address, form, bearer string) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/sts/exchange", strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Authorization", "Bearer "+bearer)
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

// limit is what an exchange cannot do without: to verify one signature and to
// make another.
func (x *exchange) limit(alg string) (func(context.Context, int) error, error) {
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

// authentication reports what a token costs that was seen before: what every
// request does before anything else.
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
		if err := x.checker.Confirm(ctx); err != nil {
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

// An answer is what a handler writes.
type answer struct {
	header http.Header
	status int
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	return len(b), nil
}
