// Package registry serves the OCI distribution protocol, version 1.1, and keeps
// the rules of repos and tags.
package registry

// A Registry is an http.Handler for /v2/.
type Registry struct{}
