package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/store/field"
)

// A Kind describes how one kind of resource is stored. Columns determines SELECT, INSERT,
// UPDATE, the orders of lists, and their cursors.
type Kind[T any] struct {
	Table        string            // table of the kind, and name of its counters
	Label        string            // singular noun for messages
	Columns      func(*T) []Column // the columns and the fields of the resource that they store
	Joins        string            // joins that SELECT needs
	GroupUID     bool              // the resource has the UID of its group
	InGroup      bool              // filters by group treat the resource as a child of its group
	ParentTables string            // tables that contain the parents, if the parents are not groups
	Orders       map[string]string // further order_by fields, with the columns that they sort by
	Unique       string            // unique columns; a duplicate is refused without failing the transaction

	Created, Updated, Deleted resource.EventType
	Redact                    func(T) T // removes secrets for events; nil removes nothing

	once  sync.Once
	texts kindTexts
}

// kindTexts are the parts of statements that name columns.
type kindTexts struct {
	columns string // the columns after SELECT
	read    string // SELECT statement without conditions
	orders  map[string]string
	insert  string // INSERT statement up to VALUES
	update  string // UPDATE statement up to WHERE; the parameters begin at $3
}

func (k *Kind[T]) text() *kindTexts {
	k.once.Do(func() {
		var read, written, set []string
		orders := map[string]string{}
		for _, c := range k.Columns(new(T)) {
			switch {
			case c.from == "":
				read = append(read, "t."+c.name)
			case c.from != "-":
				read = append(read, c.from)
			}
			if c.order != "" {
				orders[c.order] = c.name
			}
			if c.name == "uid" {
				written = append(written, "seg", "uid", "parent", "a1", "a2", "a3")
			} else if c.name != "" {
				written = append(written, c.name)
			}
			if c.name != "" && !c.fixed {
				set = append(set, fmt.Sprintf("%s = $%d", c.name, len(set)+3))
			}
		}
		for name, column := range k.Orders {
			orders[name] = column
		}
		columns := strings.Join(read, ", ")
		k.texts = kindTexts{
			columns, "SELECT " + columns + " FROM " + k.Table + " AS t" + k.Joins, orders,
			"INSERT INTO " + k.Table + " (" + strings.Join(written, ", ") + ")",
			"UPDATE " + k.Table + " SET " + strings.Join(set, ", "),
		}
	})
	return &k.texts
}

// Select returns a SELECT statement for the kind's columns, without conditions. Conditions refer to the table as t.
func (k *Kind[T]) Select() string { return k.text().read }

// Scan reads a row that a Select statement returned.
func (k *Kind[T]) Scan(row Scanner) (v T, err error) {
	columns := k.Columns(&v)
	into := make([]any, 0, len(columns))
	for _, c := range columns {
		if c.from != "-" {
			into = append(into, c.field)
		}
	}
	return v, row.Scan(into...)
}

// All reads all rows of a Select statement. end is the condition that is appended to it.
func (k *Kind[T]) All(ctx context.Context, rows Reader, end string, args ...any) ([]T, error) {
	return ReadAll(ctx, rows, k.Scan, k.Select()+end, args...)
}

// uid returns the UID in a resource's columns.
func (k *Kind[T]) uid(columns []Column) resource.UID {
	for _, c := range columns {
		if f, ok := c.field.(field.Key); ok {
			return *f.To
		}
	}
	return ""
}

// updateTime returns a pointer to the time of the resource's last change, or nil if the kind has no such column.
func updateTime(columns []Column) *time.Time {
	for _, c := range columns {
		if f, ok := c.field.(field.Time); ok && c.name == "update_ms" {
			return f.To
		}
	}
	return nil
}

// List returns the description of the kind's lists: order_by accepts the order names of its columns.
func (k *Kind[T]) List(byDefault page.Order) page.List {
	fields := slices.Collect(maps.Keys(k.Orders))
	for _, c := range k.Columns(new(T)) {
		if c.order != "" {
			fields = append(fields, c.order)
		}
	}
	return page.List{Kind: k.Table, Fields: fields, Default: byDefault}
}

// OrderColumn returns the column that an order_by field sorts by.
func (k *Kind[T]) OrderColumn(field string) (column string, ok bool) {
	column, ok = k.text().orders[field]
	return column, ok
}

// Cursor returns the position of a resource in a list that is sorted by column.
func (k *Kind[T]) Cursor(v T, column string) page.Cursor {
	columns := k.Columns(&v)
	cursor := page.Cursor{UID: string(k.uid(columns))}
	for _, c := range columns {
		if c.name == column {
			c.position(&cursor)
		}
	}
	return cursor
}

