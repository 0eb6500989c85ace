package issuers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

const (
	freshFor   = 10 * time.Minute // cached keys older than this are fetched again, in the background
	trustedFor = 6 * time.Hour    // cached keys older than this are not trusted; the issuer has not answered since
	askAgain   = time.Minute      // pause before another fetch because of an unknown key id
	retryAfter = 10 * time.Second // pause before another fetch from an issuer that failed
	fetchLimit = 8 * time.Second  // timeout for downloading the discovery document and the keys
	waitLimit  = 10 * time.Second // timeout for a fetch, including its time in the queue

	maxDiscovery = 64 << 10  // largest discovery document in bytes
	maxKeySet    = 512 << 10 // largest key set in bytes

	discoveryPath = "/.well-known/openid-configuration"
)

// A Source provides the keys of an issuer that cannot be discovered.
type Source struct {
	KeysURI string // address of the JSON Web Key Set; unused if Keys is set
	Keys    []byte // the JSON Web Key Set itself
}

// Config configures Issuers. The zero value discovers the keys of public
// issuers.
type Config struct {
	Client *http.Client      // client for addresses that tenants choose; nil is outbound.Client
	Fixed  map[string]Source // sources by issuer
	Now    func() time.Time  // nil is time.Now

	Lookups metric.Cache // counts key lookups
}

// Issuers caches the keys of other issuers. It fetches keys when they are first
// needed and refreshes them in the background. A slow issuer delays only the
// clients that present its tokens. Many slow issuers delay only the tenant whose
// identities name them. Issuers is safe for concurrent use.
type Issuers struct {
	client *http.Client
	fixed  map[string]Source
	static map[string]KeySet
	now    func() time.Time

	lookups metric.Cache

	mu      sync.Mutex // guards issuers, every issuer in it, and the pools
	issuers map[string]*issuer
	pools   [reasons]*poolSet
}

// An issuer is the cached state of one issuer.
type issuer struct {
	name      string
	keys      KeySet
	fetchedAt time.Time          // when keys were last fetched; zero if never
	startedAt time.Time          // when the last fetch began
	err       error              // error of the last fetch
	inFlight  *fetch             // nil if no fetch is queued or running
	pools     map[*pool]struct{} // pools that have this issuer cached
}

// size returns the number of keys that the issuer counts towards the limits of
// cached keys.
func (i *issuer) size() int { return max(len(i.keys.keys), 1) }

// New returns Issuers with an empty cache. It returns an error if the keys of a
// fixed source cannot be parsed.
func New(cfg Config) (*Issuers, error) {
	t := &Issuers{
		lookups: cfg.Lookups,
		client:  cmp.Or(cfg.Client, outbound.Client(outbound.Config{})), fixed: cfg.Fixed,
		static: map[string]KeySet{}, now: cfg.Now, issuers: map[string]*issuer{},
	}
	for reason := range t.pools {
		t.pools[reason] = &poolSet{limits: poolLimits[reason], tenants: newLRU[*pool]()}
	}
	if t.now == nil {
		t.now = time.Now
	}
	for name, source := range cfg.Fixed {
		if source.Keys == nil {
			continue
		}
		set, err := ParseKeys(source.Keys)
		if err != nil {
			return nil, fmt.Errorf("keys of %s: %w", name, err)
		}
		t.static[name] = set
	}
	return t, nil
}

// An Unreachable is the error for an issuer whose keys cannot be fetched now.
type Unreachable struct {
	Issuer string
	Err    error
}

// Error returns a message for the log, with more detail than Reason.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("the keys of %s cannot be fetched: %v", u.Issuer, u.Err)
}
func (u *Unreachable) Unwrap() error { return u.Err }

// Reason returns the reason for clients. It reveals nothing about our network.
func (u *Unreachable) Reason() string {
	if public, ok := errors.AsType[*publicError](u.Err); ok {
		return public.text
	}
	return outbound.Reason(u.Err)
}

// A publicError is an error whose text may be shown to clients.
type publicError struct{ text string }

func (t *publicError) Error() string { return t.text }

// errBusy is the error for a fetch that exceeds the limits of the tenant.
var errBusy = &publicError{"the keys of too many issuers are being fetched for this organization; try again"}

// Verify returns nil if tok is signed by its issuer. The caller must have checked that somebody trusts the issuer,
// because Verify may fetch its keys, which counts against the quota q. Verify returns ErrUnknownKey, ErrSignature, or
// an *Unreachable.
func (t *Issuers) Verify(ctx context.Context, q QuotaKey, tok *Token) error {
	keys, err := t.keys(ctx, q, tok.Issuer, false)
	if err != nil {
		return err
	}
	if err = keys.Verify(tok); !errors.Is(err, ErrUnknownKey) {
		return err
	}
	again, ferr := t.keys(ctx, q, tok.Issuer, true)
	if ferr != nil {
		return err // the cached keys did not match, which says more than that the issuer is unreachable
	}
	return again.Verify(tok)
}

// VerifyCached is Verify with the cached keys only. It fetches nothing.
func (t *Issuers) VerifyCached(tok *Token) error {
	set, ok := t.static[tok.Issuer]
	if !ok {
		t.mu.Lock()
		if i := t.issuers[tok.Issuer]; i != nil && t.usable(i) {
			set = i.keys
		}
		t.mu.Unlock()
	}
	return set.Verify(tok)
}

