// Package vuln defines the nouns of vulnerabilities: advisories, feeds, exploits, findings, exceptions, pull rules and
// inventories. Each file defines one noun and its validation.
package vuln

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// problems collects the problems of a resource, with checks for the fields of this area.
type problems struct{ resource.Problems }
