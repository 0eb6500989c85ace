package authz

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A State is a fixed set of grants at one time. It answers by the rules of the Checker, and does not change with the
// database.
type State struct{ index *index }

// NewState returns the State of these grants and roles at a time.
func NewState(asOf time.Time, grants []iamdb.Grant, roles map[resource.UID]resource.Capabilities) *State {
	x := newIndex(func() (earliest, latest time.Time) { return asOf, asOf })
	for _, g := range grants {
		x.add(g)
	}
	x.sort()
	x.setRoles(roles)
	return &State{x}
}

// Held returns the capabilities of want that an identity holds on target.
func (s *State) Held(identity, target resource.UID, want resource.Capabilities) resource.Capabilities {
	return want.Without(s.index.missing(identity, target, want, currently))
}

// Active returns the capabilities of a grant, and whether the grant is active in this state.
func (s *State) Active(g iamdb.Grant) (resource.Capabilities, bool) {
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
	return s.index.allowed[id], s.index.isActive(n, currently)
}
