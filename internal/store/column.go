package store

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/field"
)

// A Column ties a column of a table to a field of a resource.
type Column struct {
	name  string // "" if the column is only read
	from  string // expression that SELECT reads; "" means the column itself, and "-" means that it is not read
	order string // order_by field that sorts by the column
	fixed bool   // updates do not change it
	field field.Field
}

// Order allows sorting lists by the column. name is the order_by field.
func (c Column) Order(name string) Column { c.order = name; return c }

// Fixed excludes the column from updates.
func (c Column) Fixed() Column { c.fixed = true; return c }

// From makes SELECT read an expression instead of the column. The expression refers to
// the table as t. A column without a name is only read.
func (c Column) From(expression string) Column { c.from = expression; return c }

// Empty makes the column store "" if empty is true.
func (c Column) Empty(empty bool) Column {
	if empty {
		c.field = field.Empty{Field: c.field}
	}
	return c
}

// Key returns the column for the UID of a resource, and the columns for its place in the tree.
func Key(uid *resource.UID) Column {
	return Column{name: "uid", order: "uid", fixed: true, field: field.Key{To: uid}}
}

// Text returns a column for text. NULL is read as "".
func Text[S ~string](name string, p *S) Column {
	return Column{name: name, field: field.Text[S]{To: p}}
}

// Flag returns a column that is true or false.
func Flag(name string, p *bool) Column { return Column{name: name, field: field.Flag{To: p}} }

// Number returns a column for whole numbers.
func Number[N ~int | ~int32 | ~int64](name string, p *N) Column {
	return Column{name: name, field: field.Number[N]{To: p}}
}

// Time returns a column for a time in milliseconds.
func Time(name string, p *time.Time) Column { return Column{name: name, field: field.Time{To: p}} }

// OptionalTime is Time, but the time may be zero, which is stored as 0.
func OptionalTime(name string, p *time.Time) Column {
	return Column{name: name, field: field.OptionalTime{To: p}}
}

// Milliseconds returns a column for a duration.
func Milliseconds(name string, p *time.Duration) Column {
	return Column{name: name, field: field.Duration{To: p}}
}

// Bytes returns a column for bytes. It is never NULL.
func Bytes(name string, p *[]byte) Column { return Column{name: name, field: field.Bytes{To: p}} }

// JSON returns a column that stores a value as JSON. Reading an empty text leaves the value
// unchanged.
func JSON(name string, p any) Column { return Column{name: name, field: field.JSON{From: p, To: p}} }

// Detail returns a JSON column for the fields of a resource that have no column of their
// own. It is written from part, which has only these fields, and read into p. It must come
// before the columns for other fields of p.
func Detail(name string, part, p any) Column {
	return Column{name: name, field: field.JSON{From: part, To: p}}
}

// Ref returns a column that refers to a row in another table. An empty UID is stored as NULL.
func Ref(name, table string, p *resource.UID) Column {
	return Column{name: name, from: `(SELECT r.uid FROM ` + table + ` AS r
		WHERE r.seg = t.` + name + `)`, field: field.Ref{To: p}}
}

// Derived returns a column for an index. Its value is computed from other fields when a
// row is written, and is never read.
func Derived(name string, v any) Column {
	return Column{name: name, from: "-", field: field.Derived{V: v}}
}

// position stores the value of a column in a cursor for lists that are sorted by the column.
func (c Column) position(to *page.Cursor) {
	switch f := c.field.(type) {
	case field.Time:
		to.Number = MS(*f.To)
	case field.Key: // every cursor contains the UID already
	default:
		v, _ := f.Value() // a text field returns no error
		to.Key, _ = v.(string)
	}
}
