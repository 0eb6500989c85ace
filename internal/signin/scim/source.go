package scim

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Settings are changes of the settings of a directory. A setting that is nil stays.
type Settings struct {
	RolesFromTeams *bool    // mappings apply to the teams of the directory, and not to the groups in claims
	Required       *bool    // only active users of the directory may sign in with the provider
	HoldPercent    *int32   // see resource.Directory
	HoldMinimum    *int32   // see resource.Directory
	Held           Decision // what happens to held changes
}

// ofProtection reports whether the settings contain only what an operator may change, too.
func (c Settings) ofProtection() bool { return c.RolesFromTeams == nil && c.Required == nil }

// needsOwner reports whether the settings contain what only an owner or an operator may change.
func (c Settings) needsOwner() bool {
	return c.Held != Undecided || c.HoldPercent != nil || c.HoldMinimum != nil
}

func (c Settings) validate(etag string) error {
	switch {
	case etag == "":
		return fault.Field("etag", "is required")
	case c.HoldPercent != nil && (*c.HoldPercent < 1 || *c.HoldPercent > 100):
		return fault.Field("directory.hold_percent", "must be from 1 to 100")
	case c.HoldMinimum != nil && (*c.HoldMinimum < 1 || *c.HoldMinimum > maxHoldMinimum):
		return fault.Field("directory.hold_minimum", "must be from 1 to %d", maxHoldMinimum)
	case c.Held < Undecided || c.Held > Discard:
		return fault.Field("held_decision", "there is no such decision")
	}
	return nil
}

// maxHoldMinimum is the greatest value of Settings.HoldMinimum.
const maxHoldMinimum = 1000000

// Update changes the settings of a directory, and decides about held changes. etag must be the current one of the
// directory. The caller needs the permissions of GenerateToken. To change the source of roles, the caller must be
// allowed to give the roles of all mappings: the roles from the previous source end immediately, and roles from claims
// begin at the next sign-in. Limits and decisions need an owner: see mayDecide. Update returns
// fault.FailedPrecondition if people would be locked out by a requirement: see requireUsers.
func (s *Service) Update(
	ctx context.Context, provider resource.UID, change Settings, etag string,
) (resource.Directory, error) {
	if !change.needsOwner() || !change.ofProtection() || !s.isOperator(ctx) {
		if err := s.require(ctx, provider); err != nil {
			return resource.Directory{}, err
		}
	}
	if err := change.validate(etag); err != nil {
		return resource.Directory{}, err
	}
	return s.store.EditDirectory(ctx, provider, resource.DirectoryUpdated,
		func(tx *store.Tx, d *resource.Directory) error {
			if err := checkETag(*d, etag); err != nil {
				return err
			}
			return s.apply(ctx, tx, d, change)
		})
}

// apply applies settings to a directory that is locked.
func (s *Service) apply(ctx context.Context, tx *store.Tx, d *resource.Directory, change Settings) error {
	t := iamdb.In(tx)
	p, err := t.HoldProvider(ctx, d.Provider)
	if err != nil {
		return err
	}
	if change.needsOwner() {
		if err := s.mayDecide(ctx, tx, p); err != nil {
			return err
		}
	}
	if n := change.HoldPercent; n != nil {
		d.HoldPercent = int64(*n)
	}
	if n := change.HoldMinimum; n != nil {
		d.HoldMinimum = int64(*n)
	}
	if change.Held != Undecided {
		if err := s.decide(ctx, tx, p, d, change.Held); err != nil {
			return err
		}
	}
	d.RolesFromTeams = p.DirectoryRoles
	if on := change.RolesFromTeams; on != nil {
		if err := s.mayGiveMappedRoles(ctx, t, p.UID); err != nil {
			return err
		}
		d.RolesFromTeams = *on
		if err := t.SetDirectoryRoles(ctx, p.UID, *on); err != nil {
			return err
		}
	}
	if on := change.Required; on != nil && *on != d.Required {
		if d.Required = *on; *on {
			return s.requireUsers(ctx, tx, p, *d)
		}
	}
	return nil
}

// mayGiveMappedRoles checks that the caller may give the roles of all mappings of a provider.
func (s *Service) mayGiveMappedRoles(ctx context.Context, t iamdb.Tx, provider resource.UID) error {
	mappings, err := t.MappingsOf(ctx, provider)
	for i := 0; err == nil && i < len(mappings); i++ {
		m := mappings[i]
		if err = s.authz.Require(ctx, resource.RoleBindingsCreate, m.Scope); err == nil {
			err = s.authz.RequireRole(ctx, m.Scope, m.Role, "role_uid", time.Time{})
		}
	}
	return err
}

// maySeeToken checks that the caller may get a token of a directory. If mappings apply to teams, a token can give the
// roles of the mappings to anybody in the directory.
func (s *Service) maySeeToken(ctx context.Context, tx *store.Tx, provider resource.UID) error {
	t := iamdb.In(tx)
	p, err := t.HoldProvider(ctx, provider)
	if err != nil || !p.DirectoryRoles {
		return err
	}
	return s.mayGiveMappedRoles(ctx, t, provider)
}

// A RoleSourcePreview says which roles a change of the source of a provider's roles would give and end.
type RoleSourcePreview struct {
	Gained, Lost           []resource.MappedRole // up to maxPreview each
	GainedCount, LostCount int
}

// maxPreview is the greatest number of roles that a preview lists in each direction.
const maxPreview = 100

// PreviewRoleSource returns what a change of the source of roles with Update would change. Roles that people would get
// from claims are unknown until they sign in. The caller needs the permissions of GenerateToken, and role_bindings.list
// in the organization.
func (s *Service) PreviewRoleSource(
	ctx context.Context, provider resource.UID, directory bool,
) (p RoleSourcePreview, err error) {
	if err := s.require(ctx, provider); err != nil {
		return p, err
	}
	if err := s.authz.Require(ctx, resource.RoleBindingsList, provider.Root()); err != nil {
		return p, err
	}
	stored, err := s.iam.Provider(ctx, provider)
	if err != nil || stored.DirectoryRoles == directory {
		return p, err
	}
	if directory {
		if p.Gained, p.GainedCount, err = s.iam.TeamRolesWithoutBinding(ctx, provider, false, maxPreview); err != nil {
			return p, err
		}
		p.Lost, p.LostCount, err = s.iam.MappedWithoutTeam(ctx, provider, maxPreview)
		return p, err
	}
	p.Lost, p.LostCount, err = s.iam.TeamRolesWithoutBinding(ctx, provider, true, maxPreview)
	return p, err
}

// A Status is a directory with its settings and the number of its teams.
type Status struct {
	resource.Directory
	Teams int
}

// Status returns the state of a provider's directory. The caller needs identity_providers.list on the provider, unless
// it is an operator.
func (s *Service) Status(ctx context.Context, provider resource.UID) (st Status, _ error) {
	if err := s.mayRead(ctx, provider); err != nil {
		return st, err
	}
	p, err := s.iam.Provider(ctx, provider)
	if err != nil {
		return st, err
	}
	if st.Directory, err = s.store.Directory(ctx, provider); err != nil {
		return st, err
	}
	st.RolesFromTeams = p.DirectoryRoles
	st.Teams, err = s.iam.TeamCount(ctx, provider)
	return st, err
}
