package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

var associations = listing[resource.AccountAssociation]{
	kind:    "account_associations",
	columns: "t.uid, t.name, t.description, t.detail, t.create_ms, t.update_ms",
	self:    true, // an association is where its group is
	orders:  map[string]string{"group": "uid", "uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	scan: func(row scanner) (a resource.AccountAssociation, err error) {
		var uid resource.UID
		var name, description, detail string
		var created, updated int64
		if err = row.Scan(&uid, &name, &description, &detail, &created, &updated); err != nil {
			return a, err
		}
		if err := json.Unmarshal([]byte(detail), &a); err != nil {
			return a, fmt.Errorf("account association %s: %w", uid, err)
		}
		a.UID, a.Name, a.Description, a.CreateTime, a.UpdateTime = uid, name, description, fromMS(created), fromMS(updated)
		return a, nil
	},
	cursor: func(a resource.AccountAssociation, col string) page.Cursor {
		return cursorAt(col, a.UID, a.Name, a.CreateTime, a.UpdateTime)
	},
}

// accounts is what an association holds beside its name and its times.
func cloudAccounts(a resource.AccountAssociation) (string, error) {
	b, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encode account association: %w", err)
	}
	return string(b), nil
}

// InsertAssociation adds a. It returns fault.NotFound if its group is not
// there, and fault.AlreadyExists if that has one already.
func (s *Store) InsertAssociation(ctx context.Context, a resource.AccountAssociation) error {
	detail, err := cloudAccounts(a)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		if err := t.mustExist(ctx, a.UID); err != nil {
			return err
		}
		_, err := t.exec(ctx, `
			INSERT INTO account_associations (seg, uid, parent, a1, a2, a3, name, description, detail, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			append(place(a.UID), a.Name, a.Description, detail, ms(a.CreateTime), ms(a.UpdateTime))...)
		if s.engine.failure(err) == notOne {
			f := fault.Exists("account association", string(a.UID))
			f.Message, f.Cause = "Already exists: an account association of this group", err
			return f
		}
		if err != nil {
			return s.inserted(err, "account association", a.Name, a.UID)
		}
		return t.added(ctx, "account_associations", resource.AssociationCreated, a.UID, a.UID, a)
	})
}

// Association returns the association of a group, or fault.NotFound.
func (s *Store) Association(ctx context.Context, uid resource.UID) (resource.AccountAssociation, error) {
	return get(ctx, s, &associations, "account association", uid)
}

// UpdateAssociation applies change to the association and returns the result,
// under the rules of UpdateGroup.
func (s *Store) UpdateAssociation(ctx context.Context, uid resource.UID, change func(*resource.AccountAssociation) error) (a resource.AccountAssociation, _ error) {
	err := s.write(ctx, func(t *tx) error {
		before, err := take(ctx, t, &associations, "account association", uid, s.engine.lock)
		if err != nil {
			return err
		}
		if a, err = clone(before); err != nil {
			return err
		}
		if err := change(&a); err != nil {
			return err
		}
		a.UpdateTime = s.now()
		detail, err := cloudAccounts(a)
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, `UPDATE account_associations SET name = $2, description = $3, detail = $4, update_ms = $5 WHERE uid = $1`,
			string(uid), a.Name, a.Description, detail, ms(a.UpdateTime)); err != nil {
			return err
		}
		return t.emit(ctx, resource.AssociationUpdated, uid, uid, before, a)
	})
	return a, err
}

// DeleteAssociation removes the association of a group. One that is not there
// is gone already.
func (s *Store) DeleteAssociation(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t *tx) error {
		return drop(ctx, t, &associations, "account association", resource.AssociationDeleted, uid, uid)
	})
}

// Associations returns one page of associations.
func (s *Store) Associations(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.AccountAssociation], error) {
	return list(ctx, s, &associations, r, f, p)
}
