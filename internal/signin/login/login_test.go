package login_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// through signs in a browser with a provider.
func (b *browser) through(p *provider, idp resource.IdentityProvider) answer {
	b.t.Helper()
	return b.get(p.answerTo(b.t, b.ask(idp)))
}

func rolesOf(x *site, identity resource.UID) (all []string) {
	for _, h := range x.checker.GrantsOf(identity) {
		for _, r := range authz.ManagedRoles() {
			if r.UID == h.Role {
				all = append(all, r.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestProviders: a person who signs in with a provider gets the identity to which roles could already be bound, the
// default role once, and the roles of their external groups while they are members.
func TestProviders(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		p := newProvider(t)
		idp := x.keep(t, p)
		pat := resource.UserUID(idp.Realm, "pat")
		editor := resource.ExternalGroupRoleMapping{
			UID: idp.UID.NewChild(), ExternalGroup: "devs", Role: resource.ManagedRoleUID("editor"), Scope: x.org.UID,
			CreateTime: x.clock.now(),
		}
		if err := s.InsertMapping(t.Context(), editor); err != nil {
			t.Fatal(err)
		}
		expect := func(step string, groups any, want ...string) {
			t.Helper()
			p.claims["groups"] = groups
			a := x.browser(t).through(p, idp)
			c := x.caller(t, query(t, a.location).Get("token"))
			if c.Identity != pat || c.Email != "pat@example.test" || c.EmailVerified || c.Voucher != idp.Voucher() {
				t.Errorf("%s: the token is of %+v", step, c)
			}
			if got := rolesOf(x, pat); !slices.Equal(got, want) {
				t.Errorf("%s: roles %v, want %v", step, got, want)
			}
		}
		expect("the first time", []string{"others"}, "viewer")
		expect("in a group", []string{"devs", "others"}, "editor", "viewer")
		expect("again", []string{"devs"}, "editor", "viewer")
		expect("in one group, as a word", "devs", "editor", "viewer")
		expect("no longer", []string{}, "viewer")
		held := must[[]iamdb.Grant](t)(s.GrantsOf(t.Context(), pat))
		if len(held) != 1 {
			t.Fatal(held)
		}
		if err := x.unbind(t, pat); err != nil {
			t.Fatal(err)
		}
		expect("after the role was taken away", []string{})
		events := must[[]resource.Event](t)(outbox.Read(t.Context(), s.DB, 0, 1000))
		count := map[resource.EventType]int{}
		for _, e := range events {
			if e.Actor.Subject == pat {
				count[e.Type]++
			}
		}
		if count[resource.IdentityCreated] != 1 || count[resource.BindingCreated] != 2 ||
			count[resource.BindingDeleted] != 1 {
			t.Errorf("events put down to the person: %v", count)
		}
	})
}

// unbind removes all roles of an identity.
func (x *site) unbind(t *testing.T, identity resource.UID) error {
	t.Helper()
	request := page.Request{Size: page.MaxSize, Order: page.Order{Field: "uid"}}
	all := must[page.Page[resource.BoundRole]](t)(x.store.Bindings(
		t.Context(), store.Reach{Under: []resource.UID{x.org.UID}}, resource.Filter{Identity: identity}, request,
	))
	for _, b := range all.Items {
		if err := x.store.DeleteBinding(t.Context(), b.UID); err != nil {
			return err
		}
	}
	return nil
}

// TestMappingsLeaveAlone: if a person leaves an external group, the mapping of the group removes neither a role that
// was given manually nor the role of the last owner.
func TestMappingsLeaveAlone(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	pat := resource.UserUID(idp.Realm, "pat")
	for _, role := range []resource.UID{resource.ManagedRoleUID("editor"), resource.OwnerRole} {
		m := resource.ExternalGroupRoleMapping{
			UID: idp.UID.NewChild(), ExternalGroup: "devs", Role: role, Scope: x.org.UID, CreateTime: x.clock.now(),
		}
		if err := x.store.InsertMapping(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	byHand := resource.RoleBinding{
		UID: x.org.UID.NewChild(), Identity: pat, Role: resource.ManagedRoleUID("editor"), CreateTime: x.clock.now(),
	}
	must[[]resource.BoundRole](t)(x.store.InsertBindings(t.Context(), []resource.RoleBinding{byHand}))
	p.claims["groups"] = []string{"devs"}
	x.browser(t).through(p, idp)
	if err := x.unbind(t, x.owner.Identity); err != nil {
		t.Fatal(err)
	}
	p.claims["groups"] = []string{}
	a := x.browser(t).through(p, idp)
	if got := rolesOf(x, pat); !slices.Equal(got, []string{"editor", "owner", "viewer"}) ||
		query(t, a.location).Get("token") == "" {
		t.Errorf("roles %v, %s", got, a.location)
	}
}

func TestEmailVerified(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	pat := resource.UserUID(idp.Realm, "pat")
	for name, tt := range map[string]struct {
		said     any
		verified bool
	}{"yes": {true, true}, "no": {false, false}, "nothing": {nil, false}, "a word": {"true", true},
		"another word": {"yes", false}} {
		p.claims["email_verified"] = tt.said
		x.browser(t).through(p, idp)
		i := must[resource.Identity](t)(x.store.Identity(t.Context(), pat))
		if (i.Email != "") != tt.verified || (i.EmailUnverified != "") == tt.verified {
			t.Errorf("%s: %+v", name, i)
		}
	}
	p.claims = map[string]any{"sub": "pat"}
	p.info = map[string]any{"sub": "pat", "email": "info@example.test", "email_verified": true}
	x.browser(t).through(p, idp)
	if i := must[resource.Identity](t)(x.store.Identity(t.Context(), pat)); i.Email != "info@example.test" {
		t.Errorf("from userinfo: %+v", i)
	}
	p.info["sub"] = "somebody else"
	if a := x.browser(t).through(p, idp); a.status != http.StatusBadGateway {
		t.Errorf("userinfo of somebody else: %d", a.status)
	}
}

func TestProviderProblems(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	admin := authz.WithCaller(t.Context(), authz.Caller{Identity: x.owner.Identity})
	wrongSecret := x.keep(t, p, func(i *resource.IdentityProvider) { i.OIDC.ClientSecret.Sealed = x.sealed("wrong") })
	slash := x.keep(t, p, func(i *resource.IdentityProvider) { i.OIDC.Issuer += "/" })
	gone := x.keep(t, p, func(i *resource.IdentityProvider) { i.OIDC.Issuer = "http://127.0.0.1:1" })
	good := x.keep(t, p, func(i *resource.IdentityProvider) { i.Disabled = true })
	for name, tt := range map[string]struct {
		idp   resource.IdentityProvider
		check string
		text  string
	}{
		"a wrong secret":   {wrongSecret, "client", "secret is wrong"},
		"a slash too many": {slash, "discovery", "compare every character"},
		"nobody there":     {gone, "discovery", "refused"},
	} {
		v, err := x.TestProvider(admin, tt.idp.UID)
		if err != nil || v.Ready {
			t.Fatalf("%s: %v", name, err)
		}
		found := false
		for _, f := range v.Findings {
			found = found || !f.OK && f.Name == tt.check && strings.Contains(f.Detail, tt.text)
		}
		if !found {
			t.Errorf("%s: %+v", name, v.Findings)
		}
	}
	v, err := x.TestProvider(admin, good.UID)
	if err != nil || !v.Ready || v.RedirectURI != x.url+"/oauth/callback/"+lastSegment(good.UID) {
		t.Errorf("a good one: %+v, %v", v, err)
	}
	if _, err := x.TestProvider(authz.WithCaller(t.Context(), authz.Caller{Identity: resource.NewRoot()}),
		good.UID); !errors.Is(err, fault.PermissionDenied) {
		t.Errorf("a stranger: %v", err)
	}
	b := x.browser(t)
	if a := b.get("/oauth?client_id=&idp_id=" + url.QueryEscape(string(good.UID))); a.status != http.StatusNotFound {
		t.Errorf("one that is not in use: %d", a.status)
	}
	a := b.get(strings.TrimPrefix(v.TrialURL, x.url))
	if a = b.get(p.answerTo(t, a.location)); a.status != http.StatusOK ||
		!strings.Contains(a.body, "pat@example.test") || b.session() != "" {
		t.Errorf("a trial: %d\n%s", a.status, a.body)
	}
	if _, err := x.store.Identity(t.Context(), resource.UserUID(good.Realm, "pat")); !errors.Is(err, fault.NotFound) {
		t.Errorf("a trial registers: %v", err)
	}
}

// TestDevice checks the device authorization of RFC 8628.
func TestDevice(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		begin := func() (device, user string) {
			a := x.browser(t).post("/oauth/device_authorization", "client_id", "tv")
			return fieldOf(t, a.body, "device_code"), fieldOf(t, a.body, "user_code")
		}
		poll := func(device string) (status int, why, token string) {
			x.clock.move(5 * time.Second)
			status, body := x.redeem(
				t, "grant_type", "urn:ietf:params:oauth:grant-type:device_code", "client_id", "tv", "device_code",
				device,
			)
			return status, fieldOf(t, body, "error"), fieldOf(t, body, "access_token")
		}
		decide := func(user, answer string) {
			b := x.browser(t)
			b.signIn()
			a := b.post("/device", "user_code", strings.ToLower(user))
			_, flow, _ := strings.Cut(a.location, "flow=")
			if page := b.get("/signin?flow=" + flow); !strings.Contains(page.body, user) {
				t.Errorf("the page does not show %s", user)
			}
			b.post("/signin/confirm", "flow", flow, "csrf", b.csrf(), "answer", answer)
		}
		device, user := begin()
		if _, why, _ := poll(device); why != "authorization_pending" {
			t.Errorf("before: %s", why)
		}
		x.clock.move(-4 * time.Second)
		if _, why, _ := poll(device); why != "slow_down" {
			t.Errorf("too soon: %s", why)
		}
		decide(user, "allow")
		status, why, raw := poll(device)
		if status != http.StatusOK || x.caller(t, raw).Identity != x.owner.Identity {
			t.Errorf("allowed: %d %s", status, why)
		}
		if _, why, _ := poll(device); why != "expired_token" {
			t.Errorf("again: %s", why)
		}
		device, user = begin()
		decide(user, "deny")
		if _, why, _ := poll(device); why != "access_denied" {
			t.Errorf("denied: %s", why)
		}
		device, user = begin()
		x.clock.move(11 * time.Minute)
		if _, why, _ := poll(device); why != "expired_token" {
			t.Errorf("too late: %s", why)
		}
		if a := x.browser(t).post("/device", "user_code", user); a.status != http.StatusNotFound {
			t.Errorf("a code that is too old: %d", a.status)
		}
		b := x.browser(t)
		for range 12 {
			b.post("/device", "user_code", "BBBB-BBBB")
		}
		_, user = begin()
		if a := b.post("/device", "user_code", user); a.status != http.StatusTooManyRequests {
			t.Errorf("after guessing: %d", a.status)
		}
	})
}

// TestHeadless checks that a program can decrypt the tokens that were encrypted for its key.
func TestHeadless(t *testing.T) {
	x := sqlite(t)
	key := must[*ecdh.PrivateKey](t)(ecdh.X25519().GenerateKey(rand.Reader))
	code := base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes())
	if _, err := x.Headless(t.Context(), code); !errors.Is(err, fault.NotFound) {
		t.Errorf("before: %v", err)
	}
	b := x.browser(t)
	flow := b.start("create_refresh_token=true&headless_code=" + code)
	a := b.password(flow, ownerEmail, password)
	if _, err := x.Headless(t.Context(), code); !errors.Is(err, fault.NotFound) {
		t.Fatalf("handed over without asking: %v", err)
	}
	if a = b.get(a.location); !strings.Contains(a.body, `name="answer"`) {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	b.allow(flow)
	h, err := x.Headless(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	theirs := must[[]byte](t)(base64.RawURLEncoding.DecodeString(string(h.PublicKey)))
	public := must[*ecdh.PublicKey](t)(ecdh.X25519().NewPublicKey(theirs))
	block := must[cipher.Block](t)(aes.NewCipher(must[[]byte](t)(key.ECDH(public))))
	gcm := must[cipher.AEAD](t)(cipher.NewGCM(block))
	plain := must[[]byte](t)(gcm.Open(nil, h.Token[:12], h.Token[12:], nil))
	if c := x.caller(t, string(plain)); c.Identity != x.owner.Identity {
		t.Errorf("the token is of %+v", c)
	}
	if len(h.RefreshToken) == 0 {
		t.Error("there is no refresh token")
	}
	low := base64.RawURLEncoding.EncodeToString(make([]byte, 32)) // everybody knows the shared secret of this key
	c := x.browser(t)
	flow = c.start("headless_code=" + low)
	c.password(flow, ownerEmail, password)
	c.allow(flow)
	if _, err := x.Headless(t.Context(), low); err == nil {
		t.Error("something is encrypted for a key that everybody has")
	}
}

var secretText = regexp.MustCompile(`[A-Z2-7 ]{39}`)

func TestTOTP(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	csrf := b.csrf()
	secret := strings.ReplaceAll(
		secretText.FindString(b.post("/account/totp/start", "csrf", csrf, "current", password).body), " ", "",
	)
	code := func() string { return must[string](t)(totp.GenerateCode(secret, x.clock.now())) }
	if a := b.post("/account/totp", "csrf", csrf, "code", "000000"); a.status != http.StatusBadRequest {
		t.Errorf("a wrong code turns it on: %d", a.status)
	}
	if a := b.post("/account/totp", "csrf", csrf, "code", code()); a.status != http.StatusOK ||
		!strings.Contains(a.body, "recovery codes") {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	x.clock.move(time.Minute)
	c := x.browser(t)
	flow := c.start(forCommand(""))
	a := c.password(flow, ownerEmail, password)
	if a.location != "" || !strings.Contains(a.body, `name="code"`) {
		t.Fatalf("a password is enough: %d %s", a.status, a.location)
	}
	if a := c.post("/signin/totp", "flow", flow, "code", "000000"); a.status != http.StatusUnauthorized {
		t.Errorf("a wrong code: %d", a.status)
	}
	now := code()
	if a := c.post("/signin/totp", "flow", flow, "code", now); !strings.Contains(a.location, "token=") {
		t.Errorf("the right code: %d\n%s", a.status, a.body)
	}
	d := x.browser(t)
	flow = d.start(forCommand(""))
	d.password(flow, ownerEmail, password)
	if a := d.post("/signin/totp", "flow", flow, "code", now); a.status != http.StatusUnauthorized {
		t.Errorf("the same code again: %d", a.status)
	}
	for range 12 {
		a = d.post("/signin/totp", "flow", flow, "code", "000000")
	}
	if a.status != http.StatusTooManyRequests {
		t.Errorf("after guessing: %d", a.status)
	}
	e := x.browser(t)
	if a := e.post("/signin/totp", "flow", e.start(forCommand("")), "code", code()); strings.Contains(a.location,
		"token=") {
		t.Error("a code without a password is enough")
	}
}

// TestLink: a one-time link sets the password once and ends the previous sessions.
func TestLink(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		admin := authz.WithCaller(t.Context(), authz.Caller{Identity: x.owner.Identity})
		old := x.browser(t)
		old.signIn()
		link, err := x.CreateLink(admin, x.owner.UID, true)
		if err != nil {
			t.Fatal(err)
		}
		b, c := x.browser(t), x.browser(t)
		for _, who := range []*browser{b, c} {
			if a := who.get(link.URL); a.location != "/link" {
				t.Fatalf("%d %s", a.status, a.location)
			}
		}
		if a := b.post("/link", "password", "short"); a.status != http.StatusBadRequest {
			t.Errorf("a short password: %d", a.status)
		}
		if a := b.post("/link", "password", "another violet anchor"); a.location != "/account" {
			t.Fatalf("%d\n%s", a.status, a.body)
		}
		if a := c.post("/link", "password", "a third good password"); a.status != http.StatusNotFound {
			t.Errorf("the link again: %d", a.status)
		}
		if a := old.get("/account"); a.location != "/signin" {
			t.Errorf("a session of before: %d", a.status)
		}
		d := x.browser(t)
		if a := d.password(d.start(forCommand("")), ownerEmail, password); a.status != http.StatusUnauthorized {
			t.Errorf("the password of before: %d", a.status)
		}
		// A caller with fewer permissions than the person cannot create a link for them.
		clerk := resource.NewRoot()
		bind := resource.RoleBinding{
			UID: x.org.UID.NewChild(), Identity: clerk, Role: resource.ManagedRoleUID("editor"),
			CreateTime: x.clock.now(),
		}
		must[[]resource.BoundRole](t)(s.InsertBindings(t.Context(), []resource.RoleBinding{bind}))
		if _, err := x.CreateLink(authz.WithCaller(t.Context(), authz.Caller{Identity: clerk}), x.owner.UID,
			false); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("a clerk makes a link of the owner's: %v", err)
		}
	})
}

// TestSwitchOff: local accounts can be switched off only after an owner has signed in with a provider, so that the
// owners are never locked out.
func TestSwitchOff(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		admin := authz.WithCaller(t.Context(), authz.Caller{Identity: x.owner.Identity})
		off := resource.SignInRules{Organization: x.org.UID, LocalOff: true}
		if err := x.SetRules(admin, off); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("before anybody came through a provider: %v", err)
		}
		p := newProvider(t)
		idp := x.keep(t, p)
		pat := resource.UserUID(idp.Realm, "pat")
		x.browser(t).through(p, idp)
		if err := x.SetRules(admin, off); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("before an owner did: %v", err)
		}
		bind := resource.RoleBinding{
			UID: x.org.UID.NewChild(), Identity: pat, Role: resource.OwnerRole, CreateTime: x.clock.now(),
		}
		must[[]resource.BoundRole](t)(s.InsertBindings(t.Context(), []resource.RoleBinding{bind}))
		if err := x.SetRules(admin, off); err != nil {
			t.Fatal(err)
		}
		in := func() bool {
			b := x.browser(t)
			return strings.Contains(b.password(b.start(forCommand("")), ownerEmail, password).location, "token=")
		}
		if in() {
			t.Error("an account signs in that is switched off")
		}
		if err := s.DeleteBinding(t.Context(), bind.UID); err != nil {
			t.Fatal(err)
		}
		if !in() {
			t.Error("the last owner is locked out")
		}
	})
}

