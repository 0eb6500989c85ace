package accounts

import (
	"context"
	"log/slog"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// LogActivity logs what the audit log has of a person.
func (s *Service) LogActivity(ctx context.Context, what string, a resource.Activity) {
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
	s.log.LogAttrs(ctx, slog.LevelInfo, what, attrs...)
}

// LogChange logs a change of how the person of an account signs in.
func (s *Service) LogChange(ctx context.Context, what string, a resource.Account) {
	s.LogActivity(ctx, what, resource.Activity{Account: a.UID, Identity: a.Identity})
}
