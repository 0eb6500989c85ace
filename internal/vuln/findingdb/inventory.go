package findingdb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// inventoryKept is how long an outdated inventory stays visible.
const inventoryKept = 30 * 24 * time.Hour

// A Place is a place where images run, with its ID.
type Place struct {
	ID int64
	vuln.InventoryPlace
}

const placeColumns = `p.seq, p.uid, p.name, p.identity, p.push_ms, p.expire_ms, p.entries, p.unknown`

func scanPlace(row store.Scanner) (p Place, err error) {
	var pushed, expires int64
	err = row.Scan(&p.ID, &p.Group, &p.Name, &p.Identity, &pushed, &expires, &p.Entries, &p.Unknown)
	p.PushTime, p.ExpireTime = store.FromMS(pushed), store.FromMS(expires)
	return p, err
}

// ReplaceInventory replaces the inventory of a place. It returns fault.NotFound if the group does not exist,
// fault.PermissionDenied if the identity of p may not replace the inventory, and fault.FailedPrecondition if the
// organization has too many places. It removes places of the organization that have been out of date for 30 days.
func (s *Store) ReplaceInventory(ctx context.Context, p vuln.InventoryPlace, entries []vuln.InventoryEntry) error {
	return s.Write(ctx, func(t *store.Tx) error { return In(t).replaceInventory(ctx, p, entries) })
}

func (t Tx) replaceInventory(ctx context.Context, p vuln.InventoryPlace, entries []vuln.InventoryEntry) error {
	if err := t.Require(ctx, "groups", "group", p.Group); err != nil {
		return err
	}
	places, err := t.lockPlaces(ctx, p.Group.Root())
	if err != nil {
		return err
	}
	var before *vuln.InventoryPlace
	kept, byAuthor := 0, 0
	for _, have := range places {
		isOwn := have.Group == p.Group && have.Name == p.Name
		if isOwn && !have.MayReplace(p.Identity) {
			return otherReporter(have.Name)
		}
		if !isOwn && have.ExpireTime.After(p.PushTime.Add(-inventoryKept)) {
			kept++
			if have.Identity == p.Identity {
				byAuthor++
			}
			continue
		}
		if isOwn {
			before = &have.InventoryPlace
		}
		if err := t.deletePlace(ctx, have.ID); err != nil {
			return err
		}
	}
	switch {
	case kept >= vuln.MaxInventoryPlaces:
		return fault.Unmet("TOO_MANY_PLACES",
			"the organization has inventories of %d places, which is the limit; delete one first", kept)
	case before == nil && byAuthor >= vuln.MaxPlacesOfIdentity:
		return fault.Unmet("TOO_MANY_PLACES",
			"this identity has reported %d places, which is the limit; delete one first", byAuthor)
	}
	if err := t.insertPlace(ctx, p, entries); err != nil {
		return err
	}
	if before == nil {
		return t.Emit(ctx, resource.InventoryPushed, p.Group, p.Group, nil, p)
	}
	return t.Emit(ctx, resource.InventoryPushed, p.Group, p.Group, *before, p)
}

// otherReporter returns the error for a workload that replaces or deletes the inventory of another workload.
func otherReporter(place string) error {
	return fault.New(fault.PermissionDenied, "Permission denied: another workload reports the place %s. "+
		"Use another name, or let a person delete its inventory", place)
}

// lockPlaces returns the places of an organization, and locks them against concurrent
// changes.
func (t Tx) lockPlaces(ctx context.Context, root resource.UID) ([]Place, error) {
	if err := t.LockGroup(ctx, root); err != nil {
		return nil, err
	}
	return store.ReadAll(ctx, t.Rows, scanPlace, `SELECT `+placeColumns+` FROM inventory_places AS p WHERE p.root = $1`,
		store.Segment(root))
}

func (t Tx) deletePlace(ctx context.Context, id int64) error {
	for _, text := range []string{`DELETE FROM inventory_entries WHERE place = $1`,
		`DELETE FROM inventory_places WHERE seq = $1`} {
		if _, err := t.Exec(ctx, text, id); err != nil {
			return err
		}
	}
	return nil
}

