package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

var viewer = string(resource.ManagedRoleUID("viewer"))

// said returns the claims of a token.
func said(t *testing.T, raw string) map[string]any {
	t.Helper()
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		t.Fatalf("not a token: %q", raw)
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(body, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// status sends a GET request with a token and returns the HTTP status.
func (w *world) status(t *testing.T, bearer, target string) int {
	t.Helper()
	return w.send(t, bearer, http.MethodGet, target, "").status
}

// TestExchange exchanges tokens through every endpoint, and checks that the new tokens work.
func TestExchange(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		f := newFakeIssuer(t, w)
		identity := w.workload(t, f.url, nil)
		folder := w.child(t, string(w.Organization), "folder")
		w.bind(t, folder, identity, viewer)
		ways := map[string]func() *oidcpb.RawToken{
			"GET with a query": func() *oidcpb.RawToken {
				r := w.send(t, f.token(nil), http.MethodGet, "/sts/exchange?"+w.wish(identity).Encode(), "")
				return r.rawToken(t)
			},
			"POST of a form": func() *oidcpb.RawToken {
				got, _ := w.exchangeHTTP(t, f.token(nil), w.wish(identity))
				return got
			},
			"POST with a query, JSON unread": func() *oidcpb.RawToken {
				return w.send(t, f.token(nil), http.MethodPost,
					"/sts/exchange?"+w.wish(identity).Encode(), `{"aud":["x"],"y"`).rawToken(t)
			},
			"POST of JSON": func() *oidcpb.RawToken {
				return w.send(t, f.token(nil), http.MethodPost, "/sts/exchange",
					`{"aud":["`+w.BaseURL+`"],"identity":"`+identity+`"}`).rawToken(t)
			},
			"gRPC": func() *oidcpb.RawToken {
				got, _ := w.exchangeGRPC(t, f.token(nil), w.wish(identity))
				return got
			},
		}
		for _, name := range otherNames(t, w, "SecurityTokenService") {
			ways["gRPC as "+name+", without a scheme"] = func() *oidcpb.RawToken {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", f.token(nil))
				out := &oidcpb.RawToken{}
				in := &oidcpb.ExchangeRequest{Aud: []string{w.BaseURL}, Identity: identity}
				if err := w.conn.Invoke(ctx, "/"+name+"/Exchange", in, out); err != nil {
					t.Fatal(err)
				}
				return out
			}
		}
		if len(ways) != 7 {
			t.Errorf("%d endpoints for exchanges, want 7: the service has two names", len(ways))
		}
		for name, way := range ways {
			t.Run(name, func(t *testing.T) {
				got := way()
				claims := said(t, got.GetToken())
				act, _ := claims["act"].(map[string]any)
				// The exchanged credential expires in an hour, so the new token does too.
				life := claims["exp"].(float64) - claims["iat"].(float64)
				if claims["iss"] != w.AuthURL || claims["sub"] != identity ||
					claims["aud"] != w.BaseURL || got.GetRefreshToken() != "" ||
					life < 3590 || life > 3600 || act["iss"] != f.url || act["sub"] != "job" {
					t.Errorf("token claims %v", claims)
				}
				if code := w.status(t, got.GetToken(), "/iam/v2beta1/groups/"+folder); code != http.StatusOK {
					t.Errorf("status of an allowed request: %d", code)
				}
				code := w.status(t, got.GetToken(), "/iam/v2beta1/groups/"+string(w.Organization))
				if code != http.StatusForbidden {
					t.Errorf("status of a forbidden request: %d", code)
				}
			})
		}
		t.Run("for the registry", func(t *testing.T) {
			got, st := w.exchangeHTTP(t, f.token(nil), url.Values{"aud": {w.RegistryHost}, "identity": {identity}})
			if st != nil {
				t.Fatal(st)
			}
			if said(t, got.GetToken())["aud"] != w.RegistryHost {
				t.Errorf("token claims %v", said(t, got.GetToken()))
			}
			if code := w.status(t, got.GetToken(), "/iam/v2beta1/groups/"+folder); code != http.StatusUnauthorized {
				t.Errorf("the API accepts a token for the registry: %d", code)
			}
			if _, st := w.exchangeHTTP(t, got.GetToken(), url.Values{"aud": {w.BaseURL}}); st.Code() != codes.Unauthenticated {
				t.Errorf("a token for the registry was exchanged for an API token: %v", st)
			}
		})
	})
}

