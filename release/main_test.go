package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var everyPlatform = flag.Bool("every-platform", false,
	"build for every platform, and the second time without the cache")

// made is a release of the sources that contain this folder. files is the folder with the
// files that the command dist writes. image is the folder with the OCI layout.
type made struct {
	*builder
	files, image string
}

var scratch string // folder for files that several tests share

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "holdfast-release-test-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// here is the platform that tests build for. It is the platform of this machine, because
// the tests run the programs.
var here = platform{"linux", runtime.GOARCH}

// release makes a release once, for all tests.
var release = sync.OnceValues(func() (*made, error) {
	return makeRelease(context.Background(), "..", filepath.Join(scratch, "first"))
})

// makeRelease builds a release from the sources in dir and writes it to folders below to.
func makeRelease(ctx context.Context, dir, to string) (*made, error) {
	m, only, err := newRelease(ctx, dir, to)
	if err != nil {
		return nil, err
	}
	if err := writeDist(ctx, m.builder, options{out: m.files, platforms: only}, io.Discard); err != nil {
		return nil, err
	}
	return m, writeImage(ctx, m.builder, options{out: m.image, platforms: only, program: server}, io.Discard)
}

// makeReleaseImage is makeRelease without the files that the command dist writes.
func makeReleaseImage(ctx context.Context, dir, to string) (*made, error) {
	m, only, err := newRelease(ctx, dir, to)
	if err != nil {
		return nil, err
	}
	return m, writeImage(ctx, m.builder, options{out: m.image, platforms: only, program: server}, io.Discard)
}

// newRelease returns an empty release of the sources in dir, and the platforms to build for.
func newRelease(ctx context.Context, dir, to string) (*made, []platform, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	src, err := readSource(ctx, dir, "")
	if err != nil {
		return nil, nil, err
	}
	only := []platform{here}
	if *everyPlatform {
		only = nil
	}
	files, image := filepath.Join(to, "files"), filepath.Join(to, "image")
	return &made{&builder{src, filepath.Join(to, "work")}, files, image}, only, nil
}

// released returns the release. It skips the test on machines that cannot run it.
func released(t *testing.T) *made {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("packages and images are for linux")
	}
	m, err := release()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// one returns the single file of the release that matches a pattern.
func (m *made) one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(m.files, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, want one file (%v)", pattern, found, err)
	}
	return found[0]
}

func TestMistakes(t *testing.T) {
	tests := map[string]struct{ args, want string }{
		"nothing":             {"", "name the command dist, image or check"},
		"an unknown command":  {"publish", `"publish" is neither dist, image nor check`},
		"an unknown flag":     {"dist -no-such", "flag provided but not defined: -no-such"},
		"push without image":  {"dist -push a.example/b:c", "flag provided but not defined: -push"},
		"an argument":         {"dist linux", `unexpected argument "linux"`},
		"a short version":     {"dist -version 1.2", `-version: "1.2" is not a version like v1.2.3`},
		"a platform":          {"dist -platforms linux/riscv64", `"linux/riscv64" is not one of [linux/amd64 linux/arm64`},
		"a tag without host":  {"image -push holdfastd", `-push: "holdfastd" is not HOST/REPO:TAG`},
		"two at once":         {"image -version x -push y", "-push: "},
		"other sources":       {"dist -source testdata", "has no sources of Holdfast"},
		"an image of another": {"image -program holdfast", `"holdfast" has no image`},
		"an image of windows": {"image -source .. -platforms windows/amd64", "-platforms: an image needs a linux platform"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), strings.Fields(tt.args), io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"-help", "help", "dist -help"} {
		var out bytes.Buffer
		err := run(t.Context(), strings.Fields(args), &out)
		if err != nil && !errors.Is(err, flag.ErrHelp) || !strings.HasPrefix(out.String(), "Usage: release") {
			t.Errorf("%s: %v, %s", args, err, out.String())
		}
	}
}

// TestStartsAgain: after an interruption, a release can be started again in the same folder. The checksums do not name
// the file that marks the folder as unfinished.
func TestStartsAgain(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := emptyFolder(dir, sumsName); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "half.tar.gz"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writeSums(dir), finish(dir)); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil || !strings.Contains(string(sums), "half.tar.gz") || strings.Contains(string(sums), unfinished) {
		t.Errorf("%s, %v", sums, err)
	}
}

// TestLeavesOtherFilesAlone: a folder that contains no earlier release is not emptied.
func TestLeavesOtherFilesAlone(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := emptyFolder(dir, sumsName); err == nil {
		t.Error("it was taken")
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}
