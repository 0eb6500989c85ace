// Command bench measures the service against its targets. Speeds are ratios to a baseline of the same run, so that they
// do not depend on the machine.
//
// The measured operation and its baseline alternate, and their medians are compared. The servers, the baselines and
// their clients share this process, unless a section says otherwise. PostgreSQL is the server at
// HOLDFAST_TEST_POSTGRES, which make bench sets. The exit code is 1 if a target is missed.
//
// With -against PATH, the holdfastd of an earlier version is a baseline: exchange, check, pull, writes and pushes must
// not be slower.
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
	"github.com/holdfast-dev/holdfast/test/bench/access"
	"github.com/holdfast-dev/holdfast/test/bench/groups"
	"github.com/holdfast-dev/holdfast/test/bench/program"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
	"github.com/holdfast-dev/holdfast/test/bench/vulnerability"
)

func main() {
	if inspect.IsChild() {
		inspect.Child()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // lets a second signal kill the process
	server.AllocateBallast()     // holdfastd does so, too
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", fault.Explain(err))
		os.Exit(1)
	}
}

// A command is one run of the program. It has the settings that the sections do not need.
type command struct {
	*rig.Bench
	engines []string
	only    *regexp.Regexp // matches the names of the sections to run
	profile string         // path of the file for the CPU profile of the run, or ""
}

// A section is a group of measurements on one engine.
type section struct {
	name string
	run  func(context.Context, *rig.Measurement)
}

var sections = []section{
	{"lists", groups.Lists},
	{"get", groups.Gets},
	{"check", access.Checks},
	{"calls", access.Calls},
	{"past", access.Past},
	{"write", groups.Writes},
	{"exchange", access.Exchanges},
	{"events", groups.Events},
	{"versions", groups.Versions},
	{"start", program.Starts},
	{"backup", program.Backups},
	{"registry", program.Registry},
	{"replications", program.Replications},
	{"advisories", vulnerability.Advisories},
	{"yaml", vulnerability.YAMLImports},
	{"signin", access.SignIns},
	{"traces", program.Traces},
	{"index", vulnerability.Indexing},
	{"pushes", vulnerability.Pushes},
	{"findings", vulnerability.Findings},
	{"questions", vulnerability.Questions},
	{"console", program.Console},
	{"against", program.Against},
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	b, err := parse(args, progress)
	if err != nil {
		return err
	}
	if b.Folder, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.Folder)) }()
	if b.profile != "" {
		f, err := os.Create(b.profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // pprof has already reported write errors
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	missed := 0
	for _, name := range b.engines {
		e, err := b.OpenEngine(name)
		if err != nil {
			return err
		}
		r := &rig.Report{Title: fmt.Sprintf("%s, %d groups", name, b.Rows)}
		err = b.measureAll(ctx, e, r)
		r.Print(out)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		missed += r.Missed()
	}
	if missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

func (b *command) measureAll(ctx context.Context, e rig.Engine, r *rig.Report) (err error) {
	defer func() { err = errors.Join(err, e.DropAll(context.WithoutCancel(ctx))) }()
	for _, s := range sections {
		if !b.only.MatchString(s.name) {
			continue
		}
		begin := time.Now()
		m := &rig.Measurement{Bench: b.Bench, Engine: e, Report: r}
		if err := m.Run(ctx, s.run); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.Logf("%s: %s took %.0f s", e.Name(), s.name, time.Since(begin).Seconds())
	}
	return nil
}

// leastRows is the smallest allowed number of groups in the big dataset. With fewer groups, its folders would not
// have several pages.
const leastRows = 20_000

func parse(args []string, progress io.Writer) (*command, error) {
	b := &command{Bench: &rig.Bench{Progress: progress}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	engines := flags.String("engines", "sqlite,postgres", "`databases` to measure on")
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	only := flags.String("only", "", "measure only the sections that match this `regexp`: "+strings.Join(names, ", "))
	flags.StringVar(&b.OSV, "osv", "",
		"`zip` of OSV records to create advisories from; without it, all advisories are copies of one record")
	flags.StringVar(&b.Against, "against", "", "`holdfastd` of an earlier version, for the section against")
	flags.StringVar(&b.profile, "cpuprofile", "", "`file` to write a CPU profile of this process to")
	flags.IntVar(&b.Rows, "rows", 1_000_000, "`number` of groups, and of bindings, in the big datasets")
	flags.IntVar(&b.Images, "images", 10_000, "`number` of images in the dataset of findings; the goals are for 100,000")
	flags.IntVar(&b.Advisories, "about", 30_000,
		"`number` of advisories in the dataset of findings; the goals are for 300,000")
	flags.StringVar(&b.KeptDatasets, "keep", "", "`folder` to keep datasets in for the next run; "+
		"PostgreSQL keeps them on the server at HOLDFAST_TEST_POSTGRES")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	b.engines = strings.Split(*engines, ",")
	var err error
	if b.Against != "" {
		if b.Against, err = exec.LookPath(b.Against); err != nil { // check the path before the other sections run
			return nil, fmt.Errorf("-against: %w", err)
		}
	}
	if b.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	if b.Rows < leastRows || b.Rows%100 != 0 {
		return nil, fmt.Errorf("-rows: must be a multiple of 100, and at least %d", leastRows)
	}
	if b.Images < vulnerability.LeastImages || b.Advisories < vulnerability.LeastAbout {
		return nil, fmt.Errorf("-images, -about: must be at least %d and %d", vulnerability.LeastImages,
			vulnerability.LeastAbout)
	}
	for _, name := range b.engines {
		if !slices.Contains([]string{"sqlite", "postgres"}, name) {
			return nil, fmt.Errorf("-engines: %q is neither sqlite nor postgres", name)
		}
	}
	return b, nil
}