// FetchKeys fetches the keys of an issuer now, even if some are cached, and
// returns them.
func (t *Issuers) FetchKeys(ctx context.Context, q QuotaKey, name string) ([]Key, error) {
	if set, ok := t.static[name]; ok {
		return set.List(), nil
	}
	t.mu.Lock()
	p := t.poolFor(q)
	i := t.lookup(p, name)
	f := t.fetch(ctx, p, i)
	t.mu.Unlock()
	if err := waitFor(ctx, name, f); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i.err != nil {
		return nil, &Unreachable{name, i.err}
	}
	return i.keys.List(), nil
}

// keys returns the keys of an issuer, from the cache if possible. If refresh is
// true, because a key was missing, keys fetches them again, unless a fetch
// began less than askAgain ago.
func (t *Issuers) keys(ctx context.Context, q QuotaKey, name string, refresh bool) (KeySet, error) {
	if set, ok := t.static[name]; ok {
		return set, nil
	}
	t.mu.Lock()
	p := t.poolFor(q)
	i := t.lookup(p, name)
	asOf := t.now()
	usable, since := t.usable(i), asOf.Sub(i.startedAt)
	set, err := i.keys, i.err
	var f *fetch
	waits := true
	switch {
	case usable && !refresh:
		waits = false
		t.remember(p, i)
		if asOf.Sub(i.fetchedAt) > freshFor && since > retryAfter {
			t.fetch(ctx, p, i) // starts a fetch in the background
		}
	case refresh && since >= askAgain, !usable && since >= retryAfter, i.inFlight != nil:
		f = t.fetch(ctx, p, i)
	default:
		waits = false
	}
	t.mu.Unlock()
	t.lookups.Count(!waits && usable)
	if waits {
		if err := waitFor(ctx, name, f); err != nil {
			return KeySet{}, err
		}
		t.mu.Lock()
		set, err, usable = i.keys, i.err, t.usable(i)
		t.mu.Unlock()
	}
	if !usable {
		return KeySet{}, &Unreachable{name, err}
	}
	return set, nil
}

// usable reports whether the keys of an issuer are cached and recent enough to
// be trusted. The caller holds t.mu.
func (t *Issuers) usable(i *issuer) bool {
	return !i.fetchedAt.IsZero() && t.now().Sub(i.fetchedAt) < trustedFor
}

// startFetch starts the queued fetch of an issuer, which counts against the limits of p. The caller holds t.mu. The
// fetch continues after the request that caused it has ended, because other requests may wait for it.
func (t *Issuers) startFetch(p *pool, i *issuer) {
	f := i.inFlight
	f.started, i.startedAt = true, t.now()
	p.running++
	p.set.running++
	go func() {
		ctx, cancel := context.WithTimeout(f.traced, fetchLimit)
		defer cancel()
		keys, err := t.download(ctx, i.name)
		t.mu.Lock()
		defer t.mu.Unlock()
		i.inFlight, i.err = nil, err
		if err == nil {
			t.setKeys(i, keys)
		}
		t.finishFetch(p)
		close(f.done)
	}()
}

// waitFor waits for a fetch, for at most waitLimit.
func waitFor(ctx context.Context, name string, f *fetch) error {
	if f == nil {
		return &Unreachable{name, errBusy}
	}
	span := trace.Leaf(ctx, "wait for keys")
	defer span.End(nil)
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	select {
	case <-f.done:
		return nil
	case <-limit.C:
		return &Unreachable{name, errBusy}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// download fetches the keys of an issuer from its configured or discovered
// address.
func (t *Issuers) download(ctx context.Context, name string) (KeySet, error) {
	uri := t.fixed[name].KeysURI
	if uri == "" {
		var err error
		if uri, err = t.discover(ctx, name); err != nil {
			return KeySet{}, err
		}
	}
	document, err := t.get(ctx, uri, maxKeySet)
	if err != nil {
		return KeySet{}, err
	}
	set, err := ParseKeys(document)
	if err != nil {
		return KeySet{}, &publicError{err.Error()}
	}
	return set, nil
}

// discover returns the address of an issuer's keys from its discovery
// document.
func (t *Issuers) discover(ctx context.Context, name string) (string, error) {
	document, err := t.get(ctx, strings.TrimSuffix(name, "/")+discoveryPath, maxDiscovery)
	if err != nil {
		return "", err
	}
	var d struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(document, &d); err != nil {
		return "", &publicError{"the discovery document is not valid JSON, or its fields have the wrong type"}
	}
	if d.Issuer != name {
		return "", &publicError{"the discovery document names another issuer"}
	}
	if d.Keys == "" {
		return "", &publicError{"the discovery document has no jwks_uri"}
	}
	return d.Keys, nil
}

func (t *Issuers) get(ctx context.Context, address string, limit int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, &publicError{"the address is malformed"}
	}
	r.Header.Set("Accept", "application/json")
	resp, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &publicError{fmt.Sprintf("the response status was %d, not 200", resp.StatusCode)}
	}
	return outbound.Read(resp.Body, limit)
}
