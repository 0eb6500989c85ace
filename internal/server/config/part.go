package config

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/registry/signature"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

const bucketScheme = "s3://"

// IsBucket reports whether a storage location is a bucket, and not a path.
func IsBucket(place string) bool { return strings.HasPrefix(place, bucketScheme) }

// Storage opens the storage of blobs.
func (c Config) Storage() (blob.Storage, error) {
	rest, ok := strings.CutPrefix(c.Blobs, bucketScheme)
	if !ok {
		return blob.NewFolder(c.Blobs), nil
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	return blob.NewS3(blob.Bucket{Name: bucket, Prefix: prefix, Region: c.S3Region, Endpoint: c.S3Endpoint})
}

// StorageAt opens the storage at place, a folder or a bucket other than the storage of
// the blobs. It uses the S3 settings of the blobs.
func (c Config) StorageAt(place string) (blob.Storage, error) {
	c.Blobs = place
	var mistakes []error
	c.blobMistakes(func(_, format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) })
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	if !IsBucket(place) {
		var err error
		if c.Blobs, err = filepath.Abs(place); err != nil {
			return nil, err
		}
	}
	return c.Storage()
}

// ReadTrustedRoot returns the trusted root of Sigstore that the settings name, or
// nil without that setting. It returns an error if the file is not a trusted root.
func (c Config) ReadTrustedRoot() ([]byte, error) {
	if c.TrustedRoot == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.TrustedRoot)
	if err != nil {
		return nil, fmt.Errorf("trusted_root: %w", err)
	}
	if _, err := signature.ParseRoot(text); err != nil {
		return nil, fmt.Errorf("trusted_root: %s %w", c.TrustedRoot, err)
	}
	return text, nil
}

// MailServer returns the mail server of the settings.
func (c Config) MailServer() (mail.Server, error) {
	limits, err := c.Outbound()
	return mail.Server{
		Address: c.SMTPAddress, From: c.SMTPFrom, User: c.SMTPUser, Password: c.SMTPPassword, TLS: c.SMTPTLS,
		Roots: limits.CAs,
	}, err
}

// Outbound returns the limits of requests to addresses that tenants choose.
func (c Config) Outbound() (outbound.Config, error) {
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
	KeysFile string `yaml:"jwks_file"` // path relative to issuers_file
}

// Issuers reads the file of issuers whose keys cannot be discovered. It returns
// the sources of the keys by issuer, and nil without that setting. The error
// lists every mistake in the file.
func (c Config) Issuers() (map[string]issuers.Source, error) {
	if c.IssuersFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(c.IssuersFile)
	if err != nil {
		return nil, fmt.Errorf("issuers_file: %w", err)
	}
	var listed []fixedIssuer
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&listed); err != nil {
		return nil, fmt.Errorf("issuers_file: %s: %w", c.IssuersFile, err)
	}
	var errs []error
	sources := map[string]issuers.Source{}
	for n, f := range listed {
		source, err := f.source(filepath.Dir(c.IssuersFile))
		if err == nil && sources[f.Issuer].KeysURI+string(sources[f.Issuer].Keys) != "" {
			err = errors.New("is listed twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("issuers_file: issuer %d (%s): %w", n+1, f.Issuer, err))
		}
		sources[f.Issuer] = source
	}
	return sources, errors.Join(errs...)
}

// source returns the source of the issuer's keys. Relative paths start at dir.
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
