package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestAttackUnlockedConsole: a person at a browser in which an owner has signed in a while ago can neither take a role
// by breaking the glass, nor make repos public, nor copy them elsewhere, nor destroy what is in the trash. The same
// methods work for changes that are not sensitive, and after another sign-in.
func TestAttackUnlockedConsole(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		clock := newClock()
		w := serve(t, url, server.Config{Now: clock.now}, nil)
		org := string(w.Organization)
		ann := w.personIn(t, w.Token, org, "ann@example.test", "a quiet violet anchor of ann")
		w.bind(t, org, w.identityOf(t, ann), string(resource.OwnerRole))
		folder := w.child(t, org, "folder")
		viewer := string(resource.ManagedRoleUID("viewer"))
		for _, kind := range []string{"true", "false"} {
			rule := `{"roleUid": "` + viewer + `", "maxDuration": "3600s", "breakGlass": ` + kind + `}`
			if r := w.send(t, w.Token, "POST", "/access/v1/rules/"+folder, rule); r.status != 200 {
				t.Fatal(r.body)
			}
		}
		synced := `{"name": "synced", "sync_config": {"source": "` + w.repo(t, org, "source") + `"}}`
		b := w.signInBrowser(t, "127.0.0.1")
		if !b.try("", ann.email, ann.password).in() {
			t.Fatal("sign-in failed")
		}
		clock.advance(11 * time.Minute)
		ask := func(method, path, body string) shownPage {
			return b.ask(method, path, body, "Holdfast-Console", "1", "Sec-Fetch-Site", "same-origin")
		}
		request := func(breakGlass string) string {
			return `{"roleUid": "` + viewer + `", "duration": "60s", "reason": "r", "breakGlass": ` + breakGlass + `}`
		}
		sensitive := map[string][3]string{
			"break the glass":      {"POST", "/access/v1/requests/" + folder, request("true")},
			"make repos public":    {"PATCH", "/oci/v1/settings/" + folder, `{"public": true}`},
			"turn the trash off":   {"PATCH", "/oci/v1/settings/" + folder, `{"trashDays": 0}`},
			"forget the trash":     {"PATCH", "/oci/v1/settings/" + folder + "?updateMask=trashDays", `{}`},
			"replace the settings": {"PATCH", "/oci/v1/settings/" + folder + "?updateMask=*", `{}`},
			"drop the settings":    {"DELETE", "/oci/v1/settings/" + folder, ""},
			"empty the trash":      {"POST", "/oci/v1/emptyings/" + org, "{}"},
			"send images away": {"POST", "/oci/v1/replications/" + folder,
				`{"name": "far", "address": "https://registry.example.org"}`},
			"bring an upstream":    {"POST", "/oci/v1/upstreams/" + folder, `{"name": "docker.io"}`},
			"sync a repo":          {"POST", "/registry/v2beta1/repos/" + folder, synced},
			"delete a pull rule":   {"DELETE", "/findings/v1/rules/" + folder + "/0123456789abcdef", ""},
			"delete oneself":       {"DELETE", "/auth/v1/delete/" + w.identityOf(t, ann), ""},
			"silence a receiver":   {"DELETE", "/events/v2beta1/subscriptions/" + folder + "/0123456789abcdef", ""},
			"withdraw an invite":   {"DELETE", "/iam/v2beta1/groupInvites/" + folder + "/0123456789abcdef", ""},
			"sync a repo, the old": {"POST", "/registry/v1/repos/" + folder, synced},
			"rename a group":       {"PATCH", "/iam/v2beta1/groups/" + org, `{"name": "renamed"}`},
			"rename, with a mask":  {"PATCH", "/iam/v2beta1/groups/" + org + "?updateMask=name", `{"name": "renamed"}`},
			"rename, the old":      {"PUT", "/iam/v1/groups/" + org, `{"name": "renamed"}`},
			"limit a folder":       {"PATCH", "/budgets/v1/budgets/" + folder, `{"repos": 0}`},
			"drop a limit":         {"DELETE", "/budgets/v1/budgets/" + folder, ""},
			"stop sending images":  {"DELETE", "/oci/v1/replications/" + folder + "/0123456789abcdef", ""},
			"send images now":      {"POST", "/oci/v1/replicationRuns/" + folder + "/0123456789abcdef", "{}"},
			"drop an upstream":     {"DELETE", "/oci/v1/upstreams/" + folder + "/0123456789abcdef", ""},
		}
		for what, r := range sensitive {
			if p := ask(r[0], r[1], r[2]); p.status != 400 || !strings.Contains(p.body, "SIGN_IN_AGAIN") {
				t.Errorf("%s with a stale session: %d %s", what, p.status, p.body)
			}
		}
		for what, r := range map[string][3]string{
			"ask for a role":   {"POST", "/access/v1/requests/" + folder, request("false")},
			"create on push":   {"PATCH", "/oci/v1/settings/" + folder, `{"createOnPush": true}`},
			"not public":       {"PATCH", "/oci/v1/settings/" + folder, `{"public": false}`},
			"make a repo":      {"POST", "/registry/v2beta1/repos/" + folder, `{"name": "plain"}`},
			"describe a group": {"PATCH", "/iam/v2beta1/groups/" + org, `{"description": "d"}`},
			"keep the name": {
				"PATCH", "/iam/v2beta1/groups/" + org + "?updateMask=description", `{"name": "other", "description": "e"}`,
			},
			"try to be public": {"PATCH", "/oci/v1/settings/" + folder + "?validate_only=true", `{"public": true}`},
		} {
			if p := ask(r[0], r[1], r[2]); p.status != 200 {
				t.Errorf("%s with a stale session: %d %s", what, p.status, p.body)
			}
		}
		_, flow, _ := strings.Cut(b.get("/signin?again=1").location, "flow=")
		b.post("/signin/password", "flow", flow, "email", ann.email, "password", ann.password)
		for _, what := range []string{
			"break the glass", "make repos public", "empty the trash", "limit a folder", "rename a group",
		} {
			r := sensitive[what]
			if p := ask(r[0], r[1], r[2]); p.status != 200 {
				t.Errorf("%s after another sign-in: %d %s", what, p.status, p.body)
			}
		}
	})
}

// TestAttackSessionToken: a session of the console yields no token, at whatever spelling of an address. The
// registry returns its token for anonymous pulls.
func TestAttackSessionToken(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		ann := w.personIn(t, w.Token, string(w.Organization), "ann@example.test", "a quiet violet anchor of ann")
		b := w.signInBrowser(t, "127.0.0.1")
		if !b.try("", ann.email, ann.password).in() {
			t.Fatal("sign-in failed")
		}
		robot := w.robot(t, string(w.Organization), "robot")
		query := "?aud=" + w.BaseURL + "&identity=" + robot
		for _, path := range []string{
			"/sts/exchange", "//sts/exchange", "/./sts/exchange", "/signin/v1/../../sts/exchange", "/%73ts/exchange",
			"/sts%2Fexchange", "/sts/exchange_refresh_token", "/sts/../sts/exchange", "/v2/token", "/oauth/token",
		} {
			for _, method := range []string{"GET", "POST"} {
				p := b.ask(method, path+query, "", "Holdfast-Console", "1", "Sec-Fetch-Site", "same-origin")
				if p.status == 200 && !strings.Contains(p.body, `"token":"anonymous"`) || strings.Contains(p.body, "eyJ") {
					t.Errorf("%s %s: %d %s", method, path, p.status, p.body)
				}
			}
		}
	})
}
