package advisorydb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// The columns of an advisory. The affected packages, which can be many, are a
// column of their own, which lists do not read.
const (
	advisoryColumns = `t.uid, t.digest, t.create_ms, t.update_ms, t.body`
	fullColumns     = advisoryColumns + `, t.affected`
)

// An advisoryRow is a row of advisoryColumns, or of fullColumns.
type advisoryRow struct {
	uid              resource.UID
	digest           []byte
	created, updated int64
	body, affected   string
}

func (r *advisoryRow) scan(row store.Scanner, whole bool, more ...any) error {
	dest := []any{&r.uid, &r.digest, &r.created, &r.updated, &r.body}
	if whole {
		dest = append(dest, &r.affected)
	}
	return row.Scan(append(dest, more...)...)
}

// packages decodes the affected packages.
func (r *advisoryRow) packages() (all []vuln.Affected, err error) {
	if err = json.Unmarshal([]byte(r.affected), &all); err != nil {
		return nil, fmt.Errorf("decode advisory %s: %w", r.uid, err)
	}
	return all, nil
}

// advisory decodes all but the affected packages.
func (r *advisoryRow) advisory() (a vuln.Advisory, err error) {
	if err = json.Unmarshal([]byte(r.body), &a); err != nil {
		return a, fmt.Errorf("decode advisory %s: %w", r.uid, err)
	}
	a.UID, a.Source.Digest = r.uid, r.digest
	a.CreateTime, a.UpdateTime = store.FromMS(r.created), store.FromMS(r.updated)
	for i := range a.Events {
		a.Events[i].UID = a.UID + "/" + a.Events[i].UID
	}
	return a, nil
}

// scanAdvisory reads a row of advisoryColumns, or of fullColumns.
func scanAdvisory(row store.Scanner, whole bool, more ...any) (a vuln.Advisory, err error) {
	var r advisoryRow
	if err = r.scan(row, whole, more...); err != nil {
		return a, err
	}
	if a, err = r.advisory(); err != nil || !whole {
		return a, err
	}
	a.Affected, err = r.packages()
	return a, err
}

// InsertAdvisory adds an advisory and returns it with the UIDs it got: its own,
// in group, and those of its events. It returns fault.NotFound if the group is
// not there and fault.AlreadyExists if the group has an advisory of that id.
func (s *Store) InsertAdvisory(
	ctx context.Context, group resource.UID, a vuln.Advisory,
) (vuln.Advisory, error) {
	initNew(&a, group, s.Time())
	d, err := newDraft(group, a)
	if err != nil {
		return a, err
	}
	err = s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, group); err != nil {
			return err
		}
		var taken int
		if err := t.Row(ctx, `SELECT count(*) FROM advisories WHERE parent = $1 AND advisory_id = $2`,
			[]any{store.Segment(group), a.ID}, &taken); err != nil {
			return err
		}
		if taken > 0 {
			return fault.Exists("advisory", a.ID)
		}
		if err := t.appendAdvisories(ctx, group, []draft{d}); err != nil {
			return err
		}
		return t.Emit(ctx, resource.AdvisoryCreated, a.UID, group, nil, a.Record())
	})
	if s.Duplicate(err) { // another came first, and was seen by the last statement only
		err = fault.Exists("advisory", a.ID)
	}
	return a, err
}

// Advisory returns an advisory, or fault.NotFound.
func (s *Store) Advisory(ctx context.Context, uid resource.UID) (a vuln.Advisory, err error) {
	a, err = scanAdvisory(s.QueryRow(ctx, `SELECT `+fullColumns+` FROM advisories AS t WHERE t.seg = $1 AND t.uid = $2`,
		store.Segment(uid), string(uid)), true)
	return a, store.Missing(err, "advisory", uid)
}

