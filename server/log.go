package server

import (
	"io"
	"log/slog"
	"os"

	"github.com/holdfast-dev/holdfast/fault"
)

// newLogger returns a logger that writes text to a terminal and JSON otherwise.
// It logs errors with the causes that faults hide from clients.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindAny { // Any allocates for other kinds
			if err, ok := a.Value.Any().(error); ok {
				a.Value = slog.StringValue(fault.Explain(err))
			}
		}
		return a
	}}
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
