// Package policy manages exceptions and pull rules, imports exceptions from VEX documents, and refuses pulls.
package policy

import (
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A Service manages exceptions and rules.
type Service struct {
	packages   *findingdb.Store
	repoStore  *registrydb.Store
	images     *imagedb.Store
	pulls      *pulldb.Store
	advisories *advisorydb.Store
	registry   *metadata.Service
	authz      *authz.Checker
	pages      *page.Tokens
	turns      *finding.Limiter
}

// NewService returns a Service over a database.
func NewService(
	packages *findingdb.Store, repos *registrydb.Store, advisories *advisorydb.Store, r *metadata.Service,
	c *authz.Checker, p *page.Tokens, t *finding.Limiter,
) *Service {
	return &Service{packages, repos, imagedb.New(repos.DB), pulldb.New(repos.DB), advisories, r, c, p, t}
}
