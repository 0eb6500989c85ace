package accounts

import (
	"context"
	"log/slog"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// LogActivity writes an activity of a person to the log of the server. The audit log
// contains the same fields.
func (s *Service) LogActivity(ctx context.Context, message string, a resource.Activity) {
	actor := resource.ActorFrom(ctx)
	attrs := []slog.Attr{}
	for _, v := range []struct{ name, value string }{
		{"identity", string(a.Identity)}, {"account", string(a.Account)}, {"method", a.Method}, {"factor", a.Factor},
		{"provider", string(a.Provider)}, {"purpose", a.Purpose}, {"program", a.Program}, {"session", a.Session},
		{"by", string(actor.Subject)}, {"address", actor.Remote}, {"request", actor.RequestID},
	} {
		if v.value != "" {
			attrs = append(attrs, slog.String(v.name, v.value))
		}
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, message, attrs...)
}

// LogChange writes a change of the credentials of an account to the log of the server.
func (s *Service) LogChange(ctx context.Context, message string, a resource.Account) {
	s.LogActivity(ctx, message, resource.Activity{Account: a.UID, Identity: a.Identity})
}
