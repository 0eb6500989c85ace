package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

// A session is what is remembered of a sign-in beside its tokens: how to get the
// next one. It holds no secret.
type session struct {
	Issuer            string   `json:"issuer"`
	Identity          string   `json:"identity,omitempty"`          // that was assumed
	IdentityTokenFile string   `json:"identityTokenFile,omitempty"` // proves it
	Ambient           bool     `json:"ambient,omitempty"`           // or what the platform gives proves it
	DevFile           string   `json:"devFile,omitempty"`           // a server in development mode writes its tokens here
	Keyring           bool     `json:"keyring,omitempty"`           // the tokens are there, not in files
	Audiences         []string `json:"audiences,omitempty"`         // there are tokens for, beside the API's
}

// A signIn is the session at one server, with its tokens.
type signIn struct {
	session
	app      *app
	audience string // the API's address
	files    folderVault
}

const (
	sessionFile = "session.json"
	lockFile    = "lock"
)

// signIn finds the session at a server. Without one it is empty, and there are
// no tokens.
func (a *app) signIn(api string) (*signIn, error) {
	config, err := configPath()
	if err != nil {
		return nil, err
	}
	s := &signIn{app: a, audience: audienceOf(api), files: folderVault{filepath.Join(filepath.Dir(config), "tokens")}}
	return s, s.load()
}

