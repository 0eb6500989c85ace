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

// openGate builds what refuses pulls of images with findings, and of images that nobody has signed. The registry asks it,
// and it asks the registry, which is there when the first pull is.
func (s *Server) openGate() *finding.Gate {
	signed := func(ctx context.Context, repo resource.UID, digest string,
		group resource.UID) (signer, why string, err error) {
		return s.registry.SignedBy(ctx, repo, digest, group)
	}
	return finding.NewGate(findingdb.New(s.store), imagedb.New(s.store), advisorydb.New(s.store), signed, s.counts)
}

// openFindings builds what inspects images and compares their packages with advisories,
// and returns what answers questions about them.
func (s *Server) openFindings(images *protocol.Service, tokens *page.Tokens) *finding.Service {
	packages, manifests := findingdb.New(s.store), registrydb.New(s.store)
	s.indexer = finding.NewIndexer(imagedb.New(s.store), packages, s.registry, finding.Config{
		Workers: s.cfg.InspectWorkers, Metrics: s.counts, Log: s.log,
	})
	s.matcher = finding.NewMatcher(packages, s.advisories, s.log)
	return finding.NewService(packages, manifests, s.advisories, images, s.checker, tokens)
}
