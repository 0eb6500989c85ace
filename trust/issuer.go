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

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/outbound"
)

const (
	freshFor   = 10 * time.Minute // keys older than this are fetched again, in the background
	trustedFor = 6 * time.Hour    // keys older than this, because the issuer is away, are not trusted
	askAgain   = time.Minute      // for a key id that the issuer did not have
	retryAfter = 10 * time.Second // for an issuer that did not answer
	fetchLimit = 8 * time.Second  // for the discovery document and the keys together

	knownIssuers = 1000 // whose keys are remembered
	fetches      = 64   // at once, of all issuers

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
// but those who brought its tokens.
type Issuers struct {
	client *http.Client
	fixed  map[string]Source
	given  map[string]KeySet
	now    func() time.Time
	slots  chan struct{}

	mu    sync.Mutex // guards known, and every issuer in it
	known *lru.Cache[string, *issuer]
}

// An issuer is what is known of one.
type issuer struct {
	keys    KeySet
	found   time.Time     // when keys were found; zero if never
	asked   time.Time     // when the last fetch began
	err     error         // of the last fetch
	ongoing chan struct{} // closed when the fetch under way ends; nil if there is none
}

// New returns issuers of which nothing is known yet. It fails if keys that are
// given cannot be used.
func New(cfg Config) (*Issuers, error) {
	known, err := lru.New[string, *issuer](knownIssuers)
	if err != nil {
		return nil, fmt.Errorf("make the cache of issuers: %w", err)
	}
	t := &Issuers{
		client: cfg.Client, fixed: cfg.Fixed, given: map[string]KeySet{}, now: cfg.Now, known: known, slots: make(chan struct{}, fetches),
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
		if t.given[name], err = ParseKeys(source.Keys); err != nil {
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

func (u *Unreachable) Error() string {
	return "the keys of " + u.Issuer + " cannot be had: " + u.Reason()
}
func (u *Unreachable) Unwrap() error { return u.Err }

// Reason says why, in words that tell nothing of our network.
func (u *Unreachable) Reason() string {
	var told *telling
	if errors.As(u.Err, &told) {
		return told.text
	}
	return outbound.Reason(u.Err)
}

// telling is an error whose text may be told.
type telling struct{ text string }

func (t *telling) Error() string { return t.text }

// Verify returns nil if t is signed by its issuer. The caller has made sure that
// the issuer matters: this is where it is asked for its keys. It returns
// ErrUnknownKey, ErrSignature, or an *Unreachable.
func (t *Issuers) Verify(ctx context.Context, tok *Token) error {
	keys, err := t.keys(ctx, tok.Issuer, false)
	if err != nil {
		return err
	}
	if err = keys.Verify(tok); !errors.Is(err, ErrUnknownKey) {
		return err
	}
	again, ferr := t.keys(ctx, tok.Issuer, true)
	if ferr != nil {
		return err // the issuer was there a while ago, so its keys are the better answer
	}
	return again.Verify(tok)
}

// Look fetches the keys of an issuer now, whatever is remembered, and returns
// what was found.
func (t *Issuers) Look(ctx context.Context, name string) ([]Key, error) {
	if set, ok := t.given[name]; ok {
		return set.List(), nil
	}
	t.mu.Lock()
	i := t.issuer(name)
	done := t.fetch(name, i)
	t.mu.Unlock()
	if err := wait(ctx, done); err != nil {
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
func (t *Issuers) keys(ctx context.Context, name string, more bool) (KeySet, error) {
	if set, ok := t.given[name]; ok {
		return set, nil
	}
	t.mu.Lock()
	i := t.issuer(name)
	now := t.now()
	age, since := now.Sub(i.found), now.Sub(i.asked)
	usable := !i.found.IsZero() && age < trustedFor
	var done chan struct{}
	switch {
	case usable && !more:
		if age > freshFor && since > retryAfter {
			t.fetch(name, i) // nobody waits for it
		}
	case more && since >= askAgain, !usable && since >= retryAfter:
		done = t.fetch(name, i)
	default:
		done = i.ongoing
	}
	set, err := i.keys, i.err
	t.mu.Unlock()
	if done != nil {
		if err := wait(ctx, done); err != nil {
			return KeySet{}, err
		}
		t.mu.Lock()
		set, err = i.keys, i.err
		usable = !i.found.IsZero() && t.now().Sub(i.found) < trustedFor
		t.mu.Unlock()
	}
	if !usable {
		return KeySet{}, &Unreachable{name, err}
	}
	return set, nil
}

// issuer returns the entry of a name. The caller holds the lock.
func (t *Issuers) issuer(name string) *issuer {
	i, ok := t.known.Get(name)
	if !ok {
		i = &issuer{}
		t.known.Add(name, i)
	}
	return i
}

// fetch begins to fetch the keys of an issuer, unless that is under way, and
// returns what is closed at its end. The caller holds the lock. The fetch is
// nobody's: who began it may leave, and others have joined.
func (t *Issuers) fetch(name string, i *issuer) chan struct{} {
	if i.ongoing != nil {
		return i.ongoing
	}
	done := make(chan struct{})
	i.ongoing, i.asked = done, t.now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchLimit)
		defer cancel()
		keys, err := t.find(ctx, name)
		t.mu.Lock()
		defer t.mu.Unlock()
		i.ongoing, i.err = nil, err
		if err == nil {
			i.keys, i.found = keys, t.now()
		}
		close(done)
	}()
	return done
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// find fetches the keys of an issuer: from where it says, unless the operator
// says where.
func (t *Issuers) find(ctx context.Context, name string) (KeySet, error) {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return KeySet{}, ctx.Err()
	}
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
		return KeySet{}, &telling{err.Error()}
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
		return "", &telling{"the discovery document is not JSON of the right form"}
	}
	if d.Issuer != name {
		return "", &telling{"the discovery document is of another issuer"}
	}
	if d.Keys == "" {
		return "", &telling{"the discovery document has no jwks_uri"}
	}
	return d.Keys, nil
}

func (t *Issuers) get(ctx context.Context, address string, limit int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, &telling{"the address is malformed"}
	}
	r.Header.Set("Accept", "application/json")
	resp, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &telling{fmt.Sprintf("the answer was %d, not 200", resp.StatusCode)}
	}
	return outbound.Read(resp.Body, limit)
}
