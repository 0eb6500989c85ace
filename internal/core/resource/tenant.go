package resource

// A Tenant is the key under which the server shares its capacity fairly. Organizations
// that somebody pays for together have the same tenant. store.DB.Tenant returns it.
type Tenant string
