package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A pausingClock is the clock of a server. It calls a function when the server is about to sign a token. Afterwards it
// is two seconds ahead, as if the process had been paused.
type pausingClock struct {
	during atomic.Pointer[func()]
	ahead  atomic.Int64
}

func (c *pausingClock) now() time.Time {
	if f := c.during.Load(); f != nil && isCalledBy("token.(*Issuer).Mint") && c.during.CompareAndSwap(f, nil) {
		(*f)()
		c.ahead.Add(int64(2 * time.Second))
	}
	return time.Now().Add(time.Duration(c.ahead.Load()))
}

// isCalledBy reports whether a function is on the stack. The name starts with the package.
func isCalledBy(name string) bool {
	pcs := make([]uintptr, 8)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "/"+name) {
			return true
		}
		if !more {
			return false
		}
	}
}

// A tokenRequest is a way to get a token from a credential.
type tokenRequest struct {
	get      func() (bearer, refusal string)
	revoke   func() // makes the credential void
	registry bool   // whether the token is for the registry
}

// tokenRequests returns all ways to get a token for new identities, by name.
func (w *world) tokenRequests(t *testing.T, f *fakeIssuer) map[string]tokenRequest {
	deletes := func(identity string) func() {
		return func() { w.delete(t, "/iam/v2beta1/identities/"+identity) }
	}
	exchange := func(bearer string, wish url.Values) func() (string, string) {
		return func() (string, string) {
			got, st := w.exchangeGRPC(t, bearer, wish)
			return got.GetToken(), st.Message()
		}
	}
	registry := func(user, password string) func() (string, string) {
		return func() (string, string) { return w.scopedToken(t, user, password) }
	}
	robot := func() string { return w.robot(t, string(w.Organization), "robot"+rand8()) }
	own, narrowed, pusher, through := robot(), robot(), robot(), robot()
	foreign, login := w.workload(t, f.url, nil), w.workload(t, f.url, nil)
	assumed := w.workload(t, w.AuthURL, func(m *iampb.Identity_ClaimMatch) {
		m.Sub = &iampb.Identity_ClaimMatch_Subject{Subject: own}
		m.Aud = &iampb.Identity_ClaimMatch_Audience{Audience: w.BaseURL}
	})
	host := []string{w.RegistryHost}
	act := &resource.Upstream{Issuer: w.AuthURL, Subject: through}
	return map[string]tokenRequest{
		"for a credential of another issuer": {
			exchange(f.token(nil), w.wish(foreign)), deletes(foreign), false,
		},
		"through another identity": {
			exchange(w.mint(t, resource.UID(own), token.Claims{}), w.wish(assumed)), deletes(own), false,
		},
		"for another audience": {
			exchange(w.mint(t, resource.UID(narrowed), token.Claims{}), url.Values{"aud": {w.BaseURL}}), deletes(narrowed),
			false,
		},
		"for scopes of the registry": {
			registry("_token", w.mint(t, resource.UID(pusher), token.Claims{Audience: host})), deletes(pusher), true,
		},
		"for scopes of the registry, through another identity": {
			registry("_token", w.mint(t, resource.UID(assumed), token.Claims{Audience: host, Act: act})), deletes(through), true,
		},
		"for the password of a workload": {registry(login, f.token(nil)), deletes(login), true},
	}
}

// scopedToken asks the registry for a token, and returns the token or the answer.
func (w *world) scopedToken(t *testing.T, user, password string) (bearer, refusal string) {
	t.Helper()
	path := w.BaseURL + "/v2/token?scope=" + url.QueryEscape("repository:dev/app:pull")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(user, password)
	got := w.roundTrip(t, r)
	_, rest, _ := strings.Cut(got.body, `"token":"`)
	bearer, _, _ = strings.Cut(rest, `"`)
	return bearer, got.body
}

// accepts reports whether the server accepts a token, whatever its identity may do.
func (w *world) accepts(t *testing.T, bearer string, registry bool) bool {
	t.Helper()
	path := "/iam/v2beta1/groups?pageSize=1"
	if registry {
		path = "/v2/"
	}
	return bearer != "" && w.send(t, bearer, http.MethodGet, path, "").status != http.StatusUnauthorized
}

// TestAttackTokensInFlight deletes an identity while one of its credentials, or a credential of an identity that was
// assumed through it, is being exchanged for a token. The server is paused for two seconds after the deletion, just
// before it signs the token. The new token must be void.
func TestAttackTokensInFlight(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, database string) {
		clock := &pausingClock{}
		w := serve(t, database, server.Config{Now: clock.now}, nil)
		for name, r := range w.tokenRequests(t, newFakeIssuer(t, w)) {
			for _, revoked := range []bool{false, true} {
				during := func() {
					if revoked {
						r.revoke()
					}
				}
				clock.during.Store(&during)
				bearer, refusal := r.get()
				if clock.during.Load() != nil {
					t.Errorf("%s: no token was signed: %s", name, refusal)
				}
				if accepted := w.accepts(t, bearer, r.registry); accepted == revoked {
					t.Errorf("a token %s: with a revocation: %t, accepted: %t: %s", name, revoked, accepted, refusal)
				}
			}
		}
	})
}

