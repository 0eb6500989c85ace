package accounts

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const linkLife = 24 * time.Hour // validity of a one-time link

// A OneTimeLink is an address at which the password of an account can be set once.
type OneTimeLink struct {
	URL        string
	ExpireTime time.Time
}

// newLink gives an account a new one-time link, and returns the link, which cannot be read again. The link records the
// caller as its maker, or no maker if the operator made it. If the account may do more than the maker when the link is
// followed, the link is refused.
func (s *Service) newLink(ctx context.Context, a *resource.Account, factors bool) OneTimeLink {
	code, ends := rand.Text()+rand.Text(), s.now().Add(linkLife)
	a.Link = resource.Link{Digest: signindb.Digest("link " + code), Expires: ends, Factors: factors}
	if c, ok := authz.CallerFrom(ctx); ok {
		a.Link.Maker = &resource.Maker{Identity: c.Identity, Narrowing: c.Narrowing()}
	}
	return OneTimeLink{s.url("/link?code=" + code), ends}
}

// CheckLinkMaker returns fault.FailedPrecondition if the account may do more than the
// maker of its link. The account may have got further roles after the link was made.
func (s *Service) CheckLinkMaker(ctx context.Context, a resource.Account) error {
	_, err := s.WithLinkMaker(ctx, a)
	return err
}

// WithLinkMaker returns a context whose writes are committed only if CheckLinkMaker still returns nil. If it does not,
// Outgrown turns the error of the write into the error of CheckLinkMaker, which WithLinkMaker returns, too.
func (s *Service) WithLinkMaker(ctx context.Context, a resource.Account) (context.Context, error) {
	if a.Link.Maker == nil {
		return ctx, nil
	}
	if err := s.authz.EnsureCurrent(ctx); err != nil {
		return nil, err
	}
	ctx, err := s.authz.WithMaker(ctx, authz.Caller{
		Identity: a.Link.Maker.Identity, Caps: a.Link.Maker.Caps, Scopes: a.Link.Maker.Scopes,
		Issued: a.Link.Expires.Add(-linkLife),
	}, a.Identity)
	return ctx, Outgrown(err)
}

// Outgrown returns the error for the person who follows a one-time link, if err is the decision that the maker of the
// link lacks a permission of the account. Otherwise it returns err.
func Outgrown(err error) error {
	if errors.Is(err, fault.PermissionDenied) || errors.Is(err, fault.Unauthenticated) ||
		errors.Is(err, fault.FailedPrecondition) {
		return fault.Unmet("LINK_OUTGROWN", "the account has more permissions than the person who made this link; "+
			"ask somebody with the same permissions for a new link")
	}
	return err
}

// mailLink returns the changes that queue a message with a one-time link, for the
// transaction that creates the link. The message goes to the e-mail address of the
// account. link is read when the transaction runs.
func (s *Service) mailLink(
	ctx context.Context, a resource.Account, link *OneTimeLink,
) ([]func(*store.Tx) error, error) {
	if s.cfg.Mail == nil {
		return nil, nil
	}
	org, err := s.OrganizationName(ctx, a.UID)
	if err != nil {
		return nil, err
	}
	return s.cfg.Mail.With(ctx, func() mail.Message {
		return s.cfg.Mail.Link(a.UID.Root(), a.Email, org, link.URL, link.ExpireTime)
	}), nil
}

// CreateLink creates a one-time link for an account and voids the previous link. The caller needs identity.update on
// the account and all permissions of its person, because everybody who has the link can sign in as that person. If
// factors is true, following the link removes the passkeys and one-time passwords of the account.
func (s *Service) CreateLink(ctx context.Context, uid resource.UID, factors bool) (link OneTimeLink, _ error) {
	if err := s.authz.Require(ctx, resource.IdentityUpdate, uid); err != nil {
		return link, err
	}
	var also []func(*store.Tx) error
	if s.cfg.Mail != nil {
		a, err := s.accounts.Account(ctx, uid)
		if err == nil {
			also, err = s.mailLink(ctx, a, &link)
		}
		if err != nil {
			return link, err
		}
	}
	_, err := s.accounts.UpdateAccountAnd(ctx, uid, func(a *resource.Account) error {
		if err := s.authz.RequireBecome(ctx, a.Identity); err != nil {
			return err
		}
		link = s.newLink(ctx, a, factors)
		return nil
	}, also, resource.LinkCreated)
	if err == nil && !resource.IsDryRun(ctx) {
		s.LogActivity(ctx, "a one-time link was made", resource.Activity{Account: uid})
	}
	return link, err
}
