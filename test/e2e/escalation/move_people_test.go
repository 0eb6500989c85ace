package escalation_test

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// hands chooses the side that gets the secret that a move creates.
func (m *move) hands() side {
	if m.side == good && m.word("keeps", "keeps", "keeps", "hands over") == "hands over" {
		return evil
	}
	return m.side
}

func (m *move) createInvite() error {
	in := m.where(resource.GroupInvitesCreate)
	role := m.role(in.uid)
	to := m.hands()
	if to == evil && m.side == good && role.uid == resource.OwnerRole {
		to = good
	}
	single := m.word("once", "often") == "once"
	return m.do(func() error {
		m.giving(in.uid, resource.RoleBindingsCreate)
		i, err := m.iam.CreateInvite(m.ctx, in.uid, resource.GroupInvite{Role: role.uid, SingleUse: single}, time.Hour)
		if err == nil {
			o := m.made(&m.invites, "invite", i.UID)
			o.code, o.known[to] = i.Code, true
		}
		return err
	}, "invites the %s to %s as %s", to, in.name, role.name)
}

// redeem uses an invite, with a token of this service or of another issuer.
func (m *move) redeem() error {
	known := slices.DeleteFunc(slices.Clone(m.invites), func(o *object) bool { return !o.known[m.side] })
	invite := m.object(known, nil)
	h := &held{raw: m.actor.raw, user: m.actor.user, through: m.actor.through}
	text := "with " + m.actor.name
	if m.word("ours", "others'") == "others'" {
		issuer := m.issue[m.side]
		h = &held{user: m.user(func(u user) bool { return u.side == m.side })}
		audience := m.word(address, goodClient, evilClient)
		h.raw = m.sign(issuer, h.user, audience)
		text = fmt.Sprintf("as %s of %s for %s", h.user.name, issuer, audience)
	}
	return m.do(func() error {
		land, err := m.login.Register(m.ctx, h.raw, invite.code, "")
		if err != nil {
			return err
		}
		m.arrived = land.Identity.UID
		h.caller.Identity = land.Identity.UID
		h.through = m.provider(land.Identity.Provider)
		m.meet(h)
		return nil
	}, "redeems %s %s", invite.name, text)
}

// provider returns the object for a provider, or nil.
func (m *move) provider(uid resource.UID) *object {
	if i := slices.IndexFunc(m.providers, func(o *object) bool { return o.uid == uid }); i >= 0 {
		return m.providers[i]
	}
	return nil
}

func (m *move) createAccount() error {
	orgs := slices.DeleteFunc(slices.Clone(m.groups), func(o *object) bool { return !o.uid.IsRoot() })
	in := m.object(orgs, func(o *object) bool { return m.may(resource.IdentityCreate, o.uid) })
	to := m.hands()
	role := &object{name: "no role"}
	if m.word("no role", "no role", "role") == "role" {
		if role = m.role(in.uid); role.uid == resource.OwnerRole && m.side == good {
			to = good
		}
	}
	return m.do(func() error {
		if role.uid != "" {
			m.giving(in.uid, resource.RoleBindingsCreate)
		}
		a := &account{email: fmt.Sprintf("p%d@w%d.test", m.n, m.worlds)}
		made, once, err := m.people.CreateAccount(m.ctx, in.uid, resource.Account{Email: a.email}, role.uid)
		if err != nil {
			return err
		}
		a.object, a.identity = &object{name: fmt.Sprintf("account %d", m.n), uid: made.UID}, made.Identity
		m.addAccount(a, fmt.Sprintf("the person of account %d", m.n))
		m.addLink(a, once, to)
		return nil
	}, "makes an account in %s with %s and has the %s get its link", in.name, role.name, to)
}

// addLink records a new link for an account, and the side that holds the link. Earlier links for the account become
// invalid.
func (m *move) addLink(a *account, once accounts.OneTimeLink, to side) {
	u, err := url.Parse(once.URL)
	if err != nil {
		return
	}
	m.voidLinks(a)
	m.links = append(m.links,
		&link{name: fmt.Sprintf("link %d", m.n), code: u.Query().Get("code"), of: a, holder: to, maker: m.side})
}

