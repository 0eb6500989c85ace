package login_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

var fact = regexp.MustCompile(`(?s)<div><dt>(.*?)</dt><dd>(.*?)</dd></div>`)

// facts returns the names and values that the consent page shows about a request.
func facts(a answer) map[string]string {
	all := map[string]string{}
	for _, m := range fact.FindAllStringSubmatch(a.body, -1) {
		text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[2], " ")
		all[m[1]] = strings.Join(strings.Fields(html.UnescapeString(text)), " ")
	}
	return all
}

// folder creates a group in the organization.
func (x *site) folder(t *testing.T, name string) resource.Group {
	t.Helper()
	return must[resource.Group](t)(x.store.InsertGroup(
		t.Context(),
		resource.Group{UID: x.org.UID.NewChild(), Name: name, CreateTime: x.clock.now(), UpdateTime: x.clock.now()},
	))
}

// deviceFlow starts a device authorization and enters its code in a browser.
func (x *site) deviceFlow(t *testing.T, b *browser, fields ...string) (device, flow string) {
	t.Helper()
	asked := x.browser(t).do(
		http.MethodPost, "/oauth/device_authorization", form(append(fields, "client_id", "tv")...), "User-Agent",
		"tv-set/1.0",
	)
	_, flow, _ = strings.Cut(b.post("/device", "user_code", fieldOf(t, asked.body, "user_code")).location, "flow=")
	return fieldOf(t, asked.body, "device_code"), flow
}

func form(fields ...string) url.Values {
	all := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		all.Add(fields[i], fields[i+1])
	}
	return all
}

// TestConfirmationTells: the consent page shows which program requests the sign-in, its address, the time of the
// request, the permissions and life of its token, and the account that would approve it. A person who got a code or an
// address from an attacker can notice the attack.
func TestConfirmationTells(t *testing.T) {
	x := sqlite(t)
	team := x.folder(t, "team-a")
	key := must[*ecdh.PrivateKey](t)(ecdh.X25519().GenerateKey(rand.Reader))
	headless := "client_id=cli&headless_code=" + base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes())
	var b *browser
	device := func(fields ...string) func() string {
		return func() string { _, flow := x.deviceFlow(t, b, fields...); return flow }
	}
	for name, tt := range map[string]struct {
		start func() string
		want  map[string]string
	}{
		"a device": {device(), map[string]string{
			"Calls itself": "tv tv-set/1.0", "Asked from": "127.0.0.1", "May do": "Everything that you may do",
			"For": "Until its session ends, 30 days at most",
		}},
		"a device that asks for less": {
			device("scope", string(team.UID)), map[string]string{"May do": "What you may do in team-a"},
		},
		"a device for the registry": {
			device("audience", "registry.test"), map[string]string{"May do": "Everything that you may do, at registry.test"},
		},
		"a headless command": {func() string { return b.start(headless) }, map[string]string{
			"Calls itself": "cli", "Asked from": "An address that was opened here: nobody can tell who made it",
			"May do": "Everything that you may do", "For": "An hour",
		}},
		"a headless command that asks for less": {func() string {
			return b.start(
				headless + "&create_refresh_token=true&scope=" + url.QueryEscape(url.QueryEscape(string(team.UID))),
			)
		}, map[string]string{"May do": "What you may do in team-a", "For": "Until its session ends, 30 days at most"}},
		"a command": {func() string { return b.start(forCommand("")) }, map[string]string{
			"Calls itself": "test", "Asked from": "This computer, port 7777", "May do": "Everything that you may do",
			"For": "An hour",
		}},
	} {
		b = x.browser(t)
		b.signIn()
		flow := tt.start()
		x.clock.move(3 * time.Minute)
		got := facts(b.get("/signin?flow=" + flow))
		tt.want["You"], tt.want["Asked"] = "Olga Owner "+ownerEmail+" Account of acme", "3 minutes ago"
		for fact, want := range tt.want {
			if got[fact] != want {
				t.Errorf("%s: %s is %q, want %q", name, fact, got[fact], want)
			}
		}
		if got["Signed in"] == "" {
			t.Errorf("%s: the page does not tell since when one is signed in", name)
		}
	}
}

