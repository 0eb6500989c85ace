package sts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

const (
	sessionIdle = 7 * 24 * time.Hour
	sessionLife = 30 * 24 * time.Hour

	maxRefresh = 1024 // largest refresh token in bytes
)

// A refreshToken is a secret and its expiry. The client can read the expiry.
type refreshToken struct {
	Expiry int64  `json:"exp"`
	Secret string `json:"secret"`
}

func newSecret() string { return rand.Text() + rand.Text() }

func digestOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// refreshText encodes a refresh token: base64 of JSON.
func refreshText(secret string, ends time.Time) (string, error) {
	b, err := json.Marshal(refreshToken{ends.Unix(), secret})
	return base64.StdEncoding.EncodeToString(b), err
}

func parseRefresh(text string) (refreshToken, bool) {
	if len(text) > maxRefresh {
		return refreshToken{}, false
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return refreshToken{}, false
	}
	var r refreshToken
	err = json.Unmarshal(b, &r)
	return r, err == nil && r.Secret != ""
}

// StartSession starts the session n of a person who has signed in, and returns its
// id and its first refresh token. Tokens of the session are narrowed to the
// capabilities and scopes of w.
func (s *Service) StartSession(
	ctx context.Context, n resource.Session, w TokenParams,
) (id string, refresh Token, _ error) {
	claims, err := s.claims(w)
	if err != nil {
		return "", Token{}, err
	}
	n.Narrowing = resource.Narrowing{Caps: claims.Caps, Scopes: claims.Scopes}
	started := s.now().UTC().Truncate(time.Millisecond)
	n.ID, n.CreateTime, n.UsedTime = rand.Text(), started, started
	n.ExpireTime = started.Add(s.cfg.SessionLife)
	ends := started.Add(min(s.cfg.SessionIdle, s.cfg.SessionLife)).Truncate(time.Second)
	secret := newSecret()
	if err := s.store.StartSession(ctx, n, digestOf(secret), ends); err != nil {
		return "", Token{}, err
	}
	text, err := refreshText(secret, ends)
	return n.ID, Token{Text: text, Expiry: ends}, err
}

// Refresh exchanges a refresh token for a token and for the next refresh token. A
// refresh token is valid once. Using it again ends the session, because one of its
// two users has stolen it.
func (s *Service) Refresh(ctx context.Context, bearer string, w TokenParams) (access, refresh Token, _ error) {
	claims, err := s.claims(w)
	if err != nil {
		return Token{}, Token{}, err
	}
	old, ok := parseRefresh(bearer)
	if !ok {
		return Token{}, Token{}, refused("", "this is not a refresh token")
	}
	secret := newSecret()
	ends := s.now().Add(s.cfg.SessionIdle).UTC().Truncate(time.Second)
	session, ends, err := s.store.UseRefresh(ctx, digestOf(old.Secret), digestOf(secret), ends)
	if err != nil {
		return Token{}, Token{}, err
	}
	if access, err = s.forSession(ctx, session, claims); err != nil {
		return Token{}, Token{}, err
	}
	text, err := refreshText(secret, ends)
	return access, Token{Text: text, Expiry: ends}, err
}

// forSession returns a token of a session.
func (s *Service) forSession(ctx context.Context, n resource.Session, claims token.Claims) (Token, error) {
	if p, _, err := s.principal(ctx, n.Identity); err == nil {
		s.recordUse(ctx, p)
	}
	claims.Subject, claims.Act, claims.Session, claims.Voucher = n.Identity, n.Act, n.ID, n.Voucher
	claims.Email = n.Email
	if n.Voucher != "" && n.Email != "" {
		idp, err := s.store.Provider(ctx, n.Voucher.Provider())
		if err != nil {
			return Token{}, err
		}
		// An e-mail address counts as verified only if the operator trusts the provider.
		claims.EmailVerified = idp.Trusted
	}
	if err := narrow(&claims, n.Narrowing); err != nil {
		return Token{}, err
	}
	return s.mint(ctx, claims, n.ExpireTime)
}

// Issue returns a token of a session that has just begun.
func (s *Service) Issue(ctx context.Context, session string, w TokenParams) (Token, error) {
	claims, err := s.claims(w)
	if err != nil {
		return Token{}, err
	}
	n, err := s.store.Session(ctx, session)
	if err != nil {
		return Token{}, err
	}
	return s.forSession(ctx, n, claims)
}