// TestExchangeRefuses sends invalid exchange requests, and checks that each is refused.
func TestExchangeRefuses(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	f := newFakeIssuer(t, w)
	identity := w.workload(t, f.url, nil)
	principal := w.identify(t, &iampb.Identity{
		Name: "p", Relationship: &iampb.Identity_ServicePrincipal{ServicePrincipal: 1},
	})
	for name, tt := range map[string]struct {
		bearer string
		form   url.Values
		code   codes.Code
		says   string
	}{
		"no audience": {f.token(nil), url.Values{"identity": {identity}}, codes.InvalidArgument, "aud"},
		"another audience": {
			f.token(nil), url.Values{"identity": {identity}, "aud": {"https://elsewhere.example"}}, codes.InvalidArgument, "aud",
		},
		"one of two": {
			f.token(nil), url.Values{"identity": {identity}, "aud": {w.BaseURL, "x"}}, codes.InvalidArgument, "aud",
		},
		"no such capability": {
			f.token(nil), url.Values{"identity": {identity}, "aud": {w.BaseURL}, "cap": {"x"}}, codes.InvalidArgument, "cap",
		},
		"no such scope": {
			f.token(nil), url.Values{"identity": {identity}, "aud": {w.BaseURL}, "scopes": {"x"}},
			codes.InvalidArgument, "scope",
		},
		"no uid": {
			f.token(nil), url.Values{"identity": {"x"}, "aud": {w.BaseURL}}, codes.InvalidArgument, "identity",
		},
		"nobody's uid":        {f.token(nil), w.wish(string(w.Organization.NewChild())), codes.PermissionDenied, `"iss"`},
		"one without a token": {f.token(nil), w.wish(principal), codes.PermissionDenied, `"identity"`},
		"nobody":              {f.token(nil), w.wish(""), codes.PermissionDenied, `"iss"`},
		"no such provider": {
			f.token(nil), url.Values{"aud": {w.BaseURL}, "identity_provider": {string(w.Organization.NewChild())}},
			codes.PermissionDenied, `"iss"`,
		},
		"no provider's uid": {
			f.token(nil), url.Values{"aud": {w.BaseURL}, "identity_provider": {"x"}}, codes.InvalidArgument, "identity_provider",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, st := w.exchangeHTTP(t, tt.bearer, tt.form)
			if st.Code() != tt.code || !strings.Contains(st.Message(), tt.says) {
				t.Errorf("HTTP: %v, want %v with %s in the message", st, tt.code, tt.says)
			}
			_, again := w.exchangeGRPC(t, tt.bearer, tt.form)
			if again.Code() != tt.code {
				t.Errorf("gRPC: %v", again)
			}
		})
	}
	for name, header := range map[string][]string{
		"no credential": nil, "two": {"Bearer a", "Bearer b"}, "another scheme": {"Basic eDp5"}, "an empty one": {"Bearer "},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			w.BaseURL+"/sts/exchange?"+w.wish(identity).Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Authorization"] = header
		if st := w.roundTrip(t, r).refusal(t); st.Code() != codes.Unauthenticated {
			t.Errorf("%s: %v", name, st)
		}
	}
	if n := f.asked.Load(); n != 0 {
		t.Errorf("%d requests to an issuer that no named identity trusts", n)
	}
}

// TestStaticKeys exchanges tokens for identities that trust a stored set of keys instead of an issuer. The keys can
// expire, and the audience is optional.
func TestStaticKeys(t *testing.T) {
	clock := newClock()
	w := serve(t, storetest.SQLite(t), server.Config{Now: clock.now}, nil)
	f := newFakeIssuer(t, w)
	keep := func(life time.Duration, audiences ...string) string {
		return w.identify(t,
			&iampb.Identity{Name: "k", Relationship: &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{
				Issuer: "https://unreachable.example", Subject: "job", IssuerKeys: string(fakeKeySet()), Audiences: audiences,
				ExpirationTime: timestamppb.New(clock.now().Add(life)),
			}}})
	}
	plain, audience := keep(30*time.Minute), keep(time.Hour, "me")
	sign := func(change map[string]any) string {
		claims := map[string]any{"iss": "https://unreachable.example", "exp": time.Now().Add(2 * time.Hour).Unix()}
		maps.Copy(claims, change)
		return f.token(claims)
	}
	w.exchange(t, sign(nil), plain)
	w.exchange(t, sign(map[string]any{"aud": "me"}), audience)
	for name, tt := range map[string]struct {
		identity string
		change   map[string]any
		says     string
	}{
		"another subject":           {plain, map[string]any{"sub": "x"}, `"sub"`},
		"another issuer":            {plain, map[string]any{"iss": f.url}, `"iss"`},
		"another audience":          {plain, map[string]any{"aud": "me"}, `"aud"`},
		"the usual, but it has one": {audience, nil, `"aud"`},
	} {
		_, st := w.exchangeHTTP(t, sign(tt.change), w.wish(tt.identity))
		if st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), tt.says) {
			t.Errorf("%s: %v", name, st)
		}
	}
	_, st := w.exchangeHTTP(t, jws(rsaHeader, claimsText(sign(nil)), withStranger), w.wish(plain))
	if st.Code() != codes.Unauthenticated {
		t.Errorf("a stranger's key: %v", st)
	}
	clock.advance(31 * time.Minute)
	if _, st := w.exchangeHTTP(t, sign(nil), w.wish(plain)); st.Code() != codes.PermissionDenied ||
		!strings.Contains(st.Message(), `"key"`) {
		t.Errorf("expired keys: %v", st)
	}
	if f.asked.Load()+f.strayed.Load() != 0 {
		t.Error("the server requested keys of an identity that has its own")
	}
}

