package iamdb

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/sessiondb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var providers = store.Kind[resource.IdentityProvider]{
	Table: "identity_providers", Label: "identity provider",
	Created: resource.ProviderCreated, Updated: resource.ProviderUpdated, Deleted: resource.ProviderDeleted,
	Columns: func(p *resource.IdentityProvider) []store.Column {
		if p.OIDC == nil {
			p.OIDC = &resource.OIDC{}
		}
		return []store.Column{
			store.Key(&p.UID),
			store.Text("name", &p.Name).Order("name"),
			store.Text("description", &p.Description),
			store.Ref("default_role", "roles", &p.DefaultRole),
			store.JSON("detail", p.OIDC),
			store.Bytes("secret", &p.OIDC.ClientSecret.Sealed),
			store.Flag("disabled", &p.Disabled),
			store.Flag("trusted", &p.Trusted),
			store.Flag("shared_redirect", &p.SharedRedirect),
			store.Flag("directory_roles", &p.DirectoryRoles),
			store.Text("realm", &p.Realm),
			store.Number("epoch", &p.Epoch),
			store.Time("create_ms", &p.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &p.UpdateTime).Order("update_time"),
		}
	},
}

// InsertProvider adds p. It returns fault.NotFound if its group or its default
// role does not exist.
func (s *Store) InsertProvider(ctx context.Context, p resource.IdentityProvider) error {
	p.Epoch, p.Trusted = 0, false
	p.Realm = p.OwnRealm()
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, p.UID.Parent()); err != nil {
			return err
		}
		if err := t.RequireRole(ctx, p.DefaultRole); err != nil {
			return err
		}
		return store.Insert(ctx, t.Tx, &providers, p)
	})
}

// Provider returns a provider, or fault.NotFound.
func (s *Store) Provider(ctx context.Context, uid resource.UID) (resource.IdentityProvider, error) {
	return store.Get(ctx, s.DB, &providers, uid)
}

// A ProviderChange changes a provider that has the given mappings. If the change begins a new epoch, keep reports which
// people of the provider remain the same identities. If keep is nil, no person remains the same identity.
type ProviderChange func(p *resource.IdentityProvider,
	mappings []resource.ExternalGroupRoleMapping) (keep func(resource.UID) bool, _ error)

// UpdateProvider applies change to the provider and returns the result. It returns fault.NotFound if there is no such
// provider or its new default role does not exist, and the error of change. If the change affects how the provider
// identifies people, or whether the operator trusts it, a new epoch begins: earlier sign-ins with the provider no
// longer prove anything, and only the people whom change keeps remain the same identities.
func (s *Store) UpdateProvider(
	ctx context.Context, uid resource.UID, change ProviderChange,
) (p resource.IdentityProvider, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &providers, uid, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		mapped, err := t.MappingsOf(ctx, uid)
		if err != nil {
			return err
		}
		p = before
		oidc := *before.OIDC
		p.OIDC = &oidc
		keep, err := change(&p, mapped)
		if err != nil {
			return err
		}
		p.Realm, p.Epoch = before.Realm, before.Epoch
		if !p.OIDC.SameBeliefs(*before.OIDC) || p.Trusted != before.Trusted {
			if err := t.beginEpoch(ctx, before, &p, keep); err != nil {
				return err
			}
		}
		if p.Disabled && !before.Disabled {
			if err := sessiondb.In(t.Tx).Revoke(ctx, resource.DisabledSubject(uid)); err != nil {
				return err
			}
		}
		if err := t.RequireRole(ctx, p.DefaultRole); err != nil {
			return err
		}
		return store.Update(ctx, t.Tx, &providers, before, &p)
	})
	return p, err
}

// beginEpoch makes all earlier sign-ins with a provider void and gives the provider a new realm. People whom keep
// selects move to that realm, unless somebody with their subject is already there.
func (t Tx) beginEpoch(
	ctx context.Context, before resource.IdentityProvider, p *resource.IdentityProvider, keep func(resource.UID) bool,
) error {
	p.Epoch++
	p.Realm = p.OwnRealm()
	if p.Trusted {
		p.Realm = p.IssuerRealm()
		if err := scimdb.In(t.Tx).RefuseRequired(ctx, p.UID); err != nil {
			return err
		}
	}
	if err := sessiondb.In(t.Tx).Revoke(ctx, resource.VoucherSubject(before.Voucher())); err != nil {
		return err
	}
	_, err := sessiondb.In(t.Tx).EndSessionsWhere(ctx, resource.EndProviderChanged, `t.provider = $1`, string(before.UID))
	if err != nil {
		return err
	}
	if keep == nil {
		return nil
	}
	people, err := identities.All(ctx, t.Rows, ` WHERE t.provider = $1 AND t.realm = $2 AND NOT EXISTS
		(SELECT 1 FROM identities AS o WHERE o.realm = $3 AND o.subject = t.subject) ORDER BY t.uid`,
		store.Segment(p.UID), before.Realm, p.Realm)
	if err != nil {
		return err
	}
	for _, i := range people {
		if !keep(i.UID) {
			continue
		}
		if err := t.moveToRealm(ctx, i, *p); err != nil {
			return err
		}
	}
	return nil
}

