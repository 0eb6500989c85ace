package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// TestLogTellsHiddenCauses: the log contains the causes of errors that clients do not
// see.
func TestLogTellsHiddenCauses(t *testing.T) {
	var b bytes.Buffer
	err := fmt.Errorf("read: %w", fault.Outage("the database", errors.New("connection refused")))
	newLogger(&b, slog.LevelInfo).Warn("not ready", "err", err)
	if !strings.Contains(b.String(), `"err":"read: Unavailable: the database`) ||
		!strings.Contains(b.String(), `connection refused"`) {
		t.Errorf("log = %s, want the error and its cause", b.String())
	}
}
