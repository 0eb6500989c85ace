package server

import (
	"github.com/holdfast-dev/holdfast/finding"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/store/advisorydb"
	"github.com/holdfast-dev/holdfast/store/findingdb"
	"github.com/holdfast-dev/holdfast/store/registrydb"
)

// openGate builds what refuses pulls of images with findings.
func (s *Server) openGate() *finding.Gate {
	return finding.NewGate(findingdb.New(s.store), registrydb.New(s.store), advisorydb.New(s.store), s.counts)
}

// openFindings builds what inspects images and compares their packages with advisories,
// and returns what answers questions about them.
func (s *Server) openFindings(images *registry.Service, tokens *page.Tokens) *finding.Service {
	packages, manifests := findingdb.New(s.store), registrydb.New(s.store)
	s.indexer = finding.NewIndexer(manifests, packages, s.registry, finding.Config{
		Workers: s.cfg.InspectWorkers, Metrics: s.counts, Log: s.log,
	})
	s.matcher = finding.NewMatcher(packages, s.advisories, s.log)
	return finding.NewService(packages, manifests, s.advisories, images, s.checker, tokens)
}
