// Package config has the settings of the server: how they are read from flags, the
// environment and a file, how they are checked, and what they say about each part.
package config

import (
	"cmp"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config is everything an operator can set. The zero value runs: SQLite in
// ./data, on localhost, for one person trying it out.
//
// A setting is defined once, here. Its yaml name is its key in the settings
// file; the flag has the same name (with - or _), and the variable has it in
// capitals after HOLDFAST_.
type Config struct {
	Listen       string `yaml:"listen" default:"127.0.0.1:8080" help:"host:port to serve on; port 0 picks a free one"`
	BaseURL      string `yaml:"base_url" help:"public address of the API, and the audience of its tokens; without a path (http(s):// + the listen address)"`
	AuthURL      string `yaml:"auth_url" help:"public address of the token issuer; without a path (base_url)"`
	RegistryHost string `yaml:"registry_host" help:"public host[:port] of the registry, and the audience of its tokens (the host of base_url)"`
	Database     string `yaml:"database" help:"path of an SQLite file, or a postgres:// address (holdfast.db in data_dir)"`
	DataDir      string `yaml:"data_dir" default:"data" help:"folder for everything that is not in the database"`
	TLSCert      string `yaml:"tls_cert" help:"file (PEM) of the certificate chain; read again when it changes"`
	TLSKey       string `yaml:"tls_key" help:"file (PEM) of the certificate's private key"`

	TrustedProxies Prefixes `yaml:"trusted_proxies" help:"reverse proxies whose X-Forwarded-For header is trusted, as address ranges separated by commas: 10.0.0.0/8,fd00::/8 (none)"`

	CORSOrigins Origins `yaml:"cors_origins" help:"origins of web pages that may call the API with a token of their own, separated by commas, each in full: https://console.example.com (none)"`

	MaxConnectionsPerAddress int `yaml:"max_connections_per_address" default:"256" help:"connections that one address may have at the same time, half of them HTTP/2; a /64 of IPv6 counts as one address; trusted_proxies are not limited"`

	EnvFile string `yaml:"env_file" help:"file of variables, each line NAME=value, such as secrets; in the settings file, relative to that; what the environment has takes precedence"`

	// Only from the environment: a secret on a command line can be read in the
	// process list, and one in a settings file is copied with the file.
	EncryptionKey string `yaml:"-" env:"encryption_key" help:"32 bytes in base64, the key that encrypts the secrets in the database (holdfast.key in data_dir, created on first start)"`

	OutboundAllow  Prefixes      `yaml:"outbound_allow" help:"private addresses that issuers, providers, feeds and sinks may have, as address ranges separated by commas: 10.0.0.0/8,fd00::/8"`
	OutboundCAFile string        `yaml:"outbound_ca_file" help:"file of certificates (PEM) to trust in requests to issuers, providers, feeds and sinks, in addition to the system's; read at start"`
	FeedFolders    Folders       `yaml:"feed_folders" help:"folders of this machine that advisory feeds may be read from, separated by commas"`
	IssuersFile    string        `yaml:"issuers_file" help:"file (YAML) with a list of issuers whose keys cannot be discovered, each with issuer and one of jwks_uri, jwks and jwks_file"`
	IssuerWatch    time.Duration `yaml:"issuer_watch" default:"1h" help:"how often the issuers that identities trust are checked; those that failed, twelve times as often"`
	AWSEndpoint    string        `yaml:"aws_sts_endpoint" default:"https://sts.amazonaws.com/" help:"address of the AWS token service, which verifies callers from AWS"`
	GoogleEndpoint string        `yaml:"google_sts_endpoint" default:"https://sts.googleapis.com/v1/token" help:"address of the Google token service, with which account associations are checked"`
	AzureEndpoint  string        `yaml:"azure_login_endpoint" default:"https://login.microsoftonline.com" help:"address of the Azure login service, with which account associations are checked"`
	CloudName      string        `yaml:"cloud_name" default:"holdfast" help:"name of our role in AWS accounts, and of our workload identity pool and its provider in Google projects"`
	KeyRotation    time.Duration `yaml:"key_rotation" default:"720h" help:"age at which the signing keys are replaced"`

	SigningAlgorithm string `yaml:"signing_algorithm" default:"ES256" help:"algorithm that tokens for this service are signed with: ES256, or RS256 for verifiers that know no other; tokens for others, such as clouds and webhooks, are always signed with RS256"`

	SessionIdle time.Duration `yaml:"session_idle" default:"168h" help:"how long an unused sign-in lasts"`
	SessionLife time.Duration `yaml:"session_life" default:"720h" help:"how long a sign-in lasts at most"`

	ErrorDomain         string `yaml:"error_domain" help:"domain in the details of errors (iam. + the host of base_url)"`
	Operators           UIDs   `yaml:"operators" help:"uids of the identities that may see the state of the installation in the API and the console, separated by commas (none; in dev mode the owner)"`
	CreateOrganizations string `yaml:"create_organizations" default:"owners" help:"who may create organizations: anyone, owners (of any organization) or nobody"`

	Organization string `yaml:"organization" help:"unattended set-up: name of the first organization; with capitals and accents it is the display name"`
	OwnerIssuer  string `yaml:"owner_issuer" help:"unattended set-up: address of the issuer that knows the first organization's owner"`
	OwnerSubject string `yaml:"owner_subject" help:"unattended set-up: the owner's subject at that issuer"`
	OwnerEmail   string `yaml:"owner_email" help:"unattended set-up: e-mail address of an owner who has an account here; a one-time link to set the password is printed"`
	OwnerName    string `yaml:"owner_name" help:"unattended set-up: the owner's name, as it is written"`

	Blobs          string        `yaml:"blobs" help:"folder of the registry's blobs, or s3://bucket/prefix (blobs in data_dir)"`
	S3Region       string        `yaml:"s3_region" default:"us-east-1" help:"region of the bucket; credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from the role of the machine"`
	S3Endpoint     string        `yaml:"s3_endpoint" help:"address of a service that is compatible with S3 (the region's own)"`
	BlobRedirect   bool          `yaml:"blob_redirect" help:"redirect clients to the bucket for blobs, if they can reach its addresses"`
	SparseImages   bool          `yaml:"sparse_images" help:"accept manifests whose blobs or children are not in their repository"`
	GCInterval     time.Duration `yaml:"gc_interval" default:"1h" help:"how often the garbage of the registry is collected; never if negative"`
	GCGrace        time.Duration `yaml:"gc_grace" default:"1h" help:"how long a blob is kept after no manifest needs it any more"`
	ScrubRate      Size          `yaml:"scrub_rate" help:"how many bytes of blobs are read again each second, to find those that are missing or have changed in the storage; with several replicas, by each (none)"`
	TrustedRoot    string        `yaml:"trusted_root" help:"file trusted_root.json of Sigstore, for signers of images that are identities and have none of their own; read at start (none)"`
	InspectWorkers int           `yaml:"inspect_workers" default:"1" help:"how many images are inspected at the same time; none if negative"`
	KeepTrash      time.Duration `yaml:"keep_trash" default:"168h" help:"how long deleted tags, manifests and repos can be restored, unless the settings of a group say otherwise; not at all if negative"`
	KeepPulls      time.Duration `yaml:"keep_pulls" default:"2160h" help:"how long records of pulls and pushes are kept"`

	SMTPAddress string `yaml:"smtp_address" help:"host:port of the mail server that invites, links and notices are sent with; none are sent without it"`
	SMTPFrom    string `yaml:"smtp_from" help:"sender of messages: holdfast@example.com, or Holdfast <holdfast@example.com>"`
	SMTPUser    string `yaml:"smtp_user" help:"user to sign in as at the mail server (none)"`
	SMTPTLS     string `yaml:"smtp_tls" default:"starttls" help:"TLS to the mail server: starttls, which is then required; implicit, mostly on port 465; or none, for a loopback address alone"`

	// Only from the environment, as the encryption key.
	SMTPPassword string `yaml:"-" env:"smtp_password" help:"password of smtp_user"`

	EventNames string        `yaml:"event_names" default:"holdfast" help:"prefix of event types: holdfast, or interop for receivers that were built for the public API"`
	KeepEvents time.Duration `yaml:"keep_events" default:"2160h" help:"how long the audit log is kept, and events that no sink has accepted"`

	KeepAccessHistory time.Duration `yaml:"keep_access_history" default:"17520h" help:"how long it is known who held which role"`

	LogLevel      slog.Level    `yaml:"log_level" help:"lowest level that is logged: debug, info, warn or error (info)"`
	MaxBody       Size          `yaml:"max_body" default:"4MiB" help:"largest request body that the API reads; over gRPC at least 4MiB"`
	ShutdownDelay time.Duration `yaml:"shutdown_delay" help:"how long everything is served after a signal to stop, while health checks fail already; for load balancers (0s)"`
	ShutdownGrace time.Duration `yaml:"shutdown_grace" default:"15s" help:"how long to wait for requests in flight after a signal to stop"`
	MetricsListen string        `yaml:"metrics_listen" help:"host:port to serve /metrics on (the main port)"`
	Dev           bool          `yaml:"dev" help:"for trying it out on a laptop: creates an organization and a token of its owner; only on a loopback address"`

	Stdout io.Writer        `yaml:"-"` // for results; nil is the process's
	Stderr io.Writer        `yaml:"-"` // for logs and the set-up link; nil is the process's
	Now    func() time.Time `yaml:"-"` // nil is time.Now
}

// WithDefaults fills in the defaults that do not depend on the bound address.
func (c Config) WithDefaults() Config {
	for _, s := range c.settings() {
		if s.value.IsZero() && s.fallback != "" {
			if err := s.set(s.fallback); err != nil {
				panic(err) // the tag is wrong
			}
		}
	}
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")
	c.AuthURL = strings.TrimSuffix(c.AuthURL, "/")
	c.Database = cmp.Or(c.Database, filepath.Join(c.DataDir, "holdfast.db"))
	c.Blobs = cmp.Or(c.Blobs, filepath.Join(c.DataDir, "blobs"))
	c.Stdout = cmp.Or(c.Stdout, io.Writer(os.Stdout))
	c.Stderr = cmp.Or(c.Stderr, io.Writer(os.Stderr))
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// At fills in the defaults that depend on the bound address.
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

// IsPlaintext reports whether others on the network reach the server without TLS, as
// far as the settings tell: a proxy that has TLS has an address with https.
func (c Config) IsPlaintext() bool {
	return c.TLSCert == "" && !IsLoopback(c.Listen) && !strings.HasPrefix(c.BaseURL, "https://")
}

// OnPostgres reports whether other replicas may share the database.
func (c Config) OnPostgres() bool { return strings.Contains(c.Database, "://") }

func (c Config) InteropEvents() bool { return c.EventNames == "interop" }

// ListenAddr returns the address that a server with these settings binds, so
// that links lead there.
func (c Config) ListenAddr() net.Addr {
	if addr, err := net.ResolveTCPAddr("tcp", c.Listen); err == nil {
		return addr
	}
	return &net.TCPAddr{}
}