// claimsText returns the claims of a token as JSON text.
func claimsText(raw string) string {
	b, err := base64.RawURLEncoding.DecodeString(strings.Split(raw, ".")[1])
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestPeople exchanges tokens of people, without naming an identity and through an identity provider.
func TestPeople(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	r := w.send(t, "", http.MethodPost, "/dev/issuer/token", fmt.Sprintf(`{"sub":"owner","aud":%q}`, w.AuthURL))
	var minted struct{ Token string }
	strictly(t, r.body, &minted)
	got := w.exchange(t, minted.Token, "")
	if said(t, got)["sub"] != string(w.Owner) {
		t.Errorf("token claims %v", said(t, got))
	}
	if code := w.status(t, got, "/iam/v2beta1/groups/"+string(w.Organization)); code != http.StatusOK {
		t.Errorf("the owner is refused: %d", code)
	}
	f := newFakeIssuer(t, w)
	p := provider("p")
	p.GetOidc().Issuer, p.GetOidc().ClientId = f.url, "client"
	idp := must[*iampb.IdentityProvider](t, w.overGRPC, w.Token, &iampb.CreateIdentityProviderRequest{
		Parent: string(w.Organization), IdentityProvider: p,
	}).GetUid()
	through := func(change map[string]any) *status.Status {
		t.Helper()
		_, st := w.exchangeHTTP(t, f.token(change), url.Values{"aud": {w.BaseURL}, "identity_provider": {idp}})
		return st
	}
	if st := through(map[string]any{"aud": "client"}); st.Code() != codes.NotFound {
		t.Errorf("an unregistered person: %v", st)
	}
	if st := through(nil); st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), `"aud"`) {
		t.Errorf("a token for another client: %v", st)
	}
	st := through(map[string]any{"aud": "client", "iss": w.TestIssuer})
	if st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), `"iss"`) {
		t.Errorf("a token of another issuer: %v", st)
	}
}

