package server

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// openGate builds the gate that refuses pulls of images with findings and of unsigned
// images. The registry calls the gate, and the gate calls the registry, which exists
// before the first pull.
func (s *Server) openGate() *finding.Gate {
	signed := func(ctx context.Context, repo resource.UID, digest string,
		group resource.UID) (signer, why string, err error) {
		return s.registry.SignedBy(ctx, repo, digest, group)
	}
	return finding.NewGate(findingdb.New(s.store), imagedb.New(s.store), advisorydb.New(s.store), signed, s.counts)
}

// openFindings builds the indexer, which inspects images, and the matcher, which
// compares their packages with advisories. It returns the service for queries.
func (s *Server) openFindings(images *protocol.Service, tokens *page.Tokens) *finding.Service {
	packages, manifests := findingdb.New(s.store), registrydb.New(s.store)
	s.indexer = finding.NewIndexer(imagedb.New(s.store), packages, s.registry, finding.Config{
		Workers: s.cfg.InspectWorkers, Metrics: s.counts, Log: s.log,
	})
	s.matcher = finding.NewMatcher(packages, s.advisories, s.log)
	return finding.NewService(packages, manifests, s.advisories, images, s.checker, tokens)
}
