// Package vuln has the nouns of vulnerabilities: advisories, exploits, findings, exceptions, rules and inventories. Each
// file has one noun with its validation.
package vuln

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// problems collects the problems of a resource, with checks for the fields of this area.
type problems struct{ resource.Problems }
