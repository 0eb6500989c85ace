package client

import (
	"context"
	"sync"
	"time"
)

// A Vault stores tokens between the runs of a program, or for several programs. A client
// uses it from one goroutine at a time.
type Vault interface {
	// Read returns the stored tokens, which can be empty.
	Read(ctx context.Context) (Tokens, error)
	// Change replaces the stored tokens with the result of change. While change runs, Change
	// holds a lock that all processes share, because change may use a refresh token, and a
	// second use of that token would end the session. For the same reason, ctx only limits
	// the wait for the lock. If change fails, Change stores nothing and returns the error.
	Change(ctx context.Context, change func(Tokens) (Tokens, error)) error
}

// memory is the Vault of a client whose Config has none.
type memory struct{ tokens Tokens }

func (m *memory) Read(context.Context) (Tokens, error) { return m.tokens, nil }

func (m *memory) Change(_ context.Context, change func(Tokens) (Tokens, error)) error {
	next, err := change(m.tokens)
	if err == nil {
		m.tokens = next
	}
	return err
}

// A renewal holds the current token and replaces it a minute before it expires. If
// several goroutines need the next token, one of them gets it, and the rest wait and
// share the result.
type renewal struct {
	credential Credential
	issuer     *Issuer
	vault      Vault
	slot       chan struct{} // occupied by the goroutine that gets the next token

	mu       sync.Mutex
	current  string
	until    time.Time // time at which to get the next token
	failures int
	failed   error // error of the last failed renewal
}

func newRenewal(cfg Config, issuer *Issuer) *renewal {
	r := &renewal{credential: cfg.Credential, issuer: issuer, vault: cfg.Vault, slot: make(chan struct{}, 1)}
	if r.vault == nil {
		r.vault = &memory{}
	}
	return r
}

// token returns a token that differs from the token refused, or refused itself if there is
// no other. If ctx ends, token
// returns, but the renewal continues in the background, because it may already have used
// the refresh token.
func (r *renewal) token(ctx context.Context, refused string) (string, error) {
	token, failures, _ := r.cached(refused)
	if token != "" {
		return token, nil
	}
	type outcome struct {
		token string
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		token, err := r.renew(ctx, refused, failures)
		ended <- outcome{token, err}
	}()
	select {
	case o := <-ended:
		return o.token, o.err
	case <-ctx.Done():
		return "", givenUp(ctx, r.issuer.Address)
	}
}

// cached returns the current token, or "" if it is refused or about to expire. It also
// returns the number of failed renewals, and the last error.
func (r *renewal) cached(refused string) (token string, failures int, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == refused || !time.Now().Before(r.until) {
		return "", r.failures, r.failed
	}
	return r.current, r.failures, nil
}

// renew waits for the slot and gets a token, unless another goroutine has got one or has
// failed since the caller read failures.
func (r *renewal) renew(ctx context.Context, refused string, failures int) (string, error) {
	select {
	case r.slot <- struct{}{}:
		defer func() { <-r.slot }()
	case <-ctx.Done():
		return "", givenUp(ctx, r.issuer.Address)
	}
	if token, since, failed := r.cached(refused); token != "" || since != failures {
		return token, failed
	}
	token, err := r.fromVault(ctx, refused)
	r.record(ctx, token, err)
	return token, err
}

// fromVault returns the token in the vault. It renews the token if necessary.
func (r *renewal) fromVault(ctx context.Context, refused string) (string, error) {
	tokens, err := r.vault.Read(ctx)
	if err != nil {
		return "", err
	}
	if r.serves(tokens.Access, refused) {
		return tokens.Access, nil
	}
	err = r.vault.Change(ctx, func(stored Tokens) (Tokens, error) {
		if tokens = stored; r.serves(stored.Access, refused) {
			return stored, nil // another process has already renewed the token
		}
		var err error
		tokens, err = r.credential.Next(context.WithoutCancel(ctx), r.issuer, stored)
		return tokens, err
	})
	if err != nil {
		return "", err
	}
	return tokens.Access, nil
}

func (r *renewal) serves(token, refused string) bool {
	return token != refused && Serves(token, r.issuer.Audience, time.Now())
}

// record stores the result of a renewal for the goroutines that wait for it. An error
// that is due to the caller's own context is not recorded, because it does not concern
// the waiting goroutines.
func (r *renewal) record(ctx context.Context, token string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.current, r.until = token, time.Time{}
		if c, ok := ReadClaims(token); ok {
			r.until = c.Expires().Add(-tokenMargin)
		}
		return
	}
	if ctx.Err() == nil {
		r.failures++
		r.failed = err
	}
}