// A lateIssuer calls a function before it returns its keys.
type lateIssuer struct {
	*fakeIssuer
	before func()
	kid    string // ID of its RSA key, or "" for the ID in fakeKeySet
}

func (l *lateIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/keys" {
		l.before()
		if l.kid != "" {
			_, _ = w.Write(bytes.ReplaceAll(fakeKeySet(), []byte(`"kid":"rsa"`), []byte(`"kid":"`+l.kid+`"`)))
			return
		}
	}
	l.fakeIssuer.ServeHTTP(w, r)
}

// TestAttackLateKeys: an issuer returns its keys only after the identity that trusts it was deleted, or trusts another
// issuer. The exchange that has waited for the keys gets no token.
func TestAttackLateKeys(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		for name, tt := range map[string]struct {
			change  func(identity string)
			refused bool
		}{
			"nothing": {func(string) {}, false},
			"a description": {func(identity string) {
				w.change(t, w.Token, &iampb.UpdateIdentityRequest{
					Identity: &iampb.Identity{Uid: identity, Description: "text"}, UpdateMask: mask("description"),
				})
			}, false},
			"the trusted issuer": {func(identity string) {
				w.change(t, w.Token, &iampb.UpdateIdentityRequest{
					Identity: &iampb.Identity{Uid: identity, Relationship: &iampb.Identity_ClaimMatch_{
						ClaimMatch: &iampb.Identity_ClaimMatch{
							Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: "https://issuer.example"},
							Sub: &iampb.Identity_ClaimMatch_Subject{Subject: "job"},
						},
					}}, UpdateMask: mask("claim_match"),
				})
			}, true},
			"the existence": {func(identity string) { w.delete(t, "/iam/v2beta1/identities/"+identity) }, true},
		} {
			late := &lateIssuer{fakeIssuer: &fakeIssuer{audience: w.AuthURL}}
			s := httptest.NewServer(late)
			t.Cleanup(s.Close)
			late.url = s.URL
			identity := w.workload(t, late.url, nil)
			late.before = func() { tt.change(identity) }
			got, st := w.exchangeGRPC(t, late.token(nil), w.wish(identity))
			if refused := got.GetToken() == ""; refused != tt.refused {
				t.Errorf("%s has changed: refused: %t, want %t: %v", name, refused, tt.refused, st)
			}
		}
	})
}

// TestAttackProviderDisabledInFlight: a provider returns its keys only after an administrator has disabled it. The
// person whose token waited for the keys gets no token of ours, until the provider is enabled again.
func TestAttackProviderDisabledInFlight(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, database string) {
		var later atomic.Int64
		w := serve(t, database, server.Config{Now: func() time.Time {
			return time.Now().Add(time.Duration(later.Load()))
		}}, nil)
		late := &lateIssuer{fakeIssuer: &fakeIssuer{audience: "client"}, before: func() {}}
		s := httptest.NewServer(late)
		t.Cleanup(s.Close)
		late.url = s.URL
		p := provider("late")
		p.GetOidc().Issuer, p.GetOidc().ClientId = late.url, "client"
		idp := must[*iampb.IdentityProvider](t, w.overGRPC, w.Token, &iampb.CreateIdentityProviderRequest{
			Parent: string(w.Organization), IdentityProvider: p,
		}).GetUid()
		invite := must[*iampb.GroupInvite](t, w.overGRPC, w.Token, &iampb.CreateGroupInviteRequest{
			Parent: string(w.Organization), GroupInvite: invitation(),
		})
		if _, st := w.overGRPC(t, late.token(nil), &authpb.RegistrationRequest{Code: invite.GetCode()}); st != nil {
			t.Fatal(st)
		}
		// exchange uses a key that the server does not know yet, so the server asks the provider for its keys.
		exchange := func(kid string) (string, *status.Status) {
			later.Add(int64(2 * time.Minute)) // the server asks for an unknown key once a minute
			bearer := jws(`{"alg":"RS256","kid":"`+kid+`"}`, late.claims(nil), withRSA)
			late.kid = kid
			got, st := w.exchangeGRPC(t, bearer, url.Values{"aud": {w.BaseURL}, "identity_provider": {idp}})
			return got.GetToken(), st
		}
		set := func(disabled bool) {
			w.change(t, w.Token, &iampb.UpdateIdentityProviderRequest{
				IdentityProvider: &iampb.IdentityProvider{Uid: idp, Disabled: disabled}, UpdateMask: mask("disabled"),
			})
		}
		for _, disabled := range []bool{false, true, false} {
			asked := false
			set(false)
			late.before = func() { asked = true; set(disabled) }
			if token, st := exchange(fmt.Sprint("key", later.Load())); !asked || (token == "") != disabled {
				t.Errorf("disabled: %t: asked for keys: %t, a token: %t: %v", disabled, asked, token != "", st)
			}
		}
	})
}
