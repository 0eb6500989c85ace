package iamdb

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var associations = store.Kind[resource.AccountAssociation]{
	Table: "account_associations", Label: "account association",
	GroupUID: true, InGroup: true, // an association and its group have the same UID
	Created: resource.AssociationCreated, Updated: resource.AssociationUpdated, Deleted: resource.AssociationDeleted,
	Orders: map[string]string{"group": "uid"},
	Columns: func(a *resource.AccountAssociation) []store.Column {
		return []store.Column{
			store.JSON("detail", a), // JSON with the accounts; fields that have their own column are read from that column
			store.Key(&a.UID),
			store.Text("name", &a.Name).Order("name"),
			store.Text("description", &a.Description),
			store.Time("create_ms", &a.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &a.UpdateTime).Order("update_time"),
		}
	},
}

// InsertAssociation adds a. It returns fault.NotFound if its group does not exist, and fault.AlreadyExists if the group
// already has an association.
func (s *Store) InsertAssociation(ctx context.Context, a resource.AccountAssociation) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, a.UID); err != nil {
			return err
		}
		err := store.Insert(ctx, t.Tx, &associations, a)
		if f := (*fault.Error)(nil); errors.As(err, &f) && f.Code == fault.AlreadyExists {
			f.Message = "Already exists: an account association of this group"
			f.Resource = fault.Exists("account association", string(a.UID)).Resource
		}
		return err
	})
}

// Association returns the association of a group, or fault.NotFound.
func (s *Store) Association(ctx context.Context, uid resource.UID) (resource.AccountAssociation, error) {
	return store.Get(ctx, s.DB, &associations, uid)
}

// UpdateAssociation replaces before by after, under the rules of UpdateGroup.
func (s *Store) UpdateAssociation(
	ctx context.Context, before, after resource.AccountAssociation,
) (resource.AccountAssociation, error) {
	err := s.write(ctx, func(t Tx) error { return store.Update(ctx, t.Tx, &associations, before, &after) })
	return after, err
}

// DeleteAssociation removes the association of a group. It returns nil if the group has none.
func (s *Store) DeleteAssociation(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		return store.Delete(ctx, t.Tx, &associations, uid)
	})
}

// Associations returns one page of associations.
func (s *Store) Associations(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.AccountAssociation], error) {
	return store.List(ctx, s.DB, &associations, r, f, p)
}
