package login_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestSessionsOfOthers: a person signs in to two organizations with providers that the
// operator trusts. Each organization sees and ends only the sessions that were started with
// its own provider.
func TestSessionsOfOthers(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		p := newProvider(t)
		other := resource.Group{
			UID: resource.NewRoot(), Name: "other", CreateTime: x.clock.now(), UpdateTime: x.clock.now(),
		}
		must[resource.Group](t)(s.InsertGroup(t.Context(), other))
		ours := x.keep(t, p)
		theirs := x.keep(t, p, func(idp *resource.IdentityProvider) {
			idp.UID, idp.OIDC.ClientID = other.UID.NewChild(), "client"
		})
		trust := func(uid resource.UID) resource.IdentityProvider {
			return must[resource.IdentityProvider](t)(s.UpdateProvider(t.Context(), uid,
				func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
					p.Trusted = true
					return nil, nil
				}))
		}
		ours, theirs = trust(ours.UID), trust(theirs.UID)
		one := x.caller(t, query(t, x.browser(t).through(p, ours).location).Get("token"))
		two := x.caller(t, query(t, x.browser(t).through(p, theirs).location).Get("token"))
		if one.Identity != two.Identity || !one.EmailVerified {
			t.Fatalf("the person is %s, and %s", one.Identity, two.Identity)
		}
		admin := func(name string, org resource.UID) authz.Caller {
			uid := resource.UserUID("https://people.example", name)
			b := resource.RoleBinding{
				UID: org.NewChild(), Identity: uid, Role: resource.OwnerRole, CreateTime: x.clock.now(),
			}
			must[resource.BoundRole](t)(s.InsertBinding(t.Context(), b))
			return authz.Caller{Identity: uid}
		}
		stranger := authz.WithCaller(t.Context(), admin("stranger", other.UID))
		friend := authz.WithCaller(t.Context(), admin("friend", x.org.UID))
		seen := func(all []resource.Session, _ string, err error) (ids []string) {
			if err != nil {
				t.Error(err)
			}
			for _, n := range all {
				if n.Voucher.Provider() != "" && !n.Browser {
					ids = append(ids, n.ID)
				}
			}
			return ids
		}
		if got := seen(x.Sessions(friend, one.Identity)); !slices.Equal(got, []string{one.Session}) {
			t.Errorf("ours sees %v, want %s", got, one.Session)
		}
		if got := seen(x.Sessions(stranger, one.Identity)); !slices.Equal(got, []string{two.Session}) {
			t.Errorf("the other sees %v, want %s", got, two.Session)
		}
		if err := x.EndSession(stranger, one.Session); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("the other ends one of ours: %v", err)
		}
		if _, err := x.EndSessions(stranger, one.Identity); err != nil {
			t.Error(err)
		}
		if x.checker.Revoked(one) != "" || x.checker.Revoked(two) == "" {
			t.Errorf(
				"after the other ended all it may: ours is %q, its own %q", x.checker.Revoked(one),
				x.checker.Revoked(two),
			)
		}
		// An organization in which a person has a role, but with which they have not signed in, does not manage their
		// sessions.
		loner := resource.UserUID("https://people.example", "friend")
		b := resource.RoleBinding{
			UID: other.UID.NewChild(), Identity: loner, Role: resource.ManagedRoleUID("viewer"),
			CreateTime: x.clock.now(),
		}
		must[resource.BoundRole](t)(s.InsertBinding(t.Context(), b))
		if _, _, err := x.Sessions(stranger, loner); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("the sessions of somebody who was only given a role: %v", err)
		}
	})
}

// TestExchangeAfterTrust: a person signs in with a provider before the operator trusts it, and another one afterwards.
// Both can exchange a token of the issuer without naming the provider while it is trusted, and neither can afterwards.
func TestExchangeAfterTrust(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		p := newProvider(t)
		idp := x.keep(t, p)
		signIn := func(subject string) resource.UID {
			p.claims, p.info = map[string]any{"sub": subject}, map[string]any{"sub": subject}
			return x.caller(t, query(t, x.browser(t).through(p, idp).location).Get("token")).Identity
		}
		trust := func(trusted bool) {
			idp = must[resource.IdentityProvider](t)(s.UpdateProvider(t.Context(), idp.UID,
				func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
					p.Trusted = trusted
					return func(resource.UID) bool { return true }, nil
				}))
		}
		exchange := func(subject string, in ...resource.UID) (resource.UID, error) {
			now := x.clock.now()
			token, err := x.sts.Exchange(t.Context(), sts.Request{
				TokenParams: sts.TokenParams{Audience: []string{x.url}}, Organization: cmp.Or(in...),
				Bearer: p.sign(map[string]any{
					"iss": p.URL, "aud": x.url, "sub": subject, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
				}),
			})
			if err != nil {
				return "", err
			}
			return x.caller(t, token.Text).Identity, nil
		}
		early := signIn("early")
		if got, err := exchange("early"); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("before the operator trusts the provider: %s, %v", got, err)
		}
		trust(true)
		late := signIn("late")
		for subject, want := range map[string]resource.UID{"early": early, "late": late} {
			if got, err := exchange(subject); err != nil || got != want {
				t.Errorf("%s: identity %q, %v, want %s", subject, got, err, want)
			}
		}
		for _, subject := range []string{"nobody", "a\x00"} {
			if got, err := exchange(subject); !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("%q, who has never signed in: %s, %v", subject, got, err)
			}
			if got, err := exchange(subject, x.org.UID); !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("%q, as a workload of the organization: %s, %v", subject, got, err)
			}
		}
		trust(false)
		for _, subject := range []string{"early", "late"} {
			if got, err := exchange(subject); !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("%s, when the operator no longer trusts the provider: %s, %v", subject, got, err)
			}
		}
	})
}

