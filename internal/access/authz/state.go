package authz

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A State is what some identities hold by the grants given, at one time, judged by the rules of the Checker. It follows
// nothing.
type State struct{ index *index }

// NewState returns the state in which these grants are all there are, and roles allow what is given.
func NewState(at time.Time, grants []iamdb.Grant, roles map[resource.UID]resource.Capabilities) *State {
	x := newIndex(func() (earliest, latest time.Time) { return at, at })
	for _, g := range grants {
		x.add(g)
	}
	x.sort()
	x.setRoles(roles)
	return &State{x}
}

// Held returns the capabilities of want that an identity holds on target.
func (s *State) Held(identity, target resource.UID, want resource.Capabilities) resource.Capabilities {
	return want.Without(s.index.missing(identity, target, want, now))
}

// Counts reports whether a grant counts in this state, and which capabilities it gives.
func (s *State) Counts(g iamdb.Grant) (resource.Capabilities, bool) {
	id, ok := s.index.roles.ids[g.Role]
	if !ok {
		return resource.Capabilities{}, false
	}
	n := grant{start: 0, end: never}
	if g.StartMS != 0 {
		n.start = seconds(time.UnixMilli(g.StartMS + 999))
	}
	if g.ExpireMS != 0 {
		n.end = seconds(time.UnixMilli(g.ExpireMS))
	}
	return s.index.allowed[id], s.index.counts(n, now)
}
