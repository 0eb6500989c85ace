package iamdb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

var associations = store.Kind[resource.AccountAssociation]{
	Table:   "account_associations",
	Columns: "t.uid, t.name, t.description, t.detail, t.create_ms, t.update_ms",
	Self:    true, // an association is where its group is
	Orders:  map[string]string{"group": "uid", "uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	Scan: func(row store.Scanner) (a resource.AccountAssociation, err error) {
		var uid resource.UID
		var name, description, detail string
		var created, updated int64
		if err = row.Scan(&uid, &name, &description, &detail, &created, &updated); err != nil {
			return a, err
		}
		if err := json.Unmarshal([]byte(detail), &a); err != nil {
			return a, fmt.Errorf("account association %s: %w", uid, err)
		}
		a.UID, a.Name, a.Description, a.CreateTime, a.UpdateTime = uid, name, description, store.FromMS(created), store.FromMS(updated)
		return a, nil
	},
	Cursor: func(a resource.AccountAssociation, col string) page.Cursor {
		return store.CursorAt(col, a.UID, a.Name, a.CreateTime, a.UpdateTime)
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
	return s.write(ctx, func(t Tx) error {
		if err := t.MustExist(ctx, a.UID); err != nil {
			return err
		}
		_, err := t.Exec(ctx, `
			INSERT INTO account_associations (seg, uid, parent, a1, a2, a3, name, description, detail, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			append(store.TreeColumns(a.UID), a.Name, a.Description, detail, store.MS(a.CreateTime), store.MS(a.UpdateTime))...)
		if s.Duplicate(err) {
			f := fault.Exists("account association", string(a.UID))
			f.Message, f.Cause = "Already exists: an account association of this group", err
			return f
		}
		if err != nil {
			return s.Inserted(err, "account association", a.Name, a.UID)
		}
		return t.Added(ctx, "account_associations", resource.AssociationCreated, a.UID, a.UID, a)
	})
}

// Association returns the association of a group, or fault.NotFound.
func (s *Store) Association(ctx context.Context, uid resource.UID) (resource.AccountAssociation, error) {
	return store.Get(ctx, s.DB, &associations, "account association", uid)
}

// UpdateAssociation applies change to the association and returns the result,
// under the rules of UpdateGroup.
func (s *Store) UpdateAssociation(ctx context.Context, uid resource.UID, change func(*resource.AccountAssociation) error) (a resource.AccountAssociation, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &associations, "account association", uid, s.Engine.Lock)
		if err != nil {
			return err
		}
		if a, err = store.Clone(before); err != nil {
			return err
		}
		if err := change(&a); err != nil {
			return err
		}
		a.UpdateTime = s.Time()
		detail, err := cloudAccounts(a)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `UPDATE account_associations SET name = $2, description = $3, detail = $4, update_ms = $5 WHERE uid = $1`,
			string(uid), a.Name, a.Description, detail, store.MS(a.UpdateTime)); err != nil {
			return err
		}
		return t.Emit(ctx, resource.AssociationUpdated, uid, uid, before, a)
	})
	return a, err
}

// DeleteAssociation removes the association of a group. One that is not there
// is gone already.
func (s *Store) DeleteAssociation(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		return store.Delete(ctx, t.Tx, &associations, "account association", resource.AssociationDeleted, uid, uid)
	})
}

// Associations returns one page of associations.
func (s *Store) Associations(ctx context.Context, r store.Reach, f resource.Filter, p page.Request) (page.Page[resource.AccountAssociation], error) {
	return store.List(ctx, s.DB, &associations, r, f, p)
}
