package login_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

var offeredProvider = regexp.MustCompile(`>Continue with ([^<]+)<`)

// offers returns the providers on the sign-in page of an address, in the order of the page.
func (b *browser) offers(target string) (all []string) {
	b.t.Helper()
	a := b.get(target)
	if a.location != "" {
		a = b.get(a.location)
	}
	for _, m := range offeredProvider.FindAllStringSubmatch(a.body, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestLastProvider: the sign-in page offers the last provider of the browser first, unless the provider is disabled. In
// another browser, a person must name the organization to see its providers.
func TestLastProvider(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		p := newProvider(t)
		named := func(name string, group resource.UID) func(*resource.IdentityProvider) {
			return func(idp *resource.IdentityProvider) { idp.Name, idp.UID = name, group.NewChild() }
		}
		x.keep(t, p, named("alpha", x.org.UID))
		beta := x.keep(t, newProvider(t), named("beta", x.org.UID),
			func(idp *resource.IdentityProvider) { idp.OIDC.Issuer = p.URL })
		x.keep(t, newProvider(t), named("hidden", x.folder(t, "web").UID))
		b, stranger := x.browser(t), x.browser(t)
		expect := func(what string, b *browser, target string, want ...string) {
			t.Helper()
			if got := b.offers(target); !slices.Equal(got, want) {
				t.Errorf("%s: %s offers %q, want %q", what, target, got, want)
			}
		}
		expect("a stranger", stranger, "/signin")
		expect("a stranger who names it", stranger, "/signin?organization=ACME", "alpha", "beta")
		expect("by its address", stranger, "/signin?organization=pat@acme", "alpha", "beta")
		expect("a stranger who guesses", stranger, "/signin?organization=acme/web")
		if a := stranger.get("/signin?organization=nothing-there"); a.status != http.StatusNotFound ||
			strings.Contains(a.body, "nothing-there") {
			t.Errorf("an organization that is not there: %d\n%s", a.status, a.body)
		}
		_, flow, _ := strings.Cut(stranger.get("/signin").location, "flow=")
		if a := stranger.post("/signin/organization", "flow", flow, "organization",
			"nobody"); a.status != http.StatusNotFound || !strings.Contains(a.body, `value="nobody"`) {
			t.Errorf("a name that was typed: %d\n%s", a.status, a.body)
		}
		if a := b.through(p, beta); !strings.HasPrefix(a.location, callback[:20]) {
			t.Fatalf("%d %s\n%s", a.status, a.location, a.body)
		}
		if a := b.get("/signin?organization=acme"); a.location != "/account" {
			t.Errorf("while signed in: %d %s", a.status, a.location)
		}
		b.post("/signout", "csrf", b.csrf())
		expect("afterwards", b, "/signin", "beta (acme)")
		expect("afterwards, by name", b, "/signin?organization=acme", "beta", "alpha")

		stranger.set(renamed(stranger.cookies("hf_flow_"), "hf_provider")) // we have sealed these cookies for another purpose
		expect("with a cookie of another kind", stranger, "/signin")
		expect("with the cookie of a browser", withCookies(x.browser(t), b.cookies("hf_provider")), "/signin", "beta (acme)")
		x.clock.move(181 * 24 * time.Hour)
		expect("after half a year", b, "/signin")
		x.clock.move(-181 * 24 * time.Hour)
		must[resource.IdentityProvider](t)(s.UpdateProvider(t.Context(), beta.UID,
			func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
				p.Disabled = true
				return nil, nil
			}))
		expect("while it is switched off", b, "/signin")
		b.signIn()
		if left := b.cookies("hf_provider"); len(left) != 0 {
			t.Errorf("after signing in another way the browser still has %v", left)
		}
	})
}

func renamed(cookies []*http.Cookie, name string) (all []*http.Cookie) {
	for _, c := range cookies {
		all = append(all, &http.Cookie{Name: name, Value: c.Value, Path: "/"})
	}
	return all
}

func withCookies(b *browser, cookies []*http.Cookie) *browser {
	b.set(cookies)
	return b
}

// TestWelcome: a new member of a group sees their permissions there. The page shows only roles that the person holds,
// whatever group its address names.
func TestWelcome(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		rival, _ := x.second(t, "rival-of-acme")
		secret := x.folder(t, "secret-folder")
		_, code := x.invite(t, resource.GroupInvite{})
		b := x.browser(t)
		_, flow, _ := strings.Cut(b.get("/join?code="+code).location, "flow=")
		a := b.post("/signin/join", "flow", flow, "email", "new@example.test", "name", "Nora", "password",
			"a quiet violet anchor")
		if want := "/account/welcome?group=" + url.QueryEscape(string(x.org.UID)); a.location != want {
			t.Fatalf("joining leads to %s, want %s", a.location, want)
		}
		for _, address := range []string{a.location, "/account/welcome"} {
			a = b.get(address)
			for _, want := range []string{"Welcome to acme", "Sees everything and pulls images", "By an invite",
				"holdfast iam tree acme", "nora"} {
				if !strings.Contains(a.body, want) {
					t.Errorf("%s does not say %q: %d\n%s", address, want, a.status, a.body)
				}
			}
			if strings.Contains(a.body, "invites create") {
				t.Error("a viewer is told to invite others")
			}
		}
		if a := b.get("/account/welcome?group=" + string(rival.UID)); a.location != "/account" {
			t.Errorf("where one has no role: %d %s\n%s", a.status, a.location, a.body)
		}
		for name, group := range map[string]string{
			"another organization": string(rival.UID), "no group": "x",
			"nothing there": string(x.org.UID.NewChild().NewChild()), "markup": `"><script>`,
		} {
			a := b.get("/account/welcome?group=" + url.QueryEscape(group))
			if strings.Contains(a.body, "rival-of-acme") || strings.Contains(a.body, "<script>") || a.status >= 500 {
				t.Errorf("%s: %d\n%s", name, a.status, a.body)
			}
		}
		welcome := "/account/welcome?group=" + url.QueryEscape(string(secret.UID))
		if a := b.get(welcome); strings.Contains(a.body, "secret-folder") {
			t.Errorf("a folder in which one has no role of one's own is named:\n%s", a.body)
		}
		if a := x.browser(t).get("/account/welcome?group=" + url.QueryEscape(string(x.org.UID))); a.location != "/signin" {
			t.Errorf("a stranger: %d %s", a.status, a.location)
		}
	})
}

