package resource

// A RegistryScope narrows a token to some actions on one resource of the registry, as in
// the access claim of the token specification of distribution. It names a repo by its
// path, because a client may push to a repo that does not exist yet.
type RegistryScope struct {
	Type    string   `json:"type"` // "repository", or "registry" for the catalog
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}
