package config

// help explains the settings, by name. It is the text of --help, of the manual page and of
// docs/running.md. If the default of a setting is not a constant, its text ends with
// the default in parentheses.
var help = map[string]string{
	"listen": "host:port to serve on; port 0 picks a free one",
	"base_url": "public address of the API, and the audience of its tokens; without a path (http(s):// + the " +
		"listen address)",
	"auth_url":      "public address of the token issuer; without a path (base_url)",
	"registry_host": "public host[:port] of the registry, and the audience of its tokens (the host of base_url)",
	"database":      "path of an SQLite file, or a postgres:// address (holdfast.db in data_dir)",
	"data_dir":      "folder for everything that is not in the database",
	"tls_cert":      "file (PEM) of the certificate chain; read again when it changes",
	"tls_key":       "file (PEM) of the certificate's private key",
	"trusted_proxies": "reverse proxies whose X-Forwarded-For header is trusted, as address ranges separated " +
		"by commas: 10.0.0.0/8,fd00::/8 (none)",
	"cors_origins": "origins of web pages that may call the API with their own tokens, separated by commas, " +
		"each in full: https://console.example.com (none)",
	"max_connections_per_address": "maximum number of simultaneous connections from one address, of which " +
		"half may be HTTP/2; a /64 network of IPv6 counts as one address; trusted_proxies are not limited",
	"env_file": "file of variables, such as secrets, one NAME=value per line; in the settings file, the path " +
		"is relative to that file; the environment takes precedence",
	"encryption_key": "32 bytes in base64, the key that encrypts the secrets in the database (holdfast.key " +
		"in data_dir, created on first start)",
	"outbound_allow": "private addresses that issuers, providers, feeds and sinks may have, as address " +
		"ranges separated by commas: 10.0.0.0/8,fd00::/8",
	"outbound_ca_file": "file of certificates (PEM) to trust in requests to issuers, providers, feeds and " +
		"sinks, in addition to the certificates of the system; read at start",
	"feed_folders": "folders of this machine that advisory feeds may be read from, separated by commas",
	"issuers_file": "file (YAML) with a list of issuers whose keys cannot be discovered, each with issuer " +
		"and one of jwks_uri, jwks and jwks_file",
	"issuer_watch": "interval at which the issuers that identities trust are checked; issuers that failed " +
		"are checked twelve times as often",
	"aws_sts_endpoint":     "address of the AWS token service, which verifies callers from AWS",
	"google_sts_endpoint":  "address of the Google token service, used to check account associations",
	"azure_login_endpoint": "address of the Azure login service, used to check account associations",
	"cloud_name": "name of our role in AWS accounts, and of our workload identity pool and its provider in " +
		"Google projects",
	"key_rotation": "age at which the signing keys are replaced",
	"signing_algorithm": "algorithm that signs tokens for this service: ES256, or RS256 for verifiers that " +
		"support nothing else; tokens for other services, such as clouds and webhooks, are always signed with " +
		"RS256",
	"session_idle": "time after which an unused sign-in ends",
	"session_life": "maximum duration of a sign-in",
	"error_domain": "domain in the details of errors (iam. + the host of base_url)",
	"operators": "UIDs of the identities that may see the state of the installation in the API and the " +
		"console, separated by commas (none; in dev mode the owner)",
	"create_organizations": "who may create organizations: anyone, owners (of any organization) or nobody but the " +
		"operator (nobody; in dev mode owners)",
	"keep_names": "time for which only its previous organization can use the name of a renamed or deleted " +
		"organization, because clients still pull images from there; negative disables it",
	"max_groups": "greatest number of groups in an organization whose budget has no limit of groups; negative: no limit",
	"max_bindings": "greatest number of role bindings in an organization whose budget has no limit of bindings; " +
		"negative: no limit",
	"organization": "unattended set-up: name of the first organization; a name with capitals or accents " +
		"becomes its display name",
	"owner_issuer":  "unattended set-up: address of the issuer that authenticates the first organization's owner",
	"owner_subject": "unattended set-up: the owner's subject at that issuer",
	"owner_email": "unattended set-up: e-mail address of an owner with a local account; the server prints a " +
		"one-time link to set the password",
	"owner_name": "unattended set-up: the owner's name",
	"blobs":      "folder of the registry's blobs, or s3://bucket/prefix (blobs in data_dir)",
	"s3_region": "region of the bucket; credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
		"or from the role of the machine",
	"s3_endpoint":   "address of a service that is compatible with S3 (the address of AWS in that region)",
	"blob_redirect": "redirect clients to the bucket for blobs; clients must be able to reach its addresses",
	"sparse_images": "accept manifests whose blobs or children are not in their repository",
	"gc_interval":   "interval of garbage collection in the registry; negative disables it",
	"gc_grace":      "time for which a blob is kept after the last manifest that needs it was deleted",
	"scrub_rate": "bytes of blobs to read again each second, to find blobs that are missing or damaged in " +
		"the storage; every replica reads at this rate (none)",
	"trusted_root": "file trusted_root.json of Sigstore, for signers that are identities and have no trusted " +
		"root of their own; read at start (none)",
	"upstream_rate": "bytes that must arrive from an upstream in a second, on average over 30 seconds; slower " +
		"downloads are canceled",
	"inspect_workers": "number of images that are inspected at the same time; negative disables inspection",
	"require_landlock": "refuse to start if the kernel does not have Landlock, which keeps the process that reads " +
		"images away from files; without it, the server only warns",
	"keep_trash": "time for which deleted tags, manifests and repos can be restored, unless the settings of " +
		"a group say otherwise; negative disables the trash",
	"keep_pulls": "time for which records of pulls and pushes are kept",
	"keep_tag_history": "time for which the history of tags is kept; the digest that a tag had at that time is " +
		"kept, too",
	"smtp_address": "host:port of the mail server that sends invites, links and notices; without it, none are sent",
	"smtp_from":    "sender of messages: holdfast@example.com, or Holdfast <holdfast@example.com>",
	"smtp_user":    "user to sign in as at the mail server (none)",
	"smtp_tls": "TLS to the mail server: starttls, which is then required; implicit, mostly on port 465; or " +
		"none, which is allowed only for a loopback address",
	"smtp_password":       "password of smtp_user",
	"event_names":         "prefix of event types: holdfast, or interop for receivers that were built for the public API",
	"keep_events":         "time for which the audit log, and events that no sink has accepted, are kept",
	"keep_access_history": "time for which the history of role bindings is kept",
	"log_level":           "lowest level that is logged: debug, info, warn or error (info)",
	"max_body":            "largest request body that the API reads; over gRPC at least 4MiB",
	"shutdown_delay": "time for which the server continues to serve after a signal to stop, while its health " +
		"checks fail; for load balancers (0s)",
	"shutdown_grace": "time to wait for requests in flight after a signal to stop",
	"metrics_listen": "host:port to serve /metrics on, which only your monitoring should reach (none)",
	"metrics_public": "serve /metrics on the main port, too, to everybody who can connect; its numbers reveal " +
		"what tenants do, such as which private repos exist",
	"dev": "for trying it out on a laptop: creates an organization and a token of its owner; only on a " +
		"loopback address",
}