func (m *move) voidLinks(a *account) {
	m.links = slices.DeleteFunc(m.links, func(l *link) bool { return l.of == a })
}

func (m *move) deleteAccount() error {
	o := m.object(m.accounts, func(o *object) bool { return m.may(resource.IdentityDelete, o.uid) })
	return m.do(func() error {
		err := m.people.DeleteAccount(m.ctx, o.uid)
		if err == nil {
			m.voidLinks(o.account)
			m.accounts = slices.DeleteFunc(m.accounts, func(a *object) bool { return a == o })
		}
		return err
	}, "deletes %s", o.name)
}

func (m *move) createLink() error {
	o := m.object(m.accounts, func(o *object) bool { return m.may(resource.IdentityUpdate, o.uid) })
	to := m.hands()
	// The honest side does not hand over a link for an owner, because then nothing would be left to attack.
	if m.side == good {
		for _, g := range m.checker.GrantsOf(identityOf(o)) {
			if g.Role == resource.OwnerRole {
				to = good
			}
		}
	}
	return m.do(func() error {
		once, err := m.people.CreateLink(m.ctx, o.uid, true)
		if err == nil {
			m.addLink(o.account, once, to)
		}
		return err
	}, "makes a link of %s for the %s", o.name, to)
}

func identityOf(o *object) resource.UID {
	if o.account == nil {
		return ""
	}
	return o.account.identity
}

func (m *move) followLink() error {
	links := slices.DeleteFunc(slices.Clone(m.links), func(l *link) bool { return l.holder != m.side })
	l := pick(m, links, nil, false, func(l *link) string { return l.name })
	if m.stuck {
		return nil
	}
	return m.do(func() error {
		secret := fmt.Sprintf("a password of the %s", m.side)
		h := &held{}
		var err error
		if h.raw, h.refresh, err = m.withLink(l, secret); err != nil {
			return err
		}
		m.voidLinks(l.of)
		l.of.password, l.of.knows = secret, [2]bool{}
		l.of.knows[m.side] = true
		return m.keep(m.side, h)
	}, "follows %s of %s", l.name, l.of.name)
}

func (m *move) signIn() error {
	o := m.object(m.providers, nil)
	p := m.state.providers[o.uid]
	if m.stuck {
		return nil
	}
	all := m.speakers(m.side, p)
	u := m.user(func(u user) bool { return slices.ContainsFunc(all, func(v user) bool { return v.name == u.name }) })
	return m.do(func() error {
		if !slices.ContainsFunc(all, func(v user) bool { return v.name == u.name }) {
			return errNoWay
		}
		h := &held{through: o, user: u}
		err := m.keepPair(m.side, h, func() (string, string, error) { return m.withProvider(o, p, u, "") })
		m.arrived = h.caller.Identity
		return err
	}, "signs in with %s as %s", o.name, u.name)
}

// handNarrowed gives the attackers a narrowed token for the actor's identity.
func (m *move) handNarrowed() error {
	scope := m.object(m.groups, func(g *object) bool { return len(m.before) > 0 && m.before[0].Group.Covers(g.uid) })
	caps := m.word(append([]string{"all", "all", "all"}, setNames()...)...)
	how := m.word("a session", "a token")
	return m.do(func() error {
		h := &held{name: fmt.Sprintf("narrowed token %d", m.n), through: m.actor.through, user: m.actor.user}
		m.limit = func(p promise) bool {
			return scope.uid.Covers(p.place) &&
				(how == "a session" || caps == "all" || p.caps.Without(setNamed(caps)) == resource.Capabilities{})
		}
		if how == "a session" {
			return m.keepPair(evil, h, func() (string, string, error) { return m.narrowSession(scope.uid) })
		}
		wish := sts.TokenParams{Audience: []string{address}, Scopes: []string{string(scope.uid)}}
		if caps != "all" {
			for _, c := range setNamed(caps).All() {
				wish.Caps = append(wish.Caps, c.String())
			}
		}
		got, err := m.sts.Exchange(m.ctx, sts.Request{TokenParams: wish, Bearer: m.actor.raw})
		if err != nil {
			return err
		}
		h.raw = got.Text
		return m.keep(evil, h)
	}, "hands the attackers %s narrowed to %s and %s capabilities", how, scope.name, caps)
}

