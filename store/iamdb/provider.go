package iamdb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

var providers = store.Kind[resource.IdentityProvider]{
	Table:   "identity_providers",
	Columns: "t.uid, t.name, t.description, (SELECT r.uid FROM roles AS r WHERE r.seg = t.default_role), t.detail, t.secret, t.disabled, t.trusted, t.realm, t.epoch, t.create_ms, t.update_ms",
	Orders:  map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	Scan: func(row store.Scanner) (p resource.IdentityProvider, err error) {
		var detail string
		var secret []byte
		var created, updated int64
		if err = row.Scan(&p.UID, &p.Name, &p.Description, &p.DefaultRole, &detail, &secret, &p.Disabled, &p.Trusted, &p.Realm, &p.Epoch, &created, &updated); err != nil {
			return p, err
		}
		p.CreateTime, p.UpdateTime = store.FromMS(created), store.FromMS(updated)
		p.OIDC = &resource.OIDC{}
		if err := json.Unmarshal([]byte(detail), p.OIDC); err != nil {
			return p, fmt.Errorf("provider %s: %w", p.UID, err)
		}
		p.OIDC.ClientSecret.Sealed = secret
		return p, nil
	},
	Cursor: func(p resource.IdentityProvider, col string) page.Cursor {
		return store.CursorAt(col, p.UID, p.Name, p.CreateTime, p.UpdateTime)
	},
}

