package escalation_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// api are the parameters for a token for the API that is not narrowed.
var api = sts.TokenParams{Audience: []string{address}}

// verify returns the caller that a token identifies. It returns an error if the token is not valid now.
func (w *world) verify(raw string) (authz.Caller, error) {
	c, err := w.issuer.Verify(w.ctx, raw, address)
	if err != nil {
		return c, err
	}
	if why := w.checker.Revoked(c); why != "" {
		return c, errors.New(why)
	}
	return c, nil
}

// keep records that a side has a token. For each identity, it keeps only the latest token that is not narrowed.
func (w *world) keep(s side, h *held) error {
	var err error
	if h.caller, err = w.verify(h.raw); err != nil {
		return err
	}
	w.meet(h)
	if s == evil {
		w.surprise(h, "in exchange or by signing in")
	}
	if h.whole() {
		h.name = "a token of " + w.nameOf(h.caller.Identity)
		w.tokens[s] = slices.DeleteFunc(w.tokens[s],
			func(o *held) bool { return o.whole() && o.caller.Identity == h.caller.Identity })
	}
	w.tokens[s] = append(w.tokens[s], h)
	return nil
}

// meet reads the identity that a token identifies, and gives the identity a name if it is new.
func (w *world) meet(h *held) {
	uid := h.caller.Identity
	if i, err := w.store.Identity(w.ctx, uid); err == nil {
		w.state.identities[uid] = i
	}
	if slices.ContainsFunc(w.identities, func(o *object) bool { return o.uid == uid }) {
		return
	}
	name := h.user.name + " of the installation"
	if h.through != nil {
		name = h.user.name + " of " + h.through.name
	}
	number := 1
	for _, o := range w.identities {
		if o.name == name || strings.HasPrefix(o.name, name+" (") {
			number++
		}
	}
	if number > 1 {
		name += fmt.Sprintf(" (%d)", number)
	}
	w.identities = append(w.identities, &object{name: name, uid: uid})
}

// drop removes the tokens that are no longer valid from both sides.
func (w *world) drop() {
	for s := range w.tokens {
		w.tokens[s] = slices.DeleteFunc(w.tokens[s], func(h *held) bool {
			_, err := w.verify(h.raw)
			return err != nil
		})
	}
}

// holds returns the token of a side for an identity, or nil. Narrowed tokens do not count.
func (w *world) holds(s side, identity resource.UID) *held {
	for _, h := range w.tokens[s] {
		if h.whole() && h.caller.Identity == identity {
			return h
		}
	}
	return nil
}

// mint gets a token for every identity that a side can become, if the service issues one.
func (w *world) mint(s side) {
	for again := true; again && w.wrong == nil; {
		again = false
		controlled := w.control(s)
		for _, o := range slices.Clone(w.identities) {
			if _, ok := controlled[o.uid]; ok && w.holds(s, o.uid) == nil && w.become(s, o) == nil {
				again = again || w.holds(s, o.uid) != nil
			}
		}
	}
}

var errNoWay = errors.New("there is no way to get a token")

// become gets a token for an identity that a side can become.
func (w *world) become(s side, o *object) error {
	i, there := w.state.identities[o.uid]
	switch m := i.Relationship.ClaimMatch; {
	case !there:
		return errNoWay
	case o.account != nil:
		if !o.account.knows[s] {
			return errNoWay
		}
		return w.keepPair(s, &held{}, func() (string, string, error) { return w.withPassword(o.account, "") })
	case i.UID.IsRoot():
		return w.becomePerson(s, i)
	case i.Relationship.StaticKeys != nil:
		return w.exchange(s, sts.Request{TokenParams: api, Identity: string(o.uid), Bearer: w.others.sign(s, map[string]any{
			"iss": i.Relationship.StaticKeys.Issuer, "sub": i.Relationship.StaticKeys.Subject, "aud": address,
			"iat": w.now().Unix(), "exp": w.now().Unix() + 3600,
		})}, user{}, nil)
	case m != nil && m.Issuer == address:
		if h := w.holds(s, resource.UID(m.Subject)); h != nil {
			return w.exchange(s, sts.Request{TokenParams: api, Identity: string(o.uid), Bearer: h.raw}, user{}, nil)
		}
	case m != nil:
		if issuer, u, ok := w.bearerFor(s, *m); ok {
			audience := m.Audience
			if audience == "" {
				audience = address
			}
			return w.exchange(s, sts.Request{TokenParams: api, Identity: string(o.uid), Bearer: w.sign(issuer, u, audience)},
				u, nil)
		}
	}
	return errNoWay
}

