package admission

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// InviteFor returns the invite with the presented code. It returns
// fault.FailedPrecondition, with the reason, if the invite cannot be used. Only a
// caller who knows the secret of the code learns the reason.
func (s *Store) InviteFor(ctx context.Context, p resource.Presented) (resource.GroupInvite, error) {
	i, err := s.iam.Invite(ctx, p.UID)
	return i, checkInvite(ctx, i, err, p, s.Time(), s.iam.EndedInvite)
}

// lockInvite does what InviteFor does inside a transaction, and locks the invite.
func (t tx) lockInvite(ctx context.Context, p resource.Presented) (resource.GroupInvite, error) {
	i, err := t.iam.LockInvite(ctx, p.UID)
	return i, checkInvite(ctx, i, err, p, t.DB.Time(), t.iam.EndedInvite)
}

// checkInvite returns nil if the presented invite can be used, and otherwise the
// reason. i and err are the result of reading the invite. For a deleted invite,
// ended returns its digest and the reason of its deletion.
func checkInvite(
	ctx context.Context, i resource.GroupInvite, err error, p resource.Presented, currentTime time.Time,
	ended func(context.Context, resource.UID) (digest []byte, reason string, err error),
) error {
	digest, reason := i.Digest, ""
	deleted := errors.Is(err, fault.NotFound)
	if deleted {
		digest, reason, err = ended(ctx, p.UID)
	}
	switch {
	case err != nil && !errors.Is(err, fault.NotFound):
		return err
	case err != nil || subtle.ConstantTimeCompare(digest, p.Digest) != 1:
		return fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
	case reason == iamdb.InviteUsed:
		return fault.Unmet("INVITE_USED", "the invite could be used once and has been used; ask for a new one")
	case deleted:
		return fault.Unmet("INVITE_REVOKED", "the invite was revoked; ask the person who sent it")
	case !currentTime.Before(i.ExpirationTime):
		return fault.Unmet("INVITE_EXPIRED", "the invite expired on %s; ask for a new one",
			i.ExpirationTime.Format(time.RFC1123))
	case !i.ExpireTime.IsZero() && !currentTime.Before(i.ExpireTime):
		return fault.Unmet("INVITE_EXPIRED", "the role of the invite ended on %s; ask for a new invite",
			i.ExpireTime.Format(time.RFC1123))
	case i.RoleInfo.UID == "":
		return fault.Unmet("INVITE_ROLE_GONE", "the role of the invite was deleted; ask for a new invite")
	}
	return nil
}

// checkAddressee returns fault.FailedPrecondition if an invite is for an e-mail
// address and the person does not have that address. The address counts if the
// person signs in with an account of the organization, or if it was verified by a
// provider that the operator trusts or by a provider of the invite's group or of a
// group above it. Any other issuer could claim to have verified any address.
func checkAddressee(i resource.GroupInvite, a resource.SignIn) error {
	if i.Email == "" {
		return nil
	}
	wrong := fault.Unmet("INVITE_WRONG_EMAIL", "the invite is for another e-mail address: sign in with that address")
	if !strings.EqualFold(i.Email, a.Email) {
		return wrong
	}
	if a.Organization != "" && a.Organization == i.UID.Root() {
		return nil
	}
	if !a.EmailVerified {
		return fault.Unmet("INVITE_UNVERIFIED_EMAIL", "the invite is for an e-mail address that has not been verified")
	}
	if !a.Trusted && !a.Voucher.Provider().Parent().Covers(i.UID) {
		return fault.Unmet("INVITE_UNVERIFIED_EMAIL",
			"the invite is for an e-mail address that no provider of its organization has verified")
	}
	return nil
}
