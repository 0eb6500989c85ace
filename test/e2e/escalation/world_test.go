package escalation_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A side is the honest side or the attackers.
type side int

const (
	good side = iota
	evil
)

func (s side) String() string { return [...]string{"honest", "attackers"}[s] }

// The client IDs that the service can have at an issuer. A user who signs in to the attackers' client gives the
// attackers an ID token for that client.
const (
	goodClient = "good-client"
	evilClient = "evil-client"
)

// sideOf returns the side that controls an issuer.
func sideOf(issuer string) side {
	if strings.HasPrefix(issuer, "https://evil") {
		return evil
	}
	return good
}

// A user is a person or a workload with an account at the issuers. The good issuer sends true claims about the user.
// But users can set the claim teams themselves, and the oid of one user can be the subject of another user.
type user struct {
	name          string
	side          side
	groups, teams []string
	oid           string
}

var users = []user{
	{"alice", good, []string{"admins", "staff"}, nil, "mallory"},
	{"bob", good, []string{"staff"}, nil, "bob"},
	{"carol", good, nil, nil, "carol"},
	{"ci-1", good, nil, nil, "ci-1"},
	{"mallory", evil, []string{"staff"}, []string{"admins", "staff"}, "alice"},
	{"ci-9", evil, nil, []string{"admins", "staff"}, "ci-9"},
}

// An object is a resource that a move created. Its name stays the same when the move is repeated in another world.
type object struct {
	name    string
	uid     resource.UID
	account *account          // the account that belongs to the identity, or nil
	person  resource.Identity // last or expected state of a person who may sign in, also after a deletion
	code    string            // the code, if the object is an invite
	known   [2]bool           // sides that know the code
}

// An account is a local account, with the sides that know its password.
type account struct {
	*object  // the object for the account itself
	email    string
	identity resource.UID
	password string
	knows    [2]bool // sides that know the password
}

// A link is a one-time link to set the password of an account.
type link struct {
	name          string
	code          string
	of            *account
	holder, maker side
}

// A held is a token that a side holds.
type held struct {
	name    string
	raw     string
	refresh string
	caller  authz.Caller
	through *object // the provider with which the user signed in, or nil
	user    user    // the user who signed in
	half    bool    // whether this is a half-sent request, whose token may be void
}

func (h *held) whole() bool { return h.caller.Narrowing().IsZero() }

// A world contains the objects of one episode, and the capabilities that the honest side gave to the attackers.
type world struct {
	*site
	ctx   context.Context
	issue [2]string // addresses of the good and the evil issuer

	groups, roles, identities, bindings, providers, mappings, invites, accounts []*object

	links  []*link
	tokens [2][]*held

	halfSent []*held // requests of the attackers that the service has received in part

	given map[resource.UID]resource.Capabilities // capabilities given to the attackers, by the group on which they apply
	state state
	wrong error // set if the attackers got a token that they must not get
}

// A state is the stored content of a world's objects.
type state struct {
	identities map[resource.UID]resource.Identity
	providers  map[resource.UID]resource.IdentityProvider
	mappings   []resource.ExternalGroupRoleMapping
	invites    map[resource.UID]resource.GroupInvite
	roles      map[resource.UID]resource.Role
}

