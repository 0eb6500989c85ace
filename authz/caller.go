// Package authz decides whether a caller may act on a place.
//
// A binding gives an identity a role on a group and everything below it. All
// bindings are held in memory, so a check costs no query; follow.go keeps them
// as new as the store's.
package authz

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// A Caller is who sent a request, as its token says. What the caller may do is
// never in the token; a token can only narrow it.
type Caller struct {
	Identity      resource.UID
	Act           *resource.Upstream // the credential the identity was assumed with
	Email         string
	EmailVerified bool
	Session       string                 // the sign-in it belongs to, if any
	Voucher       resource.Voucher       // the identity provider that vouched for its person, if any
	Issued        time.Time              // when the token was made, in whole seconds
	Expires       time.Time              // and when it ends
	Audience      []string               // what the token is for
	Caps          *resource.Capabilities // only these count; nil: not narrowed
	Scopes        []resource.UID         // only places these cover count; nil: not narrowed
}

type callerKey struct{}

// WithCaller returns a context in which c is the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, &c)
}

// CallerFrom returns the caller of a request. There is none before
// authentication.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(*Caller)
	if !ok {
		return Caller{}, false
	}
	return *c, true
}

// Narrowing returns what the caller's token is narrowed to.
func (c Caller) Narrowing() resource.Narrowing {
	return resource.Narrowing{Caps: c.Caps, Scopes: c.Scopes}
}

// RequireUnnarrowed returns fault.PermissionDenied for a token that is narrowed: what
// is about a person, and not about a place, cannot be narrowed to a place. It
// returns fault.Unauthenticated if there is no caller.
func RequireUnnarrowed(ctx context.Context) (Caller, error) {
	c, ok := CallerFrom(ctx)
	if !ok {
		return c, fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	}
	if !c.Narrowing().IsZero() {
		return c, fault.New(fault.PermissionDenied, "Permission denied: a token that is narrowed cannot act on the person behind it")
	}
	return c, nil
}

// inScope tells whether the caller's token is good for place.
func (c *Caller) inScope(place resource.UID) bool {
	return c.Scopes == nil || slices.ContainsFunc(c.Scopes, func(s resource.UID) bool { return s.Covers(place) })
}

// Within returns the parts of a group that the caller's token is good for: the
// group itself, or the scopes below it.
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
