package scim

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/sessiondb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// maxUnlisted is the greatest number of people who can lose access when a directory becomes required. It keeps the
// transaction short, and more such people mean that the directory has not sent its users yet.
const maxUnlisted = 1000

// requireUsers makes the active users of a directory the only people who can sign in with its provider. It ends the
// sessions of all other people of the provider, and makes their tokens void. It returns fault.FailedPrecondition if the
// directory is not enabled, if the caller or the last permanent owner would lose access, or if more than maxUnlisted
// people would.
func (s *Service) requireUsers(
	ctx context.Context, tx *store.Tx, p resource.IdentityProvider, d resource.Directory,
) error {
	if !d.Enabled {
		return fault.Unmet("DIRECTORY_DISABLED", "enable the directory first, so that it can send its users")
	}
	if p.Trusted {
		return errTrusted()
	}
	people, err := scimdb.In(tx).Unlisted(ctx, p.UID, p.Realm, maxUnlisted+1)
	if err != nil {
		return err
	}
	if len(people) > maxUnlisted {
		return fault.Unmet("TOO_MANY_UNLISTED", "more than %d people of this provider are not active users of the "+
			"directory; let the directory send its users first", maxUnlisted)
	}
	caller, _ := authz.CallerFrom(ctx)
	sessions := sessiondb.In(tx)
	for _, person := range people {
		if person == caller.Identity {
			return fault.Unmet("CALLER_UNLISTED", "you are not an active user of the directory and would lose access; "+
				"let the directory send you first, or ask an owner who signs in differently")
		}
		if _, err := sessions.EndSessions(ctx, person, "", resource.EndDirectory); err != nil {
			return err
		}
		if err := sessions.Revoke(ctx, person); err != nil {
			return err
		}
	}
	owners, err := iamdb.In(tx).AssignedOwners(ctx, p.UID.Root(), people...)
	if err == nil && owners == 0 {
		err = fault.Unmet("NO_OWNER_LISTED", "no owner whose role somebody has assigned could sign in any more; let the "+
			"directory send the owners first")
	}
	if err != nil {
		return err
	}
	return sessions.Revoke(ctx, resource.DisabledSubject(p.UID)) // exchanges that have begun
}
