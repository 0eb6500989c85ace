package access_test

import (
	"context"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/store/access"
)

// A replaced is an access whose memory belongs to another history of the database until EnsureCurrent is called again.
type replaced struct{ current int }

func (r *replaced) EnsureCurrent(context.Context) error { r.current++; return nil }
func (r *replaced) Refresh(context.Context) error       { return nil }

func (r *replaced) Recheck() (access.Basis, error) {
	if r.current < 2 {
		return access.Basis{}, access.ErrChanged
	}
	return access.Basis{}, nil
}

// TestRecheckInAnotherHistory checks that a stream does not end because the history of the database has changed.
func TestRecheckInAnotherHistory(t *testing.T) {
	r := &replaced{}
	if err := access.Recheck(access.With(t.Context(), r)); err != nil {
		t.Error(err)
	}
	if r.current != 2 {
		t.Errorf("EnsureCurrent was called %d times, want 2", r.current)
	}
}
