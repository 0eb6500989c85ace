package escalation_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// judge checks the capabilities that the attackers hold, or could get with an exchange or a sign-in, after a
// successful move. It returns an error if a rule is broken. If the honest side made the move, the capabilities that
// it gave to the attackers are recorded as given.
func (w *world) judge(m *move) error {
	if w.wrong != nil {
		return w.wrong
	}
	if m.founded != "" && m.side == evil {
		w.give(promise{place: m.founded, caps: everything})
	}
	mover := m.before
	if m.arrived != "" {
		mover = append(mover, w.checker.GrantsOf(m.arrived)...)
	}
	for place, want := range m.gives {
		var one resource.Capabilities
		one.Add(want)
		if m.side == evil && !w.givenAt(place).Has(want) ||
			m.side == good && lacks(mover, one, place) != (resource.Capabilities{}) {
			return fmt.Errorf("a giver of a role on %s must hold %s there, but the %s do not", w.nameOf(place), want, m.side)
		}
	}
	for _, p := range w.promises() {
		p.caps = p.caps.Without(w.givenAt(p.place))
		switch {
		case p.caps == resource.Capabilities{}:
		case m.side == evil:
			return fmt.Errorf("%s, and so hold capabilities on %s that nobody gave them: %s", p.why, w.nameOf(p.place),
				names(p.caps))
		case m.unmeant && !p.lent, m.limit != nil && !m.limit(p):
			return fmt.Errorf("%s, and so got capabilities on %s that were not meant for them: %s", p.why, w.nameOf(p.place),
				names(p.caps))
		case !m.operator && lacks(mover, p.caps, p.place) != resource.Capabilities{}:
			return fmt.Errorf("%s, and so got capabilities on %s that the giver did not hold: %s", p.why, w.nameOf(p.place),
				names(lacks(mover, p.caps, p.place)))
		default:
			w.give(p)
		}
	}
	return nil
}

var everything = resource.Capabilities{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}

// lacks returns the capabilities in caps that none of the grants gives on a place.
func lacks(grants []authz.Grant, caps resource.Capabilities, place resource.UID) resource.Capabilities {
	for _, h := range grants {
		if h.Group.Covers(place) {
			caps = caps.Without(h.Capabilities)
		}
	}
	return caps
}

func names(caps resource.Capabilities) string {
	var list []string
	for _, c := range caps.All() {
		list = append(list, c.String())
	}
	if len(list) > 6 {
		list = append(list[:6], fmt.Sprintf("and %d more", len(list)-6))
	}
	return strings.Join(list, ", ")
}

// observe asks the checker which capabilities the attackers' tokens have, and returns an error if nobody gave one of
// them to the attackers.
func (w *world) observe() error {
	if w.wrong != nil {
		return w.wrong
	}
	for _, h := range w.tokens[evil] {
		c, err := w.verify(h.raw)
		if err != nil {
			continue
		}
		ctx := authz.WithCaller(w.ctx, c)
		for _, g := range w.groups {
			given := w.givenAt(g.uid)
			for _, want := range watched.All() {
				if !given.Has(want) && w.checker.Require(ctx, want, g.uid) == nil {
					return fmt.Errorf("with %s the attackers may do %s on %s, which nobody gave them", h.name, want, w.nameOf(g.uid))
				}
			}
		}
	}
	return nil
}

// surprise records an error if the attackers have a token for an identity that they do not control.
func (w *world) surprise(h *held, how string) {
	if _, ok := w.control(evil)[h.caller.Identity]; !ok && h.whole() && w.wrong == nil {
		w.wrong = fmt.Errorf("%s the attackers got a token of %s, whom they do not control", how,
			w.nameOf(h.caller.Identity))
	}
}

// tryEverything tries to exchange every token that the attackers can have for a token of every identity. It returns
// an error if they get a token that they must not get.
func (w *world) tryEverything() error {
	bearers := w.bearers()
	for _, h := range w.tokens[evil] {
		bearers = append(bearers, h.raw)
	}
	var requests []sts.Request
	for _, o := range w.identities {
		requests = append(requests, sts.Request{Identity: string(o.uid)})
	}
	for _, o := range w.providers {
		requests = append(requests, sts.Request{Provider: string(o.uid)})
	}
	for _, r := range append(requests, sts.Request{}) {
		for _, bearer := range bearers {
			r.TokenParams, r.Bearer = api, bearer
			if got, err := w.sts.Exchange(w.ctx, r); err == nil {
				if c, err := w.verify(got.Text); err == nil {
					w.surprise(&held{raw: got.Text, caller: c}, "in exchange")
				}
			}
		}
	}
	return w.wrong
}

// bearers returns a token of each kind that the attackers can get from other issuers.
func (w *world) bearers() (tokens []string) {
	for _, issuer := range w.issue {
		for _, u := range users {
			for _, audience := range []string{address, goodClient, evilClient} {
				if w.canSign(evil, issuer, u, audience) {
					tokens = append(tokens, w.sign(issuer, u, audience))
				}
			}
		}
	}
	for _, o := range w.identities {
		if k := w.state.identities[o.uid].Relationship.StaticKeys; k != nil {
			tokens = append(tokens, w.others.sign(evil, map[string]any{
				"iss": k.Issuer, "sub": k.Subject, "aud": address, "iat": w.now().Unix(), "exp": w.now().Unix() + 3600,
			}))
		}
	}
	return tokens
}

// sets are the sets of capabilities that the roles in these tests have.
var sets = []struct {
	name string
	caps resource.Capabilities
}{
	{"the help desk's", resource.CapabilitySet("identity.create", "identity.update", "identity.list")},
	{
		"the providers' admin's",
		resource.CapabilitySet("identity_providers.create", "identity_providers.update", "identity_providers.list",
			"identity_providers.delete", "role_bindings.create"),
	},
	{
		"the binder's",
		resource.CapabilitySet("role_bindings.create", "role_bindings.update", "role_bindings.list", "role_bindings.delete"),
	},
	{"the roles' admin's", resource.CapabilitySet("roles.create", "roles.update", "roles.list", "roles.delete")},
	{
		"the host's",
		resource.CapabilitySet("group_invites.create", "group_invites.list", "role_bindings.create", "groups.create",
			"groups.list"),
	},
	{"the puller's", resource.CapabilitySet("repo.blobs.get", "manifest.list", "groups.list")},
	{"the pusher's", resource.CapabilitySet("manifest.create", "tag.create", "repo.create")},
	{"the approver's", resource.CapabilitySet("advisories.approve", "advisories.update")},
	{"the remover's", resource.CapabilitySet("identity.delete", "identity.list", "group_invites.delete")},
}

// watched are all capabilities in sets. The tests check them on every place.
var watched = func() (all resource.Capabilities) {
	for _, s := range sets {
		all = all.Union(s.caps)
	}
	return all
}()

func setNames() (list []string) {
	for _, s := range sets {
		list = append(list, s.name)
	}
	return list
}

func setNamed(name string) resource.Capabilities {
	if i := slices.Index(setNames(), name); i >= 0 {
		return sets[i].caps
	}
	return resource.Capabilities{}
}
