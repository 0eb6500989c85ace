package trust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/outbound"
)

const (
	freshFor   = 10 * time.Minute // keys older than this are fetched again, in the background
	trustedFor = 6 * time.Hour    // keys older than this, because the issuer is away, are not trusted
	askAgain   = time.Minute      // for a key id that the issuer did not have
	retryAfter = 10 * time.Second // for an issuer that did not answer
	fetchLimit = 8 * time.Second  // for the discovery document and the keys together
	waitLimit  = 10 * time.Second // for a fetch, which may have to wait for its turn

	maxDiscovery = 64 << 10
	maxKeySet    = 512 << 10

	discoveryPath = "/.well-known/openid-configuration"
)

// A Source says where the keys of an issuer are that cannot be discovered.
type Source struct {
	KeysURI string // fetched from here, or
	Keys    []byte // given: a JSON Web Key Set
}

// Config is what Issuers are told. The zero value discovers the keys of public
// issuers.
type Config struct {
	Client *http.Client      // for addresses that others choose; nil is outbound's
	Fixed  map[string]Source // by issuer
	Now    func() time.Time  // nil is time.Now
}

// Issuers know the keys of other issuers: they are found when first needed,
// remembered, and looked for again in time. A slow issuer keeps nobody waiting
// but those who brought its tokens, and many of them none but the tenant that
// leads to them.
type Issuers struct {
	client *http.Client
	fixed  map[string]Source
	static map[string]KeySet
	now    func() time.Time

	mu      sync.Mutex // guards known, every issuer in it, and the pools
	issuers map[string]*issuer
	pools   [reasons]*poolSet
}

// An issuer is what is known of one.
type issuer struct {
	name      string
	keys      KeySet
	fetchedAt time.Time          // when keys were found; zero if never
	startedAt time.Time          // when the last fetch began
	err       error              // of the last fetch
	inFlight  *fetch             // nil if there is none
	pools     map[*pool]struct{} // that remember it
}

// size is what the issuer counts for among the keys that are remembered.
func (i *issuer) size() int { return max(len(i.keys.keys), 1) }

// New returns issuers of which nothing is known yet. It fails if keys that are
// given cannot be used.
func New(cfg Config) (*Issuers, error) {
	t := &Issuers{client: cfg.Client, fixed: cfg.Fixed, static: map[string]KeySet{}, now: cfg.Now, issuers: map[string]*issuer{}}
	var err error
	for reason := range t.pools {
		if t.pools[reason], err = newPoolSet(poolLimits[reason]); err != nil {
			return nil, fmt.Errorf("make the pools of issuers: %w", err)
		}
	}
	if t.client == nil {
		t.client = outbound.Client(outbound.Config{})
	}
	if t.now == nil {
		t.now = time.Now
	}
	for name, source := range cfg.Fixed {
		if source.Keys == nil {
			continue
		}
		if t.static[name], err = ParseKeys(source.Keys); err != nil {
			return nil, fmt.Errorf("keys of %s: %w", name, err)
		}
	}
	return t, nil
}

// An Unreachable is an issuer whose keys cannot be had now.
type Unreachable struct {
	Issuer string
	Err    error
}

// Error is for the log: it says more than Reason.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("the keys of %s cannot be had: %v", u.Issuer, u.Err)
}
func (u *Unreachable) Unwrap() error { return u.Err }

// Reason says why, in words that tell nothing of our network.
func (u *Unreachable) Reason() string {
	var public *publicError
	if errors.As(u.Err, &public) {
		return public.text
	}
	return outbound.Reason(u.Err)
}

// publicError is an error whose text may be told.
type publicError struct{ text string }

func (t *publicError) Error() string { return t.text }

// errBusy is why an issuer was not asked.
var errBusy = &publicError{"too many issuers are being asked for this organization; try again"}

// Verify returns nil if tok is signed by its issuer. The caller has made sure
// that the issuer matters to a: this is where it is asked for its keys. It
// returns ErrUnknownKey, ErrSignature, or an *Unreachable.
func (t *Issuers) Verify(ctx context.Context, a QuotaKey, tok *Token) error {
	keys, err := t.keys(ctx, a, tok.Issuer, false)
	if err != nil {
		return err
	}
	if err = keys.Verify(tok); !errors.Is(err, ErrUnknownKey) {
		return err
	}
	again, ferr := t.keys(ctx, a, tok.Issuer, true)
	if ferr != nil {
		return err // the issuer was there a while ago, so its keys are the better answer
	}
	return again.Verify(tok)
}

// VerifyCached is Verify with the keys that are remembered: it asks nobody.
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

// FetchKeys fetches the keys of an issuer now, whatever is remembered, and returns
// what was found.
func (t *Issuers) FetchKeys(ctx context.Context, a QuotaKey, name string) ([]Key, error) {
	if set, ok := t.static[name]; ok {
		return set.List(), nil
	}
	t.mu.Lock()
	p := t.poolFor(a)
	i := t.lookup(p, name)
	f := t.fetch(p, i)
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

// keys returns the keys of an issuer. Those remembered will do, unless more is
// set: then one was missing, and they are fetched again if that has not just
// been done.
func (t *Issuers) keys(ctx context.Context, a QuotaKey, name string, more bool) (KeySet, error) {
	if set, ok := t.static[name]; ok {
		return set, nil
	}
	t.mu.Lock()
	p := t.poolFor(a)
	i := t.lookup(p, name)
	now := t.now()
	usable, since := t.usable(i), now.Sub(i.startedAt)
	set, err := i.keys, i.err
	var f *fetch
	waits := true
	switch {
	case usable && !more:
		waits = false
		t.remember(p, i)
		if now.Sub(i.fetchedAt) > freshFor && since > retryAfter {
			t.fetch(p, i) // nobody waits for it
		}
	case more && since >= askAgain, !usable && since >= retryAfter, i.inFlight != nil:
		f = t.fetch(p, i)
	default:
		waits = false
	}
	t.mu.Unlock()
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

// usable tells whether the keys of an issuer are known and not too old to be
// trusted. The caller holds the lock.
func (t *Issuers) usable(i *issuer) bool {
	return !i.fetchedAt.IsZero() && t.now().Sub(i.fetchedAt) < trustedFor
}

// startFetch begins the fetch of an issuer, in p's turn. The caller holds the lock.
// The fetch is nobody's: who began it may leave, and others have joined.
func (t *Issuers) startFetch(p *pool, i *issuer) {
	f := i.inFlight
	f.started, i.startedAt = true, t.now()
	p.running++
	p.set.running++
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchLimit)
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

// waitFor waits for a fetch, and not for ever if its turn does not come.
func waitFor(ctx context.Context, name string, f *fetch) error {
	if f == nil {
		return &Unreachable{name, errBusy}
	}
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

// download fetches the keys of an issuer: from where it says, unless the operator
// says where.
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

// discover returns where an issuer says its keys are.
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
		return "", &publicError{"the discovery document is not JSON of the right form"}
	}
	if d.Issuer != name {
		return "", &publicError{"the discovery document is of another issuer"}
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
		return nil, &publicError{fmt.Sprintf("the answer was %d, not 200", resp.StatusCode)}
	}
	return outbound.Read(resp.Body, limit)
}
