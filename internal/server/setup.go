package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/namedb"
	"github.com/holdfast-dev/holdfast/internal/server/config"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

const (
	setupSetting  = "setup"
	setupLife     = 24 * time.Hour
	setupTries    = 5 // maximum number of attempts per minute, from all clients together
	setupTokenAge = time.Hour
)

// A setup creates the first organization for a client with the one-time code that
// was printed at the start.
type setup struct {
	s     *Server
	mu    sync.Mutex // serializes attempts, so that tries counts every attempt
	tries rateLimit
}

// A setupCode is the record of a code in the database.
type setupCode struct {
	Digest  []byte    `json:"digest"` // SHA-256 of the code
	Expires time.Time `json:"expires"`
}

// prepare creates the organization of the settings if there is no organization yet.
// If the settings name none, it prints a code to create one with. The code of an
// earlier start becomes invalid.
func (u *setup) prepare(ctx context.Context) error {
	has, err := iamdb.New(u.s.store).HasOrganizations(ctx)
	if err != nil {
		return err
	}
	cfg := u.s.cfg
	if has {
		return u.renewLink(ctx, cfg.First())
	}
	if first := cfg.First(); first != (config.FirstOrganization{}) {
		group, owner, link, err := u.create(ctx, first)
		if errors.Is(err, fault.AlreadyExists) {
			return nil // another replica has created the organization
		}
		if err != nil {
			return fmt.Errorf("set up organization %s: %w", first.Name, err)
		}
		u.s.log.Info("organization created from the settings", "organization", group.UID, "owner", owner.UID)
		if link != "" {
			fmt.Fprintf(cfg.Stderr, "holdfastd: the owner sets a password at %s\n", link)
		}
		return nil
	}
	code := newCode()
	value, err := json.Marshal(setupCode{digest(code), cfg.Now().Add(setupLife)})
	if err != nil {
		return err
	}
	if err := u.s.store.SetSetting(ctx, setupSetting, value); err != nil {
		return err
	}
	fmt.Fprintf(cfg.Stderr, "holdfastd: set up at %s/setup?code=%s\n", cfg.BaseURL, code)
	return nil
}

// renewLink prints another link for the owner of the settings, unless the owner has
// used the link of an earlier start.
func (u *setup) renewLink(ctx context.Context, first config.FirstOrganization) error {
	if first.Email == "" {
		return nil
	}
	org, err := iamdb.New(u.s.store).Organization(ctx, resource.Identifier(first.Name))
	if errors.Is(err, fault.NotFound) { // the organization was renamed
		return nil
	}
	if err != nil {
		return err
	}
	link, err := u.s.accounts.RenewFirstLink(ctx, org.UID, first.Email)
	if err == nil && link != "" {
		fmt.Fprintf(u.s.cfg.Stderr, "holdfastd: the owner sets a password at %s\n", link)
	}
	return err
}

func newCode() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func digest(code string) []byte {
	d := sha256.Sum256([]byte(code))
	return d[:]
}

// A setupResult has the data that the client of set-up needs to continue.
type setupResult struct {
	Name         string       `json:"organization"` // name of the organization in paths
	Organization resource.UID `json:"organizationUid"`
	Owner        resource.UID `json:"ownerUid"`
	Token        string       `json:"token"`

	account resource.Account // account of the owner; zero if the owner has none
}

// finish creates the organization and invalidates the code. It returns
// fault.PermissionDenied if the code is wrong, fault.ResourceExhausted after
// too many wrong codes, and fault.InvalidArgument, with the code still valid,
// if o is not valid.
func (u *setup) finish(ctx context.Context, code string, o config.FirstOrganization) (setupResult, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	tried := u.s.cfg.Now()
	if wait := u.tries.acquire(tried); wait > 0 {
		return setupResult{}, &fault.Error{
			Code: fault.ResourceExhausted, Message: "Resource exhausted: too many attempts; wait a minute", RetryIn: wait,
		}
	}
	stored, err := u.check(ctx, code, tried)
	if err != nil {
		return setupResult{}, err
	}
	u.tries.release()
	if violations := o.Violations(true); len(violations) > 0 {
		return setupResult{}, fault.Fields(violations)
	}
	taken, err := u.s.store.DeleteSettingIf(ctx, setupSetting, stored)
	if err == nil && !taken {
		err = wrongCode() // another replica has used the code at the same time
	}
	if err != nil {
		return setupResult{}, err
	}
	group, owner, _, err := u.create(ctx, o)
	if err != nil {
		// This does not replace the code of a later start.
		_, lost := u.s.store.InitSetting(context.WithoutCancel(ctx), setupSetting, stored)
		if lost != nil {
			u.s.log.WarnContext(ctx, "the set-up code is lost; restart the server to get a new one", "err", lost)
		}
		return setupResult{}, err
	}
	u.s.log.InfoContext(ctx, "organization created by set-up", "organization", group.UID, "owner", owner.UID)
	text, err := u.s.issuer.Mint(ctx, u.s.ownerToken(owner, u.s.cfg.BaseURL, setupTokenAge))
	done := setupResult{Name: group.Name, Organization: group.UID, Owner: owner.UID, Token: text}
	if err == nil && o.Email != "" {
		done.account, err = signindb.New(u.s.store).AccountOf(ctx, owner.UID)
	}
	return done, err
}