// load reads the session as it is now.
func (s *signIn) load() error {
	s.session = session{}
	text, err := os.ReadFile(s.path(sessionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return usage("session: %v", err)
	}
	if json.Unmarshal(text, &s.session) != nil {
		p := usage("the session in %s is damaged", s.path(sessionFile))
		p.hints = []string{"remove the file and sign in again"}
		return p
	}
	return nil
}

// alone runs f while no other command changes the session, which it has read
// again.
func (s *signIn) alone(ctx context.Context, f func() error) error {
	unlock, err := lock(ctx, s.path(lockFile))
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.load(); err != nil {
		return err
	}
	return f()
}

func (s *signIn) path(name string) string { return filepath.Join(s.files.folder(s.audience), name) }

func (s *signIn) vault() vault {
	if s.Keyring {
		return s.app.keyring()
	}
	return s.files
}

// keyring waits longer where a person can be asked to unlock it.
func (a *app) keyring() keyringVault {
	if isTerminal(a.in) && isTerminal(a.err) {
		return keyringVault{time.Minute}
	}
	return keyringVault{2 * time.Second}
}

// begin replaces whatever session there was, and keeps its tokens where the
// settings say: in the keyring if there is one, unless told otherwise.
func (s *signIn) begin(ctx context.Context, next session, t tokens) error {
	store, err := s.app.value("token_store")
	if err != nil {
		return err
	}
	return s.alone(ctx, func() error { return s.replace(next, t, store.value) })
}

func (s *signIn) replace(next session, t tokens, store string) error {
	if err := s.end(); err != nil {
		return err
	}
	s.session = next
	s.Keyring = false
	if store != "file" {
		err := s.app.keyring().write(s.audience, t)
		if err != nil && store == "keyring" {
			return fmt.Errorf("keep the token: %w", err)
		}
		s.Keyring = err == nil
	}
	if !s.Keyring {
		if err := s.files.write(s.audience, t); err != nil {
			return fmt.Errorf("keep the token: %w", err)
		}
	}
	return s.save()
}

func (s *signIn) save() error {
	text, err := json.MarshalIndent(s.session, "", "  ")
	if err != nil {
		return err
	}
	return writePrivate(s.path(sessionFile), append(text, '\n'))
}

// end forgets the session and every token of it. The files are removed even if
// the keyring has the tokens: an older session may have left some.
func (s *signIn) end() error {
	var errs []error
	for _, audience := range append([]string{s.audience}, s.Audiences...) {
		errs = append(errs, s.files.remove(audience))
		if s.Keyring {
			errs = append(errs, s.vault().remove(audience))
		}
	}
	errs = append(errs, removeFile(s.path(sessionFile)))
	s.session = session{}
	return errors.Join(errs...)
}

// token returns a token for the API, the one that is kept or the next one; ""
// if there is no session.
func (s *signIn) token(ctx context.Context) (string, error) {
	t, err := s.vault().read(s.audience)
	if err != nil || t == (tokens{}) || serves(t.Access, s.audience, time.Now()) {
		return t.Access, err
	}
	return s.renew(ctx, t.Access)
}

// renew returns a token in place of one that will not do. Commands that run at
// the same time wait for one another, and take the token of the first: a refresh
// token is good once, and using it again would end the session.
func (s *signIn) renew(ctx context.Context, old string) (token string, err error) {
	err = s.alone(ctx, func() error {
		t, err := s.vault().read(s.audience)
		if err != nil {
			return err
		}
		if t.Access != old && serves(t.Access, s.audience, time.Now()) {
			token = t.Access
			return nil
		}
		if t, err = s.next(ctx, t); err != nil {
			return err
		}
		token = t.Access
		return s.keep(s.audience, t)
	})
	return token, err
}

func (s *signIn) keep(audience string, t tokens) error {
	if err := s.vault().write(audience, t); err != nil {
		return fmt.Errorf("keep the token: %w", err)
	}
	return nil
}

// next gets the next tokens, in the way the session has.
func (s *signIn) next(ctx context.Context, t tokens) (tokens, error) {
	switch {
	case t.Refresh != "":
		return s.app.refresh(ctx, s.Issuer, t.Refresh, s.audience)
	case s.proves():
		answer, err := s.assume(ctx, s.audience)
		return tokens{answer.GetToken(), answer.GetRefreshToken()}, err
	case s.DevFile != "":
		dev, err := readDevFile(s.DevFile)
		if err == nil && audienceOf(dev.BaseURL) == s.audience && serves(dev.Token, s.audience, time.Now()) && dev.Token != t.Access {
			return tokens{Access: dev.Token}, nil
		}
	}
	p := &problem{text: "the token kept for " + s.audience + " is not good any more", code: exitUnauthenticated}
	if c, ok := claimsOf(t.Access); ok && !c.expires().After(time.Now()) {
		p.text = fmt.Sprintf("the token kept for %s expired at %s", s.audience, shortTime(c.expires()))
	}
	p.hints = []string{signInHint}
	return tokens{}, p
}

const signInHint = "sign in again: holdfast auth login, or in development: holdfast config use-dev"

// proves tells whether the session can prove its identity again.
func (s session) proves() bool {
	return s.Identity != "" && (s.IdentityTokenFile != "" || s.Ambient)
}

// assume exchanges the workload's own token for one of the identity's.
func (s *signIn) assume(ctx context.Context, audience string) (*oidcpb.RawToken, error) {
	own, err := s.app.workloadToken(ctx, s.IdentityTokenFile, want{s.Issuer, s.Identity})
	if err != nil {
		return nil, err
	}
	return s.app.exchange(ctx, s.Issuer, own, &oidcpb.ExchangeRequest{Aud: []string{audience}, Identity: s.Identity})
}

// tokenFor returns a token of the session for another audience: got with what
// proves the identity, or else with the token for the API.
func (s *signIn) tokenFor(ctx context.Context, audience string) (token string, err error) {
	own := ""
	if !s.proves() {
		if own, err = s.token(ctx); err != nil || own == "" {
			return "", err
		}
	}
	err = s.alone(ctx, func() error {
		if slices.Contains(s.Audiences, audience) {
			t, err := s.vault().read(audience)
			if token = t.Access; err != nil || serves(token, audience, time.Now()) {
				return err
			}
		}
		answer, err := s.another(ctx, own, audience)
		if err != nil {
			return err
		}
		token = answer.GetToken()
		if err := s.keep(audience, tokens{Access: token}); err != nil || slices.Contains(s.Audiences, audience) {
			return err
		}
		s.Audiences = append(s.Audiences, audience)
		return s.save()
	})
	return token, err
}

func (s *signIn) another(ctx context.Context, own, audience string) (*oidcpb.RawToken, error) {
	if s.proves() {
		return s.assume(ctx, audience)
	}
	return s.app.exchange(ctx, s.Issuer, own, &oidcpb.ExchangeRequest{Aud: []string{audience}})
}

// lock waits until no other command holds the lock.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	type result struct {
		unlock func()
		err    error
	}
	locked := make(chan result, 1)
	go func() {
		unlock, err := lockedfile.MutexAt(path).Lock()
		locked <- result{unlock, err}
	}()
	select {
	case r := <-locked:
		return r.unlock, r.err
	case <-ctx.Done():
		return nil, ctx.Err() // the process ends, and the lock with it
	}
}

// audienceOf is the audience of tokens for the server at an address: the address
// as the server writes it.
func audienceOf(address string) string {
	full := canonical(address)
	for scheme, port := range map[string]string{"http": ":80", "https": ":443"} {
		if strings.HasPrefix(full, scheme+"://") {
			return strings.TrimSuffix(full, port)
		}
	}
	return full
}

// checkAudience refuses what cannot be the name of a folder, or sent.
func checkAudience(audience string) error {
	if !isToken(audience) || len(audience) > 200 || strings.ContainsAny(audience, `\,`) || strings.Trim(audience, "./") == "" {
		return usage("%q is not an audience such as https://holdfast.example.com or registry.example.com", audience)
	}
	return nil
}
