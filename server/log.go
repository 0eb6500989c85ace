package server

import (
	"io"
	"log/slog"
	"os"

	"github.com/holdfast-dev/holdfast/fault"
)

// newLogger writes for people when w is a terminal, and for programs otherwise.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: explain}
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// explain has the log say of an error what its faults hide from clients.
func explain(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindAny { // to ask for another as any allocates
		return a
	}
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(fault.Explain(err))
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
