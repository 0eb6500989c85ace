package iam

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// An inviteCode is the content of a code, which is its JSON in base64. Whoever
// holds the code may join, so the store keeps only a digest of the secret.
type inviteCode struct {
	Invite resource.UID `json:"invite"`
	KeyID  string       `json:"keyId"`
	Secret []byte       `json:"secret"`
}

// CreateInvite creates an invite into a group that lasts for ttl, and returns it with its code, which is shown
// only once. The caller needs group_invites.create and role_bindings.create there, and every capability of the
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
	if err := s.checkPromise(&i, resource.GroupInvite{}); err != nil {
		return resource.GroupInvite{}, err
	}
	if err := s.authz.RequireRole(ctx, parent, i.Role, "role_uid", i.ExpireTime); err != nil {
		return resource.GroupInvite{}, err
	}
	i.UID = parent.NewChild()
	i.CreateTime = s.now()
	i.UpdateTime = i.CreateTime
	i.ExpirationTime = i.CreateTime.Add(ttl).Truncate(time.Millisecond)
	code, err := newInviteCode(&i)
	if err != nil {
		return resource.GroupInvite{}, err
	}
	also, err := s.mailInvite(ctx, i, code)
	if err != nil {
		return resource.GroupInvite{}, err
	}
	made, err := s.store.InsertInvite(ctx, i, also...)
	if err != nil {
		return resource.GroupInvite{}, err
	}
	if !resource.IsDryRun(ctx) {
		made.Code = code
	}
	return made, nil
}

// checkPromise checks the times of what an invite gives, and brings them to whole seconds.
func (s *Service) checkPromise(i *resource.GroupInvite, before resource.GroupInvite) error {
	b := i.Binding("", "", i.CreateTime)
	i.StartTime, i.ExpireTime = b.StartTime, b.ExpireTime
	_, now := s.store.Clock()
	return b.ValidateTimes(before.Binding("", "", before.CreateTime), now, "")
}

// mailInvite returns what adds the message with an invite's link to its transaction. It is for the address that
// the invite names, and for nobody if that is none.
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

// newInviteCode gives an invite its secret and returns the code that contains it.
func newInviteCode(i *resource.GroupInvite) (string, error) {
	var id [8]byte
	secret := make([]byte, 32)
	rand.Read(id[:]) // never fails
	rand.Read(secret)
	digest := sha256.Sum256(secret)
	i.KeyID, i.Digest = hex.EncodeToString(id[:]), digest[:]
	b, err := json.Marshal(inviteCode{i.UID, i.KeyID, secret})
	if err != nil {
		return "", fmt.Errorf("encode invite: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// GetInvite returns an invite, without its code. The caller needs group_invites.list on it.
func (s *Service) GetInvite(ctx context.Context, uid resource.UID) (resource.GroupInvite, error) {
	return authz.Get(ctx, s.authz, resource.GroupInvitesList, uid, s.store.Invite)
}

// UpdateInvite applies change to the address, the role and the end of an invite that nobody has used, and returns
// it without its code, which stays. The caller needs what CreateInvite asks for the invite as it is then, whatever
// changes: an address or a later end is as good as a new invite.
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
		now := s.now()
		if err := i.ValidateChange(before.ExpirationTime, now); err != nil {
			return err
		}
		if err := s.checkPromise(i, before); err != nil {
			return err
		}
		if i.TTL != nil {
			i.ExpirationTime = now.Add(*i.TTL).Truncate(time.Millisecond)
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