// narrowSession signs the actor in again, with a session that is narrowed to one group.
func (m *move) narrowSession(scope resource.UID) (token, refresh string, _ error) {
	i := slices.IndexFunc(m.identities, func(o *object) bool { return o.uid == m.actor.caller.Identity })
	if i >= 0 && m.identities[i].account != nil && m.identities[i].account.knows[good] {
		return m.withPassword(m.identities[i].account, scope)
	}
	if m.actor.through != nil && m.provider(m.actor.through.uid) != nil {
		return m.withProvider(m.actor.through, m.state.providers[m.actor.through.uid], m.actor.user, scope)
	}
	return "", "", errNoWay
}

func (m *move) refreshToken() error {
	can := slices.DeleteFunc(slices.Clone(m.tokens[m.side]), func(h *held) bool { return h.refresh == "" })
	h := pick(m, can, nil, false, func(h *held) string { return h.name })
	if m.stuck {
		return nil
	}
	return m.do(func() error {
		access, refresh, err := m.sts.Refresh(m.ctx, h.refresh, api)
		if err != nil {
			return err
		}
		h.refresh = ""
		return m.keep(m.side, &held{
			name: fmt.Sprintf("refreshed token %d", m.n), raw: access.Text, refresh: refresh.Text,
			through: h.through, user: h.user,
		})
	}, "refreshes %s", h.name)
}

// exchangeAgain exchanges a token for another token that is narrowed differently, or not at all.
func (m *move) exchangeAgain() error {
	scope := m.object(m.groups, nil)
	how := m.word("nothing", "a scope", "capabilities", "the registry")
	return m.do(func() error {
		wish := api
		switch how {
		case "a scope":
			wish.Scopes = []string{string(scope.uid)}
		case "capabilities":
			wish.Caps = []string{"role_bindings.create", "identity.update"}
		case "the registry":
			wish.Audience = []string{registryHost, address}
		}
		got, err := m.sts.Exchange(m.ctx, sts.Request{TokenParams: wish, Bearer: m.actor.raw})
		if err != nil {
			return err
		}
		return m.keep(m.side,
			&held{name: fmt.Sprintf("exchanged token %d", m.n), raw: got.Text, through: m.actor.through, user: m.actor.user})
	}, "exchanges %s for one narrowed to %s (%s)", m.actor.name, how, scope.name)
}

// tryExchange tries to become an identity with a random token, which the identity usually does not trust.
func (m *move) tryExchange() error {
	o := m.object(m.identities, nil)
	issuer := m.issuer()
	audience := m.word(address, goodClient, evilClient)
	u := m.user(func(u user) bool { return m.canSign(m.side, issuer, u, audience) })
	with := m.word("ours", "others'")
	return m.do(func() error {
		bearer := m.actor.raw
		if with != "ours" {
			if !m.canSign(m.side, issuer, u, audience) {
				return errNoWay
			}
			bearer = m.sign(issuer, u, audience)
		}
		return m.exchange(m.side, sts.Request{TokenParams: api, Identity: string(o.uid), Bearer: bearer}, u, nil)
	}, "tries to become %s with %s token (%s about %s for %s)", o.name, with, issuer, u.name, audience)
}

func (m *move) endSession() error {
	return m.do(func() error { return m.people.EndSession(m.ctx, "") }, "ends the session of %s", m.actor.name)
}

func (m *move) leave() error {
	return m.do(func() error { return m.people.DeleteSelf(m.ctx, m.actor.caller.Identity) }, "leaves")
}
