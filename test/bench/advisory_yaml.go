package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const (
	yamlTarget = 0.5   // of the time that a bare decode takes
	yamlRounds = 5     // and one for warm-up
	yamlRows   = 1_800 // records of a round
	perPackage = 60    // advisories in a file of a distribution
)

// yamlImports compares imports of YAML, from an archive to rows on disk, with a bare decode of
// the same files: one after the other, into maps, with a library that does nothing else. It is the
// successor of gopkg.in/yaml.v3, and the fastest of those that have a release and are kept.
func yamlImports(ctx context.Context, m *measurement) {
	o, _ := m.openAdvisoryStore(ctx, "advisories_yaml")
	m.yamlImport(o, "distribution YAML", distributionFiles)
	m.yamlImport(o, "OSV YAML", m.osvFiles)
}

// yamlImport measures imports of files, which make returns for the n-th round.
func (m *measurement) yamlImport(o advisoryStore, what string, files func(round int) [][]byte) {
	var p rates
	var ours, theirs, ratios []float64
	for round := range yamlRounds + 1 {
		all := files(round)
		packed := pack(all)
		begin := time.Now()
		for _, text := range all {
			var v any
			check(yaml.Unmarshal(text, &v))
		}
		bare := time.Since(begin)
		begin = time.Now()
		group := must(o.NewImport(o.ctx, o.org, "bench", nil))
		err := group.Read("all.zip", bytes.NewReader(packed), int64(len(packed)), "")
		done, closing := group.Close()
		took := time.Since(begin)
		check(errors.Join(err, closing))
		if done != (vuln.ImportResult{Created: yamlRows}) {
			check(fmt.Errorf("of %d records of %s: %+v", yamlRows, what, done))
		}
		ours, theirs = append(ours, yamlRows/took.Seconds()), append(theirs, yamlRows/bare.Seconds())
		ratios = append(ratios, bare.Seconds()/took.Seconds())
	}
	p.a, p.b, p.ratio = median(ours[1:]), median(theirs[1:]), median(ratios[1:])
	m.faster("advisories: import of "+what+" / bare decode, records a second", p, yamlTarget)
}

// pack returns an archive of files.
func pack(files [][]byte) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i, text := range files {
		must(must(z.Create(fmt.Sprintf("%d.yaml", i))).Write(text))
	}
	check(z.Close())
	return b.Bytes()
}

// distributionFiles returns files of advisories about packages, as distributions publish them.
func distributionFiles(round int) (all [][]byte) {
	for i := range yamlRows / perPackage {
		b := fmt.Appendf(nil, "schema-version: 2.0.2\n\npackage:\n  name: package-%d\n\nadvisories:\n", i)
		for k := range perPackage {
			n := (round*yamlRows+i*perPackage)*10 + k
			b = fmt.Appendf(b, distributionAdvisory, n, n, n%10_000)
		}
		all = append(all, b)
	}
	return all
}

// osvFiles returns files of one OSV record each.
func (m *measurement) osvFiles(round int) (all [][]byte) {
	real := m.records()
	for i := range yamlRows {
		n := round*yamlRows + i
		_, text := multiplied(real[n%len(real)], n/len(real))
		var v any
		check(json.Unmarshal(text, &v))
		all = append(all, must(yaml.Marshal(v)))
	}
	return all
}

// distributionAdvisory is an advisory of a file, about as long as real ones.
const distributionAdvisory = `  - id: CGA-%08d
    aliases:
      - CVE-2026-%d
      - GHSA-2345-6789-%04d
    events:
      - timestamp: 2026-05-01T08:00:00Z
        type: detection
        data:
          type: scan/v1
          data:
            subpackageName: words-doc
            componentID: 8d3f9e2a41c0
            componentName: golang.org/x/net
            componentVersion: v0.17.0
            componentType: go-module
            componentLocation: /usr/bin/words
            scanner: grype
      - timestamp: 2026-05-02T08:00:00Z
        type: pending-upstream-fix
        data:
          note: The module has to be updated by the project first, because its interface has changed.
      - timestamp: 2026-05-03T08:00:00Z
        type: fixed
        data:
          fixed-version: 1.2.3-r1
`
