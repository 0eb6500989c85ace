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

// The columns of an advisory. The affected packages, which can be many, are a separate column that lists do not read.
const (
	advisoryColumns = `t.uid, t.digest, t.create_ms, t.update_ms, t.body`
	fullColumns     = advisoryColumns + `, t.affected`
)

// An advisoryRow is a row with the columns advisoryColumns or fullColumns.
type advisoryRow struct {
	uid              resource.UID
	digest           []byte
	created, updated int64
	body, affected   string
}

func (r *advisoryRow) scan(row store.Scanner, whole bool, extra ...any) error {
	dest := []any{&r.uid, &r.digest, &r.created, &r.updated, &r.body}
	if whole {
		dest = append(dest, &r.affected)
	}
	return row.Scan(append(dest, extra...)...)
}

// packages decodes the affected packages.
func (r *advisoryRow) packages() (affected []vuln.Affected, err error) {
	if err = json.Unmarshal([]byte(r.affected), &affected); err != nil {
		return nil, fmt.Errorf("decode advisory %s: %w", r.uid, err)
	}
	return affected, nil
}

// advisory decodes the advisory without its affected packages.
func (r *advisoryRow) advisory() (a vuln.Advisory, err error) {
	if err = json.Unmarshal([]byte(r.body), &a); err != nil {
		return a, fmt.Errorf("decode advisory %s: %w", r.uid, err)
	}
	a.UID, a.Source.Digest = r.uid, r.digest
	a.Aliases, a.Fixes = vuln.SplitRelations(a.ID, a.Aliases, a.Fixes)
	a.CreateTime, a.UpdateTime = store.FromMS(r.created), store.FromMS(r.updated)
	for i := range a.Events {
		a.Events[i].UID = a.UID + "/" + a.Events[i].UID
	}
	return a, nil
}

// scanAdvisory reads a row with the columns advisoryColumns or, if whole is set, fullColumns.
func scanAdvisory(row store.Scanner, whole bool, extra ...any) (a vuln.Advisory, err error) {
	var r advisoryRow
	if err = r.scan(row, whole, extra...); err != nil {
		return a, err
	}
	if a, err = r.advisory(); err != nil || !whole {
		return a, err
	}
	a.Affected, err = r.packages()
	return a, err
}

// InsertAdvisory adds an advisory to group. It returns the advisory with new UIDs for itself and its events, and with
// its times. It returns fault.NotFound if the group does not exist, and fault.AlreadyExists if the group has an
// advisory with that ID.
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
	if s.Duplicate(err) { // another transaction inserted the ID after the count
		err = fault.Exists("advisory", a.ID)
	}
	return a, err
}

// Advisory returns an advisory, or fault.NotFound.
func (s *Store) Advisory(ctx context.Context, uid resource.UID) (a vuln.Advisory, err error) {
	a, err = scanAdvisory(s.QueryRow(ctx,
		`SELECT `+fullColumns+` FROM advisories AS t WHERE t.seg = $1 AND t.uid = $2`,
		store.Segment(uid), string(uid)), true)
	return a, store.Missing(err, "advisory", uid)
}

// UpdateAdvisory applies change to the advisory and returns the result. Concurrent updates of one advisory run one
// after the other, and change may run more than once. It returns fault.NotFound if the advisory does not exist. If
// change returns an error, it writes nothing and returns that error. The ID cannot change. If change modifies nothing,
// nothing is written.
func (s *Store) UpdateAdvisory(
	ctx context.Context, uid resource.UID, change func(*vuln.Advisory) error,
) (a vuln.Advisory, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, place, err := t.lockAdvisory(ctx, uid)
		if err != nil {
			return err
		}
		if err := resource.CheckExpected(ctx, uid, before.UpdateTime); err != nil {
			return err
		}
		// The encoding happens before change runs, because change may modify slices that a and before share.
		was, err := store.Encode(before.Record())
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
		if err := t.replaceAdvisory(ctx, before, &a, place); err != nil {
			return err
		}
		return t.Emit(ctx, resource.AdvisoryUpdated, uid, uid.Parent(), before.Record(), a.Record())
	})
	return a, err
}

// A location identifies the index rows and the search text of an advisory.
type location struct {
	generation generation // generation in which the indexes contain the advisory's keys
	block      int64      // ID of the block that contains the advisory's search text
}

// lockAdvisory reads an advisory and locks its row until the end of the transaction. It returns fault.NotFound if the
// advisory does not exist.
func (t Tx) lockAdvisory(ctx context.Context, uid resource.UID) (a vuln.Advisory, place location, err error) {
	a, err = scanAdvisory(t.QueryRow(ctx,
		`SELECT `+fullColumns+`, t.generation, t.block FROM advisories AS t
			WHERE t.seg = $1 AND t.uid = $2`+t.DB.Engine.ForUpdate,
		store.Segment(uid), string(uid)), true, &place.generation, &place.block)
	return a, place, store.Missing(err, "advisory", uid)
}

// replaceAdvisory replaces the row, the index rows and the search text of an advisory: before is the stored advisory,
// and after the new one. It sets missing UIDs and times in the events of after.
func (t Tx) replaceAdvisory(
	ctx context.Context, before vuln.Advisory, after *vuln.Advisory, place location,
) error {
	group := after.UID.Parent()
	completeEvents(after, after.UpdateTime)
	old, err := newDraft(group, before)
	if err != nil {
		return err
	}
	d, err := newDraft(group, *after)
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx,
		`UPDATE advisories SET partition_id = $2, digest = $3, update_ms = $4, body = $5, affected = $6 WHERE seg = $1`,
		store.Segment(d.a.UID), d.partition, nonNil(d.a.Source.Digest), store.MS(d.a.UpdateTime), d.body,
		d.affected); err != nil {
		return err
	}
	if err := t.unindex(ctx, place.generation, old); err != nil {
		return err
	}
	if err := t.index(ctx, group, place.generation, []draft{d}); err != nil {
		return err
	}
	if err := t.recordChanges(ctx, group, d); err != nil {
		return err
	}
	if err := t.dropMavenNames(ctx, before, after.Affected); err != nil {
		return err
	}
	if old.text == d.text {
		return nil
	}
	return t.replaceText(ctx, group, place.block, store.Segment(d.a.UID), d.text)
}

// DeleteAdvisory deletes an advisory. It returns fault.NotFound if the advisory does not exist.
func (s *Store) DeleteAdvisory(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		a, place, err := t.lockAdvisory(ctx, uid)
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
		if err := t.unindex(ctx, place.generation, d); err != nil {
			return err
		}
		if err := t.recordChanges(ctx, uid.Parent(), d); err != nil {
			return err
		}
		if err := t.dropMavenNames(ctx, a, nil); err != nil {
			return err
		}
		if err := t.replaceText(ctx, uid.Parent(), place.block, store.Segment(uid), ""); err != nil {
			return err
		}
		return t.Removed(ctx, "advisories", resource.AdvisoryDeleted, uid, uid.Parent(), a.Record())
	})
}