// newWorld creates three organizations. The honest side and the attackers each have one, whose owner has an account.
// The third belongs to carol, whom the operator identified by her issuer.
func newWorld(ctx context.Context, x *site) (*world, error) {
	x.worlds++
	tag := fmt.Sprintf("w%d.test", x.worlds)
	w := &world{
		site: x, ctx: ctx, issue: [2]string{"https://good." + tag, "https://evil." + tag},
		given: map[resource.UID]resource.Capabilities{},
	}
	for _, name := range []string{"viewer", "owner", "registry.pull_token_creator"} {
		w.roles = append(w.roles, &object{name: "the role " + name, uid: resource.ManagedRoleUID(name)})
	}
	for s, name := range []string{"org a", "org b"} {
		email := strings.ReplaceAll(name, " ", "") + "@" + tag
		g, a, _, err := x.people.CreateOrganization(ctx, name+" "+tag, resource.OrgUnspecified,
			resource.Account{Email: email, Password: cheapHash()})
		if err != nil {
			return nil, err
		}
		w.groups = append(w.groups, &object{name: name, uid: g.UID})
		acc := &account{
			object: &object{name: "the account of the owner of " + name, uid: a.UID}, email: email, identity: a.Identity,
			password: password,
		}
		acc.knows[s] = true
		w.addAccount(acc, "the owner of "+name)
	}
	carol := resource.Identity{
		Name:         "carol",
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: w.issue[good], Subject: "carol"}},
	}
	g, i, err := x.iam.Bootstrap(ctx, "org c "+tag, resource.OrgUnspecified, carol)
	if err != nil {
		return nil, err
	}
	w.groups = append(w.groups, &object{name: "org c", uid: g.UID})
	w.identities = append(w.identities, &object{name: "carol, the owner of org c", uid: i.UID})
	if err := w.read(); err != nil {
		return nil, err
	}
	w.mint(good)
	w.mint(evil)
	for _, p := range w.promises() {
		w.give(p)
	}
	return w, nil
}

func (w *world) addAccount(a *account, name string) {
	w.accounts = append(w.accounts, &object{name: a.name, uid: a.uid, account: a})
	w.identities = append(w.identities, &object{name: name, uid: a.identity, account: a})
}

func (w *world) give(p promise) { w.given[p.place] = w.given[p.place].Union(p.caps) }

// givenAt returns the capabilities that the attackers were given on a place or on one of its ancestors.
func (w *world) givenAt(place resource.UID) resource.Capabilities {
	caps := w.given[place]
	for _, above := range place.Ancestors() {
		caps = caps.Union(w.given[above])
	}
	return caps
}

// read reads the state of the world's objects from the store.
func (w *world) read() error {
	w.state = state{
		identities: map[resource.UID]resource.Identity{}, providers: map[resource.UID]resource.IdentityProvider{},
		invites: map[resource.UID]resource.GroupInvite{}, roles: map[resource.UID]resource.Role{},
	}
	return errors.Join(
		w.each(&w.identities, func(o *object) error {
			i, err := w.store.Identity(w.ctx, o.uid)
			if err == nil {
				w.state.identities[o.uid] = i
			}
			if err == nil && o.uid.IsRoot() {
				o.person = i
			}
			return err
		}),
		w.each(&w.providers, func(o *object) (err error) {
			w.state.providers[o.uid], err = w.store.Provider(w.ctx, o.uid)
			return err
		}),
		w.each(&w.invites, func(o *object) (err error) {
			w.state.invites[o.uid], err = w.store.Invite(w.ctx, o.uid)
			return err
		}),
		w.each(&w.roles, func(o *object) (err error) {
			w.state.roles[o.uid], err = w.store.Role(w.ctx, o.uid)
			return err
		}),
		w.each(&w.mappings, func(o *object) error {
			m, err := w.store.Mapping(w.ctx, o.uid)
			if err == nil {
				w.state.mappings = append(w.state.mappings, m)
			}
			return err
		}),
	)
}

// each calls f with the objects in a list, and removes the deleted objects from the list. Deleted identities stay in
// the list, because a deleted person can sign in again.
func (w *world) each(list *[]*object, f func(*object) error) error {
	var failed error
	*list = slices.DeleteFunc(*list, func(o *object) bool {
		err := f(o)
		if errors.Is(err, fault.NotFound) {
			return list != &w.identities
		}
		failed = errors.Join(failed, err)
		return false
	})
	return failed
}

// canSign reports whether a side can get a token from an issuer for a user and an audience.
func (w *world) canSign(s side, issuer string, u user, audience string) bool {
	switch {
	case sideOf(issuer) == evil:
		return s == evil
	case u.side == s:
		return true
	}
	return s == evil && audience == evilClient // the user has signed in to the attackers' client
}

