package login_test

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// rivalAddress is the address from which a person of another organization signs in.
const rivalAddress = "127.0.0.77"

// A rival has the UIDs of another organization. All its names, e-mail addresses and programs begin with "zz-".
type rival struct {
	identity, account, provider resource.UID
	session                     string
}

// addRival creates an organization with a person who is signed in, an identity provider, and a device that waits for an
// approval.
func (x *site) addRival(t *testing.T) rival {
	t.Helper()
	now := x.clock.now()
	org := resource.NewRoot()
	must[resource.Group](t)(x.store.InsertGroup(t.Context(),
		resource.Group{UID: org, Name: "zz-rival", CreateTime: now, UpdateTime: now}))
	a, _, err := x.AddAccount(t.Context(), org, resource.Account{Email: "zz-person@rival.test", Name: "zz-person"},
		resource.OwnerRole)
	if err != nil {
		t.Fatal(err)
	}
	hash := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID)).Password
	must[resource.Account](t)(x.store.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error {
		a.Password = hash
		return nil
	}))
	idp := x.keep(t, newProvider(t), func(p *resource.IdentityProvider) {
		p.UID, p.Name, p.Description = org.NewChild(), "zz-provider", "zz-description"
	})
	b := x.browserAt(t, rivalAddress)
	_, flow, _ := strings.Cut(b.get("/signin").location, "flow=")
	if p := b.do(http.MethodPost, "/signin/password", form("flow", flow, "email", a.Email, "password", password),
		"User-Agent", "zz-agent"); p.location != "/account" {
		t.Fatalf("the rival cannot sign in: %d %s", p.status, p.body)
	}
	if p := b.get("/account"); !strings.Contains(p.body, "zz-person") || !strings.Contains(p.body, rivalAddress) {
		t.Fatalf("the rival does not see the own account: %s", p.body)
	}
	b.do(http.MethodPost, "/oauth/device_authorization", form("client_id", "zz-tv"), "User-Agent", "zz-television")
	session := must[[]resource.Session](t)(x.store.Sessions(t.Context(), a.Identity))[0].ID
	return rival{a.Identity, a.UID, idp.UID, session}
}

// A visit is a request of a page: its query or the fields of its form.
type visit struct {
	query  string
	fields []string
	public bool // the answer may have the names of the organization and of its providers
}

// visits returns requests of each page, by its pattern. Many have UIDs of the rival. A form gets the sign-in flow and
// the token of the browser in addition.
func (r rival) visits() map[string][]visit {
	wrong := strings.Repeat("A", 52)
	signIn := func(fields ...string) []visit { return []visit{{}, {fields: fields}} }
	current := []string{"current", password}
	return map[string][]visit{
		"GET /": {{}}, "GET /account": {{}, {query: "?session=" + r.session}},
		"GET /account/welcome": {{}, {query: "?group=" + string(r.account.Parent())}},
		"GET /favicon.ico":     {{}}, "GET /device": {{}, {query: "?user_code=BCDF-GHJK"}},
		"GET /join": {{}, {query: "?code=" + wrong}}, "GET /link": {{}, {query: "?code=" + wrong}},
		"GET /oauth": {
			{}, {query: "?" + forCommand("&identity="+string(r.identity))},
			{query: "?" + forCommand("&idp_id="+string(r.provider))},
			{query: "?" + forCommand("&scope="+string(r.account.Parent()))},
		},
		"GET /orgcheck":        {{}, {query: "?name=acme"}, {query: "?name=zz-rival", public: true}},
		"GET /signin":          {{}, {query: "?organization=acme"}, {query: "?organization=zz-rival", public: true}},
		"GET /signin/provider": {{query: "?provider=" + string(r.provider)}},

		"POST /account/factor":          {{fields: append(current, "required", "both")}},
		"POST /account/passkeys":        {{}, {fields: []string{"name", "key"}}},
		"POST /account/passkeys/remove": {{fields: append(current, "id", string(r.account))}},
		"POST /account/passkeys/start":  {{fields: current}},
		"POST /account/password":        {{fields: []string{"current", "wrong", "password", nextPassword}}},
		"POST /account/recovery":        {{fields: []string{"current", "wrong"}}},
		"POST /account/sessions/end":    {{fields: []string{"id", r.session}}},
		"POST /account/totp":            {{fields: []string{"code", "000000"}}},
		"POST /account/totp/remove":     {{fields: []string{"current", "wrong"}}},
		"POST /account/totp/start":      {{fields: current}},

		"POST /device":                     {{fields: []string{"user_code", "BCDFGHJK"}}},
		"POST /link":                       {{fields: []string{"password", nextPassword}}},
		"POST /oauth/device_authorization": {{fields: []string{"client_id", "tv", "scope", string(r.account.Parent())}}},
		"POST /oauth/token":                {{fields: []string{"grant_type", "refresh_token", "refresh_token", wrong}}},
		"POST /signin/account":             signIn("account", string(r.account)),
		"POST /signin/confirm":             signIn("answer", "deny"),
		"POST /signin/join":                signIn("email", "new@example.test", "name", "New", "password", nextPassword),
		"POST /signin/join/start":          signIn(),
		"POST /signin/organization": {{fields: []string{"organization", "acme"}},
			{fields: []string{"organization", "zz-rival"}, public: true}},
		"POST /signin/other":         signIn(),
		"POST /signin/passkey":       signIn("credential", "{}"),
		"POST /signin/passkey/start": signIn(),
		"POST /signin/password":      signIn("email", ownerEmail, "password", "wrong"),
		"POST /signin/provider":      signIn("provider", string(r.provider)),
		"POST /signin/recovery":      signIn("recovery", "wrong"),
		"POST /signin/totp":          signIn("code", "000000"),
		"POST /signout":              {{}}, // the last one, because it ends the session
	}
}

