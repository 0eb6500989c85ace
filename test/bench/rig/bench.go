// Package rig contains what every section of the benchmark needs: the databases and datasets, servers and their
// clients, functions that compare two operations, and the report.
package rig

import (
	"fmt"
	"io"
	"os"
)

// A Bench is one run of the benchmark: its settings, and the folder for its files.
type Bench struct {
	Rows         int    // number of groups in the big dataset, and of bindings in the dataset for checks
	Images       int    // number of images in the dataset for findings
	Advisories   int    // number of advisories in the dataset for findings
	KeptDatasets string // folder in which datasets are kept for the next run, or ""
	OSV          string // path of a zip file with OSV records from which advisories are made, or ""
	Against      string // path of the holdfastd program of an earlier version, or ""

	Folder   string // folder for the files of this run
	Progress io.Writer
}

// SmallRows is the number of groups in the small dataset.
const SmallRows = 1_000

// Logf reports progress to the person who runs the benchmark.
func (b *Bench) Logf(format string, args ...any) {
	fmt.Fprintf(b.Progress, "bench: "+format+"\n", args...)
}

// DataFolder creates a data folder for a server and returns its path.
func (b *Bench) DataFolder() string { return Must(os.MkdirTemp(b.Folder, "data-")) }
