package api

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	annotationspb "github.com/holdfast-dev/holdfast/gen/annotations"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// sensitive are the capabilities to grant or revoke access, to send events to other
// systems, and to delete a group.
var sensitive = []capabilitiespb.Capability{
	capabilitiespb.Capability_CAP_IAM_GROUPS_DELETE, capabilitiespb.Capability_CAP_IAM_GROUP_INVITES_CREATE,
	capabilitiespb.Capability_CAP_IAM_ROLES_CREATE, capabilitiespb.Capability_CAP_IAM_ROLES_UPDATE,
	capabilitiespb.Capability_CAP_IAM_ROLES_DELETE,
	capabilitiespb.Capability_CAP_IAM_ROLE_BINDINGS_CREATE, capabilitiespb.Capability_CAP_IAM_ROLE_BINDINGS_UPDATE,
	capabilitiespb.Capability_CAP_IAM_ROLE_BINDINGS_DELETE,
	capabilitiespb.Capability_CAP_IAM_ACCOUNT_ASSOCIATIONS_CREATE,
	capabilitiespb.Capability_CAP_IAM_ACCOUNT_ASSOCIATIONS_UPDATE,
	capabilitiespb.Capability_CAP_IAM_ACCOUNT_ASSOCIATIONS_DELETE,
	capabilitiespb.Capability_CAP_IAM_IDENTITY_CREATE, capabilitiespb.Capability_CAP_IAM_IDENTITY_UPDATE,
	capabilitiespb.Capability_CAP_IAM_IDENTITY_DELETE,
	capabilitiespb.Capability_CAP_IAM_IDENTITY_PROVIDERS_CREATE,
	capabilitiespb.Capability_CAP_IAM_IDENTITY_PROVIDERS_UPDATE,
	capabilitiespb.Capability_CAP_IAM_IDENTITY_PROVIDERS_DELETE,
	capabilitiespb.Capability_CAP_EVENTS_SUBSCRIPTION_CREATE,
}

// isSensitive reports whether a method needs a sensitive capability.
func isSensitive(access *annotationspb.IAM) bool {
	return slices.ContainsFunc(access.GetEnabled().GetCapabilities(), func(c capabilitiespb.Capability) bool {
		return slices.Contains(sensitive, c)
	})
}

type staleKey struct{}

// WithStaleSession returns a context for a request from a browser whose user signed
// in a while ago. Sensitive methods are refused in it, because another person may
// use the browser now.
func WithStaleSession(ctx context.Context) context.Context {
	return context.WithValue(ctx, staleKey{}, true)
}

// SignInAgain is the type of the violation if the user has to sign in again.
const SignInAgain = "SIGN_IN_AGAIN"

// prepare is an interceptor that runs after the request was read. It turns a request
// with validate_only into a dry run, and refuses sensitive methods on a stale
// session.
func prepare(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := expect(ctx, req)
	if err != nil {
		return nil, err
	}
	if r, ok := req.(interface{ GetValidateOnly() bool }); ok && r.GetValidateOnly() {
		return next(resource.WithDryRun(ctx), req)
	}
	if ctx.Value(staleKey{}) != nil && callOf(ctx).rule.sensitive {
		return nil, fault.Unmet(SignInAgain, "you signed in a while ago; sign in again to do this")
	}
	return next(ctx, req)
}
