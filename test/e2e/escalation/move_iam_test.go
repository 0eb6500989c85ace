package escalation_test

import (
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func (m *move) createFolder() error {
	in := m.where(resource.GroupsCreate)
	return m.do(func() error {
		g, err := m.iam.CreateGroup(m.ctx, string(in.uid), resource.Group{Name: fmt.Sprintf("folder %d", m.n)})
		if err == nil {
			m.made(&m.groups, "folder", g.UID)
		}
		return err
	}, "makes a folder in %s", in.name)
}

func (m *move) found() error {
	return m.do(func() error {
		g, err := m.iam.CreateGroup(m.ctx, "", resource.Group{Name: fmt.Sprintf("org %d w%d", m.n, m.worlds)})
		if err == nil {
			m.founded = g.UID
			m.made(&m.groups, "org", g.UID)
		}
		return err
	}, "founds an organization")
}

func (m *move) createRole() error {
	in := m.where(resource.RolesCreate)
	// The first two sets are the most dangerous, so they are chosen more often.
	set := m.word(append(setNames(), sets[0].name, sets[0].name, sets[1].name, sets[1].name)...)
	return m.do(func() error {
		r, err := m.iam.CreateRole(m.ctx, in.uid,
			resource.Role{Name: fmt.Sprintf("role %d", m.n), Capabilities: setNamed(set)})
		if err == nil {
			m.made(&m.roles, "role", r.UID)
		}
		return err
	}, "makes a role in %s with %s capabilities", in.name, set)
}

func (m *move) updateRole() error {
	role := m.object(m.roles, func(r *object) bool { return m.may(resource.RolesUpdate, r.uid) })
	set := m.word(setNames()...)
	return m.do(func() error {
		_, err := m.iam.UpdateRole(m.ctx, role.uid, func(r *resource.Role) error {
			r.Capabilities = r.Capabilities.Union(setNamed(set))
			return nil
		})
		return err
	}, "adds %s capabilities to %s", set, role.name)
}

func (m *move) bind() error {
	in := m.where(resource.RoleBindingsCreate)
	role := m.role(in.uid)
	to := m.recipient(role.uid)
	many := m.word("one", "one", "batch")
	return m.do(func() error {
		binding := resource.RoleBinding{Identity: to.uid, Role: role.uid}
		m.giving(in.uid, resource.RoleBindingsCreate)
		var b resource.BoundRole
		var err error
		if many == "batch" {
			var all []resource.BoundRole
			if all, err = m.iam.CreateBindings(m.ctx, in.uid, []resource.RoleBinding{binding}); err == nil {
				b = all[0]
			}
		} else {
			b, err = m.iam.CreateBinding(m.ctx, in.uid, binding)
		}
		if err == nil {
			m.made(&m.bindings, "binding", b.UID)
		}
		return err
	}, "gives %s to %s on %s", role.name, to.name, in.name)
}

// hire gives one of the attackers' identities a role that is not a managed role, so that the attackers are members.
func (m *move) hire() error {
	in := m.where(resource.RoleBindingsCreate)
	own := slices.DeleteFunc(slices.Clone(m.roles),
		func(r *object) bool { return r.uid.IsRoot() || !r.uid.Parent().Covers(in.uid) })
	role := m.object(own, nil)
	controlled := m.control(evil)
	to := m.object(slices.DeleteFunc(slices.Clone(m.identities), func(o *object) bool { return controlled[o.uid] == "" }),
		nil)
	return m.do(func() error {
		m.giving(in.uid, resource.RoleBindingsCreate)
		b, err := m.iam.CreateBinding(m.ctx, in.uid, resource.RoleBinding{Identity: to.uid, Role: role.uid})
		if err == nil {
			m.made(&m.bindings, "binding", b.UID)
		}
		return err
	}, "hires %s as %s on %s", to.name, role.name, in.name)
}

// bindByLookup gives a role to a user of the good issuer. The actor gets the UID of the user from the service.
func (m *move) bindByLookup() error {
	in := m.where(resource.RoleBindingsCreate)
	role := m.role(in.uid)
	u := m.user(func(u user) bool { return u.side == good })
	through := &object{name: "nobody in particular"}
	if m.word("with a provider", "without", "without") == "with a provider" {
		through = m.object(m.providers, func(o *object) bool { return o.uid.Root() == in.uid.Root() })
	}
	return m.do(func() error {
		m.giving(in.uid, resource.RoleBindingsCreate)
		m.unmeant = !m.standsFor(through, u)
		uid, err := m.lookUp(through, u)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(m.identities, func(o *object) bool { return o.uid == uid }) {
			m.made(&m.identities, "whoever will be "+u.name+" of move", uid).person = m.awaited(uid, u)
		}
		b, err := m.iam.CreateBinding(m.ctx, in.uid, resource.RoleBinding{Identity: uid, Role: role.uid})
		if err == nil {
			m.made(&m.bindings, "binding", b.UID)
		}
		return err
	}, "looks up %s of the good issuer, as known to %s, and gives them %s on %s", u.name, through.name, role.name, in.name)
}

// lookUp returns the UID of a user of the good issuer. If through names a provider, it looks the user up through that
// provider.
func (m *move) lookUp(through *object, u user) (resource.UID, error) {
	if through.uid == "" {
		return m.iam.LookupIdentity(m.ctx, m.issue[good], u.name, "")
	}
	p := m.state.providers[through.uid]
	if p.OIDC.Issuer != m.issue[good] {
		return "", errNoWay // the honest side does not use providers with other issuers
	}
	return m.iam.LookupIdentity(m.ctx, p.OIDC.Issuer, m.subjectAt(p, u), p.UID)
}

// awaited returns the identity of the person who will have this UID. The UID is the result of looking up the user.
func (m *move) awaited(uid resource.UID, u user) resource.Identity {
	realm, subject := m.issue[good], u.name
	for _, o := range m.providers {
		p := m.state.providers[o.uid]
		for _, name := range []string{u.name, m.subjectAt(p, u)} {
			if resource.UserUID(p.Realm, name) == uid {
				realm, subject = p.Realm, name
			}
		}
	}
	return resource.Identity{UID: uid, Realm: realm, Relationship: resource.Relationship{
		ClaimMatch: &resource.ClaimMatch{Issuer: m.issue[good], Subject: subject},
	}}
}

// standsFor reports whether the attackers can sign in as a user of the good issuer. If a provider is named, only that
// provider counts. Otherwise all providers of the actor's organization count.
func (m *move) standsFor(through *object, u user) bool {
	home := m.home()
	return slices.ContainsFunc(m.providers, func(o *object) bool {
		p := m.state.providers[o.uid]
		named := through.uid != "" && o == through
		if p.OIDC.Issuer != m.issue[good] ||
			!named && (through.uid != "" || p.OIDC.ByObjectID() || !p.UID.Parent().Covers(home)) {
			return false
		}
		return slices.ContainsFunc(m.speakers(evil, p), func(v user) bool { return m.subjectAt(p, v) == m.subjectAt(p, u) })
	})
}

// home returns the group to which the actor's identity belongs, or "".
func (m *move) home() resource.UID {
	uid := m.actor.caller.Identity
	if !uid.IsRoot() {
		return uid.Parent()
	}
	if i := slices.IndexFunc(m.accounts, func(o *object) bool { return o.account.identity == uid }); i >= 0 {
		return m.accounts[i].uid.Root()
	}
	return m.actor.caller.Voucher.Provider().Parent()
}

func (m *move) updateBinding() error {
	binding := m.object(m.bindings, func(b *object) bool { return m.may(resource.RoleBindingsUpdate, b.uid) })
	role := m.role(binding.uid.Parent())
	to := m.recipient(role.uid)
	what := m.word("role", "identity", "both")
	return m.do(func() error {
		m.giving(binding.uid.Parent(), resource.RoleBindingsUpdate)
		_, err := m.iam.UpdateBinding(m.ctx, binding.uid, func(b *resource.RoleBinding) error {
			if what != "identity" {
				b.Role = role.uid
			}
			if what != "role" {
				b.Identity = to.uid
			}
			return nil
		})
		return err
	}, "changes the %s of %s to %s and %s", what, binding.name, role.name, to.name)
}

func (m *move) unbind() error {
	binding := m.object(m.bindings, func(b *object) bool { return m.may(resource.RoleBindingsDelete, b.uid) })
	return m.do(func() error {
		err := m.iam.DeleteBinding(m.ctx, binding.uid)
		if err == nil {
			m.bindings = slices.DeleteFunc(m.bindings, func(o *object) bool { return o == binding })
		}
		return err
	}, "removes %s", binding.name)
}

// relationship chooses what a new identity trusts: an issuer and its users, another identity of this service, or a
// key.
func (m *move) relationship() (r resource.Relationship, text string) {
	options := []string{"a user", "a user", "us", "us", "keys", "a pattern of users"}
	if m.side == evil {
		options = append(options, "a user", "a pattern of ours", "a pattern of issuers", "us, as an issuer pattern")
	}
	switch how := m.word(options...); how {
	case "us", "us, as an issuer pattern":
		of := m.object(m.identities, m.isStepping)
		match := &resource.ClaimMatch{Issuer: address, Subject: string(of.uid)}
		if how != "us" {
			match.Issuer, match.IssuerPattern = "", `https://(holdfast|other)\.test`
		}
		return resource.Relationship{ClaimMatch: match}, how + " about " + of.name
	case "a pattern of ours":
		return resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: address, SubjectPattern: "[0-9a-f]{40}.*"}}, how
	case "keys":
		key := m.side
		if m.word("own", "own", "own", "others'") == "others'" {
			key = 1 - key
		}
		return resource.Relationship{StaticKeys: &resource.StaticKeys{
			Issuer: "https://keys.test", Subject: "robot", IssuerKeys: m.others.keySet(key),
		}}, "a key of the " + key.String()
	default:
		return m.trustOthers(how)
	}
}

