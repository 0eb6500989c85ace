package scimdb

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A User is a user of a directory.
type User struct {
	ID         string
	UserName   string // unique in the directory, whatever its capitals
	ExternalID string // the subject of the person at the provider; unique in the directory unless ""
	Active     bool
	Identity   resource.UID // the person; "" without an ExternalID
	Version    int64        // increases with every change
	CreateMS   int64        // in milliseconds since 1970
	UpdateMS   int64
	ActiveMS   int64 // when the user became active
	Attributes map[string]any
}

const selectUser = `SELECT t.id, t.external_id, t.active, t.identity, t.version, t.create_ms, t.update_ms,
	t.active_ms, t.attributes
	FROM scim_users AS t WHERE t.provider = $1`

func scanUser(row store.Scanner) (u User, err error) {
	var attributes string
	if err := row.Scan(&u.ID, &u.ExternalID, &u.Active, &u.Identity, &u.Version, &u.CreateMS, &u.UpdateMS,
		&u.ActiveMS, &attributes); err != nil {
		return u, err
	}
	dec := json.NewDecoder(strings.NewReader(attributes))
	dec.UseNumber()
	if err := dec.Decode(&u.Attributes); err != nil {
		return u, fmt.Errorf("attributes of user %s: %w", u.ID, err)
	}
	u.UserName, _ = u.Attributes["userName"].(string)
	return u, nil
}

// User returns a user of a directory, or fault.NotFound.
func (s *Store) User(ctx context.Context, provider resource.UID, id string) (User, error) {
	u, err := scanUser(s.QueryRow(ctx, selectUser+` AND t.id = $2`, store.Segment(provider), id))
	return u, store.Missing(err, "user", resource.UID(id))
}

// LockUser is Store.User inside a transaction. It locks the user against other changes.
func (t Tx) LockUser(ctx context.Context, provider resource.UID, id string) (User, error) {
	u, err := scanUser(t.QueryRow(ctx, selectUser+` AND t.id = $2`+t.DB.Engine.ForUpdate, store.Segment(provider), id))
	return u, store.Missing(err, "user", resource.UID(id))
}

// A Key is an attribute with an index.
type Key string

// These are the keys.
const (
	ByID         Key = "id"
	ByUserName   Key = "name_key"
	ByExternalID Key = "external_id"
)

// UsersBy returns the users of a directory, at most one, whose key has a value.
func (s *Store) UsersBy(ctx context.Context, provider resource.UID, key Key, value string) ([]User, error) {
	switch {
	case key == ByUserName:
		value = nameKey(value)
	case key == ByExternalID && value == "": // is not unique
		return nil, nil
	}
	return store.ReadAll(ctx, s.Rows, scanUser, selectUser+` AND t.`+string(key)+` = $2`, store.Segment(provider), value)
}

// Users returns up to n users of a directory in the order of their creation, after the first skip ones.
func (s *Store) Users(ctx context.Context, provider resource.UID, skip, n int) ([]User, error) {
	return store.ReadAll(ctx, s.Rows, scanUser, selectUser+` ORDER BY t.create_ms, t.id LIMIT $2 OFFSET $3`,
		store.Segment(provider), n, skip)
}

func nameKey(userName string) string { return strings.ToLower(userName) }

// IdentitiesOf returns the people of those ids that belong to users of a directory. The person of a user can be "".
func (t Tx) IdentitiesOf(
	ctx context.Context, provider resource.UID, ids []string,
) (map[string]resource.UID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	q := store.Query{Engine: t.DB.Engine}
	each := t.DB.Engine.Unnest(&q, ids)
	return store.ReadMap[string, resource.UID](ctx, t.Rows, `SELECT u.id, u.identity FROM `+each+` AS s
		CROSS JOIN scim_users AS u WHERE u.id = s.v AND u.provider = `+q.Arg(store.Segment(provider)), q.Args...)
}

// IDsOf returns the ids of users of a directory by their external ids.
func (t Tx) IDsOf(ctx context.Context, provider resource.UID, externalIDs []string) (map[string]string, error) {
	if len(externalIDs) == 0 {
		return nil, nil
	}
	q := store.Query{Engine: t.DB.Engine}
	each := t.DB.Engine.Unnest(&q, externalIDs)
	return store.ReadMap[string, string](ctx, t.Rows, `SELECT u.external_id, u.id FROM `+each+` AS s
		CROSS JOIN scim_users AS u WHERE u.external_id = s.v AND u.external_id <> '' AND u.provider = `+
		q.Arg(store.Segment(provider)), q.Args...)
}

