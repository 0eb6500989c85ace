package store

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

var identities = listing[resource.Identity]{
	kind:    "identities",
	columns: "t.uid, t.name, t.description, t.email, t.email_unverified, t.company, t.detail, t.metadata, t.last_seen_ms, t.create_ms, t.update_ms",
	orders:  map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	scan:    scanIdentity,
	cursor: func(i resource.Identity, col string) page.Cursor {
		return cursorAt(col, i.UID, i.Name, i.CreateTime, i.UpdateTime)
	},
}

func scanIdentity(row scanner) (i resource.Identity, err error) {
	var detail, metadata string
	var seen, created, updated int64
	err = row.Scan(&i.UID, &i.Name, &i.Description, &i.Email, &i.EmailUnverified, &i.Company, &detail, &metadata, &seen, &created, &updated)
	if err != nil {
		return i, err
	}
	i.LastSeenTime, i.CreateTime, i.UpdateTime = fromMS(seen), fromMS(created), fromMS(updated)
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
		i.Relationship.Issuer(), i.Relationship.Subject(), ms(i.LastSeenTime), ms(i.UpdateTime)}, nil
}

// InsertIdentity adds i. It returns fault.NotFound if its group is not there,
// and fault.AlreadyExists if it is there itself: a person's UID is derived.
func (s *Store) InsertIdentity(ctx context.Context, i resource.Identity) error {
	return s.write(ctx, func(t *tx) error { return t.insertIdentity(ctx, i) })
}

func (t *tx) insertIdentity(ctx context.Context, i resource.Identity) error {
	columns, err := columnsOf(i)
	if err != nil {
		return err
	}
	if err := t.mustExist(ctx, i.UID.Parent()); err != nil {
		return err
	}
	_, err = t.exec(ctx, `
		INSERT INTO identities (seg, uid, parent, a1, a2, a3, name, description, email, email_unverified, company,
			relationship, detail, metadata, issuer, subject, last_seen_ms, update_ms, create_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		append(append(place(i.UID), columns...), ms(i.CreateTime))...)
	if err != nil {
		return t.s.inserted(err, "identity", i.Name, i.UID)
	}
	return t.added(ctx, "identities", resource.IdentityCreated, i.UID, i.UID.Parent(), i)
}

// Identity returns an identity, or fault.NotFound.
func (s *Store) Identity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	return get(ctx, s, &identities, "identity", uid)
}

// UpdateIdentity applies change to the identity and returns the result, under
// the rules of UpdateGroup. kind is the event it makes.
func (s *Store) UpdateIdentity(ctx context.Context, uid resource.UID, kind resource.EventType, change func(*resource.Identity) error) (i resource.Identity, _ error) {
	err := s.write(ctx, func(t *tx) error {
		before, err := take(ctx, t, &identities, "identity", uid, s.engine.lock)
		if err != nil {
			return err
		}
		if i, err = clone(before); err != nil {
			return err
		}
		if err := change(&i); err != nil {
			return err
		}
		i.UpdateTime = s.now()
		return t.updateIdentity(ctx, kind, before, i)
	})
	return i, err
}

func (t *tx) updateIdentity(ctx context.Context, kind resource.EventType, before, i resource.Identity) error {
	columns, err := columnsOf(i)
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, `
		UPDATE identities SET name = $2, description = $3, email = $4, email_unverified = $5, company = $6, relationship = $7,
			detail = $8, metadata = $9, issuer = $10, subject = $11, last_seen_ms = $12, update_ms = $13
		WHERE uid = $1`, append([]any{string(i.UID)}, columns...)...); err != nil {
		return err
	}
	if !reflect.DeepEqual(before.Relationship, i.Relationship) || before.Email != i.Email { // replicas remember whom it stands for
		t.reread(i.UID)
	}
	return t.emit(ctx, kind, i.UID, i.UID.Parent(), before, i)
}

// clone copies a resource with what it points to, as far as its JSON goes.
func clone[T any](v T) (out T, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return out, fmt.Errorf("copy %T: %w", v, err)
	}
	return out, json.Unmarshal(b, &out)
}

// DeleteIdentity removes an identity with its bindings, sessions and account,
// and makes its tokens void. It returns fault.NotFound if there is no such identity, and
// fault.FailedPrecondition if an organization would lose its last owner.
func (s *Store) DeleteIdentity(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t *tx) error { return t.deleteIdentity(ctx, uid) })
}

func (t *tx) deleteIdentity(ctx context.Context, uid resource.UID) error {
	i, err := take(ctx, t, &identities, "identity", uid, t.s.engine.lockKey)
	if err != nil {
		return err
	}
	if err := t.keepOwners(ctx, `identity = $1`, uid); err != nil {
		return err
	}
	concerned, err := t.concerned(ctx, uid) // as long as its bindings tell
	if err != nil {
		return err
	}
	if err := t.unbind(ctx, `t.identity = $1`, string(uid)); err != nil {
		return err
	}
	if _, err := t.exec(ctx, `DELETE FROM denials WHERE identity = $1`, segment(uid)); err != nil {
		return err
	}
	if _, err := t.exec(ctx, `DELETE FROM arrivals WHERE identity = $1`, string(uid)); err != nil {
		return err
	}
	if err := t.dropAccount(ctx, uid); err != nil {
		return err
	}
	if err := t.endSessions(ctx, uid, concerned); err != nil {
		return err
	}
	if _, err := t.exec(ctx, `DELETE FROM identities WHERE uid = $1`, string(uid)); err != nil {
		return err
	}
	if err := t.removed(ctx, "identities", resource.IdentityDeleted, uid, uid.Parent(), i); err != nil {
		return err
	}
	return t.revoke(ctx, uid)
}

// Identities returns one page of identities.
func (s *Store) Identities(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.Identity], error) {
	return list(ctx, s, &identities, r, f, p)
}
