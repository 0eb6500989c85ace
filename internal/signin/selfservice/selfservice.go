// Package selfservice serves the pages under /account. There, people see their roles
// and sessions, and change their password, passkeys and other factors.
package selfservice

import (
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/factor"
	"github.com/holdfast-dev/holdfast/internal/signin/password"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Service serves the account pages. It is safe for concurrent use.
type Service struct {
	site     *site.Site
	store    *iamdb.Store
	accounts *signindb.Store
	admin    *accounts.Service
	factors  *factor.Checker
	hashes   *password.Hasher
	authz    *authz.Checker
	baseURL  string // address of the API
}

// New returns a service over db. The welcome page shows baseURL, the address of the
// API.
func New(
	db *store.DB, checker *authz.Checker, pages *site.Site, admin *accounts.Service, factors *factor.Checker,
	baseURL string,
) *Service {
	return &Service{
		site: pages, store: iamdb.New(db), accounts: signindb.New(db), admin: admin, factors: factors,
		hashes: admin.Hasher(), authz: checker, baseURL: baseURL,
	}
}