// InsertUser adds a user. It returns fault.AlreadyExists if the directory has a user with the name or the external id.
func (t Tx) InsertUser(ctx context.Context, provider resource.UID, u User) error {
	attributes, err := json.Marshal(u.Attributes)
	if err != nil {
		return err
	}
	seg := store.Segment(provider)
	if _, err := t.Exec(ctx, `INSERT INTO scim_users (id, provider, name_key, external_id, active, identity, version,
		create_ms, update_ms, active_ms, attributes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		u.ID, seg, nameKey(u.UserName), u.ExternalID, u.Active, string(u.Identity), u.Version, u.CreateMS, u.UpdateMS,
		u.ActiveMS, string(attributes)); err != nil {
		return t.DB.ConstraintFault(err, "user", u.UserName, provider)
	}
	return t.CountKeys(ctx, store.ScimUserCounter, map[int64]int{seg: 1}, 1)
}

// UpdateUser replaces a user that LockUser has returned. It returns the error of InsertUser.
func (t Tx) UpdateUser(ctx context.Context, provider resource.UID, u User) error {
	attributes, err := json.Marshal(u.Attributes)
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, `UPDATE scim_users SET name_key = $3, external_id = $4, active = $5, identity = $6, version = $7,
		update_ms = $8, attributes = $9, active_ms = $10 WHERE provider = $1 AND id = $2`,
		store.Segment(provider), u.ID, nameKey(u.UserName), u.ExternalID, u.Active, string(u.Identity), u.Version,
		u.UpdateMS, string(attributes), u.ActiveMS)
	return t.DB.ConstraintFault(err, "user", u.UserName, provider)
}

// DeleteUser removes a user that LockUser has returned.
func (t Tx) DeleteUser(ctx context.Context, provider resource.UID, id string) error {
	seg := store.Segment(provider)
	if _, err := t.Exec(ctx, `DELETE FROM scim_users WHERE provider = $1 AND id = $2`, seg, id); err != nil {
		return err
	}
	return t.CountKeys(ctx, store.ScimUserCounter, map[int64]int{seg: 1}, -1)
}

// Depart records that the person with a subject is no longer in a directory.
func (t Tx) Depart(ctx context.Context, provider, identity resource.UID, subject string) error {
	_, err := t.Exec(ctx, `INSERT INTO scim_departed (provider, external_id, identity, at_ms) VALUES ($1, $2, $3, $4)
		ON CONFLICT (provider, external_id) DO UPDATE SET identity = excluded.identity, at_ms = excluded.at_ms`,
		store.Segment(provider), subject, string(identity), store.MS(t.DB.Time()))
	return err
}

// Return records that the person with a subject is in a directory again.
func (t Tx) Return(ctx context.Context, provider resource.UID, subject string) error {
	_, err := t.Exec(ctx, `DELETE FROM scim_departed WHERE provider = $1 AND external_id = $2`, store.Segment(provider),
		subject)
	return err
}

// A Departure is a person who is no longer in a directory.
type Departure struct {
	Provider   string // last segment of the provider's UID
	Identity   resource.UID
	ExternalID string
}

// Departures returns up to n people with an identity who left their directories before a time.
func (s *Store) Departures(ctx context.Context, before time.Time, n int) ([]Departure, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (d Departure, _ error) {
		var provider int64
		err := row.Scan(&provider, &d.Identity, &d.ExternalID)
		d.Provider = fmt.Sprintf("%016x", uint64(provider^math.MinInt64)) // the inverse of store.Segment
		return d, err
	}, `SELECT provider, identity, external_id FROM scim_departed WHERE at_ms < $1 AND identity <> ''
		ORDER BY at_ms LIMIT $2`, store.MS(before), n)
}

// Settle records that nothing more has to be done about a departure. It reports whether this was still to be done.
func (t Tx) Settle(ctx context.Context, provider resource.UID, d Departure) (bool, error) {
	n, err := t.Exec(ctx, `UPDATE scim_departed SET identity = '' WHERE provider = $1 AND external_id = $2
		AND identity = $3`, store.Segment(provider), d.ExternalID, string(d.Identity))
	return n > 0, err
}
