package iamdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

var identities = store.Kind[resource.Identity]{
	Table: "identities",
	Columns: `t.uid, t.name, t.description, t.email, t.email_unverified, t.company, t.detail, t.metadata, t.realm,
		(SELECT p.uid FROM identity_providers AS p WHERE p.seg = t.provider), t.last_seen_ms, t.create_ms, t.update_ms`,
	Orders: map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	Scan:   scanIdentity,
	Cursor: func(i resource.Identity, col string) page.Cursor {
		return store.CursorAt(col, i.UID, i.Name, i.CreateTime, i.UpdateTime)
	},
}

func scanIdentity(row store.Scanner) (i resource.Identity, err error) {
	var detail, metadata string
	var provider sql.NullString
	var seen, created, updated int64
	err = row.Scan(&i.UID, &i.Name, &i.Description, &i.Email, &i.EmailUnverified, &i.Company, &detail, &metadata, &i.Realm,
		&provider, &seen, &created, &updated)
	if err != nil {
		return i, err
	}
	i.Provider = resource.UID(provider.String)
	i.LastSeenTime, i.CreateTime, i.UpdateTime = store.FromMS(seen), store.FromMS(created), store.FromMS(updated)
	if err := json.Unmarshal([]byte(detail), &i.Relationship); err != nil {
		return i, fmt.Errorf("relationship of %s: %w", i.UID, err)
	}
	if metadata != "" {
		if err := json.Unmarshal([]byte(metadata), &i.Metadata); err != nil {
			return i, fmt.Errorf("metadata of %s: %w", i.UID, err)
		}
	}
	return i, nil
}

// columnsOf returns what the identity has beside its place, its name and its
// times.
func columnsOf(i resource.Identity) ([]any, error) {
	detail, err := json.Marshal(i.Relationship)
	if err != nil {
		return nil, fmt.Errorf("encode relationship: %w", err)
	}
	metadata := []byte{}
	if len(i.Metadata) > 0 {
		if metadata, err = json.Marshal(i.Metadata); err != nil {
			return nil, fmt.Errorf("encode metadata: %w", err)
		}
	}
	return []any{i.Name, i.Description, i.Email, i.EmailUnverified, i.Company, int64(i.Relationship.Type()), string(detail), string(metadata),
		i.Relationship.Issuer(), i.Relationship.Subject(), store.MS(i.LastSeenTime), store.MS(i.UpdateTime)}, nil
}

// InsertIdentity adds i. It returns fault.NotFound if its group or its provider
// is not there, and fault.AlreadyExists if it is there itself: a person's UID is
// derived.
func (s *Store) InsertIdentity(ctx context.Context, i resource.Identity) error {
	return s.write(ctx, func(t Tx) error { return t.InsertIdentity(ctx, i) })
}

func (t Tx) InsertIdentity(ctx context.Context, i resource.Identity) error {
	columns, err := columnsOf(i)
	if err != nil {
		return err
	}
	if err := t.MustExist(ctx, i.UID.Parent()); err != nil {
		return err
	}
	var provider any
	if i.Provider != "" {
		provider = store.Segment(i.Provider)
	}
	_, err = t.Exec(ctx, `
		INSERT INTO identities (seg, uid, parent, a1, a2, a3, name, description, email, email_unverified, company,
			relationship, detail, metadata, issuer, subject, last_seen_ms, update_ms, create_ms, realm, provider)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`,
		append(append(store.TreeColumns(i.UID), columns...), store.MS(i.CreateTime), i.Realm, provider)...)
	if err != nil {
		return t.DB.Inserted(err, "identity", i.Name, i.UID)
	}
	return t.Added(ctx, "identities", resource.IdentityCreated, i.UID, i.UID.Parent(), i)
}

// Person returns who a realm knows by subject, or fault.NotFound.
func (s *Store) Person(ctx context.Context, realm, subject string) (i resource.Identity, err error) {
	err = sql.ErrNoRows
	if rerr := s.Rows(ctx, personQuery, []any{realm, subject}, func(row store.Scanner) (bool, error) {
		i, err = scanIdentity(row)
		return true, err
	}); rerr != nil {
		return i, rerr
	}
	return i, store.Missing(err, "identity", resource.UserUID(realm, subject))
}

// PersonUID returns who a realm knows by subject, or the UID that somebody will
// have who comes as that. It is derived from the two, unless a person has it who
// was of the realm once and is not any more: they took it along.
func (s *Store) PersonUID(ctx context.Context, realm, subject string) (resource.UID, error) {
	i, err := s.Person(ctx, realm, subject)
	if !errors.Is(err, fault.NotFound) {
		return i.UID, err
	}
	uid, err := freeUID(ctx, s.Row, realm, subject)
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

// freeUID returns the UID of somebody whom a realm does not know yet.
func freeUID(ctx context.Context, row func(context.Context, string, []any, ...any) error, realm, subject string) (resource.UID, error) {
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

var personQuery = `SELECT ` + identities.Columns + ` FROM identities AS t WHERE t.realm = $1 AND t.subject = $2 AND t.realm <> ''`

// TrustingUs returns up to limit identities that take a token of the issuer, which
// is ours, about one of the subjects. What accepts a pattern is not among them.
func (s *Store) TrustingUs(ctx context.Context, issuer string, subjects []resource.UID, limit int) (all []resource.UID, _ error) {
	for _, subject := range subjects {
		err := s.Rows(ctx, `SELECT t.uid FROM identities AS t WHERE t.issuer = $1 AND t.subject = $2 ORDER BY t.uid LIMIT $3`,
			[]any{issuer, string(subject), limit}, func(row store.Scanner) (bool, error) {
				var uid resource.UID
				err := row.Scan(&uid)
				all = append(all, uid)
				return false, err
			})
		if err != nil || len(all) >= limit {
			return all, err
		}
	}
	return all, nil
}

// Identity returns an identity, or fault.NotFound.
func (s *Store) Identity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	return store.Get(ctx, s.DB, &identities, "identity", uid)
}

// UpdateIdentity applies change to the identity and returns the result, under
// the rules of UpdateGroup. kind is the event it makes.
func (s *Store) UpdateIdentity(ctx context.Context, uid resource.UID, kind resource.EventType, change func(*resource.Identity) error) (i resource.Identity, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &identities, "identity", uid, s.Engine.Lock)
		if err != nil {
			return err
		}
		if i, err = store.Clone(before); err != nil {
			return err
		}
		if err := change(&i); err != nil {
			return err
		}
		i.UpdateTime = s.Time()
		return t.UpdateIdentity(ctx, kind, before, i)
	})
	return i, err
}

func (t Tx) UpdateIdentity(ctx context.Context, kind resource.EventType, before, i resource.Identity) error {
	columns, err := columnsOf(i)
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `
		UPDATE identities SET name = $2, description = $3, email = $4, email_unverified = $5, company = $6, relationship = $7,
			detail = $8, metadata = $9, issuer = $10, subject = $11, last_seen_ms = $12, update_ms = $13
		WHERE uid = $1`, append([]any{string(i.UID)}, columns...)...); err != nil {
		return err
	}
	if !reflect.DeepEqual(before.Relationship, i.Relationship) || before.Email != i.Email { // replicas remember whom it stands for
		t.Reread(i.UID)
	}
	return t.Emit(ctx, kind, i.UID, i.UID.Parent(), before, i)
}

// DeleteIdentity removes an identity unless home would lose its last owner, or,
// if home is "", any organization. It returns the others that do.
func (t Tx) DeleteIdentity(ctx context.Context, uid, home resource.UID) (ownerless []resource.UID, err error) {
	i, err := store.Lock(ctx, t.Tx, &identities, "identity", uid, t.DB.Engine.LockKey)
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
	if _, err := t.Exec(ctx, `DELETE FROM denials WHERE identity = $1`, store.Segment(uid)); err != nil {
		return err
	}
	for _, table := range []string{"arrivals", "members"} {
		if _, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE identity = $1`, string(uid)); err != nil {
			return err
		}
	}
	if err := t.endSessions(ctx, uid); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM identities WHERE uid = $1`, string(uid)); err != nil {
		return err
	}
	if err := t.Removed(ctx, "identities", resource.IdentityDeleted, uid, uid.Parent(), i); err != nil {
		return err
	}
	return t.revoke(ctx, uid)
}

// Identities returns one page of identities.
func (s *Store) Identities(ctx context.Context, r store.Reach, f resource.Filter, p page.Request) (page.Page[resource.Identity], error) {
	return store.List(ctx, s.DB, &identities, r, f, p)
}