// becomePerson gets a token for a person, in exchange for an ID token.
func (w *world) becomePerson(s side, i resource.Identity) error {
	subject := i.Relationship.Subject()
	for _, o := range w.providers {
		p := w.state.providers[o.uid]
		for _, u := range w.speakers(s, p) {
			if p.Realm == i.Realm && w.subjectAt(p, u) == subject {
				return w.exchange(s,
					sts.Request{TokenParams: api, Provider: string(p.UID), Bearer: w.sign(p.OIDC.Issuer, u, p.OIDC.ClientID)}, u, o)
			}
		}
	}
	if u := userNamed(subject); i.Realm == i.Relationship.Issuer() && w.canSign(s, i.Realm, u, address) {
		return w.exchange(s, sts.Request{TokenParams: api, Identity: string(i.UID), Bearer: w.sign(i.Realm, u, address)}, u,
			nil)
	}
	return errNoWay
}

// exchange exchanges a token for a side, and records the new token.
func (w *world) exchange(s side, r sts.Request, u user, through *object) error {
	got, err := w.sts.Exchange(w.ctx, r)
	if err != nil {
		return err
	}
	return w.keep(s, &held{raw: got.Text, user: u, through: through})
}

// keepPair records the token and the refresh token that a sign-in returns.
func (w *world) keepPair(s side, h *held, signIn func() (token, refresh string, _ error)) (err error) {
	if h.raw, h.refresh, err = signIn(); err != nil {
		return err
	}
	return w.keep(s, h)
}

// begin returns the path that the command-line program opens in a browser to sign in.
func begin(provider *object, scope resource.UID) string {
	q := url.Values{"exit": {"redirect"}, "redirect": {callback}, "create_refresh_token": {"true"}}
	if provider != nil {
		q.Set("idp_id", string(provider.uid))
	}
	if scope != "" {
		q.Set("scope", string(scope))
	}
	return "/oauth?" + q.Encode()
}

// handed returns the tokens in the redirect at the end of a sign-in. The redirect leads to the waiting command-line
// program.
func handed(location string, status int) (token, refresh string, _ error) {
	u, err := url.Parse(location)
	if err != nil || !strings.HasPrefix(location, callback) || u.Query().Get("token") == "" {
		return "", "", fmt.Errorf("the sign-in ended with status %d", status)
	}
	return u.Query().Get("token"), u.Query().Get("refresh_token"), nil
}

// withPassword signs in to a local account and returns the tokens.
func (w *world) withPassword(a *account, scope resource.UID) (token, refresh string, _ error) {
	b := w.browser()
	location, status := b.send(w.ctx, http.MethodGet, begin(nil, scope))
	_, flow, ok := strings.Cut(location, "flow=")
	if !ok {
		return "", "", fmt.Errorf("the sign-in began with status %d", status)
	}
	return handed(b.send(w.ctx, http.MethodPost, "/signin/password", "flow", flow, "email", a.email, "password",
		a.password))
}

// withProvider signs in as a user through an identity provider and returns the tokens. p is the state of the
// provider.
func (w *world) withProvider(
	o *object, p resource.IdentityProvider, u user, scope resource.UID,
) (token, refresh string, _ error) {
	b := w.browser()
	location, status := b.send(w.ctx, http.MethodGet, begin(o, scope))
	question, err := url.Parse(location)
	if err != nil || !strings.HasPrefix(location, p.OIDC.Issuer+"/authorize?") {
		return "", "", fmt.Errorf("the sign-in began with status %d", status)
	}
	q := question.Query()
	claims := w.claims(p.OIDC.Issuer, u, q.Get("client_id"))
	claims["nonce"] = q.Get("nonce")
	code := w.others.code(w.others.sign(sideOf(p.OIDC.Issuer), claims))
	return handed(b.send(w.ctx, http.MethodGet,
		q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()))
}

// withLink opens a one-time link, sets a password, signs in, and returns the tokens.
func (w *world) withLink(l *link, password string) (token, refresh string, _ error) {
	b := w.browser()
	b.send(w.ctx, http.MethodGet, "/link?code="+l.code)
	if location, status := b.send(w.ctx, http.MethodPost, "/link", "password", password); location != "/account" {
		return "", "", fmt.Errorf("the link returned status %d", status)
	}
	location, status := b.send(w.ctx, http.MethodGet, begin(nil, ""))
	_, flow, ok := strings.Cut(location, "flow=")
	if !ok {
		return "", "", fmt.Errorf("the sign-in began with status %d", status)
	}
	b.send(w.ctx, http.MethodGet, location)
	return handed(b.send(w.ctx, http.MethodPost, "/signin/confirm", "flow", flow, "csrf", b.csrf, "answer", "allow"))
}