// isStepping reports whether an honest move may make another identity trust o, so that o becomes a stepping stone. Only
// the honest side does this, for identities other than the root that the attackers do not control.
func (m *move) isStepping(o *object) bool {
	return m.side == good && !o.uid.IsRoot() && m.control(evil)[o.uid] == ""
}

// trustOthers chooses a claim match for another issuer.
func (m *move) trustOthers(how string) (resource.Relationship, string) {
	match := &resource.ClaimMatch{Issuer: m.issue[good]}
	if m.side == evil && m.word("good", "evil", "evil") == "evil" {
		match.Issuer = m.issue[evil]
	}
	issuer := match.Issuer
	u := m.user(func(u user) bool { return m.side == evil || u.side == good })
	match.Subject = u.name
	switch how {
	case "a pattern of users":
		match.Subject, match.SubjectPattern = "", "ci-[0-9]"
	case "a pattern of issuers":
		match.Issuer, match.IssuerPattern = "", `https://(good|evil)\..*`
	}
	match.Audience = m.word("", "", "", goodClient, evilClient)
	return resource.Relationship{ClaimMatch: match}, fmt.Sprintf("%s: %s about %s for %q", how, issuer, u.name,
		match.Audience)
}

func (m *move) createIdentity() error {
	in := m.where(resource.IdentityCreate)
	r, trusts := m.relationship()
	return m.do(func() error {
		i, err := m.iam.CreateIdentity(m.ctx, in.uid,
			resource.Identity{Name: fmt.Sprintf("identity %d", m.n), Relationship: r})
		if err == nil {
			m.made(&m.identities, "identity", i.UID)
		}
		return err
	}, "makes an identity in %s that trusts %s", in.name, trusts)
}