// TestAccountRoles: the account page lists the roles of a person and their origin. Roles in an organization that the
// person has not joined come last, with a note.
func TestAccountRoles(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	pat := resource.UserUID(idp.Realm, "pat")
	rival, _ := x.second(t, "rival")
	give := func(group, identity resource.UID, role string) {
		t.Helper()
		must[resource.BoundRole](t)(x.store.InsertBinding(t.Context(), resource.RoleBinding{
			UID: group.NewChild(), Identity: identity, Role: resource.ManagedRoleUID(role), CreateTime: x.clock.now(),
		}))
	}
	for _, role := range []string{"owner", "editor"} {
		give(rival.UID, pat, role)
	}
	for i := range resource.HeldRolesShown {
		give(must[resource.Group](t)(x.store.InsertGroup(t.Context(), resource.Group{
			UID: rival.UID.NewChild(), Name: fmt.Sprintf("flood%d", i), CreateTime: x.clock.now(), UpdateTime: x.clock.now(),
		})).UID, pat, "viewer")
	}
	x.clock.move(time.Minute)
	if err := x.store.InsertMapping(t.Context(), resource.ExternalGroupRoleMapping{
		UID: idp.UID.NewChild(), ExternalGroup: "<b>devs", Role: resource.ManagedRoleUID("editor"), Scope: x.org.UID,
		CreateTime: x.clock.now(),
	}); err != nil {
		t.Fatal(err)
	}
	p.claims["groups"] = []string{"<b>devs"}
	b := x.browser(t)
	b.through(p, idp)
	x.clock.move(time.Hour)
	give(x.folder(t, "web").UID, pat, "registry.push")
	body := b.get("/account").body
	var at []int
	for _, want := range []string{
		"What idp gives to newcomers", "From your group &lt;b&gt;devs at idp",
		"<strong>registry.push</strong> on <strong>acme/web</strong>",
		"Given to you there", "Given by somebody in an organization that you have not joined", "And 5 more.",
	} {
		i := strings.Index(body, want)
		if i < 0 {
			t.Fatalf("the page does not say %q:\n%s", want, body)
		}
		at = append(at, i)
	}
	if !slices.IsSorted(at[2:]) || at[0] > at[4] || at[1] > at[4] {
		t.Errorf("what strangers give does not come last: %v", at)
	}
	x.other(t)
	if body := x.signedInAs(t, otherEmail).get("/account").body; strings.Contains(body, "devs") ||
		strings.Contains(body, "registry.push") {
		t.Errorf("the page of somebody else shows these roles:\n%s", body)
	}
}

// TestRecoveryFile: recovery codes can be downloaded from the page. The page is not cached.
func TestRecoveryFile(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	codes := b.setUpApp()
	a := b.post("/account/recovery", "csrf", b.csrf(), "current", password)
	if !strings.Contains(a.body, `download="holdfast-recovery-codes.txt" href="data:text/plain;charset=utf-8;base64,`) {
		t.Errorf("%d, %d codes\n%s", a.status, len(codes), a.body)
	}
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %s", got)
	}
}

// TestDeviceEcho: the page for the user code of a device shows the typed text again. If the code is in the address of
// the page, the page shows only its letters.
func TestDeviceEcho(t *testing.T) {
	x := sqlite(t)
	for typed, want := range map[string]string{
		" bcdf ghjk ": `value="BCDF-GHJK"`, "hello world": `value="hello world"`, "CALL 5551234": `value="CALL 5551234"`,
		`"><b>`: `value="&#34;&gt;&lt;b&gt;"`, strings.Repeat("é", 99): `value="` + strings.Repeat("é", 16) + `"`,
	} {
		b := x.browser(t)
		if a := b.post("/device", "user_code", typed); !strings.Contains(a.body, want) {
			t.Errorf("%q: %d, want %s\n%s", typed, a.status, want, a.body)
		}
		a := b.get("/device?user_code=" + url.QueryEscape(typed))
		if whole := strings.Contains(want, "BCDF-GHJK"); strings.Contains(a.body, want) != whole {
			t.Errorf("%q in an address: %d\n%s", typed, a.status, a.body)
		}
	}
}
