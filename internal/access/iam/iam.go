// Package iam manages groups, identities, roles and the bindings between them.
//
// Every method first authorizes the caller, then validates the request, and then calls the store. Authorization depends
// only on the UID of a resource, so a caller without the capability does not learn whether the resource exists.
package iam

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/namedb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The callers who may create an organization.
const (
	Anyone = "anyone" // every caller
	Owners = "owners" // owners of any organization
	Nobody = "nobody" // only the operator
)

// Config has the settings of an operator. The zero value works.
type Config struct {
	CreateOrganizations string     // Anyone, Owners or Nobody; "" is Nobody
	Key                 secret.Key // encrypts secrets
	Mail                *mail.Queue
	Now                 func() time.Time
	KeepHistory         time.Duration // how long the past of grants is stored; 0 means forever
	// LongCodes reports whether replicas of version 0.1 run, which cannot read short codes of invites; nil: none run.
	LongCodes func() bool
}

// A Service manages the IAM resources of a database. It is safe for concurrent use.
type Service struct {
	store    *iamdb.Store
	past     *grantlog.Store
	accounts *signindb.Store
	people   *admission.Store
	names    *namedb.Store
	authz    *authz.Checker
	pages    *page.Tokens
	cfg      Config
}

// New returns a Service over db.
func New(db *store.DB, a *authz.Checker, t *page.Tokens, cfg Config) *Service {
	if cfg.CreateOrganizations == "" {
		cfg.CreateOrganizations = Nobody
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{
		store: iamdb.New(db), past: grantlog.New(db), accounts: signindb.New(db), people: admission.New(db),
		names: namedb.New(db),
		authz: a, pages: t, cfg: cfg,
	}
}

// now returns the current time in the precision of the database.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }
