// Package server reads the configuration, builds every part of the service and
// connects them. It is the only package that imports all others.
package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
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

// UIDs are the uids of identities, in settings separated by commas.
type UIDs []resource.UID

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UIDs) UnmarshalText(text []byte) error {
	var all UIDs
	for part := range strings.SplitSeq(string(text), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		uid, err := resource.ParseUID("operators", part)
		if err != nil {
			return fmt.Errorf("%q is no uid", part)
		}
		all = append(all, uid)
	}
	*u = all
	return nil
}

// A Size is a number of bytes, in settings with or without a unit: 4MiB,
// 512KiB, 1000.
type Size int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	digits, unit := string(text), int64(1)
	for suffix, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(digits, suffix); ok {
			digits, unit = strings.TrimSpace(rest), bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a size like 4MiB or 512KiB", text)
	}
	*s = Size(n * unit)
	return nil
}

// LoadConfig reads the settings. A flag in args takes precedence over a
// variable in environ or in env_file, that over the file that --config names,
// and that over the default. Other variables of env_file, such as keys of a
// bucket, are set in the process. It reports every mistake, not only the first. flag.ErrHelp
// means that args asked for help, which was written to out.
func LoadConfig(args, environ []string, out io.Writer) (Config, error) {
	var c Config
	flags, err := parseFlags(args, out)
	if err != nil {
		return c, err
	}
	variables, mistakes := readEnviron(environ)
	if path := cmp.Or(flags["config"], variables["config"]); path != "" {
		mistakes = append(mistakes, c.readFile(path)...)
		if c.EnvFile != "" && !filepath.IsAbs(c.EnvFile) {
			c.EnvFile = filepath.Join(filepath.Dir(path), c.EnvFile)
		}
	}
	if path := cmp.Or(flags["env_file"], variables["env_file"], c.EnvFile); path != "" {
		mistakes = append(mistakes, readEnvFile(path, variables)...)
	}
	for _, s := range c.settings() {
		set := func(given map[string]string, name string) {
			if text, ok := given[s.name]; ok {
				if err := s.set(text); err != nil {
					mistakes = append(mistakes, fmt.Errorf("%s: %w", name, err))
				}
			}
		}
		set(variables, s.variable())
		set(flags, s.flag())
	}
	mistakes = append(mistakes, c.withDefaults().mistakes()...)
	return c, errors.Join(mistakes...)
}

// readFile reads the settings of a YAML file. It does not decode into the
// struct, because that would stop at the first value that cannot be read.
func (c *Config) readFile(path string) []error {
	b, err := os.ReadFile(path)
	if err != nil {
		return []error{err}
	}
	var document yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&document); errors.Is(err, io.EOF) { // an empty file
		return nil
	} else if err != nil {
		return []error{fmt.Errorf("%s: %w", path, err)}
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return []error{fmt.Errorf("%s: holds more than one document", path)}
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("%s: must be a list of settings, each name: value", path)}
	}
	var errs []error
	seen := map[string]bool{}
	for pair := range slices.Chunk(top.Content, 2) {
		name := pair[0].Value
		err := c.setFrom(name, pair[1])
		if seen[name] {
			err = errors.New("is set twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", path, pair[0].Line, name, err))
		}
		seen[name] = true
	}
	return errs
}

func (c *Config) setFrom(name string, value *yaml.Node) error {
	for _, s := range c.settings() {
		switch {
		case s.name != name:
		case s.secret:
			return fmt.Errorf("is a secret; set it with %s", s.variable())
		case value.Tag == "!!null":
			return nil
		case value.Kind != yaml.ScalarNode:
			return errors.New("must be a single value")
		default:
			return s.set(value.Value)
		}
	}
	return errors.New("there is no such setting")
}

