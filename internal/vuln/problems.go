// Package vuln defines the types for vulnerabilities: advisories, feeds, exploits, findings, exceptions, pull rules and
// inventories. Each file defines one type and its validation.
package vuln

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// problems collects the problems of a resource. It has additional checks for the fields of the types in this package.
type problems struct{ resource.Problems }
