// Command bench measures the service against its targets. Speeds are ratios to a baseline
// of the same run, so that they do not depend on the machine.
//
// What is measured and its baseline alternate, and medians are compared. The servers, the
// baselines and their clients share this process, unless a section says otherwise.
// PostgreSQL is the server at HOLDFAST_TEST_POSTGRES, which make bench sets. The exit code
// is 1 if a target is missed.
//
// With -against PATH, the holdfastd of an earlier version is a baseline: exchange, check
// and pull must not be slower.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

func main() {
	if inspect.IsChild() {
		inspect.Child()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal kills
	server.AllocateBallast()     // as holdfastd does
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", fault.Explain(err))
		os.Exit(1)
	}
}

// A bench is one run of the program.
type bench struct {
	rows     int // groups in the big dataset, and bindings in the one for checks
	images   int // in the dataset of findings
	about    int // advisories there
	engines  []string
	only     *regexp.Regexp
	datasets string // the folder in which datasets are kept for the next run, or ""
	profile  string // the file for a CPU profile of the run, or ""
	osv      string // a zip of real records to make advisories from, or ""
	against  string // the holdfastd of an earlier version, or ""

	folder   string // for the files of this run
	progress io.Writer
}

// A section measures one thing on one engine.
type section struct {
	name string
	run  func(context.Context, *measurement)
}

var sections = []section{
	{"lists", lists},
	{"get", gets},
	{"check", checks},
	{"calls", accessCalls},
	{"past", pastChecks},
	{"write", writes},
	{"exchange", exchanges},
	{"events", events},
	{"versions", versions},
	{"start", starts},
	{"backup", backups},
	{"registry", registries},
	{"advisories", advisories},
	{"yaml", yamlImports},
	{"signin", signIns},
	{"traces", traces},
	{"index", indexing},
	{"findings", findings},
	{"console", consoleViews},
	{"against", againstEarlier},
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	b, err := parse(args, progress)
	if err != nil {
		return err
	}
	if b.folder, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if b.profile != "" {
		f, err := os.Create(b.profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // pprof has reported what failed
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	missed := 0
	for _, name := range b.engines {
		e, err := b.open(name)
		if err != nil {
			return err
		}
		r := &report{title: fmt.Sprintf("%s, %d groups", name, b.rows)}
		err = b.measureAll(ctx, e, r)
		r.print(out)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		missed += r.missed()
	}
	if missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

func (b *bench) measureAll(ctx context.Context, e engine, r *report) (err error) {
	defer func() { err = errors.Join(err, e.dropAll(context.WithoutCancel(ctx))) }()
	for _, s := range sections {
		if !b.only.MatchString(s.name) {
			continue
		}
		begin := time.Now()
		m := &measurement{bench: b, engine: e, report: r}
		if err := m.run(ctx, s.run); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.say("%s: %s took %.0f s", e.name(), s.name, time.Since(begin).Seconds())
	}
	return nil
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "bench: "+format+"\n", args...)
}

const (
	smallRows = 1_000  // groups of the small dataset
	leastRows = 20_000 // groups of the big one, so that its folders have a few pages
)

func parse(args []string, progress io.Writer) (*bench, error) {
	b := &bench{progress: progress}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	engines := flags.String("engines", "sqlite,postgres", "`databases` to measure on")
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	only := flags.String("only", "", "measure only the sections that match this `regexp`: "+strings.Join(names, ", "))
	flags.StringVar(&b.osv, "osv", "", "`zip` of OSV records to create advisories from; without it, all are copies of one")
	flags.StringVar(&b.against, "against", "", "`holdfastd` of an earlier version, for the section against")
	flags.StringVar(&b.profile, "cpuprofile", "", "`file` to write a CPU profile of this process to")
	flags.IntVar(&b.rows, "rows", 1_000_000, "`number` of groups, and of bindings, in the big datasets")
	flags.IntVar(&b.images, "images", 10_000, "`number` of images in the dataset of findings; the goals are for 100,000")
	flags.IntVar(&b.about, "about", 30_000, "`number` of advisories there; the goals are for 300,000")
	flags.StringVar(&b.datasets, "keep", "", "`folder` to keep datasets in for the next run; "+
		"PostgreSQL keeps its own, on the server at HOLDFAST_TEST_POSTGRES")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	b.engines = strings.Split(*engines, ",")
	var err error
	if b.against != "" {
		if b.against, err = exec.LookPath(b.against); err != nil { // now, not after the other sections
			return nil, fmt.Errorf("-against: %w", err)
		}
	}
	if b.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	if b.rows < leastRows || b.rows%100 != 0 {
		return nil, fmt.Errorf("-rows: must be a multiple of 100, and %d at least", leastRows)
	}
	if b.images < leastImages || b.about < leastAbout {
		return nil, fmt.Errorf("-images, -about: must be at least %d and %d", leastImages, leastAbout)
	}
	for _, name := range b.engines {
		if !slices.Contains([]string{"sqlite", "postgres"}, name) {
			return nil, fmt.Errorf("-engines: %q is neither sqlite nor postgres", name)
		}
	}
	return b, nil
}