// TestDeviceIsNarrowed: a device gets exactly the permissions that the page has shown.
func TestDeviceIsNarrowed(t *testing.T) {
	x := sqlite(t)
	team := x.folder(t, "team-a")
	b := x.browser(t)
	b.signIn()
	device, flow := x.deviceFlow(t, b, "scope", string(team.UID))
	b.allow(flow)
	status, body := x.redeem(
		t, "grant_type", "urn:ietf:params:oauth:grant-type:device_code", "client_id", "tv", "device_code", device,
	)
	if c := x.caller(t, fieldOf(t, body, "access_token")); status != http.StatusOK || len(c.Scopes) != 1 ||
		c.Scopes[0] != team.UID {
		t.Errorf("%d: scopes %v, want %s", status, c.Scopes, team.UID)
	}
	if a := x.browser(t).post("/oauth/device_authorization", "client_id", "tv", "scope",
		"nothing"); a.status != http.StatusBadRequest || !strings.Contains(a.body, "invalid_scope") {
		t.Errorf("a scope that is none: %d %s", a.status, a.body)
	}
}

// TestDeviceCrossed: a person can decide on a device code only once, only in the browser that showed the page, and only
// for that device.
func TestDeviceCrossed(t *testing.T) {
	x := sqlite(t)
	b, attacker := x.browser(t), x.browser(t)
	b.signIn()
	device, flow := x.deviceFlow(t, b)
	if a := attacker.allow(flow); a.status != http.StatusBadRequest {
		t.Errorf("another browser answers: %d", a.status)
	}
	other, _ := x.deviceFlow(t, attacker)
	cookies := b.cookies("hf_flow_")
	b.allow(flow)
	poll := func(device, client string) string {
		x.clock.move(5 * time.Second)
		_, body := x.redeem(
			t, "grant_type", "urn:ietf:params:oauth:grant-type:device_code", "client_id", client, "device_code",
			device,
		)
		return fieldOf(t, body, "error")
	}
	if why := poll(other, "tv"); why != "authorization_pending" {
		t.Errorf("another device: %q", why)
	}
	b.set(cookies)
	if a := b.allow(flow); a.status != http.StatusForbidden {
		t.Errorf("the answer again: %d", a.status)
	}
	if why := poll(device, "tv"); why != "" {
		t.Errorf("the device itself: %q", why)
	}
}

// TestConfirmationOfAnother: if another person has signed in in another window of the same browser, they cannot submit
// the consent page that was shown to the first person.
func TestConfirmationOfAnother(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	flow := b.start(forCommand(""))
	shown := csrfField.FindStringSubmatch(b.get("/signin?flow=" + flow).body)
	if shown == nil {
		t.Fatal("the page does not say whom it asks")
	}
	another := b.start(forCommand(""))
	b.post("/signin/other", "flow", another)
	b.password(another, ownerEmail, password)
	if a := b.post("/signin/confirm", "flow", flow, "csrf", shown[1], "answer",
		"allow"); a.location != "/signin?flow="+flow {
		t.Errorf("the answer to an old page led to %d %s", a.status, a.location)
	}
	if a := b.allow(flow); !strings.Contains(a.location, "token=") {
		t.Errorf("the answer to the new page led to %d %s", a.status, a.location)
	}
}

// TestAccountTellsProvider: the account page shows the provider that vouched for the person,
// and no provider for a local account.
func TestAccountTellsProvider(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	b := x.browser(t)
	b.through(p, idp)
	if page := facts(b.get("/account")); page["Signed in with"] != idp.Name || page["Organization"] != x.org.Name {
		t.Errorf("through a provider: %v", page)
	}
	b = x.browser(t)
	b.signIn()
	if page := facts(b.get("/account")); page["Signed in with"] != "" || page["Organization"] != x.org.Name {
		t.Errorf("with an account: %v", page)
	}
}
