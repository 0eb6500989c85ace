package login

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An Invite describes an invite for the pages.
type Invite struct {
	Organization, Group, Role, Email string
	May                              string // permissions of the role, in words

	root resource.UID // organization of the invite
}

// readInvite decodes the code of an invite. Package iam encodes it. readInvite returns
// fault.FailedPrecondition if the code is malformed.
func readInvite(code string) (p resource.Presented, _ error) {
	bad := fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
	if len(code) > 1024 {
		return p, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(code))
	if err != nil {
		return p, bad
	}
	var c struct {
		Invite string `json:"invite"`
		Secret []byte `json:"secret"`
	}
	if json.Unmarshal(b, &c) != nil {
		return p, bad
	}
	if p.UID, err = resource.ParseUID("invite", c.Invite); err != nil {
		return p, bad
	}
	sum := sha256.Sum256(c.Secret)
	p.Digest = sum[:]
	return p, nil
}

// inviteOf describes the invite of a flow, and selects its organization in the flow. It
// returns nil if the flow has no invite.
func (s *Service) inviteOf(r *http.Request, f *flow) (*Invite, error) {
	if f.Invite == "" {
		return nil, nil
	}
	presented, err := readInvite(f.Invite)
	if err != nil {
		return nil, err
	}
	i, err := s.people.InviteFor(r.Context(), presented)
	if err != nil {
		return nil, err
	}
	group, err := s.store.Group(r.Context(), i.UID.Parent())
	if err != nil {
		return nil, err
	}
	org, err := s.store.Group(r.Context(), i.UID.Root())
	f.Organization = cmp.Or(f.Organization, org.UID)
	return &Invite{org.Label(), group.Label(), i.RoleInfo.Name, i.Email, i.RoleInfo.Description, org.UID}, err
}

// requireInvite is inviteOf for a flow that must have an invite. Without one it returns
// fault.PermissionDenied.
func (s *Service) requireInvite(r *http.Request, f *flow) (*Invite, error) {
	invite, err := s.inviteOf(r, f)
	if err == nil && invite == nil {
		err = fault.New(fault.PermissionDenied, "Permission denied: you need an invite to create an account")
	}
	return invite, err
}

// joinGroup returns the group for which a person signs in. It is the group of the invite
// or the chosen organization. The person can use the providers of this group and of its
// parent groups.
func (f *flow) joinGroup() resource.UID {
	if p, err := readInvite(f.Invite); err == nil && p.UID.Root() == f.Organization {
		return p.UID.Parent()
	}
	return f.Organization
}
