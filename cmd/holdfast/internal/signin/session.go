package signin

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

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// A session describes how the tokens of a sign-in are renewed. It contains no secret.
type session struct {
	Issuer            string   `json:"issuer"`
	Identity          string   `json:"identity,omitempty"`          // identity that the session assumes
	IdentityTokenFile string   `json:"identityTokenFile,omitempty"` // file with the token that proves the identity
	Ambient           bool     `json:"ambient,omitempty"`           // whether the platform's token proves the identity
	DevFile           string   `json:"devFile,omitempty"`           // file with the tokens of a server in development mode
	Keyring           bool     `json:"keyring,omitempty"`           // whether the keyring, and not files, has the tokens
	Audiences         []string `json:"audiences,omitempty"`         // audiences that have tokens, in addition to the API
}

// A signIn is the session at one server, with access to its tokens.
type signIn struct {
	session
	agent    *Agent
	audience string // address of the API
	files    folderVault
}

const (
	sessionFile = "session.json"
	lockFile    = "lock"
)

// signIn reads the session at a server. If there is none, the result is empty and has no
// tokens.
func (a *Agent) signIn(api string) (*signIn, error) {
	config, err := settings.Path()
	if err != nil {
		return nil, err
	}
	s := &signIn{agent: a, audience: holdfast.Audience(api),
		files: folderVault{filepath.Join(filepath.Dir(config), "tokens")}}
	return s, s.load()
}

// target returns the server of the settings, its issuer and the session there.
func (a *Agent) target() (api settings.Value, issuer string, s *signIn, err error) {
	if api, err = a.Server(); err != nil {
		return api, "", nil, err
	}
	if issuer, err = a.Issuer(); err != nil {
		return api, "", nil, err
	}
	s, err = a.signIn(api.Text)
	return api, issuer, s, err
}

// load reads the session from its file.
func (s *signIn) load() error {
	s.session = session{}
	text, err := os.ReadFile(s.path(sessionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return problem.Usage("session: %v", err)
	}
	if json.Unmarshal(text, &s.session) != nil {
		return problem.Usage("the session in %s is damaged", s.path(sessionFile)).Hint("remove the file and sign in again")
	}
	return nil
}

// locked runs f while it holds the lock of the session. It first reads the session again.
func (s *signIn) locked(ctx context.Context, f func() error) error {
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
		return s.agent.keyring()
	}
	return s.files
}

// keyring returns the vault in the system's keyring. The timeout is longer if a person
// can be asked to unlock the keyring.
func (a *Agent) keyring() keyringVault {
	v := keyringVault{timeout: 2 * time.Second}
	if output.IsTerminal(a.In) && output.IsTerminal(a.Err) {
		v.timeout = time.Minute
	}
	if name, err := settings.Profile(); err == nil && name != settings.DefaultProfile {
		v.profile = name
	}
	return v
}

// begin replaces the session, and stores the tokens according to the settings: by default
// in the keyring, or in files if there is no keyring.
func (s *signIn) begin(ctx context.Context, next session, t tokens) error {
	store, err := s.agent.Value("token_store")
	if err != nil {
		return err
	}
	return s.locked(ctx, func() error { return s.replace(next, t, store.Text) })
}

