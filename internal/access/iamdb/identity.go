package iamdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-dev/holdfast/internal/access/sessiondb"
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
			store.Text("maker", &i.Maker),
			store.Time("last_seen_ms", &i.LastSeenTime).Fixed(),
			store.Time("create_ms", &i.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &i.UpdateTime).Order("update_time"),
		}
	},
}

// InsertIdentity adds i. It returns fault.NotFound if its group or its provider does not exist, and fault.AlreadyExists
// if an identity with its UID exists. This can happen for people, because their UIDs are derived from realm and
// subject. It returns fault.PermissionDenied if the maker of a pull token is suspended, and fault.FailedPrecondition if
// the maker has too many pull tokens.
func (s *Store) InsertIdentity(ctx context.Context, i resource.Identity) error {
	return s.write(ctx, func(t Tx) error { return t.InsertIdentity(ctx, i) })
}

// InsertIdentity is Store.InsertIdentity inside a transaction.
func (t Tx) InsertIdentity(ctx context.Context, i resource.Identity) error {
	if err := t.RequireGroup(ctx, i.UID.Parent()); err != nil {
		return err
	}
	if i.Maker != "" {
		if err := t.requireMaker(ctx, i.Maker); err != nil {
			return err
		}
	}
	return store.Insert(ctx, t.Tx, &identities, i)
}

// Person returns the person with a subject in a realm, or fault.NotFound.
func (s *Store) Person(ctx context.Context, realm, subject string) (resource.Identity, error) {
	return store.One(ctx, s.Rows, &identities, resource.UserUID(realm, subject), personWhere, realm, subject)
}

// PersonUID returns the UID of the person with a subject in a realm. If there is no such person, it returns the UID
// that the person would get. That UID is derived from realm and subject, unless it belongs to a person who has left the
// realm.
func (s *Store) PersonUID(ctx context.Context, realm, subject string) (resource.UID, error) {
	i, err := s.Person(ctx, realm, subject)
	if !errors.Is(err, fault.NotFound) {
		return i.UID, err
	}
	uid, err := unusedUID(ctx, s.Row, realm, subject)
	if err != nil || uid == resource.UserUID(realm, subject) {
		return uid, err
	}
	// The UID may have been taken by the same person, who signed in since the first lookup.
	if i, err = s.Person(ctx, realm, subject); errors.Is(err, fault.NotFound) {
		return uid, nil
	}
	return i.UID, err
}

// maxUIDs is the greatest number of people with the same subject who have left a realm.
const maxUIDs = 100

// unusedUID returns the UID for a new person with a subject in a realm.
func unusedUID(
	ctx context.Context, row func(context.Context, string, []any, ...any) error, realm, subject string,
) (resource.UID, error) {
	uid := resource.UserUID(realm, subject)
	for n := range maxUIDs {
		if n > 0 {
			uid = resource.UserUID(fmt.Sprintf("%s again %d", realm, n), subject) // no realm has a name that ends like this
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
	return "", fault.Unmet("TOO_MANY_PEOPLE", "%d people with this subject have left the identity provider", maxUIDs)
}

const personWhere = ` WHERE t.realm = $1 AND t.subject = $2 AND t.realm <> ''`

// TrustingUs returns about limit identities that can be assumed with a token that our own issuer has issued to one of
// the subjects. It leaves out identities that accept a pattern of subjects.
func (s *Store) TrustingUs(
	ctx context.Context, issuer string, subjects []resource.UID, limit int,
) (trusting []resource.UID, _ error) {
	for _, subject := range subjects {
		found, err := store.ReadColumn[resource.UID](ctx, s.Rows,
			`SELECT t.uid FROM identities AS t WHERE t.issuer = $1 AND t.subject = $2 ORDER BY t.uid LIMIT $3`, issuer,
			string(subject), limit)
		trusting = append(trusting, found...)
		if err != nil || len(trusting) >= limit {
			return trusting, err
		}
	}
	return trusting, nil
}

// Identity returns an identity, or fault.NotFound.
func (s *Store) Identity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	return store.Get(ctx, s.DB, &identities, uid)
}

// Identity is Store.Identity inside a transaction.
func (t Tx) Identity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	return store.One(ctx, t.Rows, &identities, uid, ` WHERE t.uid = $1`, string(uid))
}

// UpdateIdentity replaces before by after, under the rules of UpdateGroup.
func (s *Store) UpdateIdentity(ctx context.Context, before, after resource.Identity) (resource.Identity, error) {
	return s.updateIdentity(ctx, resource.IdentityUpdated, before, after)
}

// UpdateMetadata is UpdateIdentity with the event of a metadata change.
func (s *Store) UpdateMetadata(ctx context.Context, before, after resource.Identity) (resource.Identity, error) {
	return s.updateIdentity(ctx, resource.IdentityMetadataUpdated, before, after)
}

func (s *Store) updateIdentity(
	ctx context.Context, event resource.EventType, before, after resource.Identity,
) (resource.Identity, error) {
	err := s.write(ctx, func(t Tx) error { return t.UpdateIdentity(ctx, event, before, &after) })
	return after, err
}

// UpdateIdentity is Store.UpdateIdentity inside a transaction, with an event of the given type.
func (t Tx) UpdateIdentity(
	ctx context.Context, event resource.EventType, before resource.Identity, after *resource.Identity,
) error {
	if after.Maker != "" && after.Maker != before.Maker {
		if err := t.requireMaker(ctx, after.Maker); err != nil {
			return err
		}
	}
	// Replicas cache which tokens the identity accepts.
	if !reflect.DeepEqual(before.Relationship,
		after.Relationship) || before.Email != after.Email || before.Realm != after.Realm {
		t.IdentitiesChanged(after.UID)
	}
	return store.UpdateAs(ctx, t.Tx, &identities, event, before, after)
}

// DeleteIdentity removes an identity. It returns fault.FailedPrecondition if the organization home, or any organization
// if home is "", would lose its last permanent owner. Otherwise it returns the organizations that have lost their last
// permanent owner.
func (t Tx) DeleteIdentity(ctx context.Context, uid, home resource.UID) (ownerless []resource.UID, err error) {
	i, err := store.Lock(ctx, t.Tx, &identities, uid, t.DB.Engine.ForDelete)
	if err != nil {
		return nil, err
	}
	if ownerless, err = t.ownerlessWithout(ctx, `identity = $1`, uid); err != nil {
		return nil, err
	}
	for _, org := range ownerless {
		if home == "" || org == home {
			return nil, lastOwner(org, home)
		}
	}
	return ownerless, t.dropIdentity(ctx, i)
}

// dropIdentity removes an identity with its bindings, sessions and records.
func (t Tx) dropIdentity(ctx context.Context, i resource.Identity) error {
	uid := i.UID
	if err := t.deleteBindings(ctx, `t.identity = $1`, string(uid)); err != nil {
		return err
	}
	for _, table := range []string{"denials", "exchanges"} {
		if _, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE identity = $1`, store.Segment(uid)); err != nil {
			return err
		}
	}
	for _, table := range []string{"arrivals", "members", "suspensions"} {
		if _, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE identity = $1`, string(uid)); err != nil {
			return err
		}
	}
	if err := sessiondb.In(t.Tx).DeleteSessions(ctx, uid); err != nil {
		return err
	}
	if err := store.Remove(ctx, t.Tx, &identities, i); err != nil {
		return err
	}
	return sessiondb.In(t.Tx).Revoke(ctx, uid)
}

// Identities returns one page of identities.
func (s *Store) Identities(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.Identity], error) {
	return store.List(ctx, s.DB, &identities, r, f, p)
}
