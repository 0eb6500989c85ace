package server

import (
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/api"
	"github.com/holdfast-dev/holdfast/event"
	"github.com/holdfast-dev/holdfast/page"
)

// minKeepEvents leaves time to give up what no sink takes, and to look at it.
const minKeepEvents = 48 * time.Hour

// eventNames are what types of events can begin with.
var eventNames = []string{"holdfast", "interop"}

func (c Config) interopEvents() bool { return c.EventNames == "interop" }

func (c Config) eventMistakes(add func(name, format string, args ...any)) {
	if !slices.Contains(eventNames, c.EventNames) {
		add("event_names", "%q is not holdfast or interop", c.EventNames)
	}
	if c.KeepEvents < minKeepEvents {
		add("keep_events", "must be at least %s", minKeepEvents)
	}
}

// openEvents builds what tells others of changes.
func (s *Server) openEvents(tokens *page.Tokens) (*event.Service, error) {
	reach, err := s.cfg.reach()
	if err != nil {
		return nil, err
	}
	bodies := &api.EventBodies{Interop: s.cfg.interopEvents(), RepoPath: s.store.RepoPath}
	s.events = event.NewDispatcher(s.store, s.issuer, event.Config{
		Source: s.cfg.BaseURL, Names: api.EventNames(s.cfg.interopEvents()), Render: bodies.Body,
		Reach: reach, Retention: s.cfg.KeepEvents, Log: s.log, Now: s.cfg.Now,
	})
	return event.NewService(s.store, s.checker, tokens, event.ServiceConfig{Reach: reach, Now: s.cfg.Now}), nil
}