// moveToRealm moves a person to the realm of a provider.
func (t Tx) moveToRealm(ctx context.Context, i resource.Identity, p resource.IdentityProvider) error {
	before := i
	i.Relationship = resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: p.OIDC.Issuer,
		Subject: i.Relationship.Subject()}}
	i.Realm = p.Realm
	return t.UpdateIdentity(ctx, resource.IdentityUpdated, before, &i)
}

// MappingsOf returns the mappings of a provider.
func (t Tx) MappingsOf(ctx context.Context, provider resource.UID) ([]resource.ExternalGroupRoleMapping, error) {
	return mappings.All(ctx, t.Rows, ` WHERE t.parent = $1 ORDER BY t.uid`, store.Segment(provider))
}

// DeleteProvider removes a provider. It returns fault.FailedPrecondition while the provider has mappings or identities
// that signed in with it, and fault.NotFound if there is no such provider.
func (s *Store) DeleteProvider(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &providers, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		users, err := t.ReferencedBy(ctx, uid, []store.Reference{
			{Table: "external_group_role_mappings", Column: "parent", Label: "external group role mappings"},
			{Table: "identities", Column: "provider", Label: "identities"},
		})
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return fault.InUse("identity provider", users...)
		}
		if err := store.Remove(ctx, t.Tx, &providers, before); err != nil {
			return err
		}
		err = t.DropKeyCounters(ctx, store.ScimUserCounter, `SELECT CAST($2 AS BIGINT)`, store.Segment(uid))
		if err != nil {
			return err
		}
		return t.DropCounters(ctx, uid)
	})
}

// ProviderAt returns the provider whose UID ends in a segment, or fault.NotFound.
func (s *Store) ProviderAt(ctx context.Context, segment string) (resource.IdentityProvider, error) {
	uid := resource.OwnerRole + "/" + resource.UID(segment) // any root has a child with this segment
	if !resource.WellFormed(string(uid)) {
		return resource.IdentityProvider{}, fault.Missing("identity provider", segment)
	}
	return store.One(ctx, s.Rows, &providers, uid, ` WHERE t.seg = $1`, store.Segment(uid))
}

// HoldProvider returns a provider, or fault.NotFound, and locks it against changes until the commit.
func (t Tx) HoldProvider(ctx context.Context, uid resource.UID) (resource.IdentityProvider, error) {
	return store.Lock(ctx, t.Tx, &providers, uid, t.DB.Engine.ForHold)
}

// IsAssignedOwner reports whether AssignedOwners counts a person.
func (t Tx) IsAssignedOwner(ctx context.Context, org, person resource.UID) (bool, error) {
	owners, err := t.assignedOwners(ctx, org)
	return slices.Contains(owners, person), err
}

// AssignedOwners returns the number of people who own an organization permanently, who are not suspended, and whose
// role no mapping has assigned, except the given people.
func (t Tx) AssignedOwners(ctx context.Context, org resource.UID, except ...resource.UID) (n int, _ error) {
	owners, err := t.assignedOwners(ctx, org)
	for _, owner := range owners {
		if !slices.Contains(except, owner) {
			n++
		}
	}
	return n, err
}

func (t Tx) assignedOwners(ctx context.Context, org resource.UID) ([]resource.UID, error) {
	currentTime, err := t.Clock(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadColumn[resource.UID](ctx, t.Rows, `SELECT DISTINCT identity FROM role_bindings
		WHERE parent = $1 AND role = $2 AND `+permanentAt("$3")+` AND `+activeOwner+` AND NOT EXISTS
		(SELECT 1 FROM mapped_bindings AS m WHERE m.binding = role_bindings.seg)`,
		store.Segment(org), store.Segment(resource.OwnerRole), store.MS(currentTime))
}

// Providers returns one page of providers.
func (s *Store) Providers(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.IdentityProvider], error) {
	return store.List(ctx, s.DB, &providers, r, f, p)
}

