// Package settings reads the settings of a person: from flags, variables or a file.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// ConfigVariable is the environment variable with the path of the settings file.
const ConfigVariable = "HOLDFAST_CLIENT_CONFIG"

// A Setting is a value that applies to all commands. It is set in the file, in an
// environment variable, or by a flag.
type Setting struct {
	Key   string
	About string
	Check func(string) error // returns an error if a value is invalid; if nil, any text is valid
}

// All returns all settings in the order of the output.
func All() []Setting {
	return []Setting{
		{"api", "address of the server, http(s)://host[:port]", holdfast.CheckAddress},
		{"issuer", "address of the token issuer (default: the server)", holdfast.CheckAddress},
		{"registry", "host[:port] of the registry (default: the server's)", nil},
		{"organization", "default group of create and tree", nil},
		{"output", "format of results: " + strings.Join(output.Formats, ", "), oneOf(output.Formats...)},
		{"token_file", "file with the token to use", nil},
		{"identity", "uid of the identity to assume with the token of the platform", CheckUID},
		{"identity_token_file", "file with the token that proves the identity", nil},
		{"token_store", "where to store tokens: auto (a keyring, else files), keyring or file",
			oneOf("auto", "keyring", "file")},
		{"ca_file", "file of certificates to trust in addition to the system's", nil},
		{"insecure", "true: send tokens without encryption to a server on another machine", oneOf("true", "false")},
	}
}

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("%q is not one of %s", s, strings.Join(words, ", "))
		}
		return nil
	}
}

// Find returns the setting with a name.
func Find(key string) (Setting, error) {
	var keys []string
	for _, s := range All() {
		if s.Key == key {
			return s, nil
		}
		keys = append(keys, s.Key)
	}
	return Setting{}, problem.Usage("there is no setting %q", key).Hint("the settings are " + strings.Join(keys, ", "))
}

// Variable returns the name of the environment variable: HOLDFAST_ and the key in capitals, unless the server has a
// variable of that name.
func (s Setting) Variable() string {
	if s.Key == "organization" {
		return "HOLDFAST_CLIENT_ORGANIZATION"
	}
	return "HOLDFAST_" + strings.ToUpper(s.Key)
}

// Renamed returns a sentence for each variable that version 0.1.0 of this command read, if it is set and the variable
// that has replaced it is not.
func Renamed() (notes []string) {
	for _, name := range []string{"CONFIG", "ORGANIZATION"} {
		old, current := "HOLDFAST_"+name, "HOLDFAST_CLIENT_"+name
		if os.Getenv(old) != "" && os.Getenv(current) == "" {
			notes = append(notes, old+" is a setting of the server, and this command ignores it: use "+current)
		}
	}
	return notes
}

// A Value is the text of a setting and its origin.
type Value struct{ Text, Origin string }

// Settings looks up settings. The zero value has no flags.
type Settings struct{ flags map[string]*string }

// Flag returns the variable for the flag of a setting. It is "" if the flag is not given.
func (s *Settings) Flag(key string) *string {
	if s.flags == nil {
		s.flags = map[string]*string{}
	}
	if s.flags[key] == nil {
		s.flags[key] = new(string)
	}
	return s.flags[key]
}

// Value looks up a setting. A flag overrides a variable, and a variable overrides the
// file.
func (s *Settings) Value(key string) (Value, error) {
	known, err := Find(key)
	if err != nil {
		return Value{}, err
	}
	v, err := s.lookUp(known)
	if err != nil || v.Text == "" || known.Check == nil {
		return v, err
	}
	if err := known.Check(v.Text); err != nil {
		return v, problem.Usage("%s: %v", v.Origin, err)
	}
	return v, nil
}

func (s *Settings) lookUp(known Setting) (Value, error) {
	if flag := *s.Flag(known.Key); flag != "" {
		return Value{flag, "--" + strings.ReplaceAll(known.Key, "_", "-")}, nil
	}
	if v := os.Getenv(known.Variable()); v != "" {
		return Value{v, known.Variable()}, nil
	}
	path, err := Path()
	if err != nil {
		return Value{}, err
	}
	file, err := readSettings(path)
	if err != nil {
		return Value{}, err
	}
	if v := file[known.Key]; v != "" {
		return Value{v, known.Key + " in " + path}, nil
	}
	return Value{}, nil
}

// Path returns the path of the settings file of the current profile.
func Path() (string, error) {
	base, err := basePath()
	if err != nil {
		return "", err
	}
	name, err := Profile()
	if err != nil || name == DefaultProfile {
		return base, err
	}
	return profilePath(base, name), nil
}

// basePath returns the path of the settings file of the default profile.
func basePath() (string, error) {
	if path := os.Getenv(ConfigVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", problem.Usage("no folder for settings: %v", err)
	}
	return filepath.Join(dir, "holdfast", "config.yaml"), nil
}

// readSettings reads the file. It returns no settings if the file does not exist. An
// unknown key is an error.
func readSettings(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, problem.Usage("settings: %v", err)
	}
	values := map[string]string{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, problem.Usage("settings in %s: %s", path,
			strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")).
			Hint("the file has one line for each setting, such as api: https://holdfast.example.com")
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, err := Find(key); err != nil {
			p, _ := errors.AsType[*problem.Problem](err)
			p.Text = "settings in " + path + ": " + p.Text
			return nil, p
		}
	}
	return values, nil
}

// Change changes the settings in the file of the current profile.
func Change(change func(map[string]string)) error {
	path, err := Path()
	if err != nil {
		return err
	}
	values, err := readSettings(path)
	if err != nil {
		return err
	}
	change(values)
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	return WritePrivate(path, text)
}

// WritePrivate replaces a file atomically. Only the owner can read it.
func WritePrivate(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// CreateTemp creates files with the mode 0600
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

var uidPattern = regexp.MustCompile(`^[0-9a-f]{40}(/[0-9a-f]{16})*$`)

// IsUID reports whether s is a UID.
func IsUID(s string) bool { return uidPattern.MatchString(s) }

// CheckUID returns an error if s is not a UID.
func CheckUID(s string) error {
	if !IsUID(s) {
		return fmt.Errorf("%q is not a uid", s)
	}
	return nil
}
