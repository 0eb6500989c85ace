package config

import (
	"encoding"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

const prefix = "HOLDFAST_"

// A setting is a field of a Config that an operator can set.
type setting struct {
	name     string
	help     string
	fallback string // default value
	secret   bool   // whether the setting is read only from the environment
	value    reflect.Value
}

// settings returns the settings of c in the order of the fields.
func (c *Config) settings() []setting {
	var all []setting
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		s := setting{name: tag.Get("yaml"), fallback: tag.Get("default"), value: v.Field(i)}
		if s.name == "-" {
			s.name, s.secret = tag.Get("env"), true
		}
		if s.name != "" {
			s.help = help[s.name]
			all = append(all, s)
		}
	}
	return all
}

func (s setting) flag() string     { return "--" + strings.ReplaceAll(s.name, "_", "-") }
func (s setting) variable() string { return prefix + strings.ToUpper(s.name) }
func (s setting) isSwitch() bool   { return s.value.Kind() == reflect.Bool }

// set parses text as the value of the setting.
func (s setting) set(text string) error {
	switch p := s.value.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *string:
		*p = text
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*p = n
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration like 15s or 2m", text)
		}
		*p = d
	default:
		return fmt.Errorf("a %s cannot be set from text", s.value.Type())
	}
	return nil
}

