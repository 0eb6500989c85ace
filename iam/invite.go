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

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// inviteCode is what a code says, in base64. Whoever holds it may join; so only
// a digest of its secret is kept.
type inviteCode struct {
	Invite resource.UID `json:"invite"`
	KeyID  string       `json:"keyId"`
	Secret []byte       `json:"secret"`
}

// CreateInvite makes an invite into a group that lasts for ttl, and returns it
// with its code, for the only time. The caller needs group_invites.create and
// role_bindings.create there, and every capability of the role.
func (s *Service) CreateInvite(ctx context.Context, parent resource.UID, i resource.GroupInvite, ttl time.Duration) (resource.GroupInvite, error) {
	if err := s.requireBoth(ctx, resource.GroupInvitesCreate, parent); err != nil {
		return resource.GroupInvite{}, err
	}
	if err := i.Validate(ttl); err != nil {
		return resource.GroupInvite{}, err
	}
	if err := s.mayPromise(ctx, parent, i.Role, "role_uid"); err != nil {
		return resource.GroupInvite{}, err
	}
	i.UID = parent.NewChild()
	i.CreateTime = s.now()
	i.ExpirationTime = i.CreateTime.Add(ttl).Truncate(time.Millisecond)
	code, err := sign(&i)
	if err != nil {
		return resource.GroupInvite{}, err
	}
	made, err := s.store.InsertInvite(ctx, i)
	if err != nil {
		return resource.GroupInvite{}, err
	}
	if !resource.Rehearsing(ctx) {
		made.Code = code
	}
	return made, nil
}

// sign gives an invite its secret and returns the code that holds it.
func sign(i *resource.GroupInvite) (string, error) {
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

// GetInvite returns an invite, without its code. The caller needs
// group_invites.list on it.
func (s *Service) GetInvite(ctx context.Context, uid resource.UID) (resource.GroupInvite, error) {
	if err := s.authz.Require(ctx, resource.GroupInvitesList, uid); err != nil {
		return resource.GroupInvite{}, err
	}
	return s.store.Invite(ctx, uid)
}

// DeleteInvite takes an invite back; what is gone already is no error. The
// caller needs group_invites.delete on it.
func (s *Service) DeleteInvite(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.GroupInvitesDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteInvite(ctx, uid)
}

// ListInvites returns a page of the invites the caller holds group_invites.list
// on, expired ones included.
func (s *Service) ListInvites(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.GroupInvite], error) {
	reach, err := s.reach(ctx, resource.GroupInvitesList)
	if err != nil {
		return page.Page[resource.GroupInvite]{}, err
	}
	return page.Read(ctx, s.pages, inviteList, reach, f, p, s.store.Invites)
}
