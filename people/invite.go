package people

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/iamdb"
)

// InviteFor returns an invite whose code somebody holds. It returns
// fault.FailedPrecondition, with the reason, for one that is not good or no
// longer: only who knows the secret learns it.
func (s *Store) InviteFor(ctx context.Context, p resource.Presented) (resource.GroupInvite, error) {
	i, err := s.iam.Invite(ctx, p.UID)
	if errors.Is(err, fault.NotFound) {
		return i, endedInviteError(p)(s.iam.EndedInvite(ctx, p.UID))
	}
	if err != nil {
		return i, err
	}
	return i, checkInvite(i, p, s.Time())
}

// lockInvite is InviteFor for an invite that is about to be redeemed.
func (t tx) lockInvite(ctx context.Context, p resource.Presented) (resource.GroupInvite, error) {
	i, err := t.iam.LockInvite(ctx, p.UID)
	if errors.Is(err, fault.NotFound) {
		return i, endedInviteError(p)(t.iam.EndedInvite(ctx, p.UID))
	}
	if err != nil {
		return i, err
	}
	return i, checkInvite(i, p, t.DB.Time())
}

// gone returns the error for an invite that is no longer there, given what is
// known of it.
func endedInviteError(p resource.Presented) func(digest []byte, reason string, err error) error {
	return func(digest []byte, reason string, err error) error {
		switch {
		case err != nil && !errors.Is(err, fault.NotFound):
			return err
		case err != nil || subtle.ConstantTimeCompare(digest, p.Digest) != 1:
			return fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
		case reason == iamdb.InviteUsed:
			return fault.Unmet("INVITE_USED", "the invite has been used, and was good once; ask for another")
		}
		return fault.Unmet("INVITE_REVOKED", "the invite was taken back; ask whoever sent it")
	}
}

// usable returns the error for an invite that is there and not good.
func checkInvite(i resource.GroupInvite, p resource.Presented, now time.Time) error {
	switch {
	case subtle.ConstantTimeCompare(i.Digest, p.Digest) != 1:
		return fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
	case !now.Before(i.ExpirationTime):
		return fault.Unmet("INVITE_EXPIRED", "the invite expired on %s; ask for another",
			i.ExpirationTime.Format(time.RFC1123))
	case i.RoleInfo.UID == "":
		return fault.Unmet("INVITE_ROLE_GONE", "the role that the invite promises has been deleted; ask for another")
	}
	return nil
}

// addressedTo checks that an invite with an address is redeemed by whoever has it.
// An address counts if a provider has verified it that the operator trusts, or
// that is in the invite's group or one above it; or if it is that of an account
// of the organization. Anybody can run an issuer that verifies whatever they like.
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
