package iamdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var identities = store.Kind[resource.Identity]{
	Table: "identities", Label: "identity",
	Created: resource.IdentityCreated, Updated: resource.IdentityUpdated, Deleted: resource.IdentityDeleted,
	Columns: func(i *resource.Identity) []store.Column {
		return []store.Column{
			store.Key(&i.UID),
			store.Text("name", &i.Name).Order("name"),
			store.Text("display_name", &i.DisplayName),
			store.Text("description", &i.Description),
			store.Text("email", &i.Email),
			store.Text("email_unverified", &i.EmailUnverified),
			store.Text("company", &i.Company),
			store.JSON("detail", &i.Relationship),
			store.Derived("relationship", int64(i.Relationship.Type())),
			store.Derived("issuer", i.Relationship.Issuer()),
			store.Derived("subject", i.Relationship.Subject()),
			store.JSON("metadata", &i.Metadata).Empty(len(i.Metadata) == 0),
			store.Text("realm", &i.Realm),
			store.Ref("provider", "identity_providers", &i.Provider).Fixed(),
			store.Time("last_seen_ms", &i.LastSeenTime).Fixed(),
			store.Time("create_ms", &i.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &i.UpdateTime).Order("update_time"),
		}
	},
}

// InsertIdentity adds i. It returns fault.NotFound if its group or its provider
// is not there, and fault.AlreadyExists if it is there itself: a person's UID is
// derived.
func (s *Store) InsertIdentity(ctx context.Context, i resource.Identity) error {
	return s.write(ctx, func(t Tx) error { return t.InsertIdentity(ctx, i) })
}

// InsertIdentity is Store.InsertIdentity inside a transaction.
func (t Tx) InsertIdentity(ctx context.Context, i resource.Identity) error {
	if err := t.RequireGroup(ctx, i.UID.Parent()); err != nil {
		return err
	}
	return store.Insert(ctx, t.Tx, &identities, i)
}

// Person returns the person whom a realm knows by a subject, or fault.NotFound.
func (s *Store) Person(ctx context.Context, realm, subject string) (resource.Identity, error) {
	return store.One(ctx, s.Rows, &identities, resource.UserUID(realm, subject), personWhere, realm, subject)
}

// PersonUID returns the UID of the person whom a realm knows by a subject, or the
// one that a person would get. That is derived from realm and subject, unless
// somebody has it who has left the realm.
func (s *Store) PersonUID(ctx context.Context, realm, subject string) (resource.UID, error) {
	i, err := s.Person(ctx, realm, subject)
	if !errors.Is(err, fault.NotFound) {
		return i.UID, err
	}
	uid, err := unusedUID(ctx, s.Row, realm, subject)
	if err != nil || uid == resource.UserUID(realm, subject) {
		return uid, err
	}
	if i, err = s.Person(ctx, realm, subject); errors.Is(err, fault.NotFound) { // or they came a moment ago
		return uid, nil
	}
	return i.UID, err
}

// maxUIDs is how many people can have left a realm who had the same subject.
const maxUIDs = 100

