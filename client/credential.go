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

// Tokens are the access token that calls carry, and the refresh token that gets the
// next. Either can be "".
type Tokens struct {
	Access  string `json:"token,omitempty"`
	Refresh string `json:"refreshToken,omitempty"`
}

// A Credential gets tokens.
type Credential interface {
	// Next returns tokens that replace those before, which are empty at first. It is
	// called if the access token is about to expire or was refused, by one goroutine
	// at a time.
	Next(ctx context.Context, issuer *Issuer, before Tokens) (Tokens, error)
}

// A Token is an access token that is not renewed: after it expires, calls are refused.
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

// A RefreshToken belongs to a person's session. It works once: the issuer returns
// another with every token, and a second use ends the session. A program that runs
// more than once needs a Vault for it.
type RefreshToken string

// Next exchanges the refresh token of the tokens before, or t if they have none.
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

// A Workload is a program whose platform gives it a token. It exchanges that for a
// token of an identity that trusts the platform.
type Workload struct {
	Identity string // uid of the identity to assume; "" is that of the proof
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

// A Proof returns a token of another issuer that proves an identity to ours. identity
// is its uid, or "".
type Proof func(ctx context.Context, issuer, identity string) (string, error)

// File returns a Proof that reads a file each time, because the file may be renewed.
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
