package server

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/fetch"
)

// feedTimeout is the time that the download of a feed may take.
const feedTimeout = 15 * time.Minute

// openAdvisories builds the service for advisories, which also fetches their
// feeds.
func (s *Server) openAdvisories(tokens *page.Tokens) (*advisory.Service, error) {
	out, err := s.cfg.Outbound()
	if err != nil {
		return nil, err
	}
	out.Timeout = feedTimeout
	fetcher := fetch.New(fetch.Config{
		Client: outbound.Client(out), Dir: s.cfg.DataDir, Folders: s.cfg.FeedFolders, Timeout: feedTimeout,
	})
	return advisory.New(s.advisories, s.checker, tokens, advisory.Config{
		Fetcher: fetcher, Metrics: s.counts, Log: s.log, Now: s.cfg.Now,
	}), nil
}