func (m *move) updateIdentity() error {
	o := m.workload(resource.IdentityUpdate)
	r, trusts := m.relationship()
	return m.do(func() error {
		_, err := m.iam.UpdateIdentity(m.ctx, o.uid, func(i *resource.Identity) error {
			i.Relationship = r
			return nil
		})
		return err
	}, "makes %s trust %s", o.name, trusts)
}

func (m *move) deleteIdentity() error {
	o := m.workload(resource.IdentityDelete)
	return m.do(func() error { return m.iam.DeleteIdentity(m.ctx, o.uid) }, "deletes %s", o.name)
}

func (m *move) issuer() string {
	options := []string{"good", "evil"}
	if m.side == good {
		options = append(options, "good", "good")
	}
	if m.word(options...) == "evil" {
		return m.issue[evil]
	}
	return m.issue[good]
}

func (m *move) client() string {
	if m.side == good {
		return m.word(goodClient, goodClient, goodClient, evilClient)
	}
	return m.word(goodClient, evilClient)
}

func (m *move) rule() resource.CorrelationRule {
	return map[string]resource.CorrelationRule{
		"sub": resource.CorrelationSubject, "oid": resource.CorrelationObjectID,
	}[m.word("", "", "sub", "oid")]
}

func (m *move) createProvider() error {
	in := m.where(resource.IdentityProvidersCreate)
	role := m.role(in.uid)
	p := resource.IdentityProvider{Name: fmt.Sprintf("provider %d", m.n), DefaultRole: role.uid, OIDC: &resource.OIDC{
		Issuer: m.issuer(), ClientID: m.client(), CorrelationRule: m.rule(),
		GroupsClaim: m.word("groups", "groups", "teams", ""), PKCE: true,
	}}
	return m.do(func() error {
		m.giving(in.uid, resource.RoleBindingsCreate)
		made, err := m.iam.CreateProvider(m.ctx, in.uid, p)
		if err == nil {
			m.made(&m.providers, "provider", made.UID)
		}
		return err
	}, "makes a provider in %s: %s for %s, rule %d, groups in %q, gives %s",
		in.name, p.OIDC.Issuer, p.OIDC.ClientID, p.OIDC.CorrelationRule, p.OIDC.GroupsClaim, role.name)
}