// TestSessions checks that callers can list and end only the sessions that they may manage, and that sessions expire.
func TestSessions(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		b := x.browser(t)
		a := b.password(b.start(forCommand("")), ownerEmail, password)
		c := x.caller(t, query(t, a.location).Get("token"))
		own := authz.WithCaller(t.Context(), c)
		all, current, err := x.Sessions(own, "")
		if err != nil || len(all) != 2 || current != c.Session {
			t.Fatalf("%+v, %s, %v", all, current, err)
		}
		stranger := authz.WithCaller(t.Context(), authz.Caller{Identity: resource.NewRoot()})
		for name, f := range map[string]func(context.Context) error{
			"list": func(ctx context.Context) error { _, _, err := x.Sessions(ctx, x.owner.Identity); return err },
			"end":  func(ctx context.Context) error { return x.EndSession(ctx, c.Session) },
			"all":  func(ctx context.Context) error { _, err := x.EndSessions(ctx, x.owner.Identity); return err },
			"none": func(ctx context.Context) error { return x.EndSession(ctx, "nothing") },
		} {
			if err := f(stranger); !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("a stranger, %s: %v", name, err)
			}
		}
		if err := x.EndSession(own, ""); err != nil {
			t.Fatal(err)
		}
		if x.checker.Revoked(c) == "" {
			t.Error("a token of a session that was ended is good")
		}
		x.clock.move(6 * 24 * time.Hour)
		if a := b.get("/account"); a.status != http.StatusOK {
			t.Fatalf("after six days: %d", a.status)
		}
		x.clock.move(8 * 24 * time.Hour)
		if a := b.get("/account"); a.location != "/signin" {
			t.Errorf("idle for eight days: %d", a.status)
		}
		b.signIn()
		for range 6 {
			x.clock.move(5 * 24 * time.Hour)
			a = b.get("/account")
		}
		if a.location != "/signin" {
			t.Errorf("after thirty days: %d", a.status)
		}
	})
}