// InsertProvider adds p. It returns fault.NotFound if its group or its default
// role is not there.
func (s *Store) InsertProvider(ctx context.Context, p resource.IdentityProvider) error {
	detail, err := json.Marshal(p.OIDC)
	if err != nil {
		return fmt.Errorf("encode provider: %w", err)
	}
	return s.write(ctx, func(t Tx) error {
		if err := t.MustExist(ctx, p.UID.Parent()); err != nil {
			return err
		}
		if err := t.MustHaveRole(ctx, p.DefaultRole); err != nil {
			return err
		}
		_, err := t.Exec(ctx, `
			INSERT INTO identity_providers (seg, uid, parent, a1, a2, a3, name, description, default_role, detail, secret, disabled, create_ms, update_ms, realm)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
			append(store.TreeColumns(p.UID), p.Name, p.Description, store.Segment(p.DefaultRole), string(detail), sealed(p), p.Disabled, store.MS(p.CreateTime), store.MS(p.UpdateTime), p.OwnRealm())...)
		if err != nil {
			return s.Inserted(err, "identity provider", p.Name, p.UID)
		}
		return t.Added(ctx, "identity_providers", resource.ProviderCreated, p.UID, p.UID.Parent(), p)
	})
}

// sealed is the secret as it is kept, never NULL.
func sealed(p resource.IdentityProvider) []byte {
	return append([]byte{}, p.OIDC.ClientSecret.Sealed...)
}

// Provider returns a provider, or fault.NotFound.
func (s *Store) Provider(ctx context.Context, uid resource.UID) (resource.IdentityProvider, error) {
	return store.Get(ctx, s.DB, &providers, "identity provider", uid)
}

// A ProviderChange changes a provider whose mappings are given. It says which of
// the provider's people stay who they are, if what it believes changes; if keep
// is nil, none does.
type ProviderChange func(p *resource.IdentityProvider, mappings []resource.ExternalGroupRoleMapping) (keep func(resource.UID) bool, _ error)

// UpdateProvider applies change to the provider and returns the result, under
// the rules of UpdateGroup. If what it believes changes, or whether the operator
// trusts it, a new epoch begins: everything it vouched for before is void, and
// its people are new people, but for those that are kept.
func (s *Store) UpdateProvider(ctx context.Context, uid resource.UID, change ProviderChange) (p resource.IdentityProvider, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &providers, "identity provider", uid, s.Engine.Lock)
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
		if err := t.MustHaveRole(ctx, p.DefaultRole); err != nil {
			return err
		}
		detail, err := json.Marshal(p.OIDC)
		if err != nil {
			return fmt.Errorf("encode provider: %w", err)
		}
		p.UpdateTime = s.Time()
		if _, err := t.Exec(ctx, `
			UPDATE identity_providers SET name = $2, description = $3, default_role = $4, detail = $5, secret = $6, disabled = $7, update_ms = $8,
				trusted = $9, realm = $10, epoch = $11
			WHERE uid = $1`,
			string(uid), p.Name, p.Description, store.Segment(p.DefaultRole), string(detail), sealed(p), p.Disabled, store.MS(p.UpdateTime),
			p.Trusted, p.Realm, p.Epoch); err != nil {
			return err
		}
		return t.Emit(ctx, resource.ProviderUpdated, uid, uid.Parent(), before, p)
	})
	return p, err
}

// beginEpoch makes everything that a provider vouched for void and gives it
// another realm. People who are kept move there, unless somebody is there already.
func (t Tx) beginEpoch(ctx context.Context, before resource.IdentityProvider, p *resource.IdentityProvider, keep func(resource.UID) bool) error {
	p.Epoch++
	p.Realm = p.OwnRealm()
	if p.Trusted {
		p.Realm = p.IssuerRealm()
	}
	if err := t.revoke(ctx, resource.VoucherSubject(before.Voucher())); err != nil {
		return err
	}
	if err := t.endVouched(ctx, before.UID); err != nil {
		return err
	}
	if keep == nil {
		return nil
	}
	var people []resource.Identity
	err := t.Rows(ctx, `SELECT `+identities.Columns+` FROM identities AS t WHERE t.provider = $1 AND t.realm = $2 AND NOT EXISTS
		(SELECT 1 FROM identities AS o WHERE o.realm = $3 AND o.subject = t.subject) ORDER BY t.uid`,
		[]any{store.Segment(p.UID), before.Realm, p.Realm}, func(row store.Scanner) error {
			i, err := scanIdentity(row)
			people = append(people, i)
			return err
		})
	if err != nil {
		return err
	}
	for _, i := range people {
		if !keep(i.UID) {
			continue
		}
		if err := t.move(ctx, i, *p); err != nil {
			return err
		}
	}
	return nil
}

// move makes a person one of the people that a provider vouches for now.
func (t Tx) move(ctx context.Context, i resource.Identity, p resource.IdentityProvider) error {
	before := i
	i.Relationship = resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: p.OIDC.Issuer, Subject: i.Relationship.Subject()}}
	i.Realm, i.UpdateTime = p.Realm, t.DB.Time()
	if _, err := t.Exec(ctx, `UPDATE identities SET realm = $2 WHERE uid = $1`, string(i.UID), i.Realm); err != nil {
		return err
	}
	return t.UpdateIdentity(ctx, resource.IdentityUpdated, before, i)
}

// MappingsOf returns the mappings of a provider.
func (t Tx) MappingsOf(ctx context.Context, provider resource.UID) (all []resource.ExternalGroupRoleMapping, _ error) {
	err := t.Rows(ctx, `SELECT `+mappings.Columns+` FROM external_group_role_mappings AS t WHERE t.parent = $1 ORDER BY t.uid`,
		[]any{store.Segment(provider)}, func(row store.Scanner) error {
			m, err := mappings.Scan(row)
			all = append(all, m)
			return err
		})
	return all, err
}

// DeleteProvider removes a provider that has no mappings and that nobody came
// through. It returns fault.FailedPrecondition while there are any, and
// fault.NotFound if there is no such provider.
func (s *Store) DeleteProvider(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &providers, "identity provider", uid, s.Engine.LockKey)
		if err != nil {
			return err
		}
		users, err := t.Users(ctx, uid, []store.Use{
			{Table: "external_group_role_mappings", Column: "parent", Label: "external group role mappings"},
			{Table: "identities", Column: "provider", Label: "identities"},
		})
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return fault.InUse("identity provider", users...)
		}
		if _, err := t.Exec(ctx, `DELETE FROM identity_providers WHERE uid = $1`, string(uid)); err != nil {
			return err
		}
		if err := t.Removed(ctx, "identity_providers", resource.ProviderDeleted, uid, uid.Parent(), before); err != nil {
			return err
		}
		return t.Uncount(ctx, uid)
	})
}

// Providers returns one page of providers.
func (s *Store) Providers(ctx context.Context, r store.Reach, f resource.Filter, p page.Request) (page.Page[resource.IdentityProvider], error) {
	return store.List(ctx, s.DB, &providers, r, f, p)
}

// OwnersThrough returns how many owners of an organization have come through one
// of its providers that is in use.
func (s *Store) OwnersThrough(ctx context.Context, org resource.UID) (n int, err error) {
	err = s.Row(ctx, ownersThrough, []any{store.Segment(org), store.Segment(resource.OwnerRole), false}, &n)
	return n, err
}

// OwnersThrough is Store.OwnersThrough inside a transaction.
func (t Tx) OwnersThrough(ctx context.Context, org resource.UID) (n int, err error) {
	err = t.Row(ctx, ownersThrough, []any{store.Segment(org), store.Segment(resource.OwnerRole), false}, &n)
	return n, err
}

const ownersThrough = `SELECT count(*) FROM role_bindings AS b WHERE b.parent = $1 AND b.role = $2 AND EXISTS
	(SELECT 1 FROM arrivals AS a JOIN identity_providers AS p ON p.seg = a.provider JOIN identities AS i ON i.uid = a.identity
		WHERE a.identity = b.identity AND p.a1 = $1 AND p.disabled = $3 AND i.realm = p.realm)`

// ProvidersFor returns the providers that speak for a group and that people can
// sign in with: those of the group and of the groups above it, by name. A
// provider of a folder does not speak for its organization.
func (s *Store) ProvidersFor(ctx context.Context, group resource.UID) ([]resource.IdentityProvider, error) {
	var all []resource.IdentityProvider
	for _, g := range append(group.Ancestors(), group) {
		err := s.Rows(ctx, `SELECT `+providers.Columns+` FROM identity_providers AS t WHERE t.parent = $1 ORDER BY t.name, t.seg LIMIT 100`,
			[]any{store.Segment(g)}, func(row store.Scanner) (bool, error) {
				p, err := providers.Scan(row)
				if err == nil && p.UID.Parent() == g && !p.Disabled {
					all = append(all, p)
				}
				return false, err
			})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b resource.IdentityProvider) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// RolesFor returns the names of the roles that somebody gets who comes through a
// provider for the first time and is in those groups.
func (s *Store) RolesFor(ctx context.Context, p resource.IdentityProvider, groups []string) ([]string, error) {
	uids := []resource.UID{p.DefaultRole}
	err := s.Rows(ctx, `SELECT `+mappings.Columns+` FROM external_group_role_mappings AS t WHERE t.parent = $1 ORDER BY t.uid`, []any{store.Segment(p.UID)}, func(row store.Scanner) (bool, error) {
		m, err := mappings.Scan(row)
		if err == nil && slices.Contains(groups, m.ExternalGroup) && !slices.Contains(uids, m.Role) {
			uids = append(uids, m.Role)
		}
		return false, err
	})
	if err != nil {
		return nil, err
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
