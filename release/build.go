package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A platform is an operating system and an architecture, as in GOOS and GOARCH.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// platforms are all platforms that a program is released for.
var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// A program is a released program.
type program struct {
	name      string
	summary   string
	platforms []platform
	module    string // folder of its Go module; "" is the root
}

// The server needs an operating system with users and file modes, so it is not released
// for Windows. The program for clusters is released only as an image.
var (
	server = program{"holdfastd", "server of Holdfast, a control plane for containers", platforms[:4], ""}
	client = program{"holdfast", "command-line client of Holdfast, a control plane for containers", platforms, ""}
	kube   = program{"holdfast-kube", "applies the rules of Holdfast in a Kubernetes cluster", platforms[:2], "kube"}
)

// folder returns the package of the program, relative to its module.
func (p program) folder() string {
	if p.module != "" {
		return "."
	}
	return "./cmd/" + p.name
}

const (
	modulePath = "github.com/holdfast-dev/holdfast"
	homepage   = "https://" + modulePath
)

// A builder builds programs from one source. It builds each program only once.
type builder struct {
	source source
	work   string // folder for temporary files
}

// binary returns the path of a program for a platform. It builds the program if the file
// does not exist. The program is static, and contains no path of this machine.
func (b *builder) binary(ctx context.Context, p program, on platform) (string, error) {
	name := p.name
	if on.os == "windows" {
		name += ".exe"
	}
	file := filepath.Join(b.work, "bin", on.os+"_"+on.arch, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	stamp := modulePath + "/internal/platform/buildinfo."
	flags := []string{"-s", "-w", "-buildid=", "-X " + stamp + "version=" + b.source.version,
		"-X " + stamp + "commit=" + b.source.commit, "-X " + stamp + "date=" + b.source.date.Format(time.RFC3339)}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags", strings.Join(flags, " "), "-o", file, p.folder())
	cmd.Dir = filepath.Join(b.source.dir, p.module)
	cmd.Env = append(buildEnviron(), "GOOS="+on.os, "GOARCH="+on.arch)
	if _, err := output(cmd); err != nil {
		return "", fmt.Errorf("build %s for %s: %w", p.name, on, err)
	}
	return file, nil
}

// buildEnviron returns the environment without variables that would change the program.
func buildEnviron() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOFLAGS", "GOEXPERIMENT", "GODEBUG", "GOFIPS140", "PWD"}, name)
	})
	return append(env, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
}

// ask runs a program of this source on this machine and returns its output.
func (b *builder) ask(ctx context.Context, p program, args ...string) (string, error) {
	file, err := b.binary(ctx, p, platform{runtime.GOOS, runtime.GOARCH})
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, file, args...)
	// The program must not see the settings of the user.
	cmd.Env = []string{"HOME=" + b.work, "PATH=" + os.Getenv("PATH")}
	text, err := output(cmd)
	if err != nil {
		return "", err
	}
	return text + "\n", nil
}
