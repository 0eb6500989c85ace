package iam

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// CreateInvite creates an invite to a group that expires after ttl, and returns it with its code. The code cannot be
// read again. The caller needs group_invites.create and role_bindings.create on the group, and every capability of the
// role.
func (s *Service) CreateInvite(
	ctx context.Context, parent resource.UID, i resource.GroupInvite, ttl time.Duration,
) (resource.GroupInvite, error) {
	if err := s.requireWithBind(ctx, resource.GroupInvitesCreate, parent); err != nil {
		return resource.GroupInvite{}, err
	}
	if err := i.Validate(ttl); err != nil {
		return resource.GroupInvite{}, err
	}
	if err := s.checkRoleTimes(&i, resource.GroupInvite{}); err != nil {
		return resource.GroupInvite{}, err
	}
	if err := s.authz.RequireRole(ctx, parent, i.Role, "role_uid", i.ExpireTime); err != nil {
		return resource.GroupInvite{}, err
	}
	i.UID = parent.NewChild()
	i.CreateTime = s.now()
	i.UpdateTime = i.CreateTime
	i.ExpirationTime = i.CreateTime.Add(ttl).Truncate(time.Millisecond)
	code := s.newInviteCode(&i)
	also, err := s.mailInvite(ctx, i, code)
	if err != nil {
		return resource.GroupInvite{}, err
	}
	created, err := s.store.InsertInvite(ctx, i, also...)
	if err != nil {
		return resource.GroupInvite{}, err
	}
	if !resource.IsDryRun(ctx) {
		created.Code = code
	}
	return created, nil
}

// checkRoleTimes validates the times between which the role of an invite will be held, and truncates them to whole
// seconds.
func (s *Service) checkRoleTimes(i *resource.GroupInvite, before resource.GroupInvite) error {
	b := i.Binding("", "", i.CreateTime)
	i.StartTime, i.ExpireTime = b.StartTime, b.ExpireTime
	_, latest := s.store.Clock()
	return b.ValidateTimes(before.Binding("", "", before.CreateTime), latest, "")
}

// mailInvite returns functions that queue the message with the link of an invite in the transaction that creates the
// invite. It returns none if the invite has no e-mail address.
func (s *Service) mailInvite(
	ctx context.Context, i resource.GroupInvite, code string,
) ([]func(*store.Tx) error, error) {
	if s.cfg.Mail == nil || i.Email == "" {
		return nil, nil
	}
	group, err := s.store.Group(ctx, i.UID.Parent())
	if err != nil {
		return nil, err
	}
	role, err := s.store.Role(ctx, i.Role)
	if err != nil {
		return nil, err
	}
	name := group.Name
	if org := group.UID.Root(); org != group.UID {
		g, err := s.store.Group(ctx, org)
		if err != nil {
			return nil, err
		}
		name += " in " + g.Name
	}
	return s.cfg.Mail.With(ctx, s.cfg.Mail.Invite(i, name, role.Name, code)), nil
}

// newInviteCode sets the key ID and the digest of an invite, and returns its code, which contains the secret. Everybody
// who has the code may join, so the database has only a digest of the secret.
func (s *Service) newInviteCode(i *resource.GroupInvite) string {
	var id [8]byte
	var secret [16]byte
	rand.Read(id[:]) // rand.Read never fails
	rand.Read(secret[:])
	digest := sha256.Sum256(secret[:])
	i.KeyID, i.Digest = hex.EncodeToString(id[:]), digest[:]
	if s.cfg.LongCodes != nil && s.cfg.LongCodes() {
		return resource.LongInviteCode(i.UID, i.KeyID, secret)
	}
	return resource.NewInviteCode(i.UID, secret)
}

// GetInvite returns an invite, without its code. The caller needs group_invites.list on it.
func (s *Service) GetInvite(ctx context.Context, uid resource.UID) (resource.GroupInvite, error) {
	return authz.Get(ctx, s.authz, resource.GroupInvitesList, uid, s.store.Invite)
}

// UpdateInvite applies change to the address, the role and the expiry of an unused invite, and returns it without its
// code, which does not change. The caller needs the capabilities that CreateInvite requires for the changed invite,
// because an invite with another address or a later expiry is as good as a new invite.
func (s *Service) UpdateInvite(
	ctx context.Context, uid resource.UID, change func(*resource.GroupInvite) error,
) (resource.GroupInvite, error) {
	if err := s.requireWithBind(ctx, resource.GroupInvitesCreate, uid); err != nil {
		return resource.GroupInvite{}, err
	}
	return store.Edit(ctx, uid, s.store.Invite, s.store.UpdateInvite, func(i *resource.GroupInvite) error {
		before := *i
		if err := change(i); err != nil {
			return err
		}
		currentTime := s.now()
		if err := i.ValidateChange(before.ExpirationTime, currentTime); err != nil {
			return err
		}
		if err := s.checkRoleTimes(i, before); err != nil {
			return err
		}
		if i.TTL != nil {
			i.ExpirationTime = currentTime.Add(*i.TTL).Truncate(time.Millisecond)
		}
		i.UID, i.KeyID, i.CreateTime, i.UpdateTime = before.UID, before.KeyID, before.CreateTime, before.UpdateTime
		return s.authz.RequireRole(ctx, uid.Parent(), i.Role, "role_uid", i.ExpireTime)
	})
}

// DeleteInvite removes an invite, if it exists. The caller needs group_invites.delete on it.
func (s *Service) DeleteInvite(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.GroupInvitesDelete, uid, s.store.DeleteInvite)
}

// ListInvites returns a page of the invites on which the caller holds
// group_invites.list, including expired ones.
func (s *Service) ListInvites(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.GroupInvite], error) {
	return authz.List(ctx, s.authz, s.pages, iamdb.InviteList, resource.GroupInvitesList, f, p, s.store.Invites)
}
