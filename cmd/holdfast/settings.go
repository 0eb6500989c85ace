package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	holdfast "github.com/holdfast-dev/holdfast/client"
)

// A setting is something a person can set once for all commands: in the file, in
// a variable called HOLDFAST_ and its name in capitals, or by a flag.
type setting struct {
	key   string
	about string
	check func(string) error
	flag  func(*settings) string // nil: it has no flag
}

// allSettings is every setting there is, in the order that people are shown.
func allSettings() []setting {
	return []setting{
		{"api", "address of the server, http(s)://host[:port]", holdfast.CheckAddress, func(s *settings) string { return s.api }},
		{"issuer", "address of the token issuer (the server's)", holdfast.CheckAddress, nil},
		{"registry", "host[:port] of the registry (the server's)", nil, nil},
		{"organization", "group that create and tree use when none is given", nil, nil},
		{"output", "format of results: " + strings.Join(formats, ", "), checkFormat, func(s *settings) string { return s.output }},
		{"token_file", "file that holds the token to use", nil, func(s *settings) string { return s.tokenFile }},
		{"identity", "uid of the identity to assume, with a token of where this runs", checkUID, nil},
		{"identity_token_file", "file that holds the token which proves the identity", nil, nil},
		{"token_store", "where tokens are kept: auto (a keyring, else files), keyring or file", checkTokenStore, nil},
		{"ca_file", "file of certificates to trust beside the system's", nil, func(s *settings) string { return s.caFile }},
	}
}

func findSetting(key string) (setting, error) {
	var keys []string
	for _, s := range allSettings() {
		if s.key == key {
			return s, nil
		}
		keys = append(keys, s.key)
	}
	return setting{}, usage("there is no setting %q", key).hint("the settings are " + strings.Join(keys, ", "))
}

func (s setting) variable() string { return "HOLDFAST_" + strings.ToUpper(s.key) }

// A settingValue is what a setting is, and where that comes from.
type settingValue struct{ value, origin string }

// A settings finds what a person has set. Its fields are the flags that win over
// variables and the file; "" are not given.
type settings struct{ api, output, tokenFile, caFile string }

// value finds a setting: a flag wins over a variable, and that over the file.
func (s *settings) value(key string) (settingValue, error) {
	known, err := findSetting(key)
	if err != nil {
		return settingValue{}, err
	}
	v, err := s.lookUp(known)
	if err != nil || v.value == "" || known.check == nil {
		return v, err
	}
	if err := known.check(v.value); err != nil {
		return v, usage("%s: %v", v.origin, err)
	}
	return v, nil
}

func (s *settings) lookUp(known setting) (settingValue, error) {
	if known.flag != nil && known.flag(s) != "" {
		return settingValue{known.flag(s), "--" + strings.ReplaceAll(known.key, "_", "-")}, nil
	}
	if v := os.Getenv(known.variable()); v != "" {
		return settingValue{v, known.variable()}, nil
	}
	path, err := configPath()
	if err != nil {
		return settingValue{}, err
	}
	file, err := readSettings(path)
	if err != nil {
		return settingValue{}, err
	}
	if v := file[known.key]; v != "" {
		return settingValue{v, known.key + " in " + path}, nil
	}
	return settingValue{}, nil
}

// configPath is the file of settings.
func configPath() (string, error) {
	if path := os.Getenv("HOLDFAST_CONFIG"); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", usage("no place for settings: %v", err)
	}
	return filepath.Join(dir, "holdfast", "config.yaml"), nil
}

// readSettings reads the file. One that does not exist has no settings; one with
// a key there is none of is refused.
func readSettings(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, usage("settings: %v", err)
	}
	values := map[string]string{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, usage("settings in %s: %s", path, strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")).hint("the file has one line for each setting, such as api: https://holdfast.example.com")
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, err := findSetting(key); err != nil {
			p, _ := errors.AsType[*problem](err)
			p.text = "settings in " + path + ": " + p.text
			return nil, p
		}
	}
	return values, nil
}

// changeSettings applies change to the file.
func changeSettings(change func(map[string]string)) error {
	path, err := configPath()
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
	return writePrivate(path, text)
}

// writePrivate puts a file in place whole, for its owner alone.
func writePrivate(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // has mode 0600
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

func checkUID(s string) error {
	if !isUID(s) {
		return fmt.Errorf("%q is not a uid", s)
	}
	return nil
}

func checkTokenStore(s string) error {
	if !slices.Contains(tokenStores, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(tokenStores, ", "))
	}
	return nil
}

var tokenStores = []string{"auto", "keyring", "file"}
