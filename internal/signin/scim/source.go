package scim

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// SetRoleSource lets the mappings of a provider apply to the teams of its directory, or to the groups in claims. etag
// must be the current one of the directory. The caller needs the permissions of GenerateToken, and must be allowed to
// give the roles of all mappings. The roles from the previous source end immediately. Roles from claims begin at the
// next sign-in.
func (s *Service) SetRoleSource(
	ctx context.Context, provider resource.UID, directory bool, etag string,
) (resource.Directory, error) {
	if err := s.require(ctx, provider); err != nil {
		return resource.Directory{}, err
	}
	if etag == "" {
		return resource.Directory{}, fault.Field("etag", "is required")
	}
	return s.store.EditDirectory(ctx, provider, resource.DirectoryUpdated,
		func(tx *store.Tx, d *resource.Directory) error {
			if err := checkETag(*d, etag); err != nil {
				return err
			}
			t := iamdb.In(tx)
			if err := s.mayGiveMappedRoles(ctx, t, provider); err != nil {
				return err
			}
			d.RolesFromTeams = directory
			return t.SetDirectoryRoles(ctx, provider, directory)
		})
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

// PreviewRoleSource returns what SetRoleSource would change. Roles that people would get from claims are unknown until
// they sign in. The caller needs the permissions of GenerateToken, and role_bindings.list in the organization.
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

// Status returns the state of a provider's directory. The caller needs identity_providers.list on the provider.
func (s *Service) Status(ctx context.Context, provider resource.UID) (st Status, _ error) {
	p, err := authz.Get(ctx, s.authz, resource.IdentityProvidersList, provider, s.iam.Provider)
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
