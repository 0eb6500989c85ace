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

// InviteFor returns an invite whose code somebody holds. It returns
// fault.FailedPrecondition, with the reason, for one that cannot be used or no
// longer: only somebody who knows the secret learns the reason.
func (s *Store) InviteFor(ctx context.Context, p resource.Presented) (resource.GroupInvite, error) {
	i, err := s.iam.Invite(ctx, p.UID)
	return i, checkInvite(ctx, i, err, p, s.Time(), s.iam.EndedInvite)
}

// lockInvite is InviteFor for an invite that is about to be redeemed.
func (t tx) lockInvite(ctx context.Context, p resource.Presented) (resource.GroupInvite, error) {
	i, err := t.iam.LockInvite(ctx, p.UID)
	return i, checkInvite(ctx, i, err, p, t.DB.Time(), t.iam.EndedInvite)
}

// checkInvite returns the error for an invite that was presented, given what
// was read of it: i, or err. ended returns the digest of an invite that is no
// longer there, and why.
func checkInvite(
	ctx context.Context, i resource.GroupInvite, err error, p resource.Presented, now time.Time,
	ended func(context.Context, resource.UID) (digest []byte, reason string, err error),
) error {
	digest, reason := i.Digest, ""
	gone := errors.Is(err, fault.NotFound)
	if gone {
		digest, reason, err = ended(ctx, p.UID)
	}
	switch {
	case err != nil && !errors.Is(err, fault.NotFound):
		return err
	case err != nil || subtle.ConstantTimeCompare(digest, p.Digest) != 1:
		return fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
	case reason == iamdb.InviteUsed:
		return fault.Unmet("INVITE_USED", "the invite has been used, and was good once; ask for another")
	case gone:
		return fault.Unmet("INVITE_REVOKED", "the invite was taken back; ask whoever sent it")
	case !now.Before(i.ExpirationTime):
		return fault.Unmet("INVITE_EXPIRED", "the invite expired on %s; ask for another",
			i.ExpirationTime.Format(time.RFC1123))
	case !i.ExpireTime.IsZero() && !now.Before(i.ExpireTime):
		return fault.Unmet("INVITE_EXPIRED", "what the invite gives ended on %s; ask for another",
			i.ExpireTime.Format(time.RFC1123))
	case i.RoleInfo.UID == "":
		return fault.Unmet("INVITE_ROLE_GONE", "the role that the invite promises has been deleted; ask for another")
	}
	return nil
}

// checkAddressee checks that an invite for an e-mail address is redeemed by a
// person with that address: by an account of the organization, or by somebody
// whose address was verified by a provider that the operator trusts, or by one
// in the invite's group or above it. Other issuers could verify any address.
func checkAddressee(i resource.GroupInvite, a resource.SignIn) error {
	if i.Email == "" {
		return nil
	}
	wrong := fault.Unmet("INVITE_WRONG_EMAIL", "the invite is for another e-mail address than the one signed in with")
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
