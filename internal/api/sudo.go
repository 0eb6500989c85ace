package api

import (
	"context"

	"google.golang.org/grpc"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/access"
)

type staleKey struct{}

// WithStaleSession returns a context for a request from a browser whose user signed
// in a while ago. Sensitive requests are refused in it, because another person may
// use the browser now.
func WithStaleSession(ctx context.Context) context.Context {
	return context.WithValue(ctx, staleKey{}, true)
}

// SignInAgain is the type of the violation if the user has to sign in again.
const SignInAgain = "SIGN_IN_AGAIN"

// prepare is an interceptor that runs after the request was read. It refuses a caller
// who has lost access while the request arrived. It turns a request with validate_only
// into a dry run, and refuses sensitive requests on a stale session.
func prepare(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := access.Recheck(ctx); err != nil {
		return nil, err
	}
	ctx, err := expect(ctx, req)
	if err != nil {
		return nil, err
	}
	if r, ok := req.(interface{ GetValidateOnly() bool }); ok && r.GetValidateOnly() {
		return next(resource.WithDryRun(ctx), req)
	}
	if ctx.Value(staleKey{}) != nil && (callOf(ctx).rule.sensitive || isSensitiveRequest(req)) {
		return nil, fault.Unmet(SignInAgain, "you signed in a while ago; sign in again to do this")
	}
	return next(ctx, req)
}