// TestJoin: an invite creates an account, or admits the owner of an existing account.
func TestJoin(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		_, code := x.invite(t, resource.GroupInvite{SingleUse: true})
		b := x.browser(t)
		a := b.get("/join?code=" + code)
		if strings.Contains(a.location, code) {
			t.Error("the code stays in the address")
		}
		_, flow, _ := strings.Cut(a.location, "flow=")
		a = b.post(
			"/signin/join", "flow", flow, "email", "New@Example.test", "name", "Nora New", "password",
			"a quiet violet anchor",
		)
		if !strings.HasPrefix(a.location, "/account/welcome?group=") {
			t.Fatalf("%d\n%s", a.status, a.body)
		}
		nora := must[resource.Account](t)(s.AccountIn(t.Context(), x.org.UID, "new@example.test"))
		if got := rolesOf(x, nora.Identity); !slices.Equal(got, []string{"viewer"}) {
			t.Errorf("roles %v", got)
		}
		c := x.browser(t)
		if a := c.get("/join?code=" + code); a.status != http.StatusBadRequest || !strings.Contains(a.body, "used") {
			t.Errorf("the invite again: %d", a.status)
		}
		_, code = x.invite(t, resource.GroupInvite{})
		for name, fields := range map[string][]string{
			"an address that is taken": {"email", ownerEmail, "password", "a quiet violet anchor"},
			"no address":               {"email", "nobody", "password", "a quiet violet anchor"},
			"a short password":         {"email", "x@example.test", "password", "short"},
		} {
			d := x.browser(t)
			_, flow, _ := strings.Cut(d.get("/join?code="+code).location, "flow=")
			if a := d.post("/signin/join", append(fields, "flow", flow)...); a.status < 400 || a.status >= 500 ||
				d.session() != "" {
				t.Errorf("%s: %d", name, a.status)
			}
		}
		e := x.browser(t)
		if a := e.post("/signin/join", "flow", e.start(forCommand("")), "email", "y@example.test", "password",
			"a quiet violet anchor"); e.session() != "" {
			t.Errorf("an account without an invite: %d", a.status)
		}
	})
}

