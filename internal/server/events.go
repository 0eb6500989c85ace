package server

import (
	"slices"
	"time"

	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// minKeepEvents leaves time to give up events that no sink accepts, and to
// inspect them.
const minKeepEvents = 48 * time.Hour

// minKeepAccessHistory leaves time to ask what has just been changed.
const minKeepAccessHistory = 24 * time.Hour

// eventNames are the prefixes that event types can have.
var eventNames = []string{"holdfast", "interop"}

func (c Config) interopEvents() bool { return c.EventNames == "interop" }

func (c Config) eventMistakes(add func(name, format string, args ...any)) {
	if !slices.Contains(eventNames, c.EventNames) {
		add("event_names", "%q is not holdfast or interop", c.EventNames)
	}
	if c.KeepEvents < minKeepEvents {
		add("keep_events", "must be at least %s", minKeepEvents)
	}
	if c.KeepAccessHistory < minKeepAccessHistory {
		add("keep_access_history", "must be at least %s", minKeepAccessHistory)
	}
}

// openEvents builds the service for subscriptions and the dispatcher of
// events.
func (s *Server) openEvents(tokens *page.Tokens) (*event.Service, error) {
	outbound, err := s.cfg.outboundConfig()
	if err != nil {
		return nil, err
	}
	bodies := &v2.EventBodies{Interop: s.cfg.interopEvents(), RepoPath: registrydb.New(s.store).RepoPath}
	s.events = event.NewDispatcher(s.store, s.issuer, event.Config{
		Source: s.cfg.BaseURL, Names: wire.EventNames(s.cfg.interopEvents()), Render: bodies.Body,
		Reach: outbound, Retention: s.cfg.KeepEvents, Metrics: s.counts, Log: s.log, Now: s.cfg.Now,
	})
	return event.NewService(s.store, s.checker, tokens, event.ServiceConfig{
		Reach: outbound, Now: s.cfg.Now, Test: s.events.Test,
	}), nil
}
