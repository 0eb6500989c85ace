package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/module"
)

var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|patents)([.-].*)?$`)

// noticesOf returns the licenses of all modules that are linked into a program. The
// licenses demand that every distribution includes them.
func noticesOf(ctx context.Context, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	env, err := output(exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOROOT"))
	if err != nil {
		return nil, err
	}
	cache, root, _ := strings.Cut(env, "\n")
	var b bytes.Buffer
	if err := addLicenses(&b, "Go, "+info.GoVersion, root); err != nil {
		return nil, err
	}
	for _, dep := range info.Deps {
		if dep.Path == modulePath { // our own license is in a file of its own
			continue
		}
		m := cmp.Or(dep.Replace, dep)
		dir, err := module.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		version, err := module.EscapeVersion(m.Version)
		if err != nil {
			return nil, err
		}
		if err := addLicenses(&b, m.Path+" "+m.Version, filepath.Join(cache, dir+"@"+version)); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// addLicenses adds the license files of a folder. A module without a license is an error,
// because it may not be distributed.
func addLicenses(b *bytes.Buffer, title, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenseName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(b, "%s\n%s: %s\n\n%s\n\n", strings.Repeat("=", 80), title, e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s has no license", title)
	}
	return nil
}