// TestNarrowedSession checks that a sign-in can request a token that is narrowed to a group, and that tokens from its
// refresh token are narrowed, too.
func TestNarrowedSession(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		folder := resource.Group{
			UID: x.org.UID.NewChild(), Name: "folder", CreateTime: x.clock.now(), UpdateTime: x.clock.now(),
		}
		must[resource.Group](t)(s.InsertGroup(t.Context(), folder))
		b := x.browser(t)
		flow := b.start(forCommand("&create_refresh_token=true&scope=" + url.QueryEscape(string(folder.UID))))
		q := query(t, b.password(flow, ownerEmail, password).location)
		want := []resource.UID{folder.UID}
		if c := x.caller(t, q.Get("token")); !slices.Equal(c.Scopes, want) {
			t.Fatalf("the token is narrowed to %v", c.Scopes)
		}
		refresh := q.Get("refresh_token")
		for range 3 {
			access, next, err := x.sts.Refresh(t.Context(), refresh, sts.TokenParams{Audience: []string{x.url}})
			if err != nil {
				t.Fatal(err)
			}
			if c := x.caller(t, access.Text); !slices.Equal(c.Scopes, want) {
				t.Errorf("what came of the refresh token is narrowed to %v", c.Scopes)
			}
			refresh = next.Text
		}
		_, _, err := x.sts.Refresh(
			t.Context(), refresh, sts.TokenParams{Audience: []string{x.url}, Scopes: []string{string(x.org.UID)}},
		)
		if !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("a wish for more: %v", err)
		}
		flow = b.start(forCommand("&create_refresh_token=true")) // a sign-in without a scope is not narrowed
		if c := x.caller(t, query(t, b.allow(flow).location).Get("token")); c.Scopes != nil {
			t.Errorf("a token that nobody narrowed: %v", c.Scopes)
		}
	})
}

// TestLinkRaced: if an account becomes an owner while its one-time link is followed, the person who made the link must
// not become an owner by this.
func TestLinkRaced(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		for n := range 10 {
			now, name := x.clock.now(), fmt.Sprint("n", n)
			helper := resource.UserUID("https://people.example", name)
			role := resource.Role{UID: x.org.UID.NewChild(), Name: name, CreateTime: now, UpdateTime: now,
				Capabilities: resource.CapabilitySet("identity.create", "identity.update")}
			if err := s.InsertRole(t.Context(), role); err != nil {
				t.Fatal(err)
			}
			must[resource.BoundRole](t)(s.InsertBinding(
				t.Context(),
				resource.RoleBinding{UID: x.org.UID.NewChild(), Identity: helper, Role: role.UID, CreateTime: now},
			))
			ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: helper})
			a, link, err := x.CreateAccount(ctx, x.org.UID, resource.Account{Email: name + "@example.test"}, "")
			if err != nil {
				t.Fatal(err)
			}
			promoted := make(chan error)
			go func() {
				_, err := s.InsertBinding(t.Context(), resource.RoleBinding{
					UID: x.org.UID.NewChild(), Identity: a.Identity, Role: resource.OwnerRole, CreateTime: now,
				})
				promoted <- err
			}()
			b := x.browser(t)
			u, err := url.Parse(link.URL)
			if err != nil {
				t.Fatal(err)
			}
			b.get(u.RequestURI())
			b.post("/link", "password", "a long enough pass phrase")
			if err := <-promoted; err != nil {
				t.Fatal(err)
			}
			// The link is followed before the promotion or refused after it. A refused link stays refused.
			late := x.browser(t)
			late.get(u.RequestURI())
			if got := late.post("/link", "password", "another long pass phrase"); got.status < 400 {
				t.Errorf("after the promotion the link is followed: %d", got.status)
			}
		}
	})
}
