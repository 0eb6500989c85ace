package server

import (
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/v2/vulnapi"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/blast"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/indexer"
	"github.com/holdfast-dev/holdfast/internal/vuln/inventory"
	"github.com/holdfast-dev/holdfast/internal/vuln/match"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
	"github.com/holdfast-dev/holdfast/internal/vuln/trend"
)

// newGate returns the gate that refuses pulls of images with findings and of unsigned
// images. It reads images with the reader of the registry.
func (s *Server) newGate(contents *images.Reader) protocol.Gate {
	s.gate = policy.NewGate(findingdb.New(s.store), imagedb.New(s.store), advisorydb.New(s.store), contents, s.counts)
	return s.gate
}

// openFindings builds the indexer, which inspects images, and the matcher, which
// compares their packages with advisories. It returns the services for queries,
// policies, inventories and blast radii.
func (s *Server) openFindings(images *metadata.Service, tokens *page.Tokens) (to vulnapi.Services) {
	packages, manifests := findingdb.New(s.store), registrydb.New(s.store)
	s.indexer = indexer.New(imagedb.New(s.store), packages, s.registry.Images, indexer.Config{
		Workers: s.cfg.InspectWorkers, Metrics: s.counts, Log: s.log,
	})
	s.matcher = match.New(packages, s.advisories, s.log)
	limiter := finding.NewLimiter(s.store)
	to.Findings = query.NewService(packages, manifests, s.advisories, images, s.checker, tokens, limiter)
	to.Policy = policy.NewService(packages, manifests, s.advisories, images, s.checker, tokens, limiter)
	to.Images = policy.NewImageChecker(s.cfg.RegistryHost, s.gate, manifests, s.registry.Images, s.checker)
	to.Inventory = inventory.NewService(packages, manifests, s.checker, tokens)
	to.Blast = blast.NewService(to.Findings, packages, manifests, images, s.iam, s.checker, tokens, s.cfg.KeepPulls)
	s.trends = trend.NewService(packages, to.Findings, s.checker, s.log)
	to.Trends = s.trends
	to.Reports = report.NewService(to.Findings, packages, images, s.iam, s.checker, tokens)
	s.reports = to.Reports.NewMailer(s.mail, iam.EmailOf, s.log)
	return to
}
