package server

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/holdfast-dev/holdfast/fault"
)

// newLogger returns a logger that writes text to a terminal and JSON
// otherwise.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if isTerminal(w) {
		return slog.New(explainHandler{slog.NewTextHandler(w, options)})
	}
	return slog.New(explainHandler{slog.NewJSONHandler(w, options)})
}

// An explainHandler logs errors with the causes that faults hide from clients.
type explainHandler struct{ slog.Handler }

// Handle implements slog.Handler. It passes on records without errors
// unchanged.
func (h explainHandler) Handle(ctx context.Context, r slog.Record) error {
	if !hasError(r) {
		return h.Handler.Handle(ctx, r)
	}
	explained := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := errorIn(a); ok {
			a.Value = slog.StringValue(fault.Explain(err))
		}
		explained.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, explained)
}

func (h explainHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return explainHandler{h.Handler.WithAttrs(attrs)}
}

func (h explainHandler) WithGroup(name string) slog.Handler {
	return explainHandler{h.Handler.WithGroup(name)}
}

func hasError(r slog.Record) (has bool) {
	r.Attrs(func(a slog.Attr) bool {
		_, has = errorIn(a)
		return !has
	})
	return has
}

func errorIn(a slog.Attr) (error, bool) {
	if a.Value.Kind() != slog.KindAny { // Any allocates for other kinds
		return nil, false
	}
	err, ok := a.Value.Any().(error)
	return err, ok
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
