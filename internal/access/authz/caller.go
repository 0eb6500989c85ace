// Package authz decides whether a caller may act on a resource.
//
// A binding gives an identity a role on a group and everything below it. All bindings are held in memory, so that a
// check needs no query. follow.go keeps them up to date with the database.
package authz

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Caller is the sender of a request, according to its token. A token grants
// nothing; it can only narrow what the bindings of its identity grant.
type Caller struct {
	Identity      resource.UID
	Act           *resource.Upstream // the credential with which the identity was assumed
	Email         string
	EmailVerified bool
	Session       string                 // session of the token, if any
	Voucher       resource.Voucher       // the identity provider that vouched for the person, if any
	Issued        time.Time              // issue time of the token, in whole seconds
	Expires       time.Time              // expiry of the token
	Audience      []string               // audiences of the token
	Caps          *resource.Capabilities // capabilities to which the token is narrowed; nil: not narrowed
	Scopes        []resource.UID         // groups to which the token is narrowed; nil: not narrowed
	// resources of the registry to which the token is narrowed; nil: not narrowed. Only the
	// registry accepts such a token.
	Registry []resource.RegistryScope

	checker *Checker // set by Checker.Admit
}

type callerKey struct{}

// Narrowing returns the capabilities and groups to which the caller's token is narrowed.
func (c Caller) Narrowing() resource.Narrowing {
	return resource.Narrowing{Caps: c.Caps, Scopes: c.Scopes}
}

// RequireCaller returns the caller of a request, or fault.Unauthenticated if there is none.
func RequireCaller(ctx context.Context) (Caller, error) {
	c, ok := CallerFrom(ctx)
	if !ok {
		return c, fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	}
	return c, nil
}

// RequireUnnarrowed returns the caller of a request if the token is not narrowed. It is for requests about the person
// behind the token, which concern no group. It returns fault.PermissionDenied if the token is narrowed, and
// fault.Unauthenticated if there is no caller.
func RequireUnnarrowed(ctx context.Context) (Caller, error) {
	c, err := RequireCaller(ctx)
	if err == nil && (!c.Narrowing().IsZero() || c.Registry != nil) {
		err = fault.New(fault.PermissionDenied,
			"Permission denied: a narrowed token cannot act on the person behind it")
	}
	return c, err
}

// inScope reports whether the scopes of the caller's token cover target.
func (c *Caller) inScope(target resource.UID) bool {
	return c.Scopes == nil || slices.ContainsFunc(c.Scopes, func(s resource.UID) bool { return s.Covers(target) })
}

// Within returns the parts of a group that the scopes of the caller's token
// cover: the group itself, or the scopes below it.
func (c *Caller) Within(group resource.UID) []resource.UID {
	if c.inScope(group) {
		return []resource.UID{group}
	}
	var parts []resource.UID
	for _, s := range c.Scopes {
		if group.Covers(s) {
			parts = append(parts, s)
		}
	}
	return parts
}