// name returns the name of a resource, for the error that the name is already in use.
func (k *Kind[T]) name(columns []Column) string {
	for _, c := range columns {
		if c.name == "name" {
			v, _ := c.field.Value() // a text column returns no error
			return v.(string)
		}
	}
	return string(k.uid(columns))
}

// Get reads one resource, or returns fault.NotFound.
func Get[T any](ctx context.Context, s *DB, k *Kind[T], uid resource.UID) (v T, _ error) {
	return One(ctx, s.Rows, k, uid, ` WHERE t.uid = $1`, string(uid))
}

// One reads the resource that a condition selects. If there is none, it returns fault.NotFound with the given name.
func One[T any](
	ctx context.Context, rows Reader, k *Kind[T], name resource.UID, end string, args ...any,
) (v T, _ error) {
	found := false
	err := rows(ctx, k.Select()+end, args, func(row Scanner) (enough bool, err error) {
		found = true
		v, err = k.Scan(row)
		return true, err
	})
	if err == nil && !found {
		err = fault.Missing(k.Label, string(name))
	}
	return v, err
}

// Lock reads one resource and locks its row until the commit. lock is DB.Engine.ForUpdate if the transaction will
// change the resource, and DB.Engine.ForDelete if it will remove it. It returns fault.NotFound if there is no such
// resource.
func Lock[T any](ctx context.Context, t *Tx, k *Kind[T], uid resource.UID, lock string) (T, error) {
	return One(ctx, t.Rows, k, uid, ` WHERE t.uid = $1`+lock, string(uid))
}

// Insert adds a resource, records its event, and increments its counters. It returns fault.AlreadyExists if the name is
// already in use, and fault.NotFound if the resource's group does not exist.
func Insert[T any](ctx context.Context, t *Tx, k *Kind[T], v T) error {
	if err := InsertRow(ctx, t, k, v); err != nil {
		return err
	}
	uid := k.uid(k.Columns(&v))
	return t.Added(ctx, k.Table, k.Created, uid, k.group(uid), k.redacted(v))
}

// group returns the group in which the events of a resource are recorded.
func (k *Kind[T]) group(uid resource.UID) resource.UID {
	switch {
	case k.GroupUID:
		return uid
	case k.ParentTables != "":
		return uid.Root()
	}
	return uid.Parent()
}

func (k *Kind[T]) redacted(v T) T {
	if k.Redact == nil {
		return v
	}
	return k.Redact(v)
}

// InsertRow is Insert without the event and the counters.
func InsertRow[T any](ctx context.Context, t *Tx, k *Kind[T], v T) error {
	d, err := Insertion(t, k, v)
	if err != nil {
		return err
	}
	n, err := t.Exec(ctx, d.Text, d.Args...)
	columns := k.Columns(&v)
	if err == nil && n == 0 {
		return fault.Exists(k.Label, k.name(columns))
	}
	return t.DB.ConstraintFault(err, k.Label, k.name(columns), k.uid(columns))
}

// Insertion returns the statement that InsertRow runs. The statement touches no row if the name is already in use.
func Insertion[T any](t *Tx, k *Kind[T], v T) (engine.Statement, error) {
	row, err := k.row(v)
	if err != nil {
		return engine.Statement{}, err
	}
	text := k.text().insert + t.DB.Engine.Values(1, len(row))
	if k.Unique != "" {
		text += ` ON CONFLICT (` + k.Unique + `) DO NOTHING`
	}
	return engine.Statement{Text: text, Args: row}, nil
}

// InsertRows is InsertRow for many resources. PostgreSQL gets the statements with the commit.
func InsertRows[T any](ctx context.Context, t *Tx, k *Kind[T], all []T) error {
	rows := make([][]any, len(all))
	for i, v := range all {
		var err error
		if rows[i], err = k.row(v); err != nil {
			return err
		}
	}
	return t.InsertRows(ctx, k.text().insert, rows, ``)
}

// row returns the values of a resource in the order of the INSERT columns.
func (k *Kind[T]) row(v T) (row []any, _ error) {
	for _, c := range k.Columns(&v) {
		if f, ok := c.field.(field.Key); ok {
			row = append(row, TreeColumns(*f.To)...)
		} else if c.name != "" {
			arg, err := c.field.Value()
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", c.name, k.Label, err)
			}
			row = append(row, arg)
		}
	}
	return row, nil
}

// Update replaces before with after, records the event, and sets the time of the change in after. If no stored column
// differs, it writes nothing, records no event, and keeps the time. It returns ErrStale if the resource has changed
// since before was read, and fault.AlreadyExists if another resource has the name.
func Update[T any](ctx context.Context, t *Tx, k *Kind[T], before T, after *T) error {
	return UpdateAs(ctx, t, k, k.Updated, before, after)
}

