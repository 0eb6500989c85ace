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

// Tokens are an access token, which calls carry, and a refresh token, which can be
// exchanged for the next pair. Either can be "".
type Tokens struct {
	Access  string `json:"token,omitempty"`
	Refresh string `json:"refreshToken,omitempty"`
}

// A Credential gets tokens.
type Credential interface {
	// Next returns the tokens that replace before, which is empty on the first call. It is
	// called if the access token is about to expire or was refused, by one goroutine at a
	// time.
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
		// the error must not contain the secret
		return errors.New("the token is empty or contains characters that a token cannot have")
	}
	return nil
}

// A RefreshToken belongs to a person's session. It works once: the issuer returns another
// refresh token with every access token, and a second use ends the session. A program
// that runs more than once needs a Vault to store it.
type RefreshToken string

// Next exchanges the refresh token in before, or t if before has none.
func (t RefreshToken) Next(ctx context.Context, issuer *Issuer, before Tokens) (Tokens, error) {
	token := cmp.Or(before.Refresh, string(t))
	if token == "" {
		return Tokens{}, ErrNoCredential
	}
	return issuer.Refresh(ctx, token)
}

func (t RefreshToken) check() error {
	if t == "" {
		return nil // "" is valid, because the vault may contain a refresh token
	}
	return Token(t).check()
}

// A Workload is a program whose platform gives it a token. The token is exchanged for a
// token of an identity that trusts the platform.
type Workload struct {
	Identity string // UID of the identity to assume; if "", the identity that the proof names
	Proof    Proof  // proves the identity; if nil, Platform
}

// Next gets a new proof and exchanges it.
func (w Workload) Next(ctx context.Context, issuer *Issuer, _ Tokens) (Tokens, error) {
	proof := w.Proof
	if proof == nil {
		proof = Platform
	}
	token, err := issuer.prove(ctx, proof, w.Identity)
	if err != nil {
		return Tokens{}, err
	}
	return issuer.Exchange(ctx, token, &oidcpb.ExchangeRequest{Identity: w.Identity})
}

// A Proof returns a token from another issuer that proves an identity to our issuer.
// identity is the UID of the identity, or "".
type Proof func(ctx context.Context, issuer, identity string) (string, error)

// File returns a Proof that reads the file on each call, because the file may be renewed.
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
		return "", fmt.Errorf("%s does not contain a token", path)
	}
	return token, nil
}