func (t Tx) insertPlace(ctx context.Context, p vuln.InventoryPlace, entries []vuln.InventoryEntry) error {
	root, id := store.Segment(p.Group.Root()), int64(0)
	err := t.Row(ctx, `INSERT INTO inventory_places (grp, root, uid, name, identity, push_ms, expire_ms, entries, unknown)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING seq`,
		[]any{store.Segment(p.Group), root, string(p.Group), p.Name, string(p.Identity), store.MS(p.PushTime),
			store.MS(p.ExpireTime), p.Entries, p.Unknown}, &id)
	if err != nil {
		return err
	}
	rows := make([][]any, len(entries))
	for i, e := range entries {
		rows[i] = []any{id, root, e.Digest, e.Namespace, e.Workload, e.Container, e.Image, e.Platform, max(e.Copies, 1),
			startMS(e)}
	}
	return t.InsertRows(ctx, `INSERT INTO inventory_entries (place, root, digest, namespace, workload, container, image,
		platform, copies, start_ms)`, rows, ``)
}

func startMS(e vuln.InventoryEntry) int64 {
	if e.StartTime.IsZero() {
		return 0
	}
	return store.MS(e.StartTime)
}

// startTime returns the time that startMS has encoded.
func startTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return store.FromMS(ms)
}

// DeleteInventory removes the inventory of a place. It returns fault.NotFound if there is none, and
// fault.PermissionDenied if an identity may not delete it.
func (s *Store) DeleteInventory(ctx context.Context, group resource.UID, name string, by resource.UID) error {
	return s.Write(ctx, func(t *store.Tx) error {
		places, err := store.ReadAll(ctx, t.Rows, scanPlace, `SELECT `+placeColumns+` FROM inventory_places AS p
			WHERE p.grp = $1 AND p.uid = $2 AND p.name = $3`, store.Segment(group), string(group), name)
		if err != nil {
			return err
		}
		if len(places) == 0 {
			return fault.Missing("place", name)
		}
		if !places[0].MayReplace(by) {
			return otherReporter(name)
		}
		if err := In(t).deletePlace(ctx, places[0].ID); err != nil {
			return err
		}
		return t.Emit(ctx, resource.InventoryDeleted, group, group, places[0].InventoryPlace, nil)
	})
}

// Places returns the places whose groups are in reach, ordered by name and then by
// group. Places of deleted groups are left out.
func (s *Store) Places(ctx context.Context, reach []resource.UID) ([]Place, error) {
	return s.places(ctx, s.Rows, reach)
}