// UpdateAs is Update with an event of another type.
func UpdateAs[T any](ctx context.Context, t *Tx, k *Kind[T], event resource.EventType, before T, after *T) error {
	was := k.Columns(&before)
	if err := resource.CheckExpected(ctx, k.uid(was), *updateTime(was)); err != nil {
		return err
	}
	unchanged, err := k.sameRow(before, *after)
	if err != nil {
		return err
	}
	if unchanged {
		*updateTime(k.Columns(after)) = *updateTime(k.Columns(&before))
		return nil
	}
	if err := UpdateRow(ctx, t, k, before, after); err != nil {
		return err
	}
	uid := k.uid(k.Columns(&before))
	return t.Emit(ctx, event, uid, k.group(uid), k.redacted(before), k.redacted(*after))
}

// sameRow reports whether an update from before to after would change no column except the time of the change.
func (k *Kind[T]) sameRow(before, after T) (bool, error) {
	was, is := k.Columns(&before), k.Columns(&after)
	for i, c := range is {
		if c.name == "" || c.fixed || c.name == "update_ms" {
			continue
		}
		old, err := was[i].field.Value()
		if err != nil {
			return false, fmt.Errorf("%s of %s: %w", c.name, k.Label, err)
		}
		value, err := c.field.Value()
		if err != nil || !reflect.DeepEqual(old, value) {
			return false, err
		}
	}
	return true, nil
}

// UpdateRow is Update without the event. It also writes columns that have not changed.
func UpdateRow[T any](ctx context.Context, t *Tx, k *Kind[T], before T, after *T) error {
	was := k.Columns(&before)
	version := *updateTime(was)
	if err := resource.CheckExpected(ctx, k.uid(was), version); err != nil {
		return err
	}
	*updateTime(k.Columns(after)) = t.DB.TimeAfter(version)
	columns := k.Columns(after)
	args := []any{string(k.uid(was)), MS(version)}
	for _, c := range columns {
		if c.name == "" || c.fixed {
			continue
		}
		arg, err := c.field.Value()
		if err != nil {
			return fmt.Errorf("%s of %s: %w", c.name, k.Label, err)
		}
		args = append(args, arg)
	}
	n, err := t.Exec(ctx, k.text().update+` WHERE uid = $1 AND update_ms = $2`, args...)
	if err == nil && n == 0 {
		return ErrStale
	}
	return t.DB.ConstraintFault(err, k.Label, k.name(columns), k.uid(columns))
}

// ErrStale is returned by an update if the resource was changed or deleted since it was read.
var ErrStale = errors.New("changed since it was read")

// How often Edit tries, and the shortest and the longest random pause between two tries.
const (
	editTries = 50
	pauseMin  = time.Millisecond
	pauseMax  = 50 * time.Millisecond
)

// Edit reads a resource, applies change to it, and writes it. If the resource was changed in between, Edit begins
// again. Nothing is locked while change runs. Edit returns the errors of read, change and write. It returns
// fault.Aborted if the resource was changed in between at every try.
func Edit[T any](
	ctx context.Context, uid resource.UID, read func(context.Context, resource.UID) (T, error),
	write func(ctx context.Context, before, after T) (T, error), change func(*T) error,
) (v T, err error) {
	pause := pauseMin
	for range editTries {
		var before T
		if before, err = read(ctx, uid); err != nil {
			return v, err
		}
		if v, err = Clone(before); err != nil {
			return v, err
		}
		if err = change(&v); err != nil {
			return v, err
		}
		if v, err = write(ctx, before, v); !errors.Is(err, ErrStale) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(rand.N(pause)):
			pause = min(2*pause, pauseMax)
		}
	}
	return v, fault.New(fault.Aborted, "Aborted: others have changed it at the same time; try again")
}

// Delete removes a resource to which nothing refers, records the event, and
// decrements the counters. It returns nil if there is no such resource.
func Delete[T any](ctx context.Context, t *Tx, k *Kind[T], uid resource.UID) error {
	v, err := Lock(ctx, t, k, uid, t.DB.Engine.ForDelete)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return Remove(ctx, t, k, v)
}

// Remove removes a resource that the transaction has locked, records the event, and decrements the counters.
func Remove[T any](ctx context.Context, t *Tx, k *Kind[T], v T) error {
	uid := k.uid(k.Columns(&v))
	if _, err := t.Exec(ctx, `DELETE FROM `+k.Table+` WHERE uid = $1`, string(uid)); err != nil {
		return err
	}
	return t.Removed(ctx, k.Table, k.Deleted, uid, k.group(uid), k.redacted(v))
}

// Clone returns a deep copy of a resource. It copies the fields that the resource's JSON contains.
func Clone[T any](v T) (out T, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return out, fmt.Errorf("copy %T: %w", v, err)
	}
	return out, json.Unmarshal(b, &out)
}
