// Package iam manages groups, identities, roles and the bindings between them.
//
// Every method first checks that the caller may, then validates the request, and then calls the store.
// Authorization depends on the UID alone, so a caller without the capability does not learn what exists.
package iam

import (
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/people"
	"github.com/holdfast-dev/holdfast/seal"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/iamdb"
	"github.com/holdfast-dev/holdfast/store/signindb"
)

// Who may create an organization.
const (
	Anyone = "anyone" // every caller
	Owners = "owners" // owners of some organization
	Nobody = "nobody" // only the operator
)

// Config is what an operator can set. The zero value works.
type Config struct {
	CreateOrganizations string   // Anyone, Owners or Nobody; "" is Owners
	Key                 seal.Key // seals secrets
	Now                 func() time.Time
}

// A Service manages the IAM resources in a store.
type Service struct {
	store    *iamdb.Store
	accounts *signindb.Store
	people   *people.Store
	authz    *authz.Checker
	pages    *page.Tokens
	cfg      Config
}

// New returns a Service over db.
func New(db *store.DB, a *authz.Checker, t *page.Tokens, cfg Config) *Service {
	if cfg.CreateOrganizations == "" {
		cfg.CreateOrganizations = Owners
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: iamdb.New(db), accounts: signindb.New(db), people: people.New(db), authz: a, pages: t, cfg: cfg}
}

// now returns the time of a change, in the precision of the store.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// The lists and the fields they can be ordered by.
var (
	byUID   = page.Order{Field: "uid"}
	byGroup = page.Order{Field: "group"}
	newest  = page.Order{Field: "create_time", Desc: true}
	named   = []string{"uid", "name", "create_time", "update_time"}
	dated   = []string{"uid", "create_time"}

	groupList       = page.List{Kind: "groups", Fields: named, Default: byUID}
	idList          = page.List{Kind: "identities", Fields: named, Default: byUID}
	roleList        = page.List{Kind: "roles", Fields: named, Default: byUID}
	bindingList     = page.List{Kind: "role_bindings", Fields: dated, Default: byUID}
	providerList    = page.List{Kind: "identity_providers", Fields: named, Default: byUID}
	associationList = page.List{
		Kind: "account_associations", Fields: append([]string{"group"}, named...), Default: byGroup,
	}
	inviteList  = page.List{Kind: "group_invites", Fields: dated, Default: newest}
	mappingList = page.List{Kind: "external_group_role_mappings", Fields: dated, Default: byUID}
	accessList  = page.List{Kind: "access", Fields: dated, Default: byUID}
)
