// Command release makes the files of a release of Holdfast: archives, packages and an
// image, each with its SBOM. It needs git, the go command and modules from the proxy. It
// needs no C compiler, no packaging tools and no container daemon.
//
// It writes the same bytes for the same commit and the same version of Go, on every
// machine and at any time: every date is the date of the commit. It never imports the
// server's code. It builds the programs and runs them to get their manual pages and
// completion.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

const usage = `Usage: release dist  [-source DIR] [-out DIR] [-version vX.Y.Z] [-platforms LIST]
       release image [-source DIR] [-out DIR] [-version vX.Y.Z] [-platforms LIST] [-push HOST/REPO:TAG]
                     [-program holdfastd|holdfast-kube]
       release check [-source DIR] [-version vX.Y.Z] [-advisories FILE|URL] [-required]

dist writes archives, packages, SBOMs and SHA256SUMS. image writes an OCI layout, and
pushes it. check pushes the image to a server of this source, with published advisories,
and fails if our rule refuses to pull it. If the advisories cannot be downloaded, it says
that nothing was checked, and fails only with -required. The version is the commit's tag,
or a Go pseudo-version.
`

// errUsage is returned for arguments that cannot be used.
var errUsage = errors.New("see release -help")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// options are the values of the flags.
type options struct {
	source, out, version, push string
	program                    program    // the program whose image is made
	advisories                 string     // path or address of advisories; "" for all published ones about Go
	required                   bool       // whether the check fails if the advisories cannot be downloaded
	platforms                  []platform // platforms to build for; if empty, all
}

// run runs the command in args, and reports the written files on out.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("name the command dist, image or check; %w", errUsage)
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		fmt.Fprint(out, usage)
		return nil
	}
	opts, err := parse(args[0], args[1:], out)
	if err != nil {
		return err
	}
	src, err := readSource(ctx, opts.source, opts.version)
	if err != nil {
		return err
	}
	if src.modified {
		fmt.Fprintln(out, "the sources differ from their commit, so this is not a release")
	}
	work, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	b := &builder{source: src, work: work}
	switch args[0] {
	case "dist":
		return writeDist(ctx, b, opts, out)
	case "check":
		return checkRelease(ctx, b, opts, out)
	}
	return writeImage(ctx, b, opts, out)
}

func parse(command string, args []string, out io.Writer) (options, error) {
	var o options
	if !slices.Contains([]string{"dist", "image", "check"}, command) {
		return o, fmt.Errorf("%q is neither dist, image nor check; %w", command, errUsage)
	}
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.source, "source", ".", "")
	fs.StringVar(&o.out, "out", "dist", "")
	fs.StringVar(&o.version, "version", "", "")
	if command == "check" {
		fs.StringVar(&o.advisories, "advisories", "", "")
		fs.BoolVar(&o.required, "required", false, "")
	}
	fs.Func("platforms", "", func(s string) (err error) {
		o.platforms, err = parsePlatforms(s)
		return err
	})
	if command == "image" {
		fs.StringVar(&o.push, "push", "", "")
		o.program = server
		fs.Func("program", "", func(s string) (err error) {
			o.program, err = parseProgram(s)
			return err
		})
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		return o, err
	case err != nil:
		return o, fmt.Errorf("%w; %w", err, errUsage)
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; %w", fs.Arg(0), errUsage)
	}
	return o, checkOptions(&o)
}

// parseProgram returns the program with a name, if it has an image.
func parseProgram(name string) (program, error) {
	for _, p := range []program{server, kube} {
		if p.name == name {
			return p, nil
		}
	}
	return program{}, fmt.Errorf("%q has no image", name)
}

// checkOptions reports every invalid value, and makes paths absolute.
func checkOptions(o *options) error {
	var errs []error
	if o.version != "" && !isVersion(o.version) {
		errs = append(errs, fmt.Errorf("-version: %q is not a version like v1.2.3 or v1.2.3-rc.1", o.version))
	}
	if o.push != "" {
		if _, err := parseTag(o.push); err != nil {
			errs = append(errs, fmt.Errorf("-push: %w", err))
		}
	}
	for _, dir := range []*string{&o.source, &o.out} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			errs = append(errs, err)
		}
		*dir = abs
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w; %w", errors.Join(errs...), errUsage)
	}
	return nil
}

// parsePlatforms reads a list like linux/amd64,darwin/arm64.
func parsePlatforms(list string) (all []platform, err error) {
	for text := range strings.SplitSeq(list, ",") {
		goos, arch, _ := strings.Cut(text, "/")
		p := platform{goos, arch}
		if !slices.Contains(platforms, p) {
			return nil, fmt.Errorf("%q is not one of %v", text, platforms)
		}
		all = append(all, p)
	}
	return all, nil
}
