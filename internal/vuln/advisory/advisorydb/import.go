package advisorydb

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// An ImportEvent is the body of the event for an import. There is one event for many records, because one event for
// each record would be too many for subscribers.
type ImportEvent struct {
	vuln.ImportResult
	Source string             `json:"source,omitempty"`
	Format vuln.ExploitFormat `json:"format,omitempty"` // format of an exploit list; "" for advisories
}

// ImportAdvisories stores the records that are new in the group or differ from the stored ones, in one transaction with
// one event. It skips a record whose source changed the stored record later. Every record must have an ID, and the IDs
// must be unique. The result counts all records.
//
// It returns fault.NotFound if the group does not exist.
func (s *Store) ImportAdvisories(
	ctx context.Context, group resource.UID, source string, records []vuln.Advisory,
) (done vuln.ImportResult, err error) {
	if ctx.Value(sourceKey{}) == nil {
		ctx = WithSource(ctx, SourceImport)
	}
	for range 4 { // if a concurrent import inserts one of the records, the next attempt compares the record instead
		done, err = s.importOnce(ctx, group, source, records)
		if !s.Duplicate(err) {
			return done, err
		}
	}
	return done, fault.Outage("the database", err)
}

// importOnce makes one attempt to import records. It reads the stored digests and computes the rows before the
// transaction, so that the transaction blocks other writers for a shorter time.
func (s *Store) importOnce(
	ctx context.Context, group resource.UID, source string, records []vuln.Advisory,
) (done vuln.ImportResult, _ error) {
	known, err := digests(ctx, s.Rows, s.Engine, group, records)
	if err != nil {
		return done, err
	}
	var drafts []draft
	var changed []vuln.Advisory
	asOf := s.Time()
	for _, a := range records {
		have, ok := known[a.ID]
		switch {
		case !ok:
			initNew(&a, group, asOf)
			d, err := newDraft(group, a)
			if err != nil {
				return done, err
			}
			drafts = append(drafts, d)
		case sameRecord(have, a.Source.Digest):
			done.Unchanged++
			continue
		default:
			changed = append(changed, a)
			continue
		}
		if !a.DeleteTime.IsZero() {
			done.Withdrawn++
		}
	}
	done.Created = int64(len(drafts))
	if len(drafts)+len(changed) == 0 {
		return done, s.requireGroup(ctx, group)
	}
	counts := done
	err = s.write(ctx, func(t Tx) error {
		done = counts // this function may run more than once
		if err := t.RequireGroup(ctx, group); err != nil {
			return err
		}
		if err := t.appendAdvisories(ctx, group, drafts); err != nil {
			return err
		}
		if err := t.updateImported(ctx, group, changed, &done); err != nil {
			return err
		}
		if done.Created+done.Updated == 0 {
			return nil
		}
		return t.Emit(ctx, resource.AdvisoriesImported, group, group, nil, ImportEvent{done, source, ""})
	})
	return done, err
}

// requireGroup returns fault.NotFound if the group does not exist.
func (s *Store) requireGroup(ctx context.Context, group resource.UID) error {
	_, err := s.GroupNames(ctx, []resource.UID{group})
	return err
}

// digests returns the stored digests of the records that exist in the group, by ID.
func digests(
	ctx context.Context, rows store.Reader, e engine.Engine, group resource.UID, records []vuln.Advisory,
) (map[string][]byte, error) {
	ids := make([]string, len(records))
	for i, a := range records {
		ids[i] = a.ID
	}
	text, args := withIDs(e, `t.advisory_id, t.digest`, group, ids)
	return store.ReadMap[string, []byte](ctx, rows, text, args...)
}

// withIDs returns a query, and its arguments, that selects columns of the group's advisories whose ID is one of ids.
func withIDs(e engine.Engine, columns string, group resource.UID, ids []string) (string, []any) {
	q := store.Query{Engine: e}
	return `SELECT ` + columns + ` FROM ` + e.Unnest(&q, ids) + ` AS s` +
		e.Lookup("advisories", `t.parent = `+q.Arg(store.Segment(group))+` AND t.advisory_id = s.v`), q.Args
}