// TestNarrowing requests tokens with fewer rights than the identity has, and checks that they allow no more than
// requested.
func TestNarrowing(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	f := newFakeIssuer(t, w)
	identity := w.workload(t, f.url, nil)
	a, b := w.child(t, string(w.Organization), "a"), w.child(t, string(w.Organization), "b")
	below := w.child(t, a, "below")
	other := w.robot(t, string(w.Organization), "other")
	w.bind(t, string(w.Organization), identity, viewer)
	narrowed := func(more url.Values) string {
		t.Helper()
		form := w.wish(identity)
		maps.Copy(form, more)
		got, st := w.exchangeHTTP(t, f.token(nil), form)
		if st != nil {
			t.Fatal(st)
		}
		return got.GetToken()
	}
	can := func(bearer string) (allowed []bool) {
		for _, target := range []string{"/groups/" + a, "/groups/" + b, "/groups/" + below, "/identities/" + other} {
			code := w.status(t, bearer, "/iam/v2beta1"+target)
			if code != http.StatusOK && code != http.StatusForbidden {
				t.Errorf("%s: status %d, want 200 or 403", target, code)
			}
			allowed = append(allowed, code == http.StatusOK)
		}
		return allowed
	}
	wide, caps, scope := narrowed(nil), narrowed(url.Values{"cap": {"groups.list"}}), narrowed(url.Values{"scopes": {a}})
	for name, tt := range map[string]struct {
		bearer string
		want   []bool
	}{
		"not at all":       {wide, []bool{true, true, true, true}},
		"by capability":    {caps, []bool{true, true, true, false}},
		"by scope":         {scope, []bool{true, false, true, false}},
		"by the old scope": {narrowed(url.Values{"scope": {below}}), []bool{false, false, true, false}},
		"by both":          {narrowed(url.Values{"scopes": {b}, "cap": {"groups.list"}}), []bool{false, true, false, false}},
		"by what it lacks": {narrowed(url.Values{"cap": {"groups.delete"}}), []bool{false, false, false, false}},
	} {
		if got := can(tt.bearer); !slices.Equal(got, tt.want) {
			t.Errorf("narrowed %s: allowed %v, want %v", name, got, tt.want)
		}
	}
	again := func(bearer string, more url.Values) (string, *status.Status) {
		form := url.Values{"aud": {w.BaseURL}}
		maps.Copy(form, more)
		got, st := w.exchangeHTTP(t, bearer, form)
		return got.GetToken(), st
	}
	for name, tt := range map[string]struct {
		bearer string
		more   url.Values
		want   []bool // nil if the exchange is refused
	}{
		"as it is":                   {wide, nil, []bool{true, true, true, true}},
		"narrower":                   {wide, url.Values{"scopes": {below}}, []bool{false, false, true, false}},
		"narrow as before":           {caps, nil, []bool{true, true, true, false}},
		"other capabilities":         {caps, url.Values{"cap": {"identity.list"}}, []bool{false, false, false, false}},
		"a scope within":             {scope, url.Values{"scopes": {below}}, []bool{false, false, true, false}},
		"a scope beside":             {scope, url.Values{"scopes": {b}}, nil},
		"a scope above":              {scope, url.Values{"scopes": {string(w.Organization)}}, nil},
		"the scope as before":        {scope, nil, []bool{true, false, true, false}},
		"as another":                 {caps, url.Values{"identity": {identity}}, nil},
		"of a person who has signed": {w.Token + "x", nil, nil},
	} {
		raw, st := again(tt.bearer, tt.more)
		if (st == nil) != (tt.want != nil) {
			t.Errorf("second exchange, %s: %v", name, st)
			continue
		}
		if st != nil {
			continue
		}
		if got := can(raw); !slices.Equal(got, tt.want) {
			t.Errorf("second exchange, %s: allowed %v, want %v", name, got, tt.want)
		}
		if before, after := said(t, tt.bearer)["exp"].(float64), said(t, raw)["exp"].(float64); after > before {
			t.Errorf("second exchange, %s: expires at %v, after the original %v", name, after, before)
		}
	}
	short := w.mint(t, resource.UID(identity), token.Claims{Life: time.Minute})
	raw, st := again(short, nil)
	if st != nil || said(t, raw)["exp"].(float64) > said(t, short)["exp"].(float64) {
		t.Errorf("a token exchanged for a one-minute token lives longer: %v", st)
	}
}

// TestOwnIssuer exchanges tokens that this server issued, for an identity that trusts this server. A narrowed token
// is refused.
func TestOwnIssuer(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	robot := w.robot(t, string(w.Organization), "robot")
	target := w.identify(t,
		&iampb.Identity{Name: "target", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
			Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: w.AuthURL}, Sub: &iampb.Identity_ClaimMatch_Subject{Subject: robot},
			Aud: &iampb.Identity_ClaimMatch_Audience{Audience: w.BaseURL},
		}}})
	w.exchange(t, w.mint(t, resource.UID(robot), token.Claims{}), target)
	caps := resource.CapabilitySet("groups.list")
	for name, c := range map[string]token.Claims{
		"by capability":        {Caps: &caps},
		"by scope":             {Scopes: []resource.UID{w.Organization}},
		"to the registry":      {Audience: []string{w.RegistryHost}},
		"to the one next door": {Audience: []string{"https://elsewhere.example"}},
	} {
		if _, st := w.exchangeHTTP(t, w.mint(t, resource.UID(robot), c), w.wish(target)); st.Code() != codes.Unauthenticated {
			t.Errorf("narrowed %s: %v", name, st)
		}
	}
	if _, st := w.exchangeHTTP(t, w.Token, w.wish(target)); st.Code() != codes.PermissionDenied {
		t.Errorf("a token of another identity: %v", st)
	}
}

