package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/server/installation"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

const (
	devIssuer   = "/dev/issuer"
	devTokenAge = 24 * time.Hour
	devEmail    = "owner@dev.example"

	devOrganization = "dev"
)

// A devFile contains the addresses and credentials that programs on this machine need
// to use a server in dev mode.
type devFile struct {
	BaseURL       string       `json:"baseUrl"`
	AuthURL       string       `json:"authUrl"`
	RegistryHost  string       `json:"registryHost"`
	Organization  resource.UID `json:"organizationUid"`
	Owner         resource.UID `json:"ownerUid"`
	Token         string       `json:"token"`         // token for the API
	RegistryToken string       `json:"registryToken"` // token for the registry
	RefreshToken  string       `json:"refreshToken"`  // renews both tokens
	TestIssuer    string       `json:"testIssuer"`
	OwnerEmail    string       `json:"ownerEmail"` // with OwnerPassword, signs in with a browser
	OwnerPassword string       `json:"ownerPassword"`
}

// prepareDev creates the organization dev and its owner, writes dev.json, and prints
// a first command.
func (s *Server) prepareDev(ctx context.Context) error {
	issuer := s.cfg.BaseURL + devIssuer
	if err := s.openTestIssuer(ctx, issuer); err != nil {
		return fmt.Errorf("test issuer: %w", err)
	}
	group, owner, err := s.iam.Bootstrap(ctx, devOrganization, resource.OrgDev, resource.Identity{
		Name:         "dev owner",
		Description:  "Owns the organization of dev mode",
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: "owner"}},
	})
	if err != nil {
		return fmt.Errorf("set up organization dev: %w", err)
	}
	s.operator.Appoint(owner.UID)
	file := devFile{
		BaseURL: s.cfg.BaseURL, AuthURL: s.cfg.AuthURL, RegistryHost: s.cfg.RegistryHost,
		Organization: group.UID, Owner: owner.UID, TestIssuer: issuer,
	}
	if file.Token, err = s.issuer.Mint(ctx, s.ownerToken(owner, s.cfg.BaseURL, devTokenAge)); err != nil {
		return err
	}
	if file.RegistryToken, err = s.issuer.Mint(ctx, s.ownerToken(owner, s.cfg.RegistryHost, devTokenAge)); err != nil {
		return err
	}
	_, refresh, err := s.sts.StartSession(ctx, resource.Session{
		Identity: owner.UID, Home: group.UID, Agent: "holdfastd --dev", Address: "127.0.0.1",
	}, sts.TokenParams{Audience: []string{s.cfg.BaseURL}})
	if err != nil {
		return err
	}
	file.RefreshToken = refresh.Text
	if file.OwnerEmail, file.OwnerPassword, err = s.devAccount(ctx, group.UID, owner); err != nil {
		return fmt.Errorf("dev account: %w", err)
	}
	return s.announceDev(file)
}

// devAccount creates the account of the dev owner, if necessary, and returns its
// credentials. The password is the same after a restart.
func (s *Server) devAccount(
	ctx context.Context, org resource.UID, owner resource.Identity,
) (email, password string, _ error) {
	plain, err := s.devSecret(ctx, installation.DevPassword, []byte(rand.Text()))
	if err != nil {
		return "", "", err
	}
	if _, err = signindb.New(s.store).AccountIn(ctx, org, devEmail); errors.Is(err, fault.NotFound) {
		a := resource.Account{Email: devEmail, Name: "Dev Owner"}
		if a.Password, err = s.accounts.HashRandom(ctx, string(plain)); err == nil {
			err = s.accounts.AddAccountFor(ctx, org, a, owner)
		}
		if errors.Is(err, fault.AlreadyExists) { // another replica has created the account
			err = nil
		}
	}
	return devEmail, string(plain), err
}

func (s *Server) announceDev(file devFile) error {
	content, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	path := s.cfg.DevFile()
	if err := installation.WriteSecret(path, append(content, '\n'), os.Rename); err != nil {
		return err
	}
	out := s.cfg.Stdout
	fmt.Fprintf(out, "holdfastd: dev mode; addresses and tokens are in %s\n", path)
	fmt.Fprintf(out, "  in a browser   %s/console/: organization %s, %s, password %s\n",
		file.AuthURL, devOrganization, file.OwnerEmail, file.OwnerPassword)
	fmt.Fprintf(out, "  documentation  %s/docs: $TOKEN there is the token below\n\n", file.BaseURL)
	fmt.Fprintf(out, "curl -H \"Authorization: Bearer %s\" %s/iam/v2beta1/groups\n\n",
		file.Token, file.BaseURL)
	return nil
}

// openTestIssuer creates the test issuer. Its key is the same after a restart.
func (s *Server) openTestIssuer(ctx context.Context, url string) error {
	issuer, err := token.NewTestIssuer(url, nil, s.cfg.Now)
	if err != nil {
		return err
	}
	key, err := s.devSecret(ctx, installation.DevIssuerKey, issuer.Key())
	if err != nil {
		return err
	}
	if issuer, err = token.NewTestIssuer(url, key, s.cfg.Now); err != nil {
		return err
	}
	s.dev = http.StripPrefix(devIssuer, issuer.Handler())
	return nil
}

// devSecret returns the secret with a name in the database. If there is none, it
// stores and returns fresh.
func (s *Server) devSecret(ctx context.Context, name string, fresh []byte) ([]byte, error) {
	sealed, err := s.store.InitSetting(ctx, name, s.key.Seal(name, fresh))
	if err != nil {
		return nil, err
	}
	return s.key.Open(name, sealed)
}

// requireOwnHost refuses requests unless their host is a name of this machine or the
// host of base_url. Otherwise a web page whose name resolves to this machine could
// get an owner's token from the test issuer (DNS rebinding).
func (s *Server) requireOwnHost(next http.Handler) http.Handler {
	base, _ := url.Parse(s.cfg.BaseURL) // never fails, because the settings were checked
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != base.Host && !config.IsLoopback(r.Host) && !config.IsLoopback(r.Host+":80") {
			writeFault(w, fault.New(fault.PermissionDenied,
				"Permission denied: the test issuer accepts only requests to a name of this machine"), s.cfg.ErrorDomain)
			return
		}
		next.ServeHTTP(w, r)
	})
}
