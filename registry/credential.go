package registry

// LoginName is the user name that goes with a token as the password.
const LoginName = "_token"

// Host returns the host of the registry, as in image references.
func (s *Service) Host() string { return s.cfg.Host }
