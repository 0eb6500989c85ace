// Package iam manages who exists and what they may do: groups, identities,
// roles and the bindings that tie them together.
//
// Every method asks first whether the caller may, then whether the request is
// sound, and then has the store remember it. A place is authorized by its UID
// alone, so a caller without the capability learns nothing of what exists.
package iam

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/seal"
	"github.com/holdfast-dev/holdfast/store"
)

// Who may create an organization.
const (
	Anyone = "anyone" // who has a token
	Owners = "owners" // of some organization
	Nobody = "nobody" // but the operator
)

// Config is what an operator can set. The zero value works.
type Config struct {
	CreateOrganizations string   // Anyone, Owners or Nobody; "" is Owners
	Key                 seal.Key // that secrets are sealed with
	Now                 func() time.Time
}

// A Service applies the rules of IAM to the resources in a store.
type Service struct {
	store *store.Store
	authz *authz.Checker
	pages *page.Tokens
	cfg   Config
}

// New returns a Service over s.
func New(s *store.Store, a *authz.Checker, t *page.Tokens, cfg Config) *Service {
	if cfg.CreateOrganizations == "" {
		cfg.CreateOrganizations = Owners
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: s, authz: a, pages: t, cfg: cfg}
}

// now is the time of a change, as precise as it is kept.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// The lists there are, with the orders they can have.
var (
	byUID       = page.Order{Field: "uid"}
	groupList   = page.List{Kind: "groups", Fields: []string{"uid", "name", "create_time", "update_time"}, Default: byUID}
	idList      = page.List{Kind: "identities", Fields: []string{"uid", "name", "create_time", "update_time"}, Default: byUID}
	roleList    = page.List{Kind: "roles", Fields: []string{"uid", "name", "create_time", "update_time"}, Default: byUID}
	bindingList = page.List{Kind: "role_bindings", Fields: []string{"uid", "create_time"}, Default: byUID}

	providerList    = page.List{Kind: "identity_providers", Fields: []string{"uid", "name", "create_time", "update_time"}, Default: byUID}
	associationList = page.List{
		Kind: "account_associations", Fields: []string{"group", "uid", "name", "create_time", "update_time"}, Default: page.Order{Field: "group"},
	}
	inviteList  = page.List{Kind: "group_invites", Fields: []string{"uid", "create_time"}, Default: page.Order{Field: "create_time", Desc: true}}
	mappingList = page.List{Kind: "external_group_role_mappings", Fields: []string{"uid", "create_time"}, Default: byUID}
	accessList  = page.List{Kind: "access", Fields: []string{"uid", "create_time"}, Default: byUID}
)

// reach is what the caller may see with a capability.
func (s *Service) reach(ctx context.Context, want resource.Capability) (store.Reach, error) {
	under, err := s.authz.Reach(ctx, want)
	return store.Reach{Under: under}, err
}

// caller returns who is asking.
func caller(ctx context.Context) (authz.Caller, error) {
	c, ok := authz.CallerFrom(ctx)
	if !ok {
		return c, fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	}
	return c, nil
}
