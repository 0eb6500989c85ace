package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Load reads the settings. A flag in args takes precedence over a variable in
// environ or in env_file, a variable over the file that --config names, and the
// file over the default. Load sets other variables of env_file, such as the
// credentials of a bucket, in the process. The error lists every mistake. It is
// flag.ErrHelp if args asked for help, which Load has written to out.
func Load(args, environ []string, out io.Writer) (Config, error) {
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
	mistakes = append(mistakes, c.WithDefaults().mistakes()...)
	return c, errors.Join(mistakes...)
}

// readFile reads the settings of a YAML file. It does not decode into the
// struct, because that would stop at the first invalid value.
func (c *Config) readFile(path string) []error {
	b, err := os.ReadFile(path)
	if err != nil {
		return []error{err}
	}
	var document yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&document); errors.Is(err, io.EOF) { // EOF: the file is empty
		return nil
	} else if err != nil {
		return []error{fmt.Errorf("%s: %w", path, err)}
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return []error{fmt.Errorf("%s: holds more than one document", path)}
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("%s: must be a list of settings, each in the form name: value", path)}
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
