package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// A source is a checkout of Holdfast and its version.
type source struct {
	dir      string
	version  string // version with a leading v, such as v1.2.3
	commit   string
	date     time.Time // date of the commit, or SOURCE_DATE_EPOCH if it is set
	modified bool      // whether files differ from the commit
}

// number returns the version without the v, for file names and packages.
func (s source) number() string { return strings.TrimPrefix(s.version, "v") }

// readSource describes the checkout in dir. version replaces the version of the commit's
// tag, unless it is empty.
func readSource(ctx context.Context, dir, version string) (source, error) {
	if _, err := os.Stat(filepath.Join(dir, "cmd", "holdfastd")); err != nil {
		return source{}, fmt.Errorf("%s has no sources of Holdfast; name the folder with -source", dir)
	}
	s := source{dir: dir, version: version}
	head, err := git(ctx, dir, "log", "-1", "--format=%H %ct")
	if err != nil {
		return s, fmt.Errorf("read the commit: %w", err)
	}
	commit, seconds, _ := strings.Cut(head, " ")
	s.commit = commit
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", seconds)
	}
	s.date = time.Unix(unix, 0).UTC()
	changes, err := git(ctx, dir, "status", "--porcelain")
	if err != nil {
		return s, err
	}
	s.modified = changes != ""
	if s.version == "" {
		s.version = s.describe(ctx)
	}
	return s, nil
}

// describe returns the version of the commit's tag. Without a tag it is the
// pseudo-version that Go would give the commit, which sorts before the next release.
func (s source) describe(ctx context.Context) string {
	const tags = "v[0-9]*"
	version, err := git(ctx, s.dir, "describe", "--tags", "--exact-match", "--match", tags)
	if err != nil || !isVersion(version) {
		older, err := git(ctx, s.dir, "describe", "--tags", "--abbrev=0", "--match", tags)
		if err != nil || !isVersion(older) {
			older = ""
		}
		major := semver.Major(older) // "" if there is no tag; then PseudoVersion uses v0
		version = module.PseudoVersion(major, older, s.date, s.commit[:12])
	}
	if s.modified {
		version += "+dirty"
	}
	return version
}

// isVersion reports whether s is a whole version, such as v1.2.3-rc.1.
func isVersion(s string) bool {
	return semver.IsValid(s) && semver.Canonical(s)+semver.Build(s) == s
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...))
}

// output returns the output of a command. An error contains its error output.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