// claims returns the claims that an issuer sends about a user. The claims of the good issuer are true. The evil
// issuer sends the claims that would give the user the most roles.
func (w *world) claims(issuer string, u user, audience string) map[string]any {
	now := w.now().Unix()
	if sideOf(issuer) == evil {
		u.oid, u.groups, u.teams = u.name, []string{"admins", "staff"}, []string{"admins", "staff"}
	}
	return map[string]any{
		"iss": issuer, "sub": u.name, "aud": audience, "iat": now, "exp": now + 3600, "oid": u.oid, "groups": u.groups,
		"teams": u.teams,
		"email": u.name + "@" + strings.TrimPrefix(issuer, "https://"), "email_verified": true, "name": u.name,
	}
}

// sign returns a token that an issuer signs for a user and an audience.
func (w *world) sign(issuer string, u user, audience string) string {
	return w.others.sign(sideOf(issuer), w.claims(issuer, u, audience))
}

// subjectAt returns the subject that a provider has for a user.
func (w *world) subjectAt(p resource.IdentityProvider, u user) string {
	if p.OIDC.ByObjectID() {
		oid, _ := w.claims(p.OIDC.Issuer, u, "")["oid"].(string)
		return oid
	}
	return u.name
}

// groupsAt returns the groups that a provider reports for a user.
func (w *world) groupsAt(p resource.IdentityProvider, u user) []string {
	groups, _ := w.claims(p.OIDC.Issuer, u, "")[p.OIDC.GroupsClaim].([]string)
	return groups
}

// speakers returns the users as which a side can sign in with a provider.
func (w *world) speakers(s side, p resource.IdentityProvider) (speakers []user) {
	for _, u := range users {
		if !p.Disabled && w.canSign(s, p.OIDC.Issuer, u, p.OIDC.ClientID) {
			speakers = append(speakers, u)
		}
	}
	return speakers
}

// control returns the identities whose tokens a side can get without a change, each with the reason: the side has
// such a token, or can get one with an exchange or a sign-in. This is a second implementation of the rule, which does
// not ask the service.
func (w *world) control(s side) map[resource.UID]string {
	controlled := map[resource.UID]string{}
	for _, h := range w.tokens[s] {
		if h.whole() {
			controlled[h.caller.Identity] = "they have a token of it"
		}
	}
	for grown := true; grown; {
		grown = false
		for _, o := range w.identities {
			i, there := w.state.identities[o.uid]
			if !there && o.account == nil {
				i, there = o.person, o.person.Realm != ""
			}
			if _, ok := controlled[o.uid]; ok || !there {
				continue
			}
			if why := w.way(s, o, i, controlled); why != "" {
				controlled[o.uid], grown = why, true
			}
		}
	}
	return controlled
}

// way describes how a side that controls other identities can become an identity. It returns "" if the side cannot.
func (w *world) way(s side, o *object, i resource.Identity, others map[resource.UID]string) string {
	switch {
	case o.account != nil:
		return w.wayIntoAccount(s, o.account)
	case i.UID.IsRoot():
		return w.wayAsPerson(s, i)
	case i.Relationship.StaticKeys != nil:
		if i.Relationship.StaticKeys.IssuerKeys == w.others.keySet(s) {
			return "it trusts a key of theirs"
		}
	case i.Relationship.ClaimMatch != nil:
		return w.wayByClaims(s, *i.Relationship.ClaimMatch, others)
	}
	return ""
}

func (w *world) wayIntoAccount(s side, a *account) string {
	if a.knows[s] {
		return "they know its password"
	}
	// A link that the attackers made does not count: when such a link is used, the service checks that its maker
	// holds the rights of the account.
	if slices.ContainsFunc(w.links, func(l *link) bool { return l.of == a && l.holder == s && l.maker == good }) {
		return "they were given a link of it"
	}
	return ""
}

func (w *world) wayAsPerson(s side, i resource.Identity) string {
	subject := i.Relationship.Subject()
	for _, o := range w.providers {
		p := w.state.providers[o.uid]
		if p.Realm == i.Realm &&
			slices.ContainsFunc(w.speakers(s, p), func(u user) bool { return w.subjectAt(p, u) == subject }) {
			return o.name + " vouches for them"
		}
	}
	if i.Realm == i.Relationship.Issuer() && w.canSign(s, i.Realm, userNamed(subject), address) {
		return "the operator knows them by their issuer"
	}
	return ""
}

func userNamed(name string) user {
	for _, u := range users {
		if u.name == name {
			return u
		}
	}
	return user{name: name}
}