func (m *move) updateProvider() error {
	o := m.object(m.providers, func(p *object) bool { return m.may(resource.IdentityProvidersUpdate, p.uid) })
	what := m.word("issuer", "issuer", "client", "client", "rule", "groups claim", "disabled", "default role", "name")
	keep := m.word("keeps its people", "lets its people go") == "keeps its people"
	issuer, client, rule, claim := m.issuer(), m.client(), m.rule(), m.word("groups", "teams", "")
	role := m.role(o.uid.Parent())
	return m.do(func() error {
		_, err := m.iam.UpdateProvider(m.ctx, o.uid, keep, func(p *resource.IdentityProvider) error {
			switch what {
			case "issuer":
				p.OIDC.Issuer = issuer
			case "client":
				p.OIDC.ClientID = client
			case "rule":
				p.OIDC.CorrelationRule = rule
			case "groups claim":
				p.OIDC.GroupsClaim = claim
			case "disabled":
				p.Disabled = !p.Disabled
			case "default role":
				p.DefaultRole = role.uid
			case "name":
				p.Name = fmt.Sprintf("provider renamed %d", m.n)
			}
			return nil
		})
		return err
	}, "changes the %s of %s (to one of %s, %s, rule %d, %q, %s); keeps its people: %v",
		what, o.name, issuer, client, rule, claim, role.name, keep)
}

func (m *move) deleteProvider() error {
	o := m.object(m.providers, func(p *object) bool { return m.may(resource.IdentityProvidersDelete, p.uid) })
	return m.do(func() error { return m.iam.DeleteProvider(m.ctx, o.uid) }, "deletes %s", o.name)
}

// trustProvider is a move of the operator. The operator trusts a provider only after checking its issuer and its
// client.
func (m *move) trustProvider() error {
	o := m.object(m.providers, func(o *object) bool { return m.state.providers[o.uid].OIDC.ClientID == goodClient })
	trusted := m.word("trusts", "trusts", "no longer trusts") == "trusts"
	return m.do(func() error {
		p := m.state.providers[o.uid]
		if trusted && (p.OIDC.Issuer != m.issue[good] || p.OIDC.ClientID != goodClient) {
			return errNoWay
		}
		m.operator = true
		_, err := m.iam.TrustProvider(m.world.ctx, o.uid, trusted)
		return err
	}, "has the operator trust %s: %v", o.name, trusted)
}

func (m *move) createMapping() error {
	o := m.object(m.providers, func(p *object) bool { return m.may(resource.IdentityProvidersCreate, p.uid) })
	role := m.role(o.uid.Root())
	group := m.word("admins", "staff")
	scope := m.word("organization", "organization", "", "group")
	return m.do(func() error {
		in := map[string]resource.UID{"organization": o.uid.Root(), "group": o.uid.Parent()}[scope]
		m.giving(o.uid.Root(), resource.RoleBindingsCreate)
		made, err := m.iam.CreateMapping(m.ctx, o.uid,
			resource.ExternalGroupRoleMapping{ExternalGroup: group, Role: role.uid, Scope: in})
		if err == nil {
			m.made(&m.mappings, "mapping", made.UID)
		}
		return err
	}, "maps %s of %s to %s, scope %q", group, o.name, role.name, scope)
}

func (m *move) deleteMapping() error {
	o := m.object(m.mappings, func(p *object) bool { return m.may(resource.IdentityProvidersDelete, p.uid) })
	return m.do(func() error { return m.iam.DeleteMapping(m.ctx, o.uid) }, "deletes %s", o.name)
}