func (s *signIn) replace(next session, t tokens, store string) error {
	if err := s.end(); err != nil {
		return err
	}
	s.session = next
	s.Keyring = false
	if store != "file" {
		err := s.agent.keyring().write(s.audience, t)
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
	return settings.WritePrivate(s.path(sessionFile), append(text, '\n'))
}

// end deletes the session and all its tokens. It always deletes the files, because an
// older session may have left some even if the tokens are in the keyring.
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

// A sessionVault implements holdfast.Vault for one audience of a session. A lock file
// serializes commands that run concurrently.
type sessionVault struct {
	*signIn
	audience string
}

// Read returns the tokens of the audience, if the session has any.
func (v sessionVault) Read(context.Context) (tokens, error) {
	if v.audience != v.signIn.audience && !slices.Contains(v.Audiences, v.audience) {
		return tokens{}, nil
	}
	return v.vault().read(v.audience)
}

// Change replaces the tokens of the audience while it holds the lock.
func (v sessionVault) Change(ctx context.Context, change func(tokens) (tokens, error)) error {
	return v.locked(ctx, func() error {
		before, err := v.Read(ctx)
		if err != nil {
			return err
		}
		after, err := change(before)
		if err != nil || after == before {
			return err
		}
		return v.store(after)
	})
}

func (v sessionVault) store(t tokens) error {
	if err := v.vault().write(v.audience, t); err != nil {
		return fmt.Errorf("keep the token: %w", err)
	}
	if v.audience == v.signIn.audience || slices.Contains(v.Audiences, v.audience) {
		return nil
	}
	v.Audiences = append(v.Audiences, v.audience)
	return v.save()
}

// credential returns a credential that gets and stores tokens for the API.
func (s *signIn) credential() *credential { return s.credentialFor(s.audience, s.next) }

func (s *signIn) credentialFor(
	audience string, next func(context.Context, *holdfast.Issuer, tokens) (tokens, error),
) *credential {
	return &credential{audience: audience, issuer: s.Issuer, vault: sessionVault{s, audience}, next: next}
}

// next renews the tokens with the method of the session.
func (s *signIn) next(ctx context.Context, issuer *holdfast.Issuer, t tokens) (tokens, error) {
	switch {
	case s.Issuer != "" && holdfast.Audience(s.Issuer) != issuer.Address: // the tokens belong to another issuer
		return tokens{}, problem.New(problem.ExitUnauthenticated, "another command has changed the session: try again")
	case t.Refresh != "":
		return s.refresh(ctx, issuer, t)
	case s.proves():
		return s.assume(ctx, issuer, t)
	case s.DevFile != "":
		dev, err := readDevFile(s.DevFile)
		if err == nil && holdfast.Audience(dev.BaseURL) == s.audience && holdfast.Serves(dev.Token, s.audience, time.Now()) &&
			dev.Token != t.Access {
			return tokens{Access: dev.Token}, nil
		}
	}
	p := problem.New(problem.ExitUnauthenticated, "the token kept for %s is no longer valid", s.audience)
	if c, ok := holdfast.ReadClaims(t.Access); ok && !c.Expires().After(time.Now()) {
		p.Text = fmt.Sprintf("the token kept for %s expired at %s", s.audience, output.ShortTime(c.Expires()))
	}
	p.Hints = []string{signInHint}
	return tokens{}, p
}

const signInHint = "sign in again: holdfast auth login, or in development: holdfast config use-dev"

// refresh exchanges the refresh token. A refresh token works once.
func (s *signIn) refresh(ctx context.Context, issuer *holdfast.Issuer, t tokens) (tokens, error) {
	if err := s.agent.allow(issuer.Address); err != nil {
		return tokens{}, err
	}
	next, err := holdfast.RefreshToken("").Next(ctx, issuer, t)
	if err == nil {
		return next, nil
	}
	p := Refused(err, nil)
	if p.Code == problem.ExitUnauthenticated {
		p.Hints = []string{signInHint}
	}
	return tokens{}, p
}

// proves reports whether the session can prove its identity again.
func (s session) proves() bool {
	return s.Identity != "" && (s.IdentityTokenFile != "" || s.Ambient)
}

// assume exchanges the workload's token for a token of the identity.
func (s *signIn) assume(ctx context.Context, issuer *holdfast.Issuer, _ tokens) (tokens, error) {
	proof, err := s.agent.proof(s.IdentityTokenFile)
	if err != nil {
		return tokens{}, err
	}
	return s.agent.exchange(ctx, issuer, holdfast.Workload{Identity: s.Identity, Proof: proof})
}

// lock waits for the lock file.
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
		return nil, ctx.Err() // if the goroutine gets the lock later, the end of the process releases it
	}
}

// checkAudience returns an error if audience cannot be the name of a folder or cannot be
// sent.
func checkAudience(audience string) error {
	if !holdfast.IsToken(audience) || len(audience) > 200 || strings.ContainsAny(audience, `\,`) ||
		strings.Trim(audience, "./") == "" {
		return problem.Usage("%q is not an audience such as https://holdfast.example.com or registry.example.com", audience)
	}
	return nil
}

// revoke ends a person's session at the server, which invalidates all its tokens. It
// returns no error if the session has already ended.
func (a *Agent) revoke(ctx context.Context, s *signIn) error {
	t, err := s.vault().read(s.audience)
	if err != nil || t.Refresh == "" {
		return err
	}
	err = a.revokeWith(ctx, s)
	if p, ok := errors.AsType[*problem.Problem](err); ok && p.Code == problem.ExitUnauthenticated {
		return nil
	}
	return err
}

func (a *Agent) revokeWith(ctx context.Context, s *signIn) error {
	c, err := a.connect(settings.Value{Text: s.audience, Origin: "api"}, s.credential())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = Call(ctx, signinpb.NewSignInServiceClient(c).EndSession, &signinpb.EndSessionRequest{Id: "current"})
	return err
}

// SignOut ends the session at the server and deletes it on this machine, even if the
// server cannot be reached.
func (a *Agent) SignOut(ctx context.Context) error {
	api, err := a.Server()
	if err != nil {
		return err
	}
	s, err := a.signIn(api.Text)
	if err != nil {
		return err
	}
	if t, err := s.vault().read(s.audience); err == nil && t == (tokens{}) {
		a.Note("there is no session at %s: nothing to sign out of", s.audience)
		return nil
	}
	revoked := a.revoke(ctx, s)
	if err := s.locked(ctx, s.end); err != nil {
		return err
	}
	if revoked != nil {
		return fmt.Errorf("the session is deleted on this machine, but could not be ended at the server: %w", revoked)
	}
	a.Note("signed out of %s", s.audience)
	return nil
}