// OwnersThrough returns the number of permanent owners of an organization who can
// sign in with one of its enabled providers.
func (s *Store) OwnersThrough(ctx context.Context, org resource.UID) (n int, err error) {
	err = s.Row(ctx, ownersThrough, []any{store.Segment(org), store.Segment(resource.OwnerRole), false, s.now()}, &n)
	return n, err
}

// OwnersThrough is Store.OwnersThrough inside a transaction.
func (t Tx) OwnersThrough(ctx context.Context, org resource.UID) (n int, err error) {
	currentTime, err := t.Clock(ctx)
	if err == nil {
		args := []any{store.Segment(org), store.Segment(resource.OwnerRole), false, store.MS(currentTime)}
		err = t.Row(ctx, ownersThrough, args, &n)
	}
	return n, err
}

var ownersThrough = `SELECT count(*) FROM role_bindings AS b
	WHERE b.parent = $1 AND b.role = $2 AND ` + permanentAt("$4") + ` AND EXISTS
		(SELECT 1 FROM arrivals AS a JOIN identity_providers AS p ON p.seg = a.provider
		JOIN identities AS i ON i.uid = a.identity
		WHERE a.identity = b.identity AND p.a1 = $1 AND p.disabled = $3 AND i.realm = p.realm)`

// ProvidersFor returns the enabled providers of a group and of the groups above
// it, sorted by name. A provider of a folder is not a provider of its organization.
func (s *Store) ProvidersFor(ctx context.Context, group resource.UID) ([]resource.IdentityProvider, error) {
	var enabled []resource.IdentityProvider
	for _, g := range append(group.Ancestors(), group) {
		found, err := providers.All(ctx, s.Rows, ` WHERE t.parent = $1 ORDER BY t.name, t.seg LIMIT 100`, store.Segment(g))
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			if p.UID.Parent() == g && !p.Disabled {
				enabled = append(enabled, p)
			}
		}
	}
	slices.SortStableFunc(enabled, func(a, b resource.IdentityProvider) int { return strings.Compare(a.Name, b.Name) })
	return enabled, nil
}

// RolesFor returns the names of the roles that a person with these external groups
// gets at the first sign-in with a provider.
func (s *Store) RolesFor(ctx context.Context, p resource.IdentityProvider, groups []string) ([]string, error) {
	uids := []resource.UID{p.DefaultRole}
	mapped, err := mappings.All(ctx, s.Rows, ` WHERE t.parent = $1 ORDER BY t.uid`, store.Segment(p.UID))
	if err != nil {
		return nil, err
	}
	for _, m := range mapped {
		if slices.Contains(groups, m.ExternalGroup) && !slices.Contains(uids, m.Role) {
			uids = append(uids, m.Role)
		}
	}
	var names []string
	for _, uid := range uids {
		r, err := s.Role(ctx, uid)
		if err != nil {
			return nil, err
		}
		names = append(names, r.Name)
	}
	return names, nil
}

// ClientSecrets returns the sealed client secrets of all providers.
func (s *Store) ClientSecrets(ctx context.Context) (sealed [][]byte, _ error) {
	stored, err := providers.All(ctx, s.Rows, ``)
	for _, p := range stored {
		if p.OIDC != nil && len(p.OIDC.ClientSecret.Sealed) > 0 {
			sealed = append(sealed, p.OIDC.ClientSecret.Sealed)
		}
	}
	return sealed, err
}

// ForgetSealed removes the client secrets that cannot be decrypted, and returns the providers that have lost theirs.
func (t Tx) ForgetSealed(
	ctx context.Context, opens func(sealed []byte) bool,
) (lost []resource.IdentityProvider, _ error) {
	locked, err := providers.All(ctx, t.Rows, ` ORDER BY t.uid`+t.DB.Engine.ForUpdate)
	if err != nil {
		return nil, err
	}
	for _, before := range locked {
		if before.OIDC == nil || len(before.OIDC.ClientSecret.Sealed) == 0 || opens(before.OIDC.ClientSecret.Sealed) {
			continue
		}
		p, oidc := before, *before.OIDC
		oidc.ClientSecret = resource.Secret{}
		p.OIDC = &oidc
		if err := store.Update(ctx, t.Tx, &providers, before, &p); err != nil {
			return nil, err
		}
		lost = append(lost, p)
	}
	return lost, nil
}
