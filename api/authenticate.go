package api

import (
	"context"
	"strings"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/token"
)

// An authenticator finds out who is calling.
type authenticator struct {
	issuer   *token.Issuer
	checker  *authz.Checker
	audience string
}

// authenticate returns the caller that o's token stands for. It returns
// fault.Unauthenticated if there is no token, or none that is good here and now,
// and fault.Unavailable if what it is good for cannot be known.
func (a authenticator) authenticate(ctx context.Context, o origin) (authz.Caller, error) {
	caller, err := a.issuer.Verify(ctx, o.token, a.audience)
	if err != nil {
		return authz.Caller{}, err
	}
	if err := a.checker.EnsureCurrent(ctx); err != nil {
		return authz.Caller{}, err
	}
	if why := a.checker.Revoked(caller); why != "" {
		return authz.Caller{}, fault.New(fault.Unauthenticated, "Unauthenticated: %s", why)
	}
	return caller, nil
}

// bearer returns the token in the values of an Authorization header. Clients of
// the gRPC API may leave out the scheme.
func bearer(values []string, needScheme bool) (string, error) {
	switch len(values) {
	case 0:
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: a bearer token is required")
	case 1:
	default:
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: more than one Authorization header")
	}
	text := strings.TrimSpace(values[0])
	scheme, rest, _ := strings.Cut(text, " ")
	switch {
	case strings.EqualFold(scheme, "bearer"):
		text = strings.TrimSpace(rest)
	case needScheme:
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: the Authorization header must be Bearer and a token")
	}
	if text == "" {
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: a bearer token is required")
	}
	return text, nil
}