// withDefaults fills in the defaults that do not depend on the bound address.
func (c Config) withDefaults() Config {
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

// at fills in the defaults that depend on the bound address.
func (c Config) at(addr net.Addr) Config {
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	c.BaseURL = cmp.Or(c.BaseURL, scheme+reachable(c.Listen, addr))
	c.AuthURL = cmp.Or(c.AuthURL, c.BaseURL)
	if u, err := url.Parse(c.BaseURL); err == nil {
		c.RegistryHost = cmp.Or(c.RegistryHost, u.Host)
		c.ErrorDomain = cmp.Or(c.ErrorDomain, "iam."+u.Hostname())
	}
	return c
}

// reachable returns an address that a client on this machine can use: the
// configured host with the bound port.
func reachable(listen string, bound net.Addr) string {
	host, _, _ := net.SplitHostPort(listen)
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	_, port, _ := net.SplitHostPort(bound.String())
	return net.JoinHostPort(host, port)
}

// isPlaintext reports whether others on the network reach the server without TLS, as
// far as the settings tell: a proxy that has TLS has an address with https.
func (c Config) isPlaintext() bool {
	return c.TLSCert == "" && !isLoopback(c.Listen) && !strings.HasPrefix(c.BaseURL, "https://")
}

// onPostgres reports whether other replicas may share the database.
func (c Config) onPostgres() bool { return strings.Contains(c.Database, "://") }

// first returns the organization that the settings ask for, or the zero value.
func (c Config) first() firstOrganization {
	return firstOrganization{Name: c.Organization, Issuer: c.OwnerIssuer, Subject: c.OwnerSubject, Email: c.OwnerEmail,
		Person: c.OwnerName}
}

// keyValues matches the key=value form of a PostgreSQL connection string.
var keyValues = regexp.MustCompile(`(^|\s)(host|hostaddr|port|user|password|dbname|service|sslmode)\s*=`)

func (c Config) mistakes() []error {
	var errs []error
	add := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{name}, args...)...))
	}
	if !isAddress(c.Listen) {
		add("listen", "%q is not host:port", c.Listen)
	}
	if c.MetricsListen != "" && !isAddress(c.MetricsListen) {
		add("metrics_listen", "%q is not host:port", c.MetricsListen)
	}
	for name, s := range map[string]string{"base_url": c.BaseURL, "auth_url": c.AuthURL} {
		if s != "" && !isBaseURL(s) {
			add(name, "%q is not an http:// or https:// address without query and fragment", s)
		} else if u, err := url.Parse(s); err == nil && strings.Trim(u.Path, "/") != "" {
			add(name, "%q has a path; sign-in and discovery need a host of their own", s)
		}
	}
	if u, err := url.Parse("//" + c.RegistryHost); err != nil || u.Host != c.RegistryHost {
		add("registry_host", "%q is not host or host:port", c.RegistryHost)
	}
	c.devMistakes(add)
	if scheme, _, ok := strings.Cut(c.Database, "://"); ok && scheme != "postgres" && scheme != "postgresql" {
		add("database", "%s:// is not supported; give a path or a postgres:// address", scheme)
	} else if !ok && keyValues.MatchString(c.Database) { // used as a file name, it would reveal the password
		add("database", "give a path or a postgres:// address, not key=value")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		add("tls_cert", "tls_cert and tls_key go together")
	}
	c.keyMistakes(add)
	if !slices.Contains([]string{"anyone", "owners", "nobody"}, c.CreateOrganizations) {
		add("create_organizations", "%q is not anyone, owners or nobody", c.CreateOrganizations)
	}
	for name, n := range map[string]int64{
		"max_body": int64(c.MaxBody), "shutdown_delay": int64(c.ShutdownDelay), "shutdown_grace": int64(c.ShutdownGrace),
		"gc_grace": int64(c.GCGrace), "keep_pulls": int64(c.KeepPulls), "scrub_rate": int64(c.ScrubRate),
	} {
		if n < 0 {
			add(name, "must not be negative")
		}
	}
	for name, d := range map[string]time.Duration{
		"issuer_watch": c.IssuerWatch, "key_rotation": c.KeyRotation,
		"session_idle": c.SessionIdle, "session_life": c.SessionLife,
	} {
		if d < 0 || d > 0 && d < time.Second {
			add(name, "must be at least a second")
		}
	}
	for name, s := range map[string]string{
		"aws_sts_endpoint": c.AWSEndpoint, "google_sts_endpoint": c.GoogleEndpoint,
		"azure_login_endpoint": c.AzureEndpoint,
	} {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "https" && !(c.Dev && u.Scheme == "http") {
			add(name, "%q is not an https:// address", s)
		}
	}
	c.clientMistakes(add)
	c.blobMistakes(add)
	c.eventMistakes(add)
	c.mailMistakes(add)
	if first := c.first(); first != (firstOrganization{}) {
		for _, v := range first.violations(false) {
			add(v.Subject, "%s", v.Description)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// keyMistakes reports mistakes in the settings of keys.
func (c Config) keyMistakes(add func(name, format string, args ...any)) {
	if _, err := secret.ParseKey(c.EncryptionKey); c.EncryptionKey != "" && err != nil {
		add("encryption_key", "%w", err)
	}
	if !slices.Contains([]string{token.ES256, token.RS256}, c.SigningAlgorithm) {
		add("signing_algorithm", "%q is not ES256 or RS256", c.SigningAlgorithm)
	}
}

// clientMistakes reports mistakes in the settings that limit clients.
func (c Config) clientMistakes(add func(name, format string, args ...any)) {
	for _, p := range c.TrustedProxies {
		if p.Bits() == 0 {
			add("trusted_proxies", "%s is everybody, and everybody can send X-Forwarded-For", p)
		}
	}
	if c.MaxConnectionsPerAddress < 1 {
		add("max_connections_per_address", "must be at least 1")
	}
}

// devMistakes reports addresses that others could reach. Dev mode makes
// everybody who asks an owner, and a proxy in front of it would let everybody
// ask.
func (c Config) devMistakes(add func(name, format string, args ...any)) {
	if !c.Dev {
		return
	}
	if isAddress(c.Listen) && !isLoopback(c.Listen) {
		add("listen", "%q is not a loopback address, and dev mode hands out an owner's token", c.Listen)
	}
	for name, s := range map[string]string{
		"base_url": c.BaseURL, "auth_url": c.AuthURL, "registry_host": "//" + c.RegistryHost,
	} {
		if u, err := url.Parse(s); err == nil && u.Host != "" && !isLocalHost(u.Hostname()) {
			add(name, "%q is not an address of this machine (localhost, a name below .localhost or .test, "+
				"or a loopback address), and dev mode hands out an owner's token", strings.TrimPrefix(s, "//"))
		}
	}
}

// isLocalHost reports whether a host can only be this machine: names below
// .localhost are (RFC 6761), and nobody else can own those below .test.
func isLocalHost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".test") ||
		net.ParseIP(host).IsLoopback()
}

// pollEvery returns how often a device may poll; 0 is the default. In dev mode
// somebody is waiting for it.
func (c Config) pollEvery() time.Duration {
	if c.Dev {
		return time.Second
	}
	return 0
}

func isAddress(s string) bool {
	_, port, _ := net.SplitHostPort(s)
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}
