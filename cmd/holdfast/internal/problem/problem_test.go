package problem

import (
	"errors"
	"fmt"
	"testing"
)

func TestFrom(t *testing.T) {
	inner := &Problem{Text: "no", Hints: []string{"try"}, Code: ExitNotFound}
	if p := From(t.Context(), fmt.Errorf("--role: %w", inner)); p.Text != "--role: no" || p.Code != ExitNotFound ||
		len(p.Hints) != 1 {
		t.Errorf("a wrapped problem = %+v", p)
	}
	if p := From(t.Context(), errors.New("disk full")); p.Text != "disk full" || p.Code != ExitError {
		t.Errorf("any other error = %+v", p)
	}
}