// updateImported merges changed records into the group's advisories with the same IDs, and counts them. It skips
// records that are older than the stored ones.
func (t Tx) updateImported(
	ctx context.Context, group resource.UID, changed []vuln.Advisory, done *vuln.ImportResult,
) error {
	for _, next := range changed {
		var uid resource.UID
		err := t.Row(ctx, `SELECT uid FROM advisories WHERE parent = $1 AND advisory_id = $2`,
			[]any{store.Segment(group), next.ID}, &uid)
		if err != nil {
			return store.Missing(err, "advisory", resource.UID(next.ID))
		}
		before, place, err := t.lockAdvisory(ctx, uid)
		if err != nil {
			return err
		}
		if next.IsOlder(before) {
			done.Older++
			continue
		}
		if done.Updated++; !next.DeleteTime.IsZero() {
			done.Withdrawn++
		}
		after := before.Merge(next)
		after.UpdateTime = t.DB.TimeAfter(before.UpdateTime)
		if err := t.replaceAdvisory(ctx, before, &after, place); err != nil {
			return err
		}
	}
	return nil
}

// appendAdvisories inserts new advisories of a group, with their index rows, search texts and counters.
func (t Tx) appendAdvisories(ctx context.Context, group resource.UID, drafts []draft) error {
	if len(drafts) == 0 {
		return nil
	}
	block, err := t.addTexts(ctx, group, drafts)
	if err != nil {
		return err
	}
	g, err := t.generation(ctx, group, len(drafts))
	if err != nil {
		return err
	}
	rows := make([][]any, len(drafts))
	for i, d := range drafts {
		rows[i] = append(store.TreeColumns(d.a.UID), d.a.ID, d.partition, int64(g), block, nonNil(d.a.Source.Digest),
			store.MS(d.a.CreateTime), store.MS(d.a.UpdateTime), d.body, d.affected)
	}
	err = t.InsertRows(ctx, `INSERT INTO advisories (seg, uid, parent, a1, a2, a3,
		advisory_id, partition_id, generation, block, digest, create_ms, update_ms, body, affected)`, rows, ``)
	if err != nil {
		return err
	}
	if err := t.index(ctx, group, g, drafts); err != nil {
		return err
	}
	if err := t.recordChanges(ctx, group, drafts...); err != nil {
		return err
	}
	return t.Count(ctx, "advisories", drafts[0].a.UID, len(drafts))
}

// index inserts the rows by which lists find advisories of a group and a generation: partitions (in the table
// advisory_partitions), keys of names and aliases, and counters.
func (t Tx) index(ctx context.Context, group resource.UID, g generation, drafts []draft) error {
	var names, aliases [][]any
	parts, named := map[int64]int{}, map[int64]int{}
	signatures := map[int64]string{}
	for _, d := range drafts {
		seg := store.Segment(d.a.UID)
		parts[d.partition]++
		signatures[d.partition] = d.signature
		for _, name := range d.names {
			names = append(names, []any{g.key(name), seg, store.MS(d.a.UpdateTime)})
			named[g.key(name)]++
		}
		for _, name := range d.aliases {
			aliases = append(aliases, []any{g.key(name), seg})
		}
	}
	var rows [][]any
	for _, id := range slices.Sorted(maps.Keys(signatures)) {
		rows = append(rows, []any{id, string(group), signatures[id]})
	}
	if err := t.InsertRows(ctx, `INSERT INTO advisory_partitions (id, grp, signature)`, rows,
		` ON CONFLICT (id) DO NOTHING`); err != nil {
		return err
	}
	byKey := func(a, b []any) int { return cmp.Compare(a[0].(int64), b[0].(int64)) }
	slices.SortStableFunc(names, byKey) // sorted like the index, so that consecutive inserts change the same pages
	slices.SortStableFunc(aliases, byKey)
	if err := t.InsertRows(ctx, `INSERT INTO advisory_names (key, seg, update_ms)`, names, ``); err != nil {
		return err
	}
	if err := t.InsertRows(ctx, `INSERT INTO advisory_aliases (key, seg)`, aliases, ``); err != nil {
		return err
	}
	if err := t.CountKeys(ctx, store.PartitionCounter, parts, 1); err != nil {
		return err
	}
	return t.CountKeys(ctx, store.NameCounter, named, 1)
}

// unindex deletes the rows that index inserted for an advisory.
func (t Tx) unindex(ctx context.Context, g generation, d draft) error {
	named := map[int64]int{}
	seg := store.Segment(d.a.UID)
	for _, name := range d.names {
		named[g.key(name)]++
		err := t.Later(ctx, `DELETE FROM advisory_names WHERE key = $1 AND seg = $2`, g.key(name), seg)
		if err != nil {
			return err
		}
	}
	for _, name := range d.aliases {
		err := t.Later(ctx, `DELETE FROM advisory_aliases WHERE key = $1 AND seg = $2`, g.key(name), seg)
		if err != nil {
			return err
		}
	}
	if err := t.CountKeys(ctx, store.PartitionCounter, map[int64]int{d.partition: 1}, -1); err != nil {
		return err
	}
	return t.CountKeys(ctx, store.NameCounter, named, -1)
}
