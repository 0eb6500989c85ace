package login

import (
	"cmp"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An Invite describes an invite for the pages.
type Invite struct {
	Organization, Group, Role, Email string
	May                              string // permissions of the role, in words

	root resource.UID // organization of the invite
}

// readInvite decodes the code of an invite. It returns fault.FailedPrecondition if the code is malformed.
func readInvite(code string) (resource.Presented, error) {
	p, ok := resource.ReadInviteCode(code)
	if !ok {
		return p, fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
	}
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
