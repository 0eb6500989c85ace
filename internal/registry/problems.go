// Package registry has the nouns of the registry: repos, tags, manifests, upstreams, signers, retention and the trash.
// Each file has one noun with its validation.
package registry

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// problems collects the validation errors of a resource. Its methods check fields that only registry resources have.
type problems struct{ resource.Problems }