// TestChangesCount changes and deletes an identity, and checks that the next exchange uses the new state.
func TestChangesCount(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		f := newFakeIssuer(t, w)
		identity := w.workload(t, f.url, nil)
		good := w.exchange(t, f.token(nil), identity)
		update := func(subject string) {
			t.Helper()
			must[*iampb.Identity](t, w.overGRPC, w.Token, &iampb.UpdateIdentityRequest{Identity: &iampb.Identity{
				Uid: identity, Name: "workload", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
					Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: f.url}, Sub: &iampb.Identity_ClaimMatch_Subject{Subject: subject},
				}}}})
		}
		for range 5 {
			update("other")
			if _, st := w.exchangeHTTP(t, f.token(nil), w.wish(identity)); st.Code() != codes.PermissionDenied {
				t.Fatalf("after the change: %v", st)
			}
			update("job")
			w.exchange(t, f.token(nil), identity)
		}
		if code := w.status(t, good, "/iam/v2beta1/groups"); code != http.StatusOK {
			t.Errorf("a token issued before the change: %d", code)
		}
		must[proto.Message](t, w.overGRPC, w.Token, &iampb.DeleteIdentityRequest{Uid: identity})
		_, st := w.exchangeHTTP(t, f.token(nil), w.wish(identity))
		if st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), `"iss"`) {
			t.Errorf("after the deletion: %v", st)
		}
		if code := w.status(t, good, "/iam/v2beta1/groups"); code != http.StatusUnauthorized {
			t.Errorf("a token issued before the deletion: %d", code)
		}
	})
}

// TestLastSeen checks that the time of the last exchange is recorded at most once a minute.
func TestLastSeen(t *testing.T) {
	clock := newClock()
	w := serve(t, storetest.SQLite(t), server.Config{Now: clock.now}, nil)
	f := newFakeIssuer(t, w)
	identity := w.workload(t, f.url, nil)
	seen := func() time.Time {
		t.Helper()
		return must[*iampb.Identity](t, w.overGRPC, w.Token, &iampb.GetIdentityRequest{
			Uid: identity,
		}).GetLastSeenTime().AsTime()
	}
	use := func() { w.exchange(t, f.token(map[string]any{"exp": clock.now().Add(time.Hour).Unix()}), identity) }
	created := seen()
	clock.advance(time.Second)
	use()
	first := seen()
	if !first.After(created) {
		t.Errorf("last seen at %v, created at %v", first, created)
	}
	clock.advance(30 * time.Second)
	use()
	if again := seen(); !again.Equal(first) {
		t.Errorf("recorded again after half a minute: %v", again)
	}
	clock.advance(31 * time.Second)
	use()
	if later := seen(); !later.After(first) {
		t.Errorf("not recorded after a minute: %v", later)
	}
}

// TestRefresh uses the refresh tokens of a session one after the other. When a refresh token is used a second time,
// the server revokes the whole session.
func TestRefresh(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		form := url.Values{"aud": {w.BaseURL}}
		use := func(bearer string) reply {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				w.BaseURL+"/sts/exchange_refresh_token", strings.NewReader(form.Encode()))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Authorization", "Bearer "+bearer)
			return w.roundTrip(t, r)
		}
		pair := func(r reply) (access, refresh string) {
			t.Helper()
			var answer map[string]map[string]string
			strictly(t, r.body, &answer)
			if len(answer) != 2 || len(answer["token"]) != 3 || len(answer["refreshToken"]) != 3 {
				t.Fatalf("unexpected form of the answer: %s", r.body)
			}
			return answer["token"]["token"], answer["refreshToken"]["token"]
		}
		text, err := base64.StdEncoding.DecodeString(w.RefreshToken)
		if err != nil || !strings.Contains(string(text), `"exp":`) {
			t.Errorf("unexpected form of the refresh token: %q, %v", text, err)
		}
		firstAccess, secondRefresh := pair(use(w.RefreshToken))
		secondAccess, thirdRefresh := pair(use(secondRefresh))
		for _, access := range []string{firstAccess, secondAccess} {
			if code := w.status(t, access, "/iam/v2beta1/groups"); code != http.StatusOK {
				t.Errorf("a token of the session: %d", code)
			}
		}
		// The first refresh token has been used before. A second use means that somebody may have copied it.
		if st := use(w.RefreshToken).refusal(t); st.Code() != codes.Unauthenticated {
			t.Errorf("a used refresh token: %v", st)
		}
		for _, access := range []string{firstAccess, secondAccess} {
			if code := w.status(t, access, "/iam/v2beta1/groups"); code != http.StatusUnauthorized {
				t.Errorf("a token of a revoked session: status %d", code)
			}
		}
		for _, refresh := range []string{thirdRefresh, secondRefresh, "x", "e30=", w.Token} {
			if st := use(refresh).refusal(t); st.Code() != codes.Unauthenticated {
				t.Errorf("%.12s: %v", refresh, st)
			}
		}
		if code := w.status(t, w.Token, "/iam/v2beta1/groups"); code != http.StatusOK {
			t.Errorf("a token without a session: status %d", code)
		}
	})
}

