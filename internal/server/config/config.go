// Package config has the settings of the server. It reads them from flags, the
// environment and a file, checks them, and derives from them the configuration of each
// part of the server.
package config

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Config has every setting of an operator. The zero value is usable: it runs SQLite in
// ./data, on localhost, for one person who tries it out.
//
// The yaml name of a setting is its key in the settings file. The flag has the same name,
// with - or _. The environment variable is the name in capitals, after HOLDFAST_. help.go
// explains each setting.
type Config struct {
	Listen       string `yaml:"listen" default:"127.0.0.1:8080"`
	BaseURL      string `yaml:"base_url"`
	AuthURL      string `yaml:"auth_url"`
	RegistryHost string `yaml:"registry_host"`
	Database     string `yaml:"database"`
	DataDir      string `yaml:"data_dir" default:"data"`
	TLSCert      string `yaml:"tls_cert"`
	TLSKey       string `yaml:"tls_key"`

	TrustedProxies Prefixes `yaml:"trusted_proxies"`

	CORSOrigins Origins `yaml:"cors_origins"`

	MaxConnectionsPerAddress int `yaml:"max_connections_per_address" default:"256"`

	EnvFile string `yaml:"env_file"`

	// EncryptionKey is read only from the environment. A secret on a command line
	// can be read in the process list, and one in a settings file is copied with
	// the file.
	EncryptionKey string `yaml:"-" env:"encryption_key"`

	OutboundAllow  Prefixes      `yaml:"outbound_allow"`
	OutboundCAFile string        `yaml:"outbound_ca_file"`
	FeedFolders    Folders       `yaml:"feed_folders"`
	IssuersFile    string        `yaml:"issuers_file"`
	IssuerWatch    time.Duration `yaml:"issuer_watch" default:"1h"`
	AWSEndpoint    string        `yaml:"aws_sts_endpoint" default:"https://sts.amazonaws.com/"`
	GoogleEndpoint string        `yaml:"google_sts_endpoint" default:"https://sts.googleapis.com/v1/token"`
	AzureEndpoint  string        `yaml:"azure_login_endpoint" default:"https://login.microsoftonline.com"`
	CloudName      string        `yaml:"cloud_name" default:"holdfast"`
	KeyRotation    time.Duration `yaml:"key_rotation" default:"720h"`

	SigningAlgorithm string `yaml:"signing_algorithm" default:"ES256"`

	SessionIdle time.Duration `yaml:"session_idle" default:"168h"`
	SessionLife time.Duration `yaml:"session_life" default:"720h"`

	ErrorDomain         string `yaml:"error_domain"`
	Operators           UIDs   `yaml:"operators"`
	CreateOrganizations string `yaml:"create_organizations"`

	KeepNames time.Duration `yaml:"keep_names" default:"2160h"`

	MaxGroups   int `yaml:"max_groups" default:"200000"`
	MaxBindings int `yaml:"max_bindings" default:"200000"`

	Organization string `yaml:"organization"`
	OwnerIssuer  string `yaml:"owner_issuer"`
	OwnerSubject string `yaml:"owner_subject"`
	OwnerEmail   string `yaml:"owner_email"`
	OwnerName    string `yaml:"owner_name"`

	Blobs          string        `yaml:"blobs"`
	S3Region       string        `yaml:"s3_region" default:"us-east-1"`
	S3Endpoint     string        `yaml:"s3_endpoint"`
	BlobRedirect   bool          `yaml:"blob_redirect"`
	SparseImages   bool          `yaml:"sparse_images"`
	GCInterval     time.Duration `yaml:"gc_interval" default:"1h"`
	GCGrace        time.Duration `yaml:"gc_grace" default:"1h"`
	ScrubRate      Size          `yaml:"scrub_rate"`
	UpstreamRate   Size          `yaml:"upstream_rate" default:"32KiB"`
	TrustedRoot    string        `yaml:"trusted_root"`
	InspectWorkers int           `yaml:"inspect_workers" default:"1"`
	NeedLandlock   bool          `yaml:"require_landlock"`
	KeepTrash      time.Duration `yaml:"keep_trash" default:"168h"`
	KeepPulls      time.Duration `yaml:"keep_pulls" default:"2160h"`
	KeepTagHistory time.Duration `yaml:"keep_tag_history" default:"17520h"`

	SMTPAddress string `yaml:"smtp_address"`
	SMTPFrom    string `yaml:"smtp_from"`
	SMTPUser    string `yaml:"smtp_user"`
	SMTPTLS     string `yaml:"smtp_tls" default:"starttls"`

	// SMTPPassword is read only from the environment, for the same reasons as EncryptionKey.
	SMTPPassword string `yaml:"-" env:"smtp_password"`

	EventNames string        `yaml:"event_names" default:"holdfast"`
	KeepEvents time.Duration `yaml:"keep_events" default:"2160h"`

	KeepAccessHistory time.Duration `yaml:"keep_access_history" default:"17520h"`

	LogLevel      slog.Level    `yaml:"log_level"`
	MaxBody       Size          `yaml:"max_body" default:"4MiB"`
	ShutdownDelay time.Duration `yaml:"shutdown_delay"`
	ShutdownGrace time.Duration `yaml:"shutdown_grace" default:"15s"`
	MetricsListen string        `yaml:"metrics_listen"`
	MetricsPublic bool          `yaml:"metrics_public"`
	Dev           bool          `yaml:"dev"`

	Stdout io.Writer        `yaml:"-"` // receives results; nil: os.Stdout
	Stderr io.Writer        `yaml:"-"` // receives logs and the set-up link; nil: os.Stderr
	Now    func() time.Time `yaml:"-"` // clock; nil: time.Now

	// BeforeWrite is called before a request writes, after its authorization. Tests use it to revoke access in
	// between; nil: nothing is called.
	BeforeWrite func(context.Context) `yaml:"-"`
}