// UpdateAdvisory applies change to the advisory and returns the result.
// Concurrent updates of one advisory happen one after the other. It returns
// fault.NotFound if there is no such advisory, and change's own error, with
// nothing written, if it has one. change may run more than once. It does not
// change the id. An advisory that stays as it is is not written.
func (s *Store) UpdateAdvisory(
	ctx context.Context, uid resource.UID, change func(*vuln.Advisory) error,
) (a vuln.Advisory, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, at, err := t.lockAdvisory(ctx, uid)
		if err != nil {
			return err
		}
		if err := resource.CheckExpected(ctx, uid, before.UpdateTime); err != nil {
			return err
		}
		was, err := store.Encode(before.Record()) // now, because change may write to what a shares with before
		if err != nil {
			return err
		}
		a = before
		if err := change(&a); err != nil {
			return err
		}
		a.UID, a.ID, a.CreateTime, a.UpdateTime = before.UID, before.ID, before.CreateTime, before.UpdateTime
		if is, err := store.Encode(a.Record()); err != nil || is == was {
			return err
		}
		a.UpdateTime = s.TimeAfter(before.UpdateTime)
		if err := t.replaceAdvisory(ctx, before, &a, at); err != nil {
			return err
		}
		return t.Emit(ctx, resource.AdvisoryUpdated, uid, uid.Parent(), before.Record(), a.Record())
	})
	return a, err
}

// A location is where the keys and the text of an advisory are.
type location struct {
	generation generation
	block      int64
}

// lockAdvisory reads an advisory that is about to change.
func (t Tx) lockAdvisory(ctx context.Context, uid resource.UID) (a vuln.Advisory, at location, err error) {
	a, err = scanAdvisory(t.QueryRow(ctx,
		`SELECT `+fullColumns+`, t.era, t.block FROM advisories AS t WHERE t.seg = $1 AND t.uid = $2`+t.DB.Engine.ForUpdate,
		store.Segment(uid), string(uid)), true, &at.generation, &at.block)
	return a, at, store.Missing(err, "advisory", uid)
}

// replaceAdvisory replaces before by after.
func (t Tx) replaceAdvisory(
	ctx context.Context, before vuln.Advisory, after *vuln.Advisory, at location,
) error {
	group := after.UID.Parent()
	nameEvents(after, after.UpdateTime)
	old, err := newDraft(group, before)
	if err != nil {
		return err
	}
	d, err := newDraft(group, *after)
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx,
		`UPDATE advisories SET shelf = $2, digest = $3, update_ms = $4, body = $5, affected = $6 WHERE seg = $1`,
		store.Segment(d.a.UID), d.partition, nonNil(d.a.Source.Digest), store.MS(d.a.UpdateTime), d.body,
		d.affected); err != nil {
		return err
	}
	if err := t.unindex(ctx, at.generation, old); err != nil {
		return err
	}
	if err := t.index(ctx, group, at.generation, []draft{d}); err != nil {
		return err
	}
	if err := t.changed(ctx, group, d); err != nil {
		return err
	}
	if old.text == d.text {
		return nil
	}
	return t.replaceText(ctx, group, at.block, store.Segment(d.a.UID), d.text)
}

// DeleteAdvisory removes an advisory. It returns fault.NotFound if there is
// none.
func (s *Store) DeleteAdvisory(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		a, at, err := t.lockAdvisory(ctx, uid)
		if err != nil {
			return err
		}
		d, err := newDraft(uid.Parent(), a)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `DELETE FROM advisories WHERE seg = $1`, store.Segment(uid)); err != nil {
			return err
		}
		if err := t.unindex(ctx, at.generation, d); err != nil {
			return err
		}
		if err := t.changed(ctx, uid.Parent(), d); err != nil {
			return err
		}
		if err := t.replaceText(ctx, uid.Parent(), at.block, store.Segment(uid), ""); err != nil {
			return err
		}
		return t.Removed(ctx, "advisories", resource.AdvisoryDeleted, uid, uid.Parent(), a.Record())
	})
}
