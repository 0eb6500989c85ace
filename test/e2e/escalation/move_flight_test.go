package escalation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// undisturbed are the kinds of moves that rely on a token or on a secret instead of the caller of a request, and the
// kinds that end the access of their own actor. The honest side does not revoke access while such a move is in flight.
var undisturbed = []string{
	"bind by lookup", "hire", "provider trust", "redeem", "follow", "sign in", "hand", "refresh", "again", "exchange",
	"end", "leave", "half-sent",
}

// maxHalfSent is the number of half-sent requests that the attackers keep open.
const maxHalfSent = 4

// sendHalf begins a request whose rest the attackers send in a later move. The service has authenticated its caller,
// whose token may be void by then.
func (m *move) sendHalf() error {
	return m.do(func() error {
		half := *m.actor
		half.name, half.half = fmt.Sprintf("the half-sent request %d of %s", m.n, m.actor.name), true
		if m.halfSent = append(m.halfSent, &half); len(m.halfSent) > maxHalfSent {
			m.halfSent = m.halfSent[1:]
		}
		return nil
	}, "sends half of a request")
}

// disturb calls act. If the actor completes a half-sent request, act must fail if its token is void. Sometimes the
// honest side revokes access of the attackers between the authorization of act and its first write. Then act must fail
// if the actor would now be refused.
func (m *move) disturb(act func() error) error {
	if m.side == good || slices.Contains(undisturbed, m.kind) {
		return act()
	}
	if m.actor.half {
		_, void := m.verify(m.actor.raw)
		err := act()
		if void != nil {
			m.mustFail(err, void.Error())
		}
		return err
	}
	revocations := m.revocations()
	chosen := pick(m, revocations, revocations, false, func(r revocation) string { return r.text })
	if m.stuck || chosen.revoke == nil {
		return act()
	}
	var denial error
	m.interruption = func() {
		m.text += "; in flight, the honest " + chosen.text
		if err := chosen.revoke(); err != nil {
			m.text += " (refused)"
			return
		}
		denial = m.tryNow(act)
	}
	err := act()
	m.interruption = nil
	if denial != nil {
		m.mustFail(err, denial.Error())
	}
	return errors.Join(err, m.read())
}

// mustFail records an error if the service has accepted a request whose caller had lost access while it was in flight.
func (m *move) mustFail(err error, reason string) {
	m.lost++
	if err == nil && m.wrong == nil {
		m.wrong = fmt.Errorf("the attackers' request was accepted, although they lost access while it was in flight: %s",
			reason)
	}
}

// tryNow returns the error with which the service refuses the actor now, or nil. It calls act as a dry run, and forgets
// what act has noted about the world.
func (m *move) tryNow(act func() error) error {
	if _, err := m.verify(m.actor.raw); err != nil {
		return err
	}
	before, ctx := *m.world, m.ctx
	for _, list := range m.lists() {
		*list = slices.Clone(*list)
	}
	m.links = slices.Clone(m.links)
	m.ctx = resource.WithDryRun(authz.WithCaller(m.world.ctx, m.actor.caller))
	err := act()
	*m.world, m.ctx = before, ctx
	if errors.Is(err, fault.PermissionDenied) || errors.Is(err, fault.Unauthenticated) {
		return err
	}
	return nil
}

func (w *world) lists() []*[]*object {
	return []*[]*object{
		&w.groups, &w.roles, &w.identities, &w.bindings, &w.providers, &w.mappings, &w.invites, &w.accounts,
	}
}

// A revocation is a change by the honest side that can end the access of the attackers' actor, or that gives another
// identity a role, so that the actor may no longer become that identity.
type revocation struct {
	text   string
	revoke func() error
}

// revocations returns the changes that the honest side can make while a request of the actor is in flight. Most of them
// are no change.
func (m *move) revocations() []revocation {
	list := slices.Repeat([]revocation{{text: "side does nothing"}}, 3)
	add := func(want resource.Capability, place resource.UID, text string, revoke func(by *held) error) {
		for _, h := range m.tokens[good] {
			if h.whole() && m.checker.Holds(h.caller.Identity, want, place) {
				list = append(list, revocation{text, func() error { return revoke(h) }})
				return
			}
		}
	}
	as := func(h *held) context.Context { return authz.WithCaller(m.world.ctx, h.caller) }
	actor, controlled := m.actor.caller, m.control(evil)
	for _, o := range m.bindings {
		if b, err := m.store.Binding(m.world.ctx, o.uid); err == nil && b.Identity == actor.Identity {
			add(resource.RoleBindingsDelete, o.uid, "side removes "+o.name, func(h *held) error {
				return m.iam.DeleteBinding(as(h), o.uid)
			})
		}
	}
	for _, o := range m.roles {
		holds := func(g authz.Grant) bool { return g.Role == o.uid }
		if !o.uid.IsRoot() && slices.ContainsFunc(m.before, holds) {
			add(resource.RolesUpdate, o.uid, "side reduces "+o.name, func(h *held) error {
				_, err := m.iam.UpdateRole(as(h), o.uid, func(r *resource.Role) error {
					r.Capabilities = resource.NewCapabilities(r.Capabilities.All()[0])
					return nil
				})
				return err
			})
		}
	}
	for _, o := range m.identities {
		// A role for an identity whose token the attackers have, narrowed or not, would be a gift to them.
		theirs := slices.ContainsFunc(m.tokens[evil], func(h *held) bool { return h.caller.Identity == o.uid })
		if org := o.uid.Root(); !o.uid.IsRoot() && controlled[o.uid] == "" && !theirs {
			add(resource.RoleBindingsCreate, org, "side gives a role to "+o.name, func(h *held) error {
				viewer := resource.RoleBinding{Identity: o.uid, Role: resource.ManagedRoleUID("viewer")}
				b, err := m.iam.CreateBinding(as(h), org, viewer)
				if err == nil {
					m.made(&m.bindings, "binding in flight", b.UID)
				}
				return err
			})
		}
	}
	if !actor.Identity.IsRoot() {
		add(resource.IdentityDelete, actor.Identity, "side deletes the actor", func(h *held) error {
			return m.iam.DeleteIdentity(as(h), actor.Identity)
		})
	}
	if p := actor.Voucher.Provider(); p != "" {
		add(resource.IdentityProvidersDelete, p, "side deletes the provider of the actor", func(h *held) error {
			return m.iam.DeleteProvider(as(h), p)
		})
	}
	if actor.Session != "" {
		list = append(list, revocation{"user of the session ends it", func() error {
			return m.people.EndSession(as(m.actor), "")
		}})
	}
	return list
}
