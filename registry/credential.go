package registry

// LoginName is the user that a client logs in as, beside a token as the
// password.
const LoginName = "_token"

// Host is where images are pushed to and pulled from.
func (s *Service) Host() string { return s.cfg.Host }