// TestAttackNamesOnPages requests every page as an owner, as a person without a role and without a session. No answer
// has a name, an e-mail address, a program or an address of people of another organization. Only the pages that anybody
// can ask for an organization have its name and the names of its providers.
func TestAttackNamesOnPages(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		r := x.addRival(t)
		x.other(t)
		visits := r.visits()
		for _, pattern := range pagePatterns(t) {
			if visits[pattern] == nil {
				t.Errorf("no request of %s", pattern)
			}
		}
		for who, sign := range map[string]func() *browser{
			"the owner": func() *browser { return x.signedInAs(t, ownerEmail) },
			"a member":  func() *browser { return x.signedInAs(t, otherEmail) },
			"nobody":    func() *browser { return x.browser(t) },
		} {
			b := sign()
			for pattern, list := range visits {
				method, path, _ := strings.Cut(pattern, " ")
				for _, v := range list {
					if b.get("/account").location != "" { // the session has ended
						b = sign()
					}
					_, flow, _ := strings.Cut(b.get("/oauth?"+forCommand("")).location, "flow=")
					fields := append(slices.Clone(v.fields), "flow", flow)
					if m := csrfField.FindStringSubmatch(b.get("/account").body); m != nil {
						fields = append(fields, "csrf", m[1])
					}
					a := b.do(method, path+v.query, form(fields...))
					if a.location == "/account" || a.location == "/link" || strings.HasPrefix(a.location, "/signin") {
						a.body += b.get(a.location).body
					}
					hidden := []string{"zz-", rivalAddress}
					if v.public {
						hidden = []string{"zz-person", "zz-agent", "zz-tv", "zz-description", rivalAddress}
					}
					for _, text := range hidden {
						if strings.Contains(a.body, text) || strings.Contains(a.location, text) {
							t.Errorf("%s learns %q from %s%s: %d %s\n%.500s", who, text, pattern, v.query, a.status, a.location,
								a.body)
						}
					}
					if a.status >= http.StatusInternalServerError {
						t.Errorf("%s: %s%s: status %d", who, pattern, v.query, a.status)
					}
					x.clock.move(20 * time.Minute) // past the limits of attempts
				}
			}
		}
		if b := x.signedInAs(t, ownerEmail); !strings.Contains(b.get("/account").body, "Olga Owner") {
			t.Error("the owner does not see the own account")
		}
	})
}

// pagePatterns returns the patterns of all pages whose address is a constant.
func pagePatterns(t *testing.T) (patterns []string) {
	t.Helper()
	for _, folder := range []string{".", "../selfservice"} {
		for _, name := range must[[]string](t)(filepath.Glob(filepath.Join(folder, "*.go"))) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, pattern := range patternsIn(t, name, "GET /", "POST /") {
				if !slices.Contains(patterns, pattern) {
					patterns = append(patterns, pattern)
				}
			}
		}
	}
	return patterns
}
