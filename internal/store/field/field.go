// Package field converts values of Go to values of columns and back.
package field

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Segment returns the last segment of a uid as a number. The numbers have the same order as the hexadecimal digits.
// Databases have signed numbers only, so the first bit is inverted.
func Segment(uid resource.UID) int64 { return uid.Segment() ^ math.MinInt64 }

// A Field is a pointer to a value, with the conversion between the value and its column.
type Field interface {
	sql.Scanner
	Value() (any, error)
}

type (
	// Key is the UID of a resource.
	Key struct{ To *resource.UID }
	// Ref is the UID of another resource. The column has its segment, or NULL if the UID is empty.
	Ref struct{ To *resource.UID }
	// Text is text. NULL is read as "".
	Text[S ~string] struct{ To *S }
	// Flag is true or false.
	Flag struct{ To *bool }
	// Number is an integer.
	Number[N ~int | ~int32 | ~int64] struct{ To *N }
	// Time is a time in milliseconds.
	Time struct{ To *time.Time }
	// OptionalTime is a time that is 0 if it is not set.
	OptionalTime struct{ To *time.Time }
	// Duration is a duration in milliseconds.
	Duration struct{ To *time.Duration }
	// Bytes are bytes.
	Bytes struct{ To *[]byte }
	// JSON is written from one value, and read into another or the same.
	JSON struct{ From, To any }
	// Derived is a value that is never read.
	Derived struct{ V any }
	// Empty is written as "".
	Empty struct{ Field }
)

// Value implements Field.
func (f Key) Value() (any, error) { return string(*f.To), nil }

// Scan implements sql.Scanner.
func (f Key) Scan(v any) error { return Text[resource.UID](f).Scan(v) }

// Value implements Field.
func (f Ref) Value() (any, error) {
	if *f.To == "" {
		return nil, nil
	}
	return Segment(*f.To), nil
}

// Scan implements sql.Scanner.
func (f Ref) Scan(v any) error { return Text[resource.UID](f).Scan(v) }

// Value implements Field.
func (f Text[S]) Value() (any, error) { return string(*f.To), nil }

// Scan implements sql.Scanner.
func (f Text[S]) Scan(v any) error {
	switch v := v.(type) {
	case string:
		*f.To = S(v)
	case []byte:
		*f.To = S(v)
	case nil:
		*f.To = ""
	default:
		return fmt.Errorf("%T is no text", v)
	}
	return nil
}

// Value implements Field.
func (f Flag) Value() (any, error) { return *f.To, nil }

// Scan implements sql.Scanner.
func (f Flag) Scan(v any) error {
	switch v := v.(type) {
	case bool:
		*f.To = v
	case int64:
		*f.To = v != 0
	default:
		return fmt.Errorf("%T is no flag", v)
	}
	return nil
}

// Value implements Field.
func (f Number[N]) Value() (any, error) { return int64(*f.To), nil }

// Scan implements sql.Scanner.
func (f Number[N]) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%T is no number", v)
	}
	*f.To = N(n)
	return nil
}

// Value implements Field.
func (f Time) Value() (any, error) { return f.To.UnixMilli(), nil }

// Scan implements sql.Scanner.
func (f Time) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%T is no time", v)
	}
	*f.To = time.UnixMilli(n).UTC()
	return nil
}

// Value implements Field.
func (f OptionalTime) Value() (any, error) {
	if f.To.IsZero() {
		return int64(0), nil
	}
	return f.To.UnixMilli(), nil
}

// Scan implements sql.Scanner.
func (f OptionalTime) Scan(v any) error {
	if v == int64(0) {
		*f.To = time.Time{}
		return nil
	}
	return Time(f).Scan(v)
}

// Value implements Field.
func (f Duration) Value() (any, error) { return f.To.Milliseconds(), nil }

// Scan implements sql.Scanner.
func (f Duration) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%T is no length of time", v)
	}
	*f.To = time.Duration(n) * time.Millisecond
	return nil
}

// Value implements Field.
func (f Bytes) Value() (any, error) { return append([]byte{}, *f.To...), nil }

// Scan implements sql.Scanner.
func (f Bytes) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok && v != nil { // SQLite returns nil for a blob without bytes
		return fmt.Errorf("%T is no bytes", v)
	}
	*f.To = append([]byte(nil), b...)
	return nil
}

// Value implements Field.
func (f JSON) Value() (any, error) {
	b, err := json.Marshal(f.From)
	return string(b), err
}

// Scan implements sql.Scanner.
func (f JSON) Scan(v any) error {
	var text string
	if err := (Text[string]{&text}).Scan(v); err != nil || text == "" {
		return err
	}
	return json.Unmarshal([]byte(text), f.To)
}

// Value implements Field.
func (f Derived) Value() (any, error) { return f.V, nil }

// Scan implements sql.Scanner.
func (Derived) Scan(any) error { return nil }

// Value implements Field.
func (Empty) Value() (any, error) { return "", nil }