func (s *Store) places(ctx context.Context, read store.Reader, reach []resource.UID) ([]Place, error) {
	var roots []int64
	for _, g := range reach {
		roots = append(roots, store.Segment(g.Root()))
	}
	slices.Sort(roots)
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN inventory_places AS p WHERE p.root = s.v
		AND EXISTS (SELECT 1 FROM `+store.GroupRows+` AS g
		WHERE g.uid = p.uid)`, placeColumns, s.Engine.Unnest(&q, slices.Compact(roots)))
	places, err := store.ReadAll(ctx, read, scanPlace, text, q.Args...)
	places = slices.DeleteFunc(places, func(p Place) bool { return !store.Covered(reach, p.Group) })
	slices.SortFunc(places, func(a, b Place) int { return cmp.Compare(a.key(), b.key()) })
	return places, err
}

// key returns a text by which places are sorted.
func (p Place) key() string { return p.Name + "\x00" + string(p.Group) }

// A RunningImage is an image that runs at a place.
type RunningImage struct {
	ID int64
	vuln.InventoryEntry
	Place vuln.InventoryPlace
}

// An InventoryFilter selects entries of inventories.
type InventoryFilter struct {
	Group  resource.UID `json:"group,omitempty"` // this group and the groups below it
	Place  string       `json:"place,omitempty"`
	Digest string       `json:"digest,omitempty"`
	Repo   resource.UID `json:"repo,omitempty"` // selects only images in this repo
}

// Inventory returns a page of the inventory entries of places in reach, ordered by place. It omits places whose
// inventory is out of date at a time.
func (s *Store) Inventory(
	ctx context.Context, reach []resource.UID, f InventoryFilter, asOf time.Time, p page.Request,
) (out page.Page[RunningImage], _ error) {
	err := s.Snapshot(ctx, func(read store.Reader) error {
		places, err := s.places(ctx, read, reach)
		if err != nil {
			return err
		}
		places = slices.DeleteFunc(places, func(v Place) bool {
			return v.Expired(asOf) || f.Place != "" && f.Place != v.Name || f.Group != "" && !f.Group.Covers(v.Group)
		})
		counts, err := s.countEntries(ctx, read, places, f)
		if err != nil {
			return err
		}
		for _, v := range places {
			out.Total += counts[v.ID]
		}
		if p.Order.Desc {
			slices.Reverse(places)
		}
		out.Items, err = s.readEntries(ctx, read, places, counts, f, p)
		return err
	})
	if len(out.Items) > p.Size {
		out.Items = out.Items[:p.Size]
		last := out.Items[p.Size-1]
		out.Last = &page.Cursor{Key: Place{InventoryPlace: last.Place}.key(), Number: last.ID}
	}
	return out, err
}

// matching returns the SQL condition of the filter on e, the alias of inventory_entries.
func (f InventoryFilter) matching(q *store.Query) (text string) {
	if f.Digest != "" {
		text += ` AND e.digest = ` + q.Arg(f.Digest)
	}
	if f.Repo != "" {
		text += ` AND EXISTS (SELECT 1 FROM ` + registrydb.ManifestRows + ` AS m
			WHERE m.repo = ` + q.Arg(store.Segment(f.Repo)) +
			` AND m.digest = e.digest)`
	}
	return text
}

// countEntries returns the number of entries that pass the filter, by place.
func (s *Store) countEntries(
	ctx context.Context, read store.Reader, places []Place, f InventoryFilter,
) (map[int64]int64, error) {
	counts := map[int64]int64{}
	ids := make([]int64, len(places))
	for i, p := range places {
		counts[p.ID], ids[i] = int64(p.Entries), p.ID
	}
	if f.Digest == "" && f.Repo == "" || len(ids) == 0 {
		return counts, nil
	}
	q := store.Query{Engine: s.Engine}
	return store.ReadMap[int64, int64](ctx, read, fmt.Sprintf(`SELECT e.place, count(*) FROM %s AS s
		CROSS JOIN inventory_entries AS e WHERE e.place = s.v%s GROUP BY e.place`, s.Engine.Unnest(&q, ids), f.matching(&q)),
		q.Args...)
}

// readEntries reads the entries of a page, and one entry more, which shows whether another page follows.
func (s *Store) readEntries(
	ctx context.Context, read store.Reader, places []Place, counts map[int64]int64, f InventoryFilter, p page.Request,
) (entries []RunningImage, _ error) {
	skip := int64(p.Skip)
	for _, v := range places {
		after := int64(0)
		if p.After != nil {
			if order := cmp.Compare(v.key(), p.After.Key); order != 0 && order > 0 == p.Order.Desc {
				continue
			} else if order == 0 {
				after = p.After.Number
			}
		}
		if after == 0 && skip >= counts[v.ID] {
			skip -= counts[v.ID]
			continue
		}
		q := store.Query{Engine: s.Engine}
		where := `e.place = ` + q.Arg(v.ID) + f.matching(&q)
		if after != 0 {
			where += ` AND e.seq > ` + q.Arg(after)
		}
		running, err := store.ReadAll(ctx, read, func(row store.Scanner) (e RunningImage, err error) {
			e.Place = v.InventoryPlace
			var started int64
			err = row.Scan(&e.ID, &e.Digest, &e.Namespace, &e.Workload, &e.Container, &e.Image, &e.Platform, &e.Copies, &started)
			e.StartTime = startTime(started)
			return e, err
		}, fmt.Sprintf(`SELECT e.seq, e.digest, e.namespace, e.workload, e.container, e.image, e.platform, e.copies,
			e.start_ms FROM inventory_entries AS e WHERE %s ORDER BY e.seq LIMIT %s OFFSET %s`, where,
			q.Arg(p.Size+1-len(entries)), q.Arg(skip)), q.Args...)
		if err != nil {
			return nil, err
		}
		skip, entries = 0, append(entries, running...)
		if len(entries) > p.Size {
			break
		}
	}
	return entries, nil
}
