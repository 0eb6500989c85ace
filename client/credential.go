package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

// Tokens are what a call carries, and what the next one is got with. Either can
// be "".
type Tokens struct {
	Access  string `json:"token,omitempty"`
	Refresh string `json:"refreshToken,omitempty"`
}

// A Credential is what tokens are got with.
type Credential interface {
	// Next returns tokens in place of those before, which are none at first. It is
	// called when the access token is about to end, or was refused, and by one
	// goroutine at a time.
	Next(ctx context.Context, issuer *Issuer, before Tokens) (Tokens, error)
}

// A Token is there already, and there is no other: when it has ended, calls are
// refused.
type Token string

// Next returns the token itself.
func (t Token) Next(context.Context, *Issuer, Tokens) (Tokens, error) {
	return Tokens{Access: string(t)}, nil
}

func (t Token) check() error {
	if !IsToken(string(t)) {
		return errors.New("the token is none") // which must not be shown
	}
	return nil
}

// A RefreshToken is that of a person's session. It is good once: the issuer gives
// another with every token, and whoever uses one again ends the session. A program
// that runs more than once needs a Vault for it.
type RefreshToken string

// Next uses up the refresh token of the tokens before, or itself if they have
// none.
func (t RefreshToken) Next(ctx context.Context, issuer *Issuer, before Tokens) (Tokens, error) {
	token := cmp.Or(before.Refresh, string(t))
	if token == "" {
		return Tokens{}, ErrNoCredential
	}
	return issuer.Refresh(ctx, token)
}

func (t RefreshToken) check() error {
	if t == "" {
		return nil // the vault has it
	}
	return Token(t).check()
}

// A Workload is a program that its platform vouches for: it shows the platform's
// token, and gets one of the identity that trusts it.
type Workload struct {
	Identity string // uid of the identity to assume; "" is whoever the proof is of
	Proof    Proof  // nil: Platform
}

// Next gets a new proof and exchanges it.
func (w Workload) Next(ctx context.Context, issuer *Issuer, _ Tokens) (Tokens, error) {
	proof := w.Proof
	if proof == nil {
		proof = Platform
	}
	own, err := issuer.prove(ctx, proof, w.Identity)
	if err != nil {
		return Tokens{}, err
	}
	return issuer.Exchange(ctx, own, &oidcpb.ExchangeRequest{Identity: w.Identity})
}

// A Proof gets a token of somebody else's that proves to an issuer who runs this
// program. identity is the uid of the identity that it is to prove, or "".
type Proof func(ctx context.Context, issuer, identity string) (string, error)

// File is the proof in a file, which is read each time: whoever writes it keeps it
// fresh.
func File(path string) Proof {
	return func(context.Context, string, string) (string, error) { return readToken(path) }
}

func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if !IsToken(token) {
		return "", fmt.Errorf("%s does not hold a token", path)
	}
	return token, nil
}