// parseFlags returns the values of flags by the names of settings. It does not parse
// the values, so that Load can report their mistakes together with other mistakes.
func parseFlags(args []string, out io.Writer) (map[string]string, error) {
	given := map[string]string{}
	fs := flag.NewFlagSet("holdfastd", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	store := func(name string) func(string) error {
		return func(text string) error {
			given[name] = text
			return nil
		}
	}
	fs.Func("config", "", store("config"))
	for _, s := range new(Config).settings() {
		if s.secret {
			continue
		}
		for _, name := range slices.Compact([]string{s.name, s.flag()[2:]}) {
			if s.isSwitch() {
				fs.BoolFunc(name, "", store(s.name))
			} else {
				fs.Func(name, "", store(s.name))
			}
		}
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		writeHelp(out)
		return nil, err
	case err != nil:
		return nil, err
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return given, nil
}

const usage = `holdfastd [--config FILE] [flags]
holdfastd keys list|rotate|drop ID [flags]
holdfastd keys reset --lost-encryption-key [flags]
holdfastd owners recover --organization NAME [--email ADDRESS] [flags]
holdfastd organizations create NAME --email ADDRESS [flags]
holdfastd organizations payer NAME [--payer NAME] [flags]
holdfastd organizations verify|unverify|release NAME [flags]
holdfastd providers trust|untrust UID [flags]
holdfastd budgets set GROUP METRIC=LIMIT... | show GROUP [flags]
holdfastd gc [--dry-run] [flags]
holdfastd scrub [--rate SIZE] [flags]
holdfastd blobs check DIGEST [flags]
holdfastd backup PLACE [--keep N] [flags]
holdfastd restore PLACE [--verify] [--at TIME] [flags]
holdfastd doctor [--json] [flags]
holdfastd version
`

const description = `keys lists the keys that sign tokens, creates a key, or drops a key, which voids
every token that the key has signed. keys reset replaces the encryption key of
the installation if it is lost, and lists the secrets that are lost with it.
owners prints a one-time link for an owner who cannot sign in. organizations
creates an organization and prints a one-time link for its owner, sets the
organization whose budget and capacity another one uses, or records that an
organization owns its name, which is a domain: people can then find it by their
e-mail address. organizations release lets anybody use a name that is reserved
for a renamed or deleted organization. providers records that all organizations
trust an identity provider to speak for its issuer. budgets limits the resources
of an organization. gc removes blobs that the registry no longer needs. scrub
reads all blobs, at a rate in bytes per second, and lists blobs that are missing
or damaged in the storage; it exits with 1 if there are any. blobs check reads
one blob.
backup copies the installation to a folder, a .tar file or s3://bucket/prefix,
and restore fills an empty installation from there. doctor examines the
installation and gives advice; it exits with 1 if there are warnings, and with 2
if a check has failed. All commands except restore and keys reset work whether or
not the server runs.

A flag takes precedence over its variable, a variable over the settings file
(YAML), and the settings file over the default in brackets.
`

// eachOption calls each with the title and the help text of every option.
func eachOption(each func(title, help string)) {
	each("--config FILE (HOLDFAST_CONFIG)", "settings file")
	for _, s := range new(Config).settings() {
		title, help := fmt.Sprintf("%s (%s)", s.flag(), s.variable()), s.help
		if s.secret {
			title = s.variable()
		}
		if s.fallback != "" {
			help += " (" + s.fallback + ")"
		}
		each(title, help)
	}
}

func writeHelp(out io.Writer) {
	forms := strings.ReplaceAll(strings.TrimSpace(usage), "\n", "\n       ")
	fmt.Fprintf(out, "Usage: %s\n\n%s\n", forms, description)
	eachOption(func(title, help string) { fmt.Fprintf(out, "  %s\n        %s\n", title, help) })
}

// WriteManual writes the text of --help as a manual page.
func WriteManual(out io.Writer) {
	fmt.Fprintf(out, ".TH HOLDFASTD 8 \"\" \"holdfastd %s\"\n", buildinfo.Version())
	fmt.Fprint(out, ".SH NAME\nholdfastd \\- server of Holdfast, a control plane for containers\n")
	fmt.Fprintf(out, ".SH SYNOPSIS\n.nf\n%s.fi\n", roff(usage))
	fmt.Fprintf(out, ".SH DESCRIPTION\n%s", strings.ReplaceAll(roff(description), "\n\n", "\n.PP\n"))
	fmt.Fprint(out, ".SH OPTIONS\n")
	eachOption(func(title, help string) { fmt.Fprintf(out, ".TP\n.B %s\n%s\n", roff(title), roff(help)) })
}

// roff escapes text. No line of the text may begin with a dot or an apostrophe.
func roff(s string) string { return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s) }

// readEnviron returns the values of HOLDFAST_ variables by the names of
// settings, and an error for each variable that is not a setting. Empty
// variables are ignored.
func readEnviron(environ []string) (map[string]string, []error) {
	known := map[string]string{prefix + "CONFIG": "config"}
	for _, s := range new(Config).settings() {
		known[s.variable()] = s.name
	}
	given := map[string]string{}
	var errs []error
	for _, line := range slices.Sorted(slices.Values(environ)) {
		variable, text, _ := strings.Cut(line, "=")
		name, ok := known[variable]
		switch {
		case !strings.HasPrefix(variable, prefix) || !ok && isForeign(variable):
		case !ok:
			errs = append(errs, fmt.Errorf("%s: there is no such setting", variable))
		case text != "":
			given[name] = text
		}
	}
	return given, errs
}

// readEnvFile reads a file of variables. It adds the settings in it to given, unless
// given already has them. It sets the other variables in the process, unless they are
// already set. Its errors do not quote the file, because the file contains secrets.
func readEnvFile(path string, given map[string]string) []error {
	b, err := os.ReadFile(path)
	if err != nil {
		return []error{err}
	}
	var environ []string
	var errs []error
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || !variableName.MatchString(name) {
			errs = append(errs, fmt.Errorf("%s:%d: is not NAME=value", path, i+1))
			continue
		}
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		environ = append(environ, name+"="+value)
		if _, ok := os.LookupEnv(name); !ok && !strings.HasPrefix(name, prefix) {
			if err := os.Setenv(name, value); err != nil { // the value has a zero byte
				errs = append(errs, fmt.Errorf("%s:%d: %w", path, i+1, err))
			}
		}
	}
	added, mistakes := readEnviron(environ)
	maps.Copy(added, given)
	maps.Copy(given, added)
	return append(errs, mistakes...)
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// isForeign reports whether a HOLDFAST_ variable belongs to another program: the
// client, the tests, or Kubernetes, which sets such variables in the namespace of a
// service called holdfast.
func isForeign(variable string) bool {
	name := strings.TrimPrefix(variable, prefix)
	for _, start := range []string{"CLIENT_", "TEST_", "PORT_", "SERVICE_"} {
		if strings.HasPrefix(name, start) {
			return true
		}
	}
	return slices.Contains([]string{
		"PORT", "API", "ISSUER", "REGISTRY", "OUTPUT", "PROFILE", "TOKEN", "TOKEN_FILE", "TOKEN_STORE", "ID_TOKEN",
		"REFRESH_TOKEN", "IDENTITY", "IDENTITY_TOKEN_FILE", "CA_FILE", "INSECURE",
	}, name)
}
