package config

import (
	"errors"
	"fmt"
	netmail "net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// keyValues matches the key=value form of a PostgreSQL connection string.
var keyValues = regexp.MustCompile(`(^|\s)(host|hostaddr|port|user|password|dbname|service|sslmode)\s*=`)

// minKeepEvents is long enough for the dispatcher to give up events that no sink
// accepts, and for people to inspect these events.
const minKeepEvents = 48 * time.Hour

// minKeepAccessHistory is long enough for people to look up a recent change.
const minKeepAccessHistory = 24 * time.Hour

// eventNames are the prefixes that event types can have.
var eventNames = []string{"holdfast", "interop"}

// Check returns an error that lists every mistake in the settings. c must have its
// defaults.
func (c Config) Check() error { return errors.Join(c.mistakes()...) }

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
	} else if !ok && keyValues.MatchString(c.Database) { // the name of the new file would contain the password
		add("database", "give a path or a postgres:// address, not key=value")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		add("tls_cert", "set both tls_cert and tls_key, or neither")
	}
	c.keyMistakes(add)
	if !slices.Contains([]string{"anyone", "owners", "nobody"}, c.CreateOrganizations) {
		add("create_organizations", "%q is not anyone, owners or nobody", c.CreateOrganizations)
	}
	c.rangeMistakes(add)
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
	if first := c.First(); first != (FirstOrganization{}) {
		for _, v := range first.Violations(false) {
			add(v.Subject, "%s", v.Description)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// rangeMistakes reports numbers and durations that are out of range.
func (c Config) rangeMistakes(add func(name, format string, args ...any)) {
	for name, n := range map[string]int64{
		"max_body": int64(c.MaxBody), "shutdown_delay": int64(c.ShutdownDelay), "shutdown_grace": int64(c.ShutdownGrace),
		"gc_grace": int64(c.GCGrace), "keep_pulls": int64(c.KeepPulls), "scrub_rate": int64(c.ScrubRate),
		"upstream_rate": int64(c.UpstreamRate), "keep_tag_history": int64(c.KeepTagHistory),
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
			add("trusted_proxies", "%s includes every address, and anybody can send X-Forwarded-For; name only your proxies", p)
		}
	}
	if c.MaxConnectionsPerAddress < 1 {
		add("max_connections_per_address", "must be at least 1")
	}
}

// devMistakes reports addresses that other machines could reach. Dev mode gives an
// owner's token to every caller, and a proxy in front of it would let anybody call.
func (c Config) devMistakes(add func(name, format string, args ...any)) {
	if !c.Dev {
		return
	}
	if isAddress(c.Listen) && !IsLoopback(c.Listen) {
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

// blobMistakes reports mistakes in the settings of the registry.
func (c Config) blobMistakes(add func(name, format string, args ...any)) {
	if scheme, rest, ok := strings.Cut(c.Blobs, "://"); ok && (scheme != "s3" || rest == "" || rest[0] == '/') {
		add("blobs", "%q is neither a folder nor s3://bucket/prefix", c.Blobs)
	}
	if u, err := url.Parse(c.S3Endpoint); c.S3Endpoint != "" &&
		(err != nil || !isBaseURL(c.S3Endpoint) || strings.Trim(u.Path, "/") != "") {
		add("s3_endpoint", "%q is not an http:// or https:// address without path, query and fragment", c.S3Endpoint)
	}
}

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

// mailMistakes reports mistakes in the settings of the mail server.
func (c Config) mailMistakes(add func(name, format string, args ...any)) {
	if c.SMTPAddress == "" {
		if c.SMTPFrom != "" || c.SMTPUser != "" || c.SMTPPassword != "" {
			add("smtp_address", "is required with smtp_from, smtp_user and smtp_password")
		}
		return
	}
	if !isAddress(c.SMTPAddress) || strings.HasPrefix(c.SMTPAddress, ":") {
		add("smtp_address", "%q is not host:port", c.SMTPAddress)
	}
	if _, err := netmail.ParseAddress(c.SMTPFrom); err != nil {
		add("smtp_from", "%q is not an e-mail address", c.SMTPFrom)
	}
	if (c.SMTPUser == "") != (c.SMTPPassword == "") {
		add("smtp_user", "set both smtp_user and smtp_password, or neither")
	}
	if !slices.Contains([]string{mail.StartTLS, mail.Implicit, mail.NoTLS}, c.SMTPTLS) {
		add("smtp_tls", "%q is not starttls, implicit or none", c.SMTPTLS)
	}
	if c.SMTPTLS == mail.NoTLS && !IsLoopback(c.SMTPAddress) {
		add("smtp_tls", "none is allowed only for a loopback address, because messages contain sign-in links")
	}
}
