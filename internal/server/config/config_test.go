package config_test

import (
	"errors"
	"flag"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server/config"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadConfig(t *testing.T) {
	file := writeFile(t, `
# a comment
listen: 10.0.0.1:1
base_url: https://file.example
log_level: warn
max_body: 1MiB
shutdown_grace: 1m
dev: false
organization:
`)
	tests := map[string]struct {
		args, environ []string
		want          config.Config
	}{
		"nothing": {},
		"a file": {
			args: []string{"--config", file},
			want: config.Config{
				Listen: "10.0.0.1:1", BaseURL: "https://file.example", LogLevel: slog.LevelWarn,
				MaxBody: 1 << 20, ShutdownGrace: time.Minute,
			},
		},
		"a variable over the file, a flag over both": {
			args: []string{"--listen", "127.0.0.1:3", "--config=" + file},
			environ: []string{
				"HOLDFAST_LISTEN=127.0.0.1:2", "HOLDFAST_BASE_URL=https://env.example", "HOLDFAST_LOG_LEVEL=error",
				"HOLDFAST_SHUTDOWN_GRACE=2s", "HOLDFAST_MAX_BODY=2048",
			},
			want: config.Config{
				Listen: "127.0.0.1:3", BaseURL: "https://env.example", LogLevel: slog.LevelError,
				MaxBody: 2048, ShutdownGrace: 2 * time.Second,
			},
		},
		"the file named by a variable, the other by a flag": {
			args:    []string{"--config", writeFile(t, "listen: 127.0.0.1:9")},
			environ: []string{"HOLDFAST_CONFIG=" + file},
			want:    config.Config{Listen: "127.0.0.1:9"},
		},
		"flags with either line": {
			args: []string{"-base-url", "https://a.test", "--auth_url=https://b.test", "--dev"},
			want: config.Config{BaseURL: "https://a.test", AuthURL: "https://b.test", Dev: true},
		},
		"ranges of addresses": {
			args: []string{"--trusted-proxies", "10.1.2.3/8, fd00::1"},
			want: config.Config{TrustedProxies: config.Prefixes{
				netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::1/128"),
			}},
		},
		"operators": {
			args: []string{"--operators", strings.Repeat("a1", 20) + ", " + strings.Repeat("b2", 20) + "/0123456789abcdef,"},
			want: config.Config{Operators: config.UIDs{
				resource.UID(strings.Repeat("a1", 20)), resource.UID(strings.Repeat("b2", 20) + "/0123456789abcdef"),
			}},
		},
		"a number": {
			environ: []string{"HOLDFAST_MAX_CONNECTIONS_PER_ADDRESS=1000"},
			want:    config.Config{MaxConnectionsPerAddress: 1000},
		},
		"a switch turned off by a flag": {
			args:    []string{"--dev=false"},
			environ: []string{"HOLDFAST_DEV=true"},
		},
		"variables meant for others, and an empty one": {
			environ: []string{
				"HOLDFAST_TEST_POSTGRES=x", "HOLDFAST_API=https://x.example", "HOLDFAST_ISSUER=https://x.example",
				"HOLDFAST_PORT=tcp://10.0.0.1:80", "HOLDFAST_PORT_80_TCP=x", "HOLDFAST_SERVICE_HOST=10.0.0.1",
				"HOLDFAST_LISTEN=", "HOLDFAST_MAX_BODY=", "PATH=/bin", "HOLDFAST_CLIENT_CONFIG=x.yaml",
				"HOLDFAST_CLIENT_ORGANIZATION=acme", "HOLDFAST_TOKEN=x", "HOLDFAST_PROFILE=x", "HOLDFAST_IDENTITY=x",
			},
		},
		"an empty file": {args: []string{"--config", writeFile(t, "")}},
		"a secret": {
			environ: []string{"HOLDFAST_ENCRYPTION_KEY=" + testKey}, want: config.Config{EncryptionKey: testKey},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := config.Load(tt.args, tt.environ, &strings.Builder{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const testKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// TestEnvFile: variables are read from the file that env_file names. The environment
// takes precedence.
func TestEnvFile(t *testing.T) {
	t.Setenv("BUCKET_KEY", "") // makes the test remove the variable at its end
	if err := os.Unsetenv("BUCKET_KEY"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BUCKET_REGION", "of the environment")
	env := writeFile(t, `
# a comment
; another
HOLDFAST_DATABASE="postgres://u:p=q@db/h?x=y"
HOLDFAST_LISTEN=10.0.0.1:1
 HOLDFAST_LOG_LEVEL='warn'
BUCKET_KEY=secret
BUCKET_REGION=of the file
`)
	file := writeFile(t, "env_file: variables\nlisten: 10.0.0.1:2\n")
	if err := os.Rename(env, filepath.Join(filepath.Dir(file), "variables")); err != nil {
		t.Fatal(err)
	}
	env = filepath.Join(filepath.Dir(file), "variables")
	got, err := config.Load([]string{"--config", file}, []string{"HOLDFAST_LOG_LEVEL=error"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		EnvFile: env, Database: "postgres://u:p=q@db/h?x=y", Listen: "10.0.0.1:1", LogLevel: slog.LevelError,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if key, region := os.Getenv("BUCKET_KEY"), os.Getenv("BUCKET_REGION"); key != "secret" ||
		region != "of the environment" {
		t.Errorf("the process has key %q and region %q", key, region)
	}
	for name, text := range map[string]string{
		"no name":             "=hunter2",
		"no value":            "hunter2",
		"export":              "export HOLDFAST_LISTEN=hunter2",
		"an unknown setting":  "HOLDFAST_NONE=hunter2",
		"a zero byte":         "BUCKET_OTHER=hunter2\x00",
		"a file not there":    "",
		"a value that is bad": "HOLDFAST_SHUTDOWN_GRACE=later",
	} {
		path := writeFile(t, text)
		if text == "" {
			path += ".gone"
		}
		_, err := config.Load([]string{"--env-file", path}, nil, t.Output())
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadConfigReportsEveryMistake(t *testing.T) {
	file := writeFile(
		t, "listn: x\nmax_body: huge\nauth_url: [a]\ndatabase: mysql://x\ndatabase: y\nencryption_key: x\n",
	)
	_, err := config.Load(
		[]string{
			"--config", file, "--shutdown-grace", "soon", "--dev=maybe", "--base-url", "ftp://x", "--tls-cert", "x",
			"--registry-host", "https://x", "--organization", "東京", "--owner-issuer", "x", "--metrics-listen", "x",
			"--max-connections-per-address", "-1",
		},
		[]string{
			"HOLDFAST_LISTEN=8080", "HOLDFAST_NO_SUCH=1", "HOLDFAST_LOG_LEVEL=loud", "HOLDFAST_ENCRYPTION_KEY=short",
			"HOLDFAST_CREATE_ORGANIZATIONS=everyone", "HOLDFAST_EVENT_NAMES=mine", "HOLDFAST_KEEP_EVENTS=1h",
			"HOLDFAST_KEEP_ACCESS_HISTORY=1h",
			"HOLDFAST_DATABASE=mysql://x",
		}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		`HOLDFAST_NO_SUCH: there is no such setting`,
		file + `:1: listn: there is no such setting`,
		file + `:2: max_body: "huge" is not a size like 4MiB or 512KiB`,
		file + `:3: auth_url: must be a single value`,
		file + `:5: database: is set twice`,
		file + `:6: encryption_key: is a secret; set it with HOLDFAST_ENCRYPTION_KEY`,
		`HOLDFAST_LOG_LEVEL: slog: level string "loud": unknown name`,
		`--shutdown-grace: "soon" is not a duration like 15s or 2m`,
		`--dev: "maybe" is not true or false`,
		`base_url: "ftp://x" is not an http:// or https:// address without query and fragment`,
		`create_organizations: "everyone" is not anyone, owners or nobody`,
		`database: mysql:// is not supported; give a path or a postgres:// address`,
		`encryption_key: an encryption key is 32 bytes in base64`,
		`event_names: "mine" is not holdfast or interop`, `keep_access_history: must be at least 24h0m0s`,
		`keep_events: must be at least 48h0m0s`,
		`listen: "8080" is not host:port`,
		`max_connections_per_address: must be at least 1`,
		`metrics_listen: "x" is not host:port`,
		`organization: needs a letter from a to z or a digit,` +
			` because paths are made of it; the display name can be changed later`,
		`owner_issuer: must be a web address, as https://accounts.example.com, without query or fragment`,
		`owner_subject: is required`,
		`registry_host: "https://x" is not host or host:port`,
		`tls_cert: set both tls_cert and tls_key, or neither`,
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestLoadConfigRefuses(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"mail without a sender": {
			[]string{"--smtp-address", "mail.example.com:587"}, `smtp_from: "" is not an e-mail address`,
		},
		"mail to a server of no port": {
			[]string{"--smtp-address", "mail.example.com", "--smtp-from", "a@b.test"}, "smtp_address: ",
		},
		"a sender without a server": {[]string{"--smtp-from", "a@b.test"}, "smtp_address: is required"},
		"a user without a password": {
			[]string{"--smtp-address", "mail.example.com:587", "--smtp-from", "a@b.test", "--smtp-user", "x"}, "smtp_user: ",
		},
		"mail in the clear": {
			[]string{"--smtp-address", "mail.example.com:25", "--smtp-from", "a@b.test", "--smtp-tls", "none"},
			"smtp_tls: none is allowed only for a loopback address",
		},
		"another TLS": {
			[]string{"--smtp-address", "127.0.0.1:25", "--smtp-from", "a@b.test", "--smtp-tls", "ssl"}, "smtp_tls: ",
		},
		"dev mode for everyone":       {[]string{"--dev", "--listen", ":8080"}, "not a loopback address"},
		"dev mode for the network":    {[]string{"--dev", "--listen", "10.0.0.1:8080"}, "not a loopback address"},
		"a delay before now":          {[]string{"--shutdown-delay", "-1s"}, "shutdown_delay: must not be negative"},
		"an unknown flag":             {[]string{"--no-such"}, "no-such"},
		"a secret on the command":     {[]string{"--encryption-key", testKey}, "encryption-key"},
		"a word too many":             {[]string{"serve"}, `unexpected argument "serve"`},
		"a file that is not there":    {[]string{"--config", "no-such-file"}, "no-such-file"},
		"a file that is not settings": {[]string{"--config", writeFile(t, "- a\n- b\n")}, "name: value"},
		"a file that is not YAML":     {[]string{"--config", writeFile(t, "a: [\n")}, "yaml"},
		"a file of two documents": {
			[]string{"--config", writeFile(t, "dev: true\n---\ndev: false\n")}, "more than one document",
		},
		"a port too large":    {[]string{"--listen", "127.0.0.1:70000"}, "is not host:port"},
		"an operator by name": {[]string{"--operators", "ann@example.com"}, "is not a UID"},
		"a size too large":    {[]string{"--max-body", "99999999999GiB"}, "is not a size"},
		"a proxy that is none": {
			[]string{"--trusted-proxies", "10.0.0.1,proxy"}, `"proxy" is not an address range`,
		},
		"everybody for a proxy": {[]string{"--trusted-proxies", "10.0.0.0/8,0.0.0.0/0"}, "0.0.0.0/0 includes every address"},
		"everybody, over IPv6":  {[]string{"--trusted-proxies", "::/0"}, "::/0 includes every address"},
		"an algorithm nobody knows": {
			[]string{"--signing-algorithm", "none"}, `signing_algorithm: "none" is not ES256 or RS256`,
		},
		"every origin":           {[]string{"--cors-origins", "*"}, "is not an origin like"},
		"every host of a domain": {[]string{"--cors-origins", "https://*.example.com"}, "name each origin in full"},
		"the origin of a file":   {[]string{"--cors-origins", "null"}, "is not an origin like"},
		"an origin with a path": {
			[]string{"--cors-origins", "https://a.example, https://b.example/"}, "is not what browsers send",
		},
		"an origin in capitals":       {[]string{"--cors-origins", "https://A.example"}, "is not what browsers send"},
		"an origin with its own port": {[]string{"--cors-origins", "https://a.example:443"}, "is not what browsers send"},
		"an origin with a user":       {[]string{"--cors-origins", "https://a@b.example"}, "is not what browsers send"},
		"an origin over http": {
			[]string{"--cors-origins", "http://a.example"}, "must be https, or http on this machine",
		},
		"a list for a database": {
			[]string{"--database", "host=db.example user=holdfast password=secret"},
			"database: give a path or a postgres:// address, not key=value",
		},
		"a base below another": {
			[]string{"--base-url", "https://a.example/holdfast"}, "base_url: \"https://a.example/holdfast\" has a path",
		},
		"an issuer below another": {[]string{"--auth-url", "https://a.example/holdfast/"}, "auth_url: "},
		"a base with a query":     {[]string{"--base-url", "https://a.example/?x=1"}, "without query"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load(tt.args, nil, &strings.Builder{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

func TestHelpNamesEverySetting(t *testing.T) {
	var out strings.Builder
	if _, err := config.Load([]string{"--help"}, nil, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("error = %v, want %v", err, flag.ErrHelp)
	}
	for field := range reflect.TypeFor[config.Config]().Fields() {
		name := field.Tag.Get("yaml")
		if name == "-" {
			name = field.Tag.Get("env")
		}
		if name == "" {
			continue
		}
		explained := regexp.MustCompile(`HOLDFAST_` + strings.ToUpper(name) + `\)?\n +[^ \n(]`)
		if !explained.MatchString(out.String()) {
			t.Errorf("%s is not in the help, or has no text there", name)
		}
	}
}