// TestWarnsOfOneForm checks that the server warns about an identity for GitHub if its subject or pattern matches only
// one of the two forms of GitHub subjects.
func TestWarnsOfOneForm(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	for subject, warns := range map[string]bool{
		`"subject":"repo:org/app:ref:refs/heads/main"`:                        true,
		`"subject":"repo:org@1/app@2:pull_request"`:                           true,
		`"subjectPattern":"repo:org(@\\d+)?/app(@\\d+)?:ref:refs/heads/main"`: false,
		`"subjectPattern":"repo:org(@7)?/app(@9)?:.*"`:                        false,
	} {
		body := `{"name":"gh","claimMatch":{"issuer":"https://token.actions.githubusercontent.com",` + subject + `}}`
		r := w.send(t, w.Token, http.MethodPost, "/iam/v2beta1/identities/"+string(w.Organization), body)
		if got := r.header.Get("Holdfast-Warning"); r.status != http.StatusOK || (got != "") != warns {
			t.Errorf("%s: status %d, warning %q", subject, r.status, got)
		}
	}
}

// TestExplains checks that the server explains why a token is refused, and only to callers who may read the identity.
func TestExplains(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		f := newFakeIssuer(t, w)
		identity := w.workload(t, f.url, nil)
		stranger := w.mint(t, resource.UID(w.robot(t, string(w.Organization), "stranger")), token.Claims{})
		client := federationpb.NewFederationServiceClient(w.conn)
		explain := func(bearer, uid, tok string) (*federationpb.ExplainTokenResponse, error) {
			return client.ExplainToken(bearing(t, bearer), &federationpb.ExplainTokenRequest{IdentityUid: uid, Token: tok})
		}
		for name, tt := range map[string]struct {
			token, claim, cause string
		}{
			"a good one":       {f.token(nil), "", ""},
			"letter case":      {f.token(map[string]any{"sub": "Job"}), "sub", "upper and lower case"},
			"another audience": {f.token(map[string]any{"aud": "x"}), "aud", "another audience"},
			"an expired one":   {f.token(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}), "exp", "has expired"},
			"a clock ahead": {
				f.token(map[string]any{"nbf": time.Now().Add(3 * time.Minute).Unix()}), "nbf", "ahead of ours",
			},
			"an unknown key":    {jws(`{"alg":"RS256","kid":"gone"}`, f.claims(nil), withRSA), "signature", "no such key"},
			"a wrong signature": {jws(rsaHeader, f.claims(nil), withStranger), "signature", "changed"},
			"a slash too many":  {f.token(map[string]any{"iss": f.url + "/"}), "iss", "slash"},
		} {
			got, err := explain(w.Token, identity, tt.token)
			if err != nil || len(got.GetExplanations()) != 1 {
				t.Fatalf("%s: %v, %v", name, got, err)
			}
			e := got.GetExplanations()[0]
			bad := ""
			for _, c := range e.GetChecks() {
				if !c.GetOk() && c.GetClaim() == tt.claim {
					bad = c.GetCause()
				}
			}
			if e.GetAccepted() != (tt.claim == "") || !strings.Contains(bad, tt.cause) {
				t.Errorf("%s: %v", name, e)
			}
		}
		got, err := explain(w.Token, "", f.token(map[string]any{"sub": "Job"}))
		if err != nil || len(got.GetExplanations()) == 0 || got.GetExplanations()[0].GetIdentityUid() != identity {
			t.Errorf("explanations for all identities: %v, %v", got, err)
		}
		if _, err := explain(stranger, identity, f.token(nil)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a stranger: %v", err)
		}
		if got, err := explain(stranger, "", f.token(nil)); err != nil && status.Code(err) != codes.PermissionDenied ||
			len(got.GetExplanations()) != 0 {
			t.Errorf("explanations to a stranger for all identities: %v, %v", got, err)
		}
		w.recordsDenials(t, f, identity, stranger)
		w.recordsExchanges(t, f, identity, stranger)
	})
}