func (w *world) wayByClaims(s side, m resource.ClaimMatch, others map[resource.UID]string) string {
	if m.Issuer == address {
		if _, ok := others[resource.UID(m.Subject)]; ok {
			return "it trusts an identity that they can become"
		}
		return ""
	}
	if issuer, u, ok := w.bearerFor(s, m); ok {
		return "it trusts " + issuer + " about " + u.name
	}
	return ""
}

// bearerFor returns the issuer and the user of a token that a claim match accepts and that a side can get.
func (w *world) bearerFor(s side, m resource.ClaimMatch) (string, user, bool) {
	audience := m.Audience
	if audience == "" {
		audience = address
	}
	for _, issuer := range w.issue {
		for _, u := range users {
			if accepts(m.Issuer, m.IssuerPattern, issuer) && accepts(m.Subject, m.SubjectPattern, u.name) &&
				w.canSign(s, issuer, u, audience) {
				return issuer, u, true
			}
		}
	}
	return "", user{}, false
}

func accepts(exact, pattern, value string) bool {
	if exact != "" {
		return exact == value
	}
	return regexp.MustCompile("^(?:" + pattern + ")$").MatchString(value)
}

// A promise is a set of capabilities that the attackers hold on a place, or could get with an exchange or a sign-in.
type promise struct {
	place resource.UID
	caps  resource.Capabilities
	why   string
	lent  bool // the capabilities come from a narrowed token that its owner gave to the attackers
}

// promises returns the capabilities that the attackers hold or could get, given the identities that they control.
func (w *world) promises() (promises []promise) {
	controlled := w.control(evil)
	for _, o := range w.identities {
		why, ok := controlled[o.uid]
		if !ok {
			continue
		}
		for _, g := range w.checker.GrantsOf(o.uid) {
			promises = append(promises,
				promise{g.Group, g.Capabilities, fmt.Sprintf("the attackers can become %s (%s)", o.name, why), false})
		}
	}
	for _, h := range w.tokens[evil] {
		promises = append(promises, w.narrowed(h)...)
	}
	for _, o := range w.invites {
		if i, ok := w.state.invites[o.uid]; ok && o.known[evil] {
			promises = append(promises,
				promise{i.UID.Parent(), w.state.roles[i.Role].Capabilities, "the attackers have the code of " + o.name, false})
		}
	}
	return append(promises, w.vouched()...)
}

// narrowed returns the capabilities that a narrowed token has. It returns nil for a token that is not narrowed.
func (w *world) narrowed(h *held) (promises []promise) {
	if h.whole() {
		return nil
	}
	for _, g := range w.checker.GrantsOf(h.caller.Identity) {
		caps := g.Capabilities
		if h.caller.Caps != nil {
			caps = caps.Without(caps.Without(*h.caller.Caps))
		}
		for _, place := range h.caller.Within(g.Group) {
			promises = append(promises, promise{place, caps, "the attackers have a narrowed token, " + h.name, true})
		}
	}
	return promises
}

// vouched returns the capabilities that the attackers could get by signing in with a provider.
func (w *world) vouched() (promises []promise) {
	for _, o := range w.providers {
		p := w.state.providers[o.uid]
		for _, u := range w.speakers(evil, p) {
			why := fmt.Sprintf("the attackers can sign in with %s as %s", o.name, u.name)
			promises = append(promises, promise{p.UID.Parent(), w.state.roles[p.DefaultRole].Capabilities, why, false})
			groups := w.groupsAt(p, u)
			for _, m := range w.state.mappings {
				if m.Provider() == p.UID && slices.Contains(groups, m.ExternalGroup) {
					promises = append(promises,
						promise{m.Scope, w.state.roles[m.Role].Capabilities, why + ", who is in " + m.ExternalGroup, false})
				}
			}
		}
	}
	return promises
}

// nameOf returns the name of the object with this UID, for messages to people.
func (w *world) nameOf(uid resource.UID) string {
	for _, list := range [][]*object{w.groups, w.roles, w.identities, w.providers} {
		for _, o := range list {
			if o.uid == uid {
				return o.name
			}
		}
	}
	return string(uid)
}
