package server

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/holdfast-dev/holdfast/fault"
)

// newLogger writes for people when w is a terminal, and for programs otherwise.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if isTerminal(w) {
		return slog.New(explainHandler{slog.NewTextHandler(w, options)})
	}
	return slog.New(explainHandler{slog.NewJSONHandler(w, options)})
}

// A explainHandler handler has the log say of errors what their faults hide from clients.
type explainHandler struct{ slog.Handler }

// Handle is of slog.Handler. Most records have no error, and go on as they are.
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

// WithAttrs is of slog.Handler.
func (h explainHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return explainHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup is of slog.Handler.
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
	if a.Value.Kind() != slog.KindAny { // to ask for another as any allocates
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
