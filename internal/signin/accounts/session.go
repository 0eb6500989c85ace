package accounts

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// mayManage reports whether the caller may manage a session. Callers may manage their
// own sessions. They may also manage sessions that were started with a provider or an
// account of a group in which they hold identity.update. Nobody may manage the sessions
// that a person has with other organizations.
func (s *Service) mayManage(ctx context.Context, c authz.Caller, n resource.Session) bool {
	if n.Identity == c.Identity {
		return c.Narrowing().IsZero() || n.ID == c.Session // a narrowed token can only end its own session
	}
	return n.Home != "" && s.authz.Require(ctx, resource.IdentityUpdate, n.Home) == nil
}

// managedSessions returns the sessions of an identity that the caller may manage. It
// returns fault.PermissionDenied if the caller could manage no session of the
// identity, whether or not the identity exists.
func (s *Service) managedSessions(
	ctx context.Context, identity resource.UID,
) (managed []resource.Session, c authz.Caller, err error) {
	if c, err = authz.RequireCaller(ctx); err != nil {
		return nil, c, err
	}
	if identity == "" || identity == c.Identity {
		identity = c.Identity
		if _, err := authz.RequireUnnarrowed(ctx); err != nil {
			return nil, c, err
		}
	}
	if managed, err = s.store.Sessions(ctx, identity); err != nil {
		return nil, c, err
	}
	managed = slices.DeleteFunc(managed, func(n resource.Session) bool { return !s.mayManage(ctx, c, n) })
	if len(managed) == 0 && identity != c.Identity {
		return nil, c, s.mayManageAny(ctx, identity)
	}
	return managed, c, nil
}

// mayManageAny returns fault.PermissionDenied if the caller could manage no session of
// an identity.
func (s *Service) mayManageAny(ctx context.Context, identity resource.UID) error {
	homes, err := s.people.HomesOf(ctx, identity)
	if err != nil {
		return err
	}
	for _, group := range homes {
		if s.authz.Require(ctx, resource.IdentityUpdate, group) == nil {
			return nil
		}
	}
	return fault.Denied(resource.IdentityUpdate.String(), string(identity))
}

// Sessions returns the sessions of an identity that the caller may manage, newest
// first. The identity "" is the caller. current is the id of the caller's session.
func (s *Service) Sessions(
	ctx context.Context, identity resource.UID,
) (managed []resource.Session, current string, _ error) {
	managed, c, err := s.managedSessions(ctx, identity)
	return managed, c.Session, err
}

// EndSession ends a session that the caller may manage. The id "" is the session of the
// caller. Its tokens are void from the next request on.
func (s *Service) EndSession(ctx context.Context, id string) error {
	c, err := authz.RequireCaller(ctx)
	if err != nil {
		return err
	}
	if id == "" {
		if id = c.Session; id == "" {
			return fault.Unmet("NO_SESSION", "the token does not belong to a session")
		}
	}
	n, err := s.store.Session(ctx, id)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	if err != nil || n.ID != c.Session && !s.mayManage(ctx, c, n) {
		// The error is the same for a session that does not exist.
		return fault.Denied(resource.IdentityUpdate.String(), "session "+id)
	}
	_, err = s.store.EndSession(ctx, id)
	return err
}

// EndSessions ends all sessions of an identity that the caller may manage, and returns
// their number.
func (s *Service) EndSessions(ctx context.Context, identity resource.UID) (ended int, _ error) {
	for {
		managed, _, err := s.managedSessions(ctx, identity)
		if len(managed) == 0 && ended > 0 {
			return ended, nil
		}
		if err != nil || len(managed) == 0 {
			return 0, err
		}
		for _, n := range managed {
			was, err := s.store.EndSession(ctx, n.ID)
			if err != nil {
				return ended, err
			}
			if was {
				ended++
			}
		}
	}
}
