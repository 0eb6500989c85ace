package login_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// fresh reports whether the session of a browser allows sensitive operations.
func (b *browser) fresh() bool {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.x.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.Jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	_, fresh, err := b.x.Token(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return fresh
}

// TestFresh: a sign-in allows sensitive operations for ten minutes, and only if the person has entered a credential. If
// a provider uses an existing session, the person has entered none.
func TestFresh(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	b := x.browser(t)
	b.signIn()
	if !b.fresh() {
		t.Error("right after a sign-in it is not fresh")
	}
	x.clock.move(9 * time.Minute)
	if !b.fresh() {
		t.Error("after nine minutes it is not fresh")
	}
	x.clock.move(2 * time.Minute)
	if b.fresh() {
		t.Error("after eleven minutes it is fresh")
	}
	if a := b.get("/signin?return=/console/"); a.location == "" || strings.Contains(b.get(a.location).body, "again") {
		t.Errorf("whoever is signed in is asked again: %d %s", a.status, a.location)
	}
	again := b.get("/signin?again=1&return=/console/confirmed")
	if page := b.get(again.location); page.status != http.StatusOK || !strings.Contains(page.body, "again to go on") ||
		!strings.Contains(page.body, ownerEmail) {
		t.Errorf("asked again: %d %s", page.status, page.body)
	}
	_, flow, _ := strings.Cut(again.location, "flow=")
	if a := b.password(flow, ownerEmail, "wrong "+password); a.status == http.StatusSeeOther || b.fresh() {
		t.Errorf("with a wrong password: %d %s", a.status, a.location)
	}
	if a := b.password(flow, ownerEmail, password); a.location != "/console/confirmed" || !b.fresh() {
		t.Errorf("signed in again: %d %s, fresh: %t", a.status, a.location, b.fresh())
	}

	stolen := b.cookies("hf_fresh")
	other := x.browser(t)
	other.toConsole(p, string(idp.UID))
	if other.fresh() {
		t.Error("a provider has asked for nothing, and it is fresh")
	}
	other.set(stolen)
	if other.fresh() {
		t.Error("the mark of another session counts")
	}
	for _, forged := range []string{"", ".", "zzzzzz.", "0." + strings.Repeat("A", 43), strings.Repeat("z", 20) + ".A"} {
		other.set([]*http.Cookie{{Name: "hf_fresh", Value: forged, Path: "/"}})
		if other.fresh() {
			t.Errorf("the mark %q counts", forged)
		}
	}
	question := other.againAt(string(idp.UID))
	for _, want := range []string{"prompt=login", "max_age=0"} {
		if !strings.Contains(question, want) {
			t.Errorf("the provider is asked %s, without %s", question, want)
		}
	}
	p.claims["auth_time"] = x.clock.now().Add(-time.Hour).Unix()
	if a := other.get(p.answerTo(t, question)); other.fresh() {
		t.Errorf("the provider has not asked, and it is fresh: %d %s", a.status, a.location)
	}
	p.claims["auth_time"] = x.clock.now().Unix()
	if a := other.get(p.answerTo(t, other.againAt(string(idp.UID)))); !other.fresh() {
		t.Errorf("the provider has asked, and it is not fresh: %d %s", a.status, a.location)
	}
}

// againAt returns the authorization request for a person who must sign in again.
func (b *browser) againAt(provider string) string {
	b.t.Helper()
	_, flow, _ := strings.Cut(b.get("/signin?again=1").location, "flow=")
	return b.get("/signin/provider?flow=" + flow + "&provider=" + url.QueryEscape(provider)).location
}
