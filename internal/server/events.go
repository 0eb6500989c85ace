package server

import (
	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// openEvents builds the service for subscriptions and the dispatcher of
// events.
func (s *Server) openEvents(tokens *page.Tokens) (*event.Service, error) {
	outbound, err := s.cfg.Outbound()
	if err != nil {
		return nil, err
	}
	bodies := &v2.EventBodies{Interop: s.cfg.InteropEvents(), RepoPath: registrydb.New(s.store).RepoPath}
	s.events = event.NewDispatcher(s.store, s.issuer, event.Config{
		Source: s.cfg.BaseURL, Names: wire.EventNames(s.cfg.InteropEvents()), Render: bodies.Body,
		Reach: outbound, Retention: s.cfg.KeepEvents, Metrics: s.counts, Log: s.log, Now: s.cfg.Now,
		Failing: s.mailFailing,
	})
	return event.NewService(s.store, s.checker, tokens, event.ServiceConfig{
		Reach: outbound, Now: s.cfg.Now, Test: s.events.Test,
	}), nil
}
