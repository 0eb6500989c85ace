package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

func TestIs(t *testing.T) {
	err := fmt.Errorf("get: %w", fault.Missing("group", "a1"))
	if !errors.Is(err, fault.NotFound) || errors.Is(err, fault.Internal) {
		t.Errorf("%v is not just NotFound", err)
	}
	if errors.Is(nil, fault.NotFound) {
		t.Error("nil is NotFound")
	}
}

func TestFrom(t *testing.T) {
	secret := errors.New("password of the database")
	tests := map[string]struct {
		err  error
		code fault.Code
		text string
	}{
		"a fault": {fault.Denied("groups.list", "a1"), fault.PermissionDenied,
			"Permission denied: groups.list on a1"},
		"wrapped": {fmt.Errorf("x: %w", fault.Field("name", "bad")), fault.InvalidArgument,
			"Invalid argument: name: bad"},
		"anything else": {secret, fault.Internal, "Internal error"},
		"a caller gone": {fmt.Errorf("x: %w", context.Canceled), fault.Canceled, "Cancelled: the caller went away"},
		"no time left": {context.DeadlineExceeded, fault.DeadlineExceeded,
			"Deadline exceeded: the request took too long"},
		"not empty": {fault.NotEmpty("group", "repos"), fault.FailedPrecondition,
			"Precondition failed: cannot delete group with child repos"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := fault.From(tt.err)
			if f.Code != tt.code || f.Message != tt.text || f.Code.Reason() == "" {
				t.Errorf("From = %d %q, want %d %q", f.Code, f.Message, tt.code, tt.text)
			}
		})
	}
	if fault.From(secret).Cause != secret {
		t.Error("the cause is lost to the log")
	}
}

func TestExplain(t *testing.T) {
	refused := errors.New("connection refused")
	outage := fault.Outage("the database", refused)
	tests := map[string]struct {
		err  error
		want string
	}{
		"no fault":           {refused, "connection refused"},
		"a fault of its own": {fault.Field("name", "is bad"), "Invalid argument: name: is bad"},
		"a hidden cause": {fmt.Errorf("migrate: %w", outage),
			"migrate: " + outage.Message + ": connection refused"},
		"hidden twice": {fault.Outage("the database", fmt.Errorf("read: %w", outage)),
			outage.Message + ": read: " + outage.Message + ": connection refused"},
		"the same again": {fault.Outage("the database", outage), outage.Message + ": connection refused"},
		"told already":   {errors.Join(outage, refused), outage.Message + "\nconnection refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := fault.Explain(tt.err); got != tt.want {
				t.Errorf("Explain = %q, want %q", got, tt.want)
			}
		})
	}
}