// check returns the stored setupCode if code matches it.
func (u *setup) check(ctx context.Context, code string, now time.Time) (value []byte, _ error) {
	if err := u.checkOpen(ctx); err != nil {
		return nil, err
	}
	value, err := u.s.store.Setting(ctx, setupSetting)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return nil, err
	}
	var stored setupCode
	if err == nil {
		if err := json.Unmarshal(value, &stored); err != nil {
			return nil, fmt.Errorf("read the set-up code: %w", err)
		}
	}
	if subtle.ConstantTimeCompare(digest(code), stored.Digest) != 1 || !now.Before(stored.Expires) {
		return nil, wrongCode()
	}
	return value, nil
}

func wrongCode() error {
	return fault.New(fault.PermissionDenied,
		"Permission denied: the set-up code is wrong, was replaced by a later start, or has expired; "+
			"restart the server to get a new one")
}

// checkOpen returns fault.PermissionDenied if an organization already exists.
func (u *setup) checkOpen(ctx context.Context) error {
	has, err := iamdb.New(u.s.store).HasOrganizations(ctx)
	if err == nil && has {
		return fault.New(fault.PermissionDenied, "Permission denied: this server is set up already")
	}
	return err
}

// create creates the organization and its owner. link is the address at which an
// owner with an account sets a password, if o has no password.
func (u *setup) create(
	ctx context.Context, o config.FirstOrganization,
) (g resource.Group, owner resource.Identity, link string, err error) {
	if o.Email == "" {
		g, owner, err = u.s.iam.Bootstrap(ctx, o.Name, resource.OrgUnspecified, o.Owner())
		return g, owner, "", err
	}
	a := resource.Account{Email: o.Email, Name: o.Person}
	if o.Password != "" {
		if a.Password, err = u.s.accounts.HashPassword(ctx, o.Password, resource.NormalEmail(o.Email), o.Person,
			o.Name); err != nil {
			for i := range fault.From(err).Fields {
				fault.From(err).Fields[i].Subject = "owner_password"
			}
			return g, owner, "", err
		}
	}
	iam, name := iamdb.New(u.s.store), resource.Identifier(o.Name)
	if err := namedb.New(u.s.store).Release(ctx, name); err != nil && !errors.Is(err, fault.NotFound) {
		return g, owner, "", err
	}
	g, a, once, err := u.s.accounts.CreateOrganization(ctx, o.Name, resource.OrgUnspecified, a)
	if err != nil {
		return g, owner, "", err
	}
	owner, err = iam.Identity(ctx, a.Identity)
	return g, owner, once.URL, err
}

// ownerToken returns the claims of a token as if the owner had exchanged a token of
// their issuer for it.
func (s *Server) ownerToken(owner resource.Identity, audience string, life time.Duration) token.Claims {
	r := owner.Relationship
	return token.Claims{
		Subject: owner.UID, Audience: []string{audience}, Life: life,
		Act: &resource.Upstream{Issuer: r.Issuer(), Subject: r.Subject()},
	}
}

// A rateLimit holds the times of the last attempts. The zero value has none.
type rateLimit struct{ times []time.Time }

// acquire counts an attempt and returns 0, or returns the time to wait before the
// next attempt.
func (t *rateLimit) acquire(now time.Time) (wait time.Duration) {
	if len(t.times) == setupTries {
		if wait := t.times[0].Add(time.Minute).Sub(now); wait > 0 {
			return wait
		}
		t.times = t.times[1:]
	}
	t.times = append(t.times, now)
	return 0
}

// release undoes the last acquire.
func (t *rateLimit) release() { t.times = t.times[:len(t.times)-1] }
