package login_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// An entry is an event with its activity.
type entry struct {
	resource.Event
	resource.Activity
}

// activities returns the sign-in events of the outbox, including all refusals.
func (x *site) activities(t *testing.T, kinds ...resource.EventType) (all []entry) {
	t.Helper()
	x.refusals.Flush(t.Context())
	for _, e := range must[[]resource.Event](t)(outbox.Read(t.Context(), x.store.DB, 0, 10_000)) {
		if !strings.HasPrefix(string(e.Type), "signin.activity.") || len(kinds) > 0 && !slices.Contains(kinds, e.Type) {
			continue
		}
		v := entry{Event: e}
		if err := json.Unmarshal(e.After, &v.Activity); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// TestSignInsLeaveTraces: fourteen wrong passwords, the right password, and all later actions of the owner are in the
// audit log of the organization and in the log of the server, with the person, the method and the network address.
func TestSignInsLeaveTraces(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		guesser := x.browser(t)
		flow := guesser.start(forCommand(""))
		for range 14 {
			guesser.password(flow, ownerEmail, "not the right password")
		}
		counts := map[string]int64{}
		for _, e := range x.activities(t, resource.SignInRefused) {
			if counts[e.Reason] += e.Count; e.Event.Subject != x.owner.UID || e.Group != x.org.UID ||
				e.Address != "127.0.0.1" || e.Method != resource.ByPassword || e.Actor.Subject != "" {
				t.Errorf("a refusal is %+v", e)
			}
		}
		if counts[resource.RefusedPassword] != 10 || counts[resource.RefusedLimit] != 4 {
			t.Errorf("the refusals are %v", counts)
		}
		x.clock.move(time.Hour + time.Second) // after this time the limits are reset
		b := x.browser(t)
		b.signIn()
		csrf := b.csrf()
		const next = "another stapled battery"
		if a := b.post("/account/password", "csrf", csrf, "current", password, "password", next); a.status != http.StatusOK {
			t.Fatalf("%d\n%s", a.status, a.body)
		}
		_, device := x.deviceFlow(t, b)
		b.allow(device)
		_, device = x.deviceFlow(t, b)
		b.post("/signin/confirm", "flow", device, "csrf", csrf, "answer", "deny")
		admin := authz.WithCaller(t.Context(), authz.Caller{Identity: x.owner.Identity})
		link := must[accounts.OneTimeLink](t)(x.CreateLink(admin, x.owner.UID, false))
		c := x.browser(t)
		c.get(strings.TrimPrefix(link.URL, x.url))
		if a := c.post("/link", "password", password+" again"); a.location != "/account" {
			t.Fatalf("%d %s\n%s", a.status, a.location, a.body)
		}
		var types []resource.EventType
		for _, e := range x.activities(t)[len(counts):] {
			types = append(types, e.Type)
			if e.Group != x.org.UID {
				t.Errorf("%s is in %s", e.Type, e.Group)
			}
			if e.Type == resource.SignedIn && (e.Identity != x.owner.Identity || e.Account != x.owner.UID ||
				e.Address != "127.0.0.1" || e.Actor.Subject != x.owner.Identity || e.Session == "") {
				t.Errorf("a sign-in is %+v", e)
			}
			if e.Type == resource.PasswordChanged && e.Actor.Subject != x.owner.Identity {
				t.Errorf("a change is by %+v", e.Actor)
			}
		}
		want := []resource.EventType{
			resource.SignedIn, resource.PasswordChanged, resource.ProgramAllowed, resource.ProgramDenied,
			resource.LinkCreated, resource.LinkUsed, resource.SignedIn,
		}
		if !slices.Equal(types, want) {
			t.Errorf("the log has %v\nwant %v", types, want)
		}
		for _, line := range []string{
			"sign-in refused", "signed in", "a password was changed", "a one-time link was made", "a one-time link was used",
			"a program was allowed", "a program was denied",
		} {
			if !strings.Contains(x.logs.String(), `"INFO","msg":"`+line) {
				t.Errorf("no line says %q", line)
			}
		}
	})
}

// TestTypedNamesStayOut: the text that a stranger types as the e-mail address may be a password, so it is neither in
// the audit log nor in the log of the server. Only the named organization learns about the attempt.
func TestTypedNamesStayOut(t *testing.T) {
	x := sqlite(t)
	const typed = "hunter2-is-my-password"
	b := x.browser(t)
	b.password(b.start(forCommand("")), typed, "x")
	if all := x.activities(t); len(all) != 0 {
		t.Errorf("a sign-in that is nobody's is in %+v", all)
	}
	flow := b.start("idp_id=acme&exit=redirect&redirect=" + callback)
	b.password(flow, typed, "another secret")
	b.password(flow, "nobody@example.test", "another secret")
	all := x.activities(t)
	if len(all) != 1 || all[0].Count != 2 || all[0].Reason != resource.RefusedUnknown || all[0].Group != x.org.UID ||
		all[0].Event.Subject != x.org.UID {
		t.Errorf("the organization that was named has %+v", all)
	}
	text := x.logs.String()
	for _, e := range must[[]resource.Event](t)(outbox.Read(t.Context(), x.store.DB, 0, 1000)) {
		text += string(e.Before) + string(e.After)
	}
	for _, secret := range []string{typed, "another secret", "nobody@"} {
		if strings.Contains(strings.ToLower(text), secret) {
			t.Errorf("%q is kept", secret)
		}
	}
}

// TestAttackWatchedAddress: an organization that creates an account with the e-mail address of a stranger learns that a
// password was tried, but not the network address. It learns nothing about sign-ins to other organizations.
func TestAttackWatchedAddress(t *testing.T) {
	x := sqlite(t)
	other, squatted := x.second(t, "evil")
	b := x.browser(t)
	b.password(b.start(forCommand("")), ownerEmail, "a mistake of the owner")
	for _, e := range x.activities(t, resource.SignInRefused) {
		if e.Group == other.UID && (e.Address != "" || e.Agent != "" || e.Actor.Remote != "") {
			t.Errorf("the other organization learns %+v", e)
		}
	}
	before := len(x.activities(t))
	b.password(b.start("idp_id=acme&exit=redirect&redirect="+callback), ownerEmail, password)
	for _, e := range x.activities(t)[before:] {
		if e.Group == other.UID || e.Event.Subject == squatted.UID {
			t.Errorf("the other organization learns %+v", e)
		}
	}
	c := x.browser(t) // an organization that the person names sees the network address
	c.password(c.start("idp_id=acme&exit=redirect&redirect="+callback), ownerEmail, "a guess")
	all := x.activities(t, resource.SignInRefused)
	if !slices.ContainsFunc(all, func(e entry) bool { return e.Group == x.org.UID && e.Address == "127.0.0.1" }) {
		t.Errorf("the organization that was named does not learn from where: %+v", all)
	}
}

var requestShown = regexp.MustCompile(`[A-Z2-7]{26}`)

// TestErrorPagesAreLogged: every request id on an error page is in the log. If a stranger causes many error pages,
// further pages have no id and are not logged.
func TestErrorPagesAreLogged(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	shown := 0
	for range 150 {
		a := b.get("/link")
		if a.status != http.StatusNotFound {
			t.Fatalf("%d\n%s", a.status, a.body)
		}
		if id := requestShown.FindString(a.body); id != "" {
			if shown++; !strings.Contains(x.logs.String(), id) {
				t.Fatalf("request %s is not in the log", id)
			}
		}
	}
	if lines := strings.Count(x.logs.String(), "error page"); shown != 100 || lines != shown {
		t.Errorf("%d pages have an id, and the log has %d", shown, lines)
	}
}
