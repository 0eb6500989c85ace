package server

import (
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// consoleHeader is the header that the console sends with each request. A form cannot
// send it, and a page of another site must not (see corsHeaders).
const consoleHeader = "Holdfast-Console"

// withSession lets the console call the API with the session of the sign-in pages. It
// accepts the cookie only together with the header of the console, from our own
// origin, and for paths that do not return tokens. It replaces the session by a token,
// so that narrowing, revocation, quotas and the audit log work as for other callers.
func (s *Server) withSession(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(consoleHeader) == "" || r.Header.Get("Authorization") != "" ||
			strings.HasPrefix(r.URL.Path, "/sts/") {
			next.ServeHTTP(w, r)
			return
		}
		if !s.login.IsOwnOrigin(r) {
			s.refuseSession(w,
				fault.New(fault.PermissionDenied, "Permission denied: the session is valid only for pages of this server"))
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
		s.log.Error("cannot use a session of the console", "err", err)
		f = fault.New(fault.Unavailable, "Unavailable: try again")
	}
	writeFaultAs(w, f.Code.HTTPStatus(), f, s.cfg.ErrorDomain)
}