// WithDefaults returns c with the defaults that do not depend on the bound address.
func (c Config) WithDefaults() Config {
	for _, s := range c.settings() {
		if s.value.IsZero() && s.fallback != "" {
			if err := s.set(s.fallback); err != nil {
				panic(err) // the tag of the field is wrong, which is a bug
			}
		}
	}
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")
	c.AuthURL = strings.TrimSuffix(c.AuthURL, "/")
	c.Database = cmp.Or(c.Database, filepath.Join(c.DataDir, "holdfast.db"))
	c.Blobs = cmp.Or(c.Blobs, filepath.Join(c.DataDir, "blobs"))
	if c.CreateOrganizations == "" {
		c.CreateOrganizations = "nobody"
		if c.Dev {
			c.CreateOrganizations = "owners"
		}
	}
	c.Stdout = cmp.Or(c.Stdout, io.Writer(os.Stdout))
	c.Stderr = cmp.Or(c.Stderr, io.Writer(os.Stderr))
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// DefaultLimits returns the limits of organizations whose budget has no other limits.
func (c Config) DefaultLimits() map[resource.Metric]int64 {
	limits := map[resource.Metric]int64{
		resource.BudgetGroups: int64(c.MaxGroups), resource.BudgetBindings: int64(c.MaxBindings),
	}
	maps.DeleteFunc(limits, func(_ resource.Metric, limit int64) bool { return limit < 0 })
	return limits
}

// At returns c with the defaults that depend on the bound address.
func (c Config) At(addr net.Addr) Config {
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	c.BaseURL = cmp.Or(c.BaseURL, scheme+c.Reachable(addr))
	c.AuthURL = cmp.Or(c.AuthURL, c.BaseURL)
	if u, err := url.Parse(c.BaseURL); err == nil {
		c.RegistryHost = cmp.Or(c.RegistryHost, u.Host)
		c.ErrorDomain = cmp.Or(c.ErrorDomain, "iam."+u.Hostname())
	}
	return c
}

// Reachable returns an address that a client on this machine can use: the
// configured host with the bound port.
func (c Config) Reachable(bound net.Addr) string {
	host, _, _ := net.SplitHostPort(c.Listen)
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	_, port, _ := net.SplitHostPort(bound.String())
	return net.JoinHostPort(host, port)
}

// IsPlaintext reports whether clients on the network reach the server without TLS.
// If base_url begins with https://, it assumes that a proxy provides TLS.
func (c Config) IsPlaintext() bool {
	return c.TLSCert == "" && !IsLoopback(c.Listen) && !strings.HasPrefix(c.BaseURL, "https://")
}

// OnPostgres reports whether the database is PostgreSQL, which replicas can share.
func (c Config) OnPostgres() bool { return strings.Contains(c.Database, "://") }

// InteropEvents reports whether event types have the prefix that receivers built for the public API expect.
func (c Config) InteropEvents() bool { return c.EventNames == "interop" }

// ListenAddr returns the address that a server with these settings binds. Commands use it
// for links to that server.
func (c Config) ListenAddr() net.Addr {
	if addr, err := net.ResolveTCPAddr("tcp", c.Listen); err == nil {
		return addr
	}
	return &net.TCPAddr{}
}
