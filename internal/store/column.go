package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Column ties a column of a table to a field of a resource.
type Column struct {
	name  string // "" if the column is only read
	from  string // expression that SELECT reads; "" means the column itself, and "-" means that it is not read
	order string // order_by field that sorts by the column
	fixed bool   // updates do not change it
	field field
}

// A field is a pointer to a value, with the conversion between the value and its column.
type field interface {
	sql.Scanner
	value() (any, error)
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
		c.field = emptyField{c.field}
	}
	return c
}

type emptyField struct{ field }

func (emptyField) value() (any, error) { return "", nil }

// Key returns the column for the UID of a resource, and the columns for its place in the tree.
func Key(uid *resource.UID) Column {
	return Column{name: "uid", order: "uid", fixed: true, field: keyField{uid}}
}

// Text returns a column for text. NULL is read as "".
func Text[S ~string](name string, p *S) Column { return Column{name: name, field: textField[S]{p}} }

// Flag returns a column that is true or false.
func Flag(name string, p *bool) Column { return Column{name: name, field: flagField{p}} }

// Number returns a column for whole numbers.
func Number[N ~int | ~int32 | ~int64](name string, p *N) Column {
	return Column{name: name, field: numberField[N]{p}}
}

// Time returns a column for a time in milliseconds.
func Time(name string, p *time.Time) Column { return Column{name: name, field: timeField{p}} }

// OptionalTime is Time, but the time may be zero, which is stored as 0.
func OptionalTime(name string, p *time.Time) Column {
	return Column{name: name, field: optionalTimeField{p}}
}

// Milliseconds returns a column for a duration.
func Milliseconds(name string, p *time.Duration) Column {
	return Column{name: name, field: lengthField{p}}
}

// Bytes returns a column for bytes. It is never NULL.
func Bytes(name string, p *[]byte) Column { return Column{name: name, field: bytesField{p}} }

// JSON returns a column that stores a value as JSON. Reading an empty text leaves the value
// unchanged.
func JSON(name string, p any) Column { return Column{name: name, field: jsonField{p, p}} }

// Detail returns a JSON column for the fields of a resource that have no column of their
// own. It is written from part, which has only these fields, and read into p. It must come
// before the columns for other fields of p.
func Detail(name string, part, p any) Column { return Column{name: name, field: jsonField{part, p}} }

// Ref returns a column that refers to a row in another table. An empty UID is stored as NULL.
func Ref(name, table string, p *resource.UID) Column {
	return Column{name: name, from: `(SELECT r.uid FROM ` + table + ` AS r
		WHERE r.seg = t.` + name + `)`, field: refField{p}}
}

// Derived returns a column for an index. Its value is computed from other fields when a
// row is written, and is never read.
func Derived(name string, v any) Column { return Column{name: name, from: "-", field: derivedField{v}} }

type (
	keyField                              struct{ p *resource.UID }
	refField                              struct{ p *resource.UID }
	textField[S ~string]                  struct{ p *S }
	flagField                             struct{ p *bool }
	numberField[N ~int | ~int32 | ~int64] struct{ p *N }
	timeField                             struct{ p *time.Time }
	optionalTimeField                     struct{ p *time.Time }
	lengthField                           struct{ p *time.Duration }
	bytesField                            struct{ p *[]byte }
	jsonField                             struct{ from, to any }
	derivedField                          struct{ v any }
)

func (f keyField) value() (any, error)       { return string(*f.p), nil }
func (f textField[S]) value() (any, error)   { return string(*f.p), nil }
func (f flagField) value() (any, error)      { return *f.p, nil }
func (f numberField[N]) value() (any, error) { return int64(*f.p), nil }
func (f timeField) value() (any, error)      { return MS(*f.p), nil }
func (f lengthField) value() (any, error)    { return f.p.Milliseconds(), nil }
func (f bytesField) value() (any, error)     { return append([]byte{}, *f.p...), nil }
func (f derivedField) value() (any, error)   { return f.v, nil }

func (f refField) value() (any, error) {
	if *f.p == "" {
		return nil, nil
	}
	return Segment(*f.p), nil
}

func (f optionalTimeField) value() (any, error) {
	if f.p.IsZero() {
		return int64(0), nil
	}
	return MS(*f.p), nil
}

func (f jsonField) value() (any, error) {
	b, err := json.Marshal(f.from)
	return string(b), err
}

func (f keyField) Scan(v any) error { return textField[resource.UID](f).Scan(v) }
func (f refField) Scan(v any) error { return textField[resource.UID](f).Scan(v) }

func (f textField[S]) Scan(v any) error {
	switch v := v.(type) {
	case string:
		*f.p = S(v)
	case []byte:
		*f.p = S(v)
	case nil:
		*f.p = ""
	default:
		return fmt.Errorf("%T is no text", v)
	}
	return nil
}

func (f flagField) Scan(v any) error {
	switch v := v.(type) {
	case bool:
		*f.p = v
	case int64:
		*f.p = v != 0
	default:
		return fmt.Errorf("%T is no flag", v)
	}
	return nil
}

func (f numberField[N]) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%T is no number", v)
	}
	*f.p = N(n)
	return nil
}

func (f timeField) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%T is no time", v)
	}
	*f.p = FromMS(n)
	return nil
}

func (f optionalTimeField) Scan(v any) error {
	if v == int64(0) {
		*f.p = time.Time{}
		return nil
	}
	return timeField(f).Scan(v)
}

func (f lengthField) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%T is no length of time", v)
	}
	*f.p = time.Duration(n) * time.Millisecond
	return nil
}

func (f bytesField) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok && v != nil { // SQLite returns nil for a blob without bytes
		return fmt.Errorf("%T is no bytes", v)
	}
	*f.p = append([]byte(nil), b...)
	return nil
}

func (f jsonField) Scan(v any) error {
	var text string
	if err := (textField[string]{&text}).Scan(v); err != nil || text == "" {
		return err
	}
	return json.Unmarshal([]byte(text), f.to)
}

func (derivedField) Scan(any) error { return nil }

// position stores the value of a column in a cursor for lists that are sorted by the column.
func (c Column) position(to *page.Cursor) {
	switch f := c.field.(type) {
	case timeField:
		to.Number = MS(*f.p)
	case keyField: // every cursor contains the UID already
	default:
		v, _ := f.value() // a text field returns no error
		to.Key, _ = v.(string)
	}
}