func TestBadStarts(t *testing.T) {
	x := sqlite(t)
	for name, q := range map[string]string{
		"both a client and a provider": forCommand("&idp_id=acme"),
		"an exit that is none":         "exit=page&client_id=x&redirect=" + url.QueryEscape(callback),
		"an exit and no address":       "exit=redirect&client_id=x",
		"a key that is none":           "headless_code=x",
		"a key and an address":         forCommand("&headless_code=" + strings.Repeat("A", 43)),
		"an audience of others":        forCommand("&audience=https://elsewhere.test"),
		"a scope that is none":         forCommand("&scope=nothing"),
		"an identity that is none":     forCommand("&identity=x"),
		"a challenge that is none":     forCommand("&code_challenge=x&code_challenge_method=S256"),
		"a challenge in the plain": forCommand("&code_challenge=" + strings.Repeat("A", 43) +
			"&code_challenge_method=plain"),
		"a client without end":  "client_id=" + strings.Repeat("x", 1000),
		"a state without end":   forCommand("&state=" + strings.Repeat("x", 1000)),
		"an invite without end": forCommand("&invite=" + strings.Repeat("x", 2000)),
		"a query that is none":  "redirect=%zz",
	} {
		if a := x.browser(t).get("/oauth?" + q); a.status != http.StatusBadRequest || a.location != "" {
			t.Errorf("%s: %d %s", name, a.status, a.location)
		}
	}
	for name, q := range map[string]string{"no such organization": "idp_id=nobody",
		"no such provider": "idp_id=" + string(x.org.UID)} {
		if a := x.browser(t).get("/oauth?" + q); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	twice := url.QueryEscape(url.QueryEscape(string(x.org.UID)))
	b := x.browser(t)
	a := b.password(b.start(forCommand("&scope="+twice)), ownerEmail, password)
	if c := x.caller(t, query(t, a.location).Get("token")); len(c.Scopes) != 1 || c.Scopes[0] != x.org.UID {
		t.Errorf("scopes %v", c.Scopes)
	}
	for path, want := range map[string]string{"/orgcheck?name=acme": "true\n", "/orgcheck?name=nobody": "false\n"} {
		if a := b.get(path); a.body != want {
			t.Errorf("%s: %q", path, a.body)
		}
	}
	if a := b.get("/orgcheck"); a.status != http.StatusBadRequest {
		t.Errorf("no name: %d", a.status)
	}
	for _, body := range []string{"", "grant_type=x", "grant_type=authorization_code", "grant_type=refresh_token",
		"grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code"} {
		form, _ := url.ParseQuery(body)
		if a := b.do(http.MethodPost, "/oauth/token", form); a.status != http.StatusBadRequest ||
			!json.Valid([]byte(a.body)) {
			t.Errorf("%q: %d %s", body, a.status, a.body)
		}
	}
}

// TestManyStarts: a thousand people can start to sign in at the same time.
func TestManyStarts(t *testing.T) {
	x := sqlite(t)
	client := x.browser(t).Client
	client.Jar = nil
	client.Transport = &http.Transport{MaxIdleConnsPerHost: 100, MaxConnsPerHost: 100}
	var group sync.WaitGroup
	failed := make(chan string, 1000)
	for range 1000 {
		group.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+"/oauth?"+forCommand(""), nil)
			if err != nil {
				failed <- err.Error()
				return
			}
			resp, err := client.Do(r)
			if err != nil {
				failed <- err.Error()
				return
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusSeeOther {
				failed <- fmt.Sprint(resp.StatusCode)
			}
		})
	}
	group.Wait()
	if len(failed) > 0 {
		t.Errorf("%d of 1000 failed, one with %s", len(failed), <-failed)
	}
}
