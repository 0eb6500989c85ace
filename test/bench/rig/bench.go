// Package rig contains what every section of the benchmark needs: the databases and datasets to measure on, servers
// and their clients, the ways to compare two operations, and the report.
package rig

import (
	"fmt"
	"io"
	"os"
)

// A Bench is one run: its settings, and the folder for its files.
type Bench struct {
	Rows         int    // groups in the big dataset, and bindings in the dataset for checks
	Images       int    // images in the dataset of findings
	Advisories   int    // advisories in the dataset of findings
	KeptDatasets string // the folder in which datasets are kept for the next run, or ""
	OSV          string // the zip of OSV records from which advisories are made, or ""
	Against      string // the holdfastd of an earlier version, or ""

	Folder   string // the files of this run
	Progress io.Writer
}

// SmallRows is the number of groups in the small dataset.
const SmallRows = 1_000

// Logf reports progress to the person who runs the benchmark.
func (b *Bench) Logf(format string, args ...any) {
	fmt.Fprintf(b.Progress, "bench: "+format+"\n", args...)
}

// DataFolder creates a data directory for a server.
func (b *Bench) DataFolder() string { return Must(os.MkdirTemp(b.Folder, "data-")) }
