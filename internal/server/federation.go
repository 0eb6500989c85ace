package server

import (
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// openFederation builds the services that verify credentials of other issuers.
func (s *Server) openFederation() error {
	out, err := s.cfg.Outbound()
	if err != nil {
		return err
	}
	fixed, err := s.cfg.Issuers()
	if err != nil {
		return err
	}
	client := outbound.Client(out)
	s.client = client
	issuers, err := issuers.New(issuers.Config{
		Client: client, Fixed: fixed, Lookups: s.counts.Cache("issuer_keys"), Now: s.cfg.Now,
	})
	if err != nil {
		return fmt.Errorf("issuers_file: %w", err)
	}
	s.checker.OnChange(func(subject resource.UID) {
		if subject == "" || subject == resource.SigningKeysSubject {
			s.issuer.Invalidate()
		}
	})
	s.sts = sts.New(s.store, s.checker, s.issuer, issuers, sts.Config{
		BaseURL: s.cfg.BaseURL, RegistryHost: s.cfg.RegistryHost,
		SessionIdle: s.cfg.SessionIdle, SessionLife: s.cfg.SessionLife, WatchEvery: s.cfg.IssuerWatch,
		AWS:     sts.AWS{Endpoint: s.cfg.AWSEndpoint, Headers: wire.ProofHeaders, Client: client},
		Clouds:  sts.Clouds{Google: s.cfg.GoogleEndpoint, Azure: s.cfg.AzureEndpoint, Name: s.cfg.CloudName},
		Metrics: s.counts, Log: s.log, Now: s.cfg.Now,
	})
	return nil
}