// unusedUID returns the UID of somebody whom a realm does not know yet.
func unusedUID(
	ctx context.Context, row func(context.Context, string, []any, ...any) error, realm, subject string,
) (resource.UID, error) {
	uid := resource.UserUID(realm, subject)
	for n := range maxUIDs {
		if n > 0 {
			uid = resource.UserUID(fmt.Sprintf("%s again %d", realm, n), subject) // no realm is called so
		}
		var one int
		err := row(ctx, `SELECT 1 FROM identities WHERE uid = $1`, []any{string(uid)}, &one)
		if errors.Is(err, sql.ErrNoRows) {
			return uid, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fault.Unmet("TOO_MANY_PEOPLE", "more than %d people of this subject have left", maxUIDs)
}

const personWhere = ` WHERE t.realm = $1 AND t.subject = $2 AND t.realm <> ''`

// TrustingUs returns up to limit identities that take a token of the issuer, which
// is ours, about one of the subjects. What accepts a pattern is not among them.
func (s *Store) TrustingUs(
	ctx context.Context, issuer string, subjects []resource.UID, limit int,
) (all []resource.UID, _ error) {
	for _, subject := range subjects {
		some, err := store.ReadColumn[resource.UID](ctx, s.Rows,
			`SELECT t.uid FROM identities AS t WHERE t.issuer = $1 AND t.subject = $2 ORDER BY t.uid LIMIT $3`, issuer,
			string(subject), limit)
		all = append(all, some...)
		if err != nil || len(all) >= limit {
			return all, err
		}
	}
	return all, nil
}

// Identity returns an identity, or fault.NotFound.
func (s *Store) Identity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	return store.Get(ctx, s.DB, &identities, uid)
}

// UpdateIdentity replaces before by after, under the rules of UpdateGroup.
func (s *Store) UpdateIdentity(ctx context.Context, before, after resource.Identity) (resource.Identity, error) {
	return s.updateIdentity(ctx, resource.IdentityUpdated, before, after)
}

// UpdateMetadata is UpdateIdentity for what an identity says about itself, with an
// event of its own type.
func (s *Store) UpdateMetadata(ctx context.Context, before, after resource.Identity) (resource.Identity, error) {
	return s.updateIdentity(ctx, resource.IdentityMetadataUpdated, before, after)
}

func (s *Store) updateIdentity(
	ctx context.Context, event resource.EventType, before, after resource.Identity,
) (resource.Identity, error) {
	err := s.write(ctx, func(t Tx) error { return t.UpdateIdentity(ctx, event, before, &after) })
	return after, err
}

// UpdateIdentity is Store.UpdateIdentity inside a transaction, with an event of
// any type.
func (t Tx) UpdateIdentity(
	ctx context.Context, event resource.EventType, before resource.Identity, after *resource.Identity,
) error {
	// Replicas cache whom it stands for.
	if !reflect.DeepEqual(before.Relationship,
		after.Relationship) || before.Email != after.Email || before.Realm != after.Realm {
		t.IdentitiesChanged(after.UID)
	}
	return store.UpdateAs(ctx, t.Tx, &identities, event, before, after)
}

// DeleteIdentity removes an identity unless home would lose its last owner, or,
// if home is "", any organization. It returns the others that do.
func (t Tx) DeleteIdentity(ctx context.Context, uid, home resource.UID) (ownerless []resource.UID, err error) {
	i, err := store.Lock(ctx, t.Tx, &identities, uid, t.DB.Engine.ForDelete)
	if err != nil {
		return nil, err
	}
	if ownerless, err = t.ownedAlone(ctx, `identity = $1`, uid); err != nil {
		return nil, err
	}
	for _, org := range ownerless {
		if home == "" || org == home {
			return nil, lastOwner(org, home)
		}
	}
	return ownerless, t.dropIdentity(ctx, i)
}

// dropIdentity removes an identity and everything that is its own.
func (t Tx) dropIdentity(ctx context.Context, i resource.Identity) error {
	uid := i.UID
	if err := t.unbind(ctx, `t.identity = $1`, string(uid)); err != nil {
		return err
	}
	for _, table := range []string{"denials", "exchanges"} {
		if _, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE identity = $1`, store.Segment(uid)); err != nil {
			return err
		}
	}
	for _, table := range []string{"arrivals", "members"} {
		if _, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE identity = $1`, string(uid)); err != nil {
			return err
		}
	}
	if err := t.endSessions(ctx, uid); err != nil {
		return err
	}
	if err := store.Remove(ctx, t.Tx, &identities, i); err != nil {
		return err
	}
	return t.revoke(ctx, uid)
}

// Identities returns one page of identities.
func (s *Store) Identities(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.Identity], error) {
	return store.List(ctx, s.DB, &identities, r, f, p)
}