// recordsDenials makes an exchange that is denied, and checks the recorded denial.
func (w *world) recordsDenials(t *testing.T, f *fakeIssuer, identity, stranger string) {
	t.Helper()
	_, st := w.exchangeHTTP(t, f.token(map[string]any{"sub": "Job"}), w.wish(identity))
	_, request, _ := strings.Cut(strings.TrimSuffix(st.Message(), ")"), "(request ")
	if request == "" || strings.Contains(st.Message(), "Job") || strings.Contains(st.Message(), "job") {
		t.Errorf("message to the caller: %q", st.Message())
	}
	client := federationpb.NewFederationServiceClient(w.conn)
	list := func(bearer string) (*federationpb.ListDenialsResponse, error) {
		return client.ListDenials(bearing(t, bearer), &federationpb.ListDenialsRequest{IdentityUid: identity})
	}
	var got *federationpb.ListDenialsResponse
	procUntil(t, "the denial is recorded", func() bool {
		var err error
		if got, err = list(w.Token); err != nil {
			t.Fatal(err)
		}
		return len(got.GetDenials()) > 0
	})
	d := got.GetDenials()[0]
	if d.GetRequestId() != request || !d.GetSignatureVerified() ||
		d.GetRemoteAddress() != "127.0.0.1" || d.GetMessage() != st.Message() {
		t.Errorf("the denial is %v", d)
	}
	c := d.GetChecks()[0]
	if c.GetClaim() != "sub" || c.GetExpected() != "job" ||
		c.GetReceived() != "Job" || !strings.Contains(c.GetCause(), "case") {
		t.Errorf("the first check is %v", c)
	}
	if _, err := list(stranger); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger reads denials: %v", err)
	}
}

// recordsExchanges exchanges tokens and checks the recorded exchanges.
func (w *world) recordsExchanges(t *testing.T, f *fakeIssuer, identity, stranger string) {
	t.Helper()
	for range 3 {
		if _, st := w.exchangeHTTP(t, f.token(nil), w.wish(identity)); st != nil {
			t.Fatal(st)
		}
	}
	client := federationpb.NewFederationServiceClient(w.conn)
	list := func(bearer string) (*federationpb.ListExchangesResponse, error) {
		return client.ListExchanges(bearing(t, bearer), &federationpb.ListExchangesRequest{IdentityUid: identity})
	}
	recorded := 0
	procUntil(t, "the exchanges are recorded", func() bool {
		got, err := list(w.Token)
		if err != nil {
			t.Fatal(err)
		}
		recorded = 0
		for _, e := range got.GetExchanges() {
			recorded += int(e.GetCount())
			if e.GetIssuer() != f.url || e.GetSubject() != "job" ||
				e.GetRemoteAddress() != "127.0.0.1" || e.GetRequestId() == "" || len(e.GetAudience()) != 1 {
				t.Errorf("the exchange is %v", e)
			}
		}
		return recorded >= 3
	})
	if recorded != 3 {
		t.Errorf("%d exchanges are recorded, want 3", recorded)
	}
	if _, err := list(stranger); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger reads exchanges: %v", err)
	}
}

// TestIssuerWatch waits until the server has checked a working and an unreachable issuer. It then checks the state of
// both and the identities that depend on them.
func TestIssuerWatch(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{IssuerWatch: time.Second}, nil)
	f := newFakeIssuer(t, w)
	live, dead := w.workload(t, f.url, nil), w.workload(t, "http://127.0.0.1:1", nil)
	client := federationpb.NewFederationServiceClient(w.conn)
	by := map[string]*federationpb.Issuer{}
	procUntil(t, "both issuers have been checked", func() bool {
		got, err := client.ListIssuers(bearing(t, w.Token), &federationpb.ListIssuersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range got.GetIssuers() {
			by[i.GetIssuer()] = i
		}
		return by[f.url].GetReachable() && strings.Contains(by["http://127.0.0.1:1"].GetProblem(), "refused")
	})
	good, bad := by[f.url], by["http://127.0.0.1:1"]
	if good.GetProblem() != "" || len(good.GetKeys()) != 2 || good.GetIdentityCount() != 1 ||
		good.GetSuccessTime() == nil || len(good.GetEndangered()) != 0 {
		t.Errorf("working issuer: %v", good)
	}
	if bad.GetReachable() || bad.GetSuccessTime() != nil ||
		len(bad.GetEndangered()) != 1 || bad.GetEndangered()[0].GetIdentityUid() != dead {
		t.Errorf("unreachable issuer: %v", bad)
	}
	w.exchange(t, f.token(nil), live)
	stranger := w.mint(t, resource.UID(w.robot(t, string(w.Organization), "stranger")), token.Claims{})
	got, err := client.ListIssuers(bearing(t, stranger), &federationpb.ListIssuersRequest{})
	if err == nil && len(got.GetIssuers()) != 0 {
		t.Errorf("a stranger sees %v", got)
	}
}

// TestOwnIssuerWatch checks that the server does not call itself as an issuer, because it may be unable to reach its
// own public address.
func TestOwnIssuerWatch(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{IssuerWatch: time.Second, AuthURL: "http://127.0.0.1:1"}, nil)
	w.workload(t, w.AuthURL, nil)
	client := federationpb.NewFederationServiceClient(w.conn)
	procUntil(t, "the issuer has been checked", func() bool {
		got, err := client.ListIssuers(bearing(t, w.Token), &federationpb.ListIssuersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range got.GetIssuers() {
			if i.GetIssuer() == w.AuthURL && i.GetReachable() {
				return true
			}
		}
		return false
	})
}

