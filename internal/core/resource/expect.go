package resource

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// Milliseconds is the layout for times, in JSON and elsewhere.
const Milliseconds = "2006-01-02T15:04:05.000Z07:00"

type expectKey struct{}

type expectation struct {
	uid UID
	at  time.Time
}

// WithExpected returns a context in which the resource uid is changed only if its last
// change was at the time at. So a caller that has read that version does not overwrite a
// later change.
func WithExpected(ctx context.Context, uid UID, at time.Time) context.Context {
	return context.WithValue(ctx, expectKey{}, expectation{uid, at})
}

// CheckExpected returns fault.Aborted if WithExpected has set another time for the resource than changed, the
// time of its last change. Call it while the resource is locked, or before it is compared with the version
// that was read.
func CheckExpected(ctx context.Context, uid UID, changed time.Time) error {
	e, ok := ctx.Value(expectKey{}).(expectation)
	if !ok || e.uid != uid || e.at.UnixMilli() == changed.UnixMilli() {
		return nil
	}
	if changed.IsZero() {
		return fault.New(fault.Aborted, "Aborted: it is not there any more; read it again")
	}
	return fault.New(fault.Aborted, "Aborted: it was changed at %s; read it again, and see what is different",
		changed.UTC().Format(Milliseconds))
}
