package config

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// Logger returns a logger with the level of the settings.
func (c Config) Logger() *slog.Logger { return newLogger(c.Stderr, c.LogLevel) }

// newLogger returns a logger that writes text to a terminal and JSON to other
// writers. It logs errors with the causes that faults hide from clients.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindAny { // Any allocates memory for values of other kinds
			if err, ok := a.Value.Any().(error); ok {
				a.Value = slog.StringValue(fault.Explain(err))
			}
		}
		return a
	}}
	var h slog.Handler = slog.NewJSONHandler(w, options)
	if isTerminal(w) {
		h = slog.NewTextHandler(w, options)
	}
	if trace.Enabled() {
		h = tracedHandler{h}
	}
	return slog.New(h)
}

// A tracedHandler adds the trace ID to log lines whose context has a trace.
type tracedHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h tracedHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := trace.ID(ctx); id != "" {
		r.AddAttrs(slog.String("trace", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h tracedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h tracedHandler) WithGroup(name string) slog.Handler {
	return tracedHandler{h.Handler.WithGroup(name)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
