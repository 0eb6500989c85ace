package client

import (
	"context"
	"sync"
	"time"
)

// A Vault keeps tokens for longer than a program runs, or for more than one. A
// client uses it from one goroutine at a time.
type Vault interface {
	// Read returns what is kept, which can be nothing.
	Read(ctx context.Context) (Tokens, error)
	// Change keeps what change makes of what is kept. While change runs, it does so
	// nowhere else, in no other process either: it may use up a refresh token, and
	// a second use would end the session. For the same reason ctx is for the wait
	// before change, and not for keeping what it returned. If change fails, nothing
	// is kept, and its error returned.
	Change(ctx context.Context, change func(Tokens) (Tokens, error)) error
}

// memory is the vault of one client.
type memory struct{ kept Tokens }

func (m *memory) Read(context.Context) (Tokens, error) { return m.kept, nil }

func (m *memory) Change(_ context.Context, change func(Tokens) (Tokens, error)) error {
	next, err := change(m.kept)
	if err == nil {
		m.kept = next
	}
	return err
}

// A renewal has the token of now, and gets the next one a minute before it ends.
// Of goroutines that find it ending, one gets the next; the others wait for it,
// and share what comes of that.
type renewal struct {
	credential Credential
	issuer     *Issuer
	vault      Vault
	turn       chan struct{} // held by the one that gets the next token

	mu       sync.Mutex
	current  string
	until    time.Time // when to get the next
	failures int
	failed   error // the last of them
}

func newRenewal(cfg Config, issuer *Issuer) *renewal {
	r := &renewal{credential: cfg.Credential, issuer: issuer, vault: cfg.Vault, turn: make(chan struct{}, 1)}
	if r.vault == nil {
		r.vault = &memory{}
	}
	return r
}

// token returns a token that is not the refused one, unless there is no other.
// Whoever gives up waiting leaves a renewal to its end: a refresh token is used
// up even if nobody listens to the answer.
func (r *renewal) token(ctx context.Context, refused string) (string, error) {
	token, failures, _ := r.glance(refused)
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

// glance returns the token of now, "" if it will not do, how many renewals have
// failed so far, and the last failure.
func (r *renewal) glance(refused string) (token string, failures int, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == refused || !time.Now().Before(r.until) {
		return "", r.failures, r.failed
	}
	return r.current, r.failures, nil
}

// renew waits for its turn, and gets a token unless somebody has since it began
// to wait, or has failed to.
func (r *renewal) renew(ctx context.Context, refused string, failures int) (string, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return "", givenUp(ctx, r.issuer.Address)
	}
	if token, since, failed := r.glance(refused); token != "" || since != failures {
		return token, failed
	}
	token, err := r.kept(ctx, refused)
	r.remember(ctx, token, err)
	return token, err
}

// kept returns the token of the vault, after it has seen to it that there is a
// good one.
func (r *renewal) kept(ctx context.Context, refused string) (string, error) {
	kept, err := r.vault.Read(ctx)
	if err != nil {
		return "", err
	}
	if r.serves(kept.Access, refused) {
		return kept.Access, nil
	}
	err = r.vault.Change(ctx, func(now Tokens) (Tokens, error) {
		if kept = now; r.serves(now.Access, refused) {
			return now, nil // somebody else was first
		}
		var err error
		kept, err = r.credential.Next(context.WithoutCancel(ctx), r.issuer, now)
		return kept, err
	})
	if err != nil {
		return "", err
	}
	return kept.Access, nil
}

func (r *renewal) serves(token, refused string) bool {
	return token != refused && Serves(token, r.issuer.Audience, time.Now())
}

// remember keeps what came of a renewal for those who wait for it. That somebody
// gave up is nobody else's failure.
func (r *renewal) remember(ctx context.Context, token string, err error) {
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
