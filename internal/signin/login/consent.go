package login

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// fillConsent fills in the page that asks for consent with who requests the
// sign-in, from where, since when, for what and for how long, so that a person
// who was lured there can see it. It returns fault.NotFound if the device no
// longer waits.
func (s *Service) fillConsent(ctx context.Context, f *flow, n resource.Session, p *confirmPage) (err error) {
	if _, p.Organization, err = s.localAccount(ctx, n.Identity); err != nil {
		return err
	}
	p.Asked = time.Unix(f.Expires, 0).Add(-flowLife)
	audience, scopes, renews := f.Audience, f.Scopes, f.Refresh
	switch f.Purpose {
	case forHeadless:
		p.Code, p.Address = checkCode(f.Headless), "An address that was opened here: nobody can tell who made it"
	case forDevice:
		d, err := s.accounts.DeviceOf(ctx, f.UserCode)
		if err != nil {
			return err
		}
		p.Code, p.Client, p.Agent = shownUserCode(d.UserCode), d.Client, Program(d.Agent)
		p.Address, p.Asked = d.Address, d.CreateTime
		audience, scopes, renews = d.Audience, d.Scopes, true
	case forCommand:
		p.Address = "This computer"
		if u, err := url.Parse(f.Redirect); err == nil && u.Port() != "" {
			p.Address += ", port " + u.Port()
		}
	default:
		return nil // no token is delivered
	}
	if p.May, err = s.describeAccess(ctx, n, audience, scopes); err != nil {
		return err
	}
	p.For = "An hour"
	if renews {
		p.For = "Until its session ends, " + strconv.Itoa(int(s.cfg.SessionLife.Hours()/24)) + " days at most"
	}
	return nil
}

// describeAccess describes what a token would allow.
func (s *Service) describeAccess(ctx context.Context, n resource.Session, audience, scopes []string) (string, error) {
	text := "Everything that you may do"
	var names []string
	for _, scope := range scopes {
		name, err := s.scopeName(ctx, n, resource.UID(scope))
		if err != nil {
			return "", err
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		text = "What you may do in " + strings.Join(names, ", ")
	}
	if slices.ContainsFunc(audience, func(a string) bool { return a != s.cfg.BaseURL }) {
		text += ", at " + strings.Join(audience, ", ")
	}
	return text, nil
}

// scopeName returns the name of a group if the person has a role in it or
// above it, and otherwise its UID, which they came with.
func (s *Service) scopeName(ctx context.Context, n resource.Session, group resource.UID) (string, error) {
	for _, held := range s.authz.GrantsOf(n.Identity) {
		if !held.Group.Covers(group) {
			continue
		}
		g, err := s.store.Group(ctx, group)
		if errors.Is(err, fault.NotFound) {
			break
		}
		return g.Label(), err
	}
	return string(group), nil
}
