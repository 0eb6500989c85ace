package server

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// Prefixes are ranges of addresses, separated by commas in settings.
type Prefixes []netip.Prefix

// UnmarshalText implements encoding.TextUnmarshaler. A single address is a
// range of one.
func (p *Prefixes) UnmarshalText(text []byte) error {
	var all Prefixes
	for part := range strings.SplitSeq(string(text), ",") {
		part = strings.TrimSpace(part)
		prefix, err := netip.ParsePrefix(part)
		if addr, aerr := netip.ParseAddr(part); err != nil && aerr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("%q is not a range of addresses like 10.0.0.0/8", part)
		}
		all = append(all, prefix.Masked())
	}
	*p = all
	return nil
}

// openFederation builds the services that verify credentials of other issuers.
func (s *Server) openFederation() error {
	out, err := s.cfg.outboundConfig()
	if err != nil {
		return err
	}
	fixed, err := readIssuers(s.cfg.IssuersFile)
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

// outboundConfig returns the limits of requests to addresses that others
// choose.
func (c Config) outboundConfig() (outbound.Config, error) {
	out := outbound.Config{Loopback: c.Dev, Allow: c.OutboundAllow}
	if c.OutboundCAFile == "" {
		return out, nil
	}
	pem, err := os.ReadFile(c.OutboundCAFile)
	if err != nil {
		return out, fmt.Errorf("outbound_ca_file: %w", err)
	}
	if out.CAs, err = x509.SystemCertPool(); err != nil {
		out.CAs = x509.NewCertPool()
	}
	if !out.CAs.AppendCertsFromPEM(pem) {
		return out, errors.New("outbound_ca_file: holds no certificate")
	}
	return out, nil
}

// A fixedIssuer is an issuer whose keys cannot be discovered.
type fixedIssuer struct {
	Issuer   string `yaml:"issuer"`
	KeysURI  string `yaml:"jwks_uri"`
	Keys     string `yaml:"jwks"`
	KeysFile string `yaml:"jwks_file"` // relative to issuers_file
}

// readIssuers reads the issuers of a file; without a path there are none. It
// reports every mistake.
func readIssuers(path string) (map[string]issuers.Source, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("issuers_file: %w", err)
	}
	var all []fixedIssuer
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("issuers_file: %s: %w", path, err)
	}
	var errs []error
	fixed := map[string]issuers.Source{}
	for n, f := range all {
		source, err := f.source(filepath.Dir(path))
		if err == nil && fixed[f.Issuer].KeysURI+string(fixed[f.Issuer].Keys) != "" {
			err = errors.New("is there twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("issuers_file: issuer %d (%s): %w", n+1, f.Issuer, err))
		}
		fixed[f.Issuer] = source
	}
	return fixed, errors.Join(errs...)
}

func (f fixedIssuer) source(dir string) (source issuers.Source, err error) {
	given := 0
	for _, s := range []string{f.KeysURI, f.Keys, f.KeysFile} {
		if s != "" {
			given++
		}
	}
	switch {
	case f.Issuer == "":
		return source, errors.New("issuer is missing")
	case given != 1:
		return source, errors.New("needs one of jwks_uri, jwks and jwks_file")
	case f.KeysURI != "":
		return issuers.Source{KeysURI: f.KeysURI}, nil
	case f.Keys != "":
		source.Keys = []byte(f.Keys)
	default:
		if !filepath.IsAbs(f.KeysFile) {
			f.KeysFile = filepath.Join(dir, f.KeysFile)
		}
		if source.Keys, err = os.ReadFile(f.KeysFile); err != nil {
			return source, err
		}
	}
	_, err = issuers.ParseKeys(source.Keys)
	return source, err
}