// TestDeadIssuer: if one issuer never answers, then tokens of other issuers are still exchanged.
func TestDeadIssuer(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	hang := newHangingIssuer(t)
	f := newFakeIssuer(t, w)
	slow, good := w.workload(t, hang.url, nil), w.workload(t, f.url, nil)
	refused := make(chan *status.Status, 1)
	go func() {
		claims := fmt.Sprintf(`{"iss":%q,"sub":"job","aud":%q,"exp":%d}`,
			hang.url, w.AuthURL, time.Now().Add(time.Hour).Unix())
		_, st := w.exchangeGRPC(t, jws(rsaHeader, claims, withRSA), w.wish(slow))
		refused <- st
	}()
	<-hang.asked
	w.exchange(t, f.token(nil), good)
	close(hang.release)
	if st := <-refused; st.Code() != codes.Unavailable || strings.Contains(st.Message(), hang.url) {
		t.Errorf("token of the unresponsive issuer: %v", st)
	}
}

// TestSilentLog makes every kind of exchange at log level debug, and checks that the log contains no secrets.
func TestSilentLog(t *testing.T) {
	var log syncBuffer
	w := serve(t, storetest.SQLite(t), server.Config{LogLevel: slog.LevelDebug, Stderr: &log}, nil)
	f := newFakeIssuer(t, w)
	identity := w.workload(t, f.url, nil)
	secrets := map[string]string{
		"the owner's token": w.Token, "the refresh token": w.RefreshToken, "the registry's token": w.RegistryToken,
	}
	bearer := f.token(nil)
	secrets["the workload's token"] = bearer
	secrets["the token issued"] = w.exchange(t, bearer, identity)
	secrets["a refused token"] = f.token(map[string]any{"sub": "other"})
	_, _ = w.exchangeHTTP(t, secrets["a refused token"], w.wish(identity))
	_, _ = w.exchangeGRPC(t, secrets["a refused token"], w.wish(identity))
	secrets["a token that is none"] = "thisIsNotATokenButItIsASecret"
	_, _ = w.exchangeHTTP(t, secrets["a token that is none"], w.wish(identity))
	w.status(t, w.Token, "/iam/v2beta1/groups")
	w.send(t, bearer, http.MethodGet, "/sts/exchange?"+w.wish(identity).Encode(), "")
	w.send(t, w.RefreshToken, http.MethodPost, "/sts/exchange_refresh_token?aud="+url.QueryEscape(w.BaseURL), "")
	w.send(t, w.RefreshToken, http.MethodPost, "/sts/exchange_refresh_token?aud="+url.QueryEscape(w.BaseURL), "")
	w.send(t, w.Token, http.MethodPost, "/federation/v1/explain", `{"token":"`+secrets["a refused token"]+`"}`)
	p := provider("p")
	p.GetOidc().ClientSecret = "aSecretOfAProvider"
	secrets["a provider's secret"] = "aSecretOfAProvider"
	must[*iampb.IdentityProvider](t, w.overGRPC, w.Token, &iampb.CreateIdentityProviderRequest{
		Parent: string(w.Organization), IdentityProvider: p,
	})
	dead := w.workload(t, "http://127.0.0.1:1", nil)
	secrets["a dead issuer's token"] = jws(rsaHeader,
		strings.ReplaceAll(f.claims(nil), f.url, "http://127.0.0.1:1"), withRSA)
	if _, st := w.exchangeHTTP(t, secrets["a dead issuer's token"], w.wish(dead)); st.Code() != codes.Unavailable {
		t.Errorf("a dead issuer's token: %v", st)
	}
	w.stop()
	text := log.String()
	for _, line := range []string{"SecurityTokenService/Exchange", "ExplainToken", `"level":"DEBUG"`} {
		if !strings.Contains(text, line) {
			t.Errorf("the log does not mention %s: %.400s", line, text)
		}
	}
	for name, secret := range secrets {
		// The log must contain neither the whole secret nor one of its parts.
		for _, part := range strings.Split(secret, ".") {
			if len(part) > 20 && !strings.HasPrefix(part, "eyJhbGci") && strings.Contains(text, part) {
				t.Errorf("%s is in the log", name)
			}
		}
		if len(secret) <= 20 && strings.Contains(text, secret) {
			t.Errorf("%s is in the log", name)
		}
	}
}

// A syncBuffer is a buffer for concurrent writers.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
