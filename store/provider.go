package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

var providers = listing[resource.IdentityProvider]{
	kind:    "identity_providers",
	columns: "t.uid, t.name, t.description, (SELECT r.uid FROM roles AS r WHERE r.seg = t.default_role), t.detail, t.secret, t.disabled, t.create_ms, t.update_ms",
	orders:  map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	scan: func(row scanner) (p resource.IdentityProvider, err error) {
		var detail string
		var secret []byte
		var created, updated int64
		if err = row.Scan(&p.UID, &p.Name, &p.Description, &p.DefaultRole, &detail, &secret, &p.Disabled, &created, &updated); err != nil {
			return p, err
		}
		p.CreateTime, p.UpdateTime = fromMS(created), fromMS(updated)
		p.OIDC = &resource.OIDC{}
		if err := json.Unmarshal([]byte(detail), p.OIDC); err != nil {
			return p, fmt.Errorf("provider %s: %w", p.UID, err)
		}
		p.OIDC.ClientSecret.Sealed = secret
		return p, nil
	},
	cursor: func(p resource.IdentityProvider, col string) page.Cursor {
		return cursorAt(col, p.UID, p.Name, p.CreateTime, p.UpdateTime)
	},
}

// InsertProvider adds p. It returns fault.NotFound if its group or its default
// role is not there.
func (s *Store) InsertProvider(ctx context.Context, p resource.IdentityProvider) error {
	detail, err := json.Marshal(p.OIDC)
	if err != nil {
		return fmt.Errorf("encode provider: %w", err)
	}
	return s.write(ctx, func(t *tx) error {
		if err := t.mustExist(ctx, p.UID.Parent()); err != nil {
			return err
		}
		if err := t.mustHaveRole(ctx, p.DefaultRole); err != nil {
			return err
		}
		_, err := t.exec(ctx, `
			INSERT INTO identity_providers (seg, uid, parent, a1, a2, a3, name, description, default_role, detail, secret, disabled, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
			append(place(p.UID), p.Name, p.Description, segment(p.DefaultRole), string(detail), sealed(p), p.Disabled, ms(p.CreateTime), ms(p.UpdateTime))...)
		if err != nil {
			return s.inserted(err, "identity provider", p.Name, p.UID)
		}
		return t.added(ctx, "identity_providers", resource.ProviderCreated, p.UID, p.UID.Parent(), p)
	})
}

// sealed is the secret as it is kept, never NULL.
func sealed(p resource.IdentityProvider) []byte {
	return append([]byte{}, p.OIDC.ClientSecret.Sealed...)
}

// Provider returns a provider, or fault.NotFound.
func (s *Store) Provider(ctx context.Context, uid resource.UID) (resource.IdentityProvider, error) {
	return get(ctx, s, &providers, "identity provider", uid)
}

// UpdateProvider applies change to the provider and returns the result, under
// the rules of UpdateGroup.
func (s *Store) UpdateProvider(ctx context.Context, uid resource.UID, change func(*resource.IdentityProvider) error) (p resource.IdentityProvider, _ error) {
	err := s.write(ctx, func(t *tx) error {
		before, err := take(ctx, t, &providers, "identity provider", uid, s.engine.lock)
		if err != nil {
			return err
		}
		p = before
		oidc := *before.OIDC
		p.OIDC = &oidc
		if err := change(&p); err != nil {
			return err
		}
		if err := t.mustHaveRole(ctx, p.DefaultRole); err != nil {
			return err
		}
		detail, err := json.Marshal(p.OIDC)
		if err != nil {
			return fmt.Errorf("encode provider: %w", err)
		}
		p.UpdateTime = s.now()
		if _, err := t.exec(ctx, `
			UPDATE identity_providers SET name = $2, description = $3, default_role = $4, detail = $5, secret = $6, disabled = $7, update_ms = $8
			WHERE uid = $1`,
			string(uid), p.Name, p.Description, segment(p.DefaultRole), string(detail), sealed(p), p.Disabled, ms(p.UpdateTime)); err != nil {
			return err
		}
		return t.emit(ctx, resource.ProviderUpdated, uid, uid.Parent(), before, p)
	})
	return p, err
}

// DeleteProvider removes a provider that has no mappings and that nobody came
// through. It returns fault.FailedPrecondition while there are any, and
// fault.NotFound if there is no such provider.
func (s *Store) DeleteProvider(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t *tx) error {
		before, err := take(ctx, t, &providers, "identity provider", uid, s.engine.lockKey)
		if err != nil {
			return err
		}
		users, err := t.users(ctx, uid, []use{
			{"external_group_role_mappings", "parent", "external group role mappings"},
			{"identities", "provider", "identities"},
		})
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return fault.InUse("identity provider", users...)
		}
		if _, err := t.exec(ctx, `DELETE FROM identity_providers WHERE uid = $1`, string(uid)); err != nil {
			return err
		}
		if err := t.removed(ctx, "identity_providers", resource.ProviderDeleted, uid, uid.Parent(), before); err != nil {
			return err
		}
		return t.uncount(ctx, uid)
	})
}

// Providers returns one page of providers.
func (s *Store) Providers(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.IdentityProvider], error) {
	return list(ctx, s, &providers, r, f, p)
}
