package server

import (
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// consoleHeader is what the console sends with each request. A form cannot send it, and a
// page of another site may not (see corsHeaders).
const consoleHeader = "Holdfast-Console"

// withSession lets the console call the API with the session of the sign-in pages. The
// cookie counts only beside the header of the console, on a request of our own origin, and
// where no token is handed out. Here the session becomes a token, so that what follows is
// as for any other caller: narrowing, revocation, quotas, the audit log.
func (s *Server) withSession(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(consoleHeader) == "" || r.Header.Get("Authorization") != "" ||
			strings.HasPrefix(r.URL.Path, "/sts/") {
			next.ServeHTTP(w, r)
			return
		}
		if !s.login.IsOwnOrigin(r) {
			s.refuseSession(w,
				fault.New(fault.PermissionDenied, "Permission denied: the session counts for pages of this server only"))
			return
		}
		token, fresh, err := s.login.Token(r)
		if err != nil {
			s.refuseSession(w, err)
			return
		}
		ctx := r.Context()
		if !fresh {
			ctx = api.WithStaleSession(ctx)
		}
		in := r.Clone(ctx)
		in.Header.Set("Authorization", "Bearer "+token)
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, in)
	})
}

func (s *Server) refuseSession(w http.ResponseWriter, err error) {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		s.log.Error("a session of the console cannot be used", "err", err)
		f = fault.New(fault.Unavailable, "Unavailable: try again")
	}
	writeFaultAs(w, f.Code.HTTPStatus(), f, s.cfg.ErrorDomain)
}
